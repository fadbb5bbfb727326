"""How much the proxy decides in a conversation: asked, explained, changed (`/stack/conversations/{id}/autonomy`).

The routes of `/stack/config`: how subagents are tracked, as `stack_config` tells the model, and setting it while the
proxy runs (S1-118).

The law: **what holds for everybody is set by an operator**; any other key only reads.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from proxy.core.policy.autonomy_rules import NAMES, Combiner, Heuristic, Level, clamped
from proxy.errors import Forbidden
from proxy.management.actions import autonomy
from proxy.management.api.base import UNKNOWN, Asked, Documented, Error, Id, Json, Thread, answered
from proxy.management.views import conversations, lookup
from proxy.management.views.subagents import Tracking, TrackingWanted, told

router = APIRouter()
LARGEST = 2**53
"""Of a threshold as it is asked for; it is taken as the nearer of 0 and 100."""
Threshold = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]


class AutonomyWanted(BaseModel):
    """What is to hold for this conversation from its next request on. What is left out stays as it is; null goes back
    to what the configuration says."""

    model_config = ConfigDict(extra="forbid")

    level: Level | None = None
    push_threshold: Threshold | None = None
    pop_threshold: Threshold | None = None
    combine: Combiner | None = None
    suggest_in_context: bool | None = None
    heuristics: Annotated[list[Heuristic], Field(max_length=len(NAMES))] | None = None

    def by_rule(self) -> dict[str, Any]:
        """Only what was said, by the names of the rules."""
        said = self.model_dump(exclude_unset=True)
        for name in ("push_threshold", "pop_threshold"):
            if said.get(name) is not None:
                said[name] = clamped(said[name])
        if said.get("heuristics") is not None:
            said["heuristics"] = tuple(name for name in NAMES if name in said["heuristics"])
        return said


class TakenBack(TypedDict):
    cleared: int


@router.get("/conversations/{conversation}/autonomy", response_model=autonomy.AutonomyTold, responses=UNKNOWN)
async def show_autonomy(asked: Asked, conversation: Id, thread: Thread = "") -> Response:
    """The level, the thresholds, each heuristic's score with what it is made of, and what was suggested."""
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    config = asked.backstage.config
    return await answered(lambda: autonomy.explained(ledger, conversations.story_of(ledger, thread), config, _now()))


@router.patch("/conversations/{conversation}/autonomy", response_model=autonomy.AutonomyTold, responses=UNKNOWN)
async def set_autonomy(asked: Asked, conversation: Id, wanted: AutonomyWanted) -> Response:
    """Set how much the proxy decides in this conversation, from its next request on."""
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    if said := wanted.by_rule():
        events = await autonomy.choose(asked.backstage.store, ledger, said, _now())
        asked.backstage.decided(ledger.conversation.tenant, ledger.conversation.id, events)
    return Json(autonomy.explained(ledger, lookup.newest_story(ledger), asked.backstage.config, _now()))


@router.delete("/conversations/{conversation}/autonomy/suggestions", response_model=TakenBack, responses=UNKNOWN)
async def clear_suggestions(
    asked: Asked,
    conversation: Id,
    counts: Annotated[bool, Query(description="Also begin all counts anew")] = False,
) -> Response:
    """Take back what waits; words that stand on a line stay there."""
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    events, waited = await autonomy.take_back(asked.backstage.store, ledger, counts=counts, at=_now())
    asked.backstage.decided(ledger.conversation.tenant, ledger.conversation.id, events)
    return Json({"cleared": waited})


def _now() -> int:
    return time.time_ns() // 1_000_000


FOR_OPERATORS: Documented = {
    403: {"model": Error, "description": "It holds for everybody, and this key is not an operator's"}
}


@router.get("/config", response_model=Tracking)
async def show_config(asked: Asked) -> Response:
    """How subagents are tracked."""
    return Json(told(asked.backstage.live))


@router.patch("/config", response_model=Tracking, responses=FOR_OPERATORS)
async def set_config(asked: Asked, wanted: TrackingWanted) -> Response:
    """Set how subagents are tracked, from now on and after a restart."""
    if not asked.tenant.admin:
        raise Forbidden("This holds for everybody; it needs a key issued with --admin. GET tells what holds.")
    live = asked.backstage.live
    await live.refresh()
    if said := wanted.by_key(live.subagent.patterns):
        await asked.backstage.store.durable(live.change(said))
    return Json(told(live))
