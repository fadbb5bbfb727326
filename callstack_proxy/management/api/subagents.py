"""Routes of `/stack/subagents`: the conversations of subagents, listed and counted."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict

from callstack_proxy.management.api.base import Caller, CurrentCaller, JsonResponse, Limit, Offset, now_ms
from callstack_proxy.management.views import SubagentRow, SubagentStats, TrackingInput, subagents

router = APIRouter(prefix="/subagents")

SubagentFilter = Literal["all", "active", "completed", "with-frame", "without-frame"]


class SubagentList(TypedDict):
    subagents: list[SubagentRow]


class CountingReset(TypedDict):
    """From when on is counted, ms since the epoch."""

    last_reset: int


@router.get("", response_model=SubagentList)
async def list_subagents(
    caller: CurrentCaller,
    wanted: Annotated[SubagentFilter, Query(alias="filter")] = "all",
    limit: Limit = 200,
    offset: Offset = 0,
) -> Response:
    """Conversations that another one began, the newest activity first."""
    tracked = await subagents.tracked_subagents(caller.context.store, caller.scope, _tracking_input(caller))
    return JsonResponse({"subagents": subagents.filter_subagents(tracked, wanted)[offset : offset + limit]})


@router.get("/stats", response_model=SubagentStats)
async def show_stats(
    caller: CurrentCaller,
    show_active: Annotated[bool, Query(description="With those at work")] = True,
) -> Response:
    """How many were detected, got a frame, were too short for one, and how they ended; in percent too."""
    tracked = await subagents.tracked_subagents(caller.context.store, caller.scope, _tracking_input(caller))
    since = caller.context.subagents_counted_since.get(caller.scope)
    return JsonResponse(subagents.subagent_stats(tracked, since, active=show_active))


@router.post("/reset", response_model=CountingReset)
async def count_anew(caller: CurrentCaller) -> Response:
    """Count from now on, until the proxy ends; nothing is forgotten."""
    now = caller.context.subagents_counted_since[caller.scope] = now_ms()
    return JsonResponse({"last_reset": now})


def _tracking_input(caller: Caller) -> TrackingInput:
    in_flight = caller.context.inbox.in_flight
    return TrackingInput(
        caller.context.live_settings.subagent,
        now_ms(),
        lambda *owner: bool(in_flight.in_conversation(*owner)),
    )
