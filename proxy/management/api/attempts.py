"""The route by which a person wants another attempt at a frame that failed (S0-39)."""

from __future__ import annotations

import time

from fastapi import APIRouter, Response

from proxy.core.commands.values import Activate
from proxy.core.frames.frames import Status
from proxy.errors import NotAllowed
from proxy.management.actions.frames import At, HandTold, do
from proxy.management.api.asking import UNKNOWN, Asked, Id
from proxy.management.api.base import Error, Json
from proxy.management.views import lookup

router = APIRouter()


@router.post(
    "/frames/{frame}/retry",
    response_model=HandTold,
    responses={**UNKNOWN, 409: {"model": Error, "description": "It did not fail, or its parent is not active"}},
)
async def retry(asked: Asked, frame: Id) -> Response:
    """Try again what failed: another frame by the same title, which is told why the one before failed."""
    ledger, story = await lookup.frame_of(asked.backstage.store, asked.scope, frame)
    status = story.tree.frames[frame].status
    if status is not Status.FAILED:
        raise NotAllowed(f"Frame {frame} is {status}: only what failed is tried again.", code="not_failed")
    at = At(ledger, story, time.time_ns() // 1_000_000)
    told, events = await do(asked.backstage.store, asked.backstage.config, at, Activate(frame))
    asked.backstage.decided(ledger.conversation.tenant, ledger.conversation.id, events)
    return Json(told)
