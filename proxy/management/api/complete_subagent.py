"""The route by which a person ends a subagent's frame before its result comes (S1-120)."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from proxy.management.actions import frames as completing
from proxy.management.api.base import NOT_FOUND_RESPONSE, CurrentCaller, Error, Id, JsonResponse
from proxy.management.views import FrameDetail, frame_detail, lookup

router = APIRouter()


class CompletionBody(BaseModel):
    """How the subagent ended, and what came of it."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["completed", "failed", "blocked"] = "completed"
    summary: Annotated[str, Field(max_length=20_000)] = ""


@router.post(
    "/frames/{frame}/complete",
    response_model=FrameDetail,
    responses={**NOT_FOUND_RESPONSE, 409: {"model": Error, "description": "No subagent's frame, or it has ended"}},
)
async def complete(asked: CurrentCaller, frame: Id, wanted: CompletionBody) -> Response:
    """End the frame of a subagent, and its own conversation's root. Nobody is stopped by it."""
    store = asked.context.store
    ledger, path_state = await lookup.ledger_with_frame(store, asked.scope, frame)
    told = await completing.end_subagent(
        store, ledger, path_state, (frame, wanted.status, wanted.summary), time.time_ns() // 1_000_000
    )
    for conversation, event in told.events:
        asked.context.on_events_stored(ledger.conversation.tenant, conversation, [event])
    ledger, path_state = await lookup.ledger_with_frame(store, asked.scope, frame)
    return JsonResponse(frame_detail(ledger, path_state, frame, asked.context.config.observed_tools))
