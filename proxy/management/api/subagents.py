"""The routes of `/stack/subagents`: conversations that others began, listed and counted."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict

from proxy.management.api.base import Caller, CurrentCaller, JsonResponse, Limit, Offset
from proxy.management.views import SubagentRow, SubagentStats, TrackingInput, subagents

router = APIRouter(prefix="/subagents")

SubagentFilter = Literal["all", "active", "completed", "with-frame", "without-frame"]


class SubagentList(TypedDict):
    subagents: list[SubagentRow]


class CountingReset(TypedDict):
    """From when on is counted, ms since the epoch."""

    last_reset: int


@router.get("", response_model=SubagentList)
async def list_subagents(
    asked: CurrentCaller,
    wanted: Annotated[SubagentFilter, Query(alias="filter")] = "all",
    limit: Limit = 200,
    offset: Offset = 0,
) -> Response:
    """Conversations that another one began, the newest activity first."""
    found = await subagents.tracked_subagents(asked.context.store, asked.scope, _tracking_input(asked))
    return JsonResponse({"subagents": subagents.filter_subagents(found, wanted)[offset : offset + limit]})


@router.get("/stats", response_model=SubagentStats)
async def show_stats(
    asked: CurrentCaller,
    show_active: Annotated[bool, Query(description="With those at work")] = True,
) -> Response:
    """How many were detected, got a frame, were too short for one, and how they ended; in percent too."""
    found = await subagents.tracked_subagents(asked.context.store, asked.scope, _tracking_input(asked))
    since = asked.context.subagents_counted_since.get(asked.scope)
    return JsonResponse(subagents.subagent_stats(found, since, active=show_active))


@router.post("/reset", response_model=CountingReset)
async def count_anew(asked: CurrentCaller) -> Response:
    """Count from now on, until the proxy ends; nothing is forgotten."""
    now = asked.context.subagents_counted_since[asked.scope] = time.time_ns() // 1_000_000
    return JsonResponse({"last_reset": now})


def _tracking_input(asked: Caller) -> TrackingInput:
    flights = asked.context.inbox.in_flight
    return TrackingInput(
        asked.context.live_settings.subagent,
        time.time_ns() // 1_000_000,
        lambda *owner: bool(flights.in_conversation(*owner)),
    )
