"""Routes of subagents: their conversations, listed and counted, how a person ends one, and of `/stack/config`, how they
are tracked. An operator sets what holds for everybody; other keys only read it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field
from typing_extensions import TypedDict

from callstack_proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    Caller,
    CurrentCaller,
    Error,
    Id,
    JsonResponse,
    Limit,
    Offset,
    ResponseDocs,
    now_ms,
)
from callstack_proxy.management.api.operation_routes import find_target
from callstack_proxy.management.operations import EndStatus, Input, end_subagent
from callstack_proxy.management.views import (
    FrameDetail,
    SubagentRow,
    SubagentStats,
    TrackingBody,
    TrackingInput,
    TrackingView,
    frame_detail,
    subagents,
    tracking_view,
)
from proxy.errors import Forbidden

router = APIRouter()

SubagentFilter = Literal["all", "active", "completed", "with-frame", "without-frame"]


class SubagentList(TypedDict):
    subagents: list[SubagentRow]


class CountingReset(TypedDict):
    """From when on is counted, ms since the epoch."""

    last_reset: int


@router.get("/subagents", response_model=SubagentList)
async def list_subagents(
    caller: CurrentCaller,
    wanted: Annotated[SubagentFilter, Query(alias="filter")] = "all",
    limit: Limit = 200,
    offset: Offset = 0,
) -> Response:
    """Conversations that another one began, the newest activity first."""
    tracked = await subagents.tracked_subagents(caller.context.store, caller.scope, _tracking_input(caller))
    return JsonResponse({"subagents": subagents.filter_subagents(tracked, wanted)[offset : offset + limit]})


@router.get("/subagents/stats", response_model=SubagentStats)
async def show_stats(
    caller: CurrentCaller, show_active: Annotated[bool, Query(description="With those at work")] = True
) -> Response:
    """How many were detected, got a frame, were too short for one, and how they ended; in percent too."""
    tracked = await subagents.tracked_subagents(caller.context.store, caller.scope, _tracking_input(caller))
    since = caller.context.subagents_counted_since.get(caller.scope)
    return JsonResponse(subagents.subagent_stats(tracked, since, active=show_active))


@router.post("/subagents/reset", response_model=CountingReset)
async def count_anew(caller: CurrentCaller) -> Response:
    """Count from now on, until the proxy ends; nothing is forgotten."""
    now = caller.context.subagents_counted_since[caller.scope] = now_ms()
    return JsonResponse({"last_reset": now})


def _tracking_input(caller: Caller) -> TrackingInput:
    in_flight = caller.context.inbox.in_flight
    return TrackingInput(
        caller.context.live_settings.subagent, now_ms(), lambda *owner: bool(in_flight.in_conversation(*owner))
    )


class CompletionBody(Input):
    """How the subagent ended, and what came of it."""

    status: EndStatus = "completed"
    summary: Annotated[str, Field(max_length=20_000)] = ""


@router.post(
    "/frames/{frame}/complete",
    response_model=FrameDetail,
    responses={**NOT_FOUND_RESPONSE, 409: {"model": Error, "description": "No subagent's frame, or it has ended"}},
)
async def complete(caller: CurrentCaller, frame: Id, wanted: CompletionBody) -> Response:
    """End the frame of a subagent, and its own conversation's root. Nobody is stopped by it."""
    context, target = caller.context, await find_target(caller.context, caller.scope, frame=frame)
    for conversation, event in await end_subagent(context.store, target, wanted.status, wanted.summary):
        context.on_events_stored(target.ledger.conversation.tenant, conversation, [event])
    ended = await find_target(caller.context, caller.scope, frame=frame)
    return JsonResponse(frame_detail(ended.ledger, ended.path_state, frame, context.config.observed_tools))


FORBIDDEN_RESPONSE: ResponseDocs = {
    403: {"model": Error, "description": "It holds for everybody, and this key is not an operator's"}
}


@router.get("/config", response_model=TrackingView)
async def show_config(caller: CurrentCaller) -> Response:
    """How subagents are tracked."""
    return JsonResponse(tracking_view(caller.context.live_settings))


@router.patch("/config", response_model=TrackingView, responses=FORBIDDEN_RESPONSE)
async def set_config(caller: CurrentCaller, wanted: TrackingBody) -> Response:
    """Set how subagents are tracked, from now on and after a restart."""
    if not caller.tenant.admin:
        raise Forbidden("This holds for everybody; it needs a key issued with --admin. GET tells what holds.")
    live = caller.context.live_settings
    await live.refresh()
    if changes := wanted.changes_by_key(live.subagent.patterns):
        await caller.context.store.wait_until_durable(live.change(changes))
    return JsonResponse(tracking_view(live))
