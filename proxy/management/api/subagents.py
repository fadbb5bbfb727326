"""The routes of `/stack/subagents`: conversations that others began, listed and counted."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from typing_extensions import TypedDict

from proxy.management.api.base import Asked, Asking, Json, Limit, Offset
from proxy.management.views import subagents
from proxy.management.views.subagents import SubagentRow, SubagentStats, Watching

router = APIRouter(prefix="/subagents")

Filter = Literal["all", "active", "completed", "with-frame", "without-frame"]


class Subagents(TypedDict):
    subagents: list[SubagentRow]


class Reset(TypedDict):
    """From when on is counted, ms since the epoch."""

    last_reset: int


@router.get("", response_model=Subagents)
async def list_subagents(
    asked: Asked, wanted: Annotated[Filter, Query(alias="filter")] = "all", limit: Limit = 200, offset: Offset = 0
) -> Response:
    """Conversations that another one began, the newest activity first."""
    found = await subagents.tracked(asked.backstage.store, asked.scope, _watching(asked))
    return Json({"subagents": subagents.chosen(found, wanted)[offset : offset + limit]})


@router.get("/stats", response_model=SubagentStats)
async def show_stats(
    asked: Asked,
    show_active: Annotated[bool, Query(description="With those at work")] = True,
) -> Response:
    """How many were detected, got a frame, were too short for one, and how they ended; in percent too."""
    found = await subagents.tracked(asked.backstage.store, asked.scope, _watching(asked))
    since = asked.backstage.counted_since.get(asked.scope)
    return Json(subagents.stats(found, since, active=show_active))


@router.post("/reset", response_model=Reset)
async def count_anew(asked: Asked) -> Response:
    """Count from now on, until the proxy ends; nothing is forgotten."""
    now = asked.backstage.counted_since[asked.scope] = time.time_ns() // 1_000_000
    return Json({"last_reset": now})


def _watching(asked: Asking) -> Watching:
    flights = asked.backstage.speaking.flights
    return Watching(
        asked.backstage.live.subagent,
        time.time_ns() // 1_000_000,
        lambda *owner: bool(flights.of(*owner)),
    )
