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

from proxy.core.policy import HEURISTIC_NAMES, AutonomyLevel, HeuristicName, ScoreCombiner, clamp_threshold
from proxy.errors import Forbidden
from proxy.management.actions import autonomy
from proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    CurrentCaller,
    Error,
    Id,
    JsonResponse,
    ResponseDocs,
    Thread,
    respond_in_thread,
)
from proxy.management.views import TrackingBody, TrackingView, conversations, lookup, tracking_view

router = APIRouter()
MAX_THRESHOLD = 2**53
"""Of a threshold as it is asked for; it is taken as the nearer of 0 and 100."""
Threshold = Annotated[int, Field(ge=-MAX_THRESHOLD, le=MAX_THRESHOLD)]


class AutonomyBody(BaseModel):
    """What is to hold for this conversation from its next request on. What is left out stays as it is; null goes back
    to what the configuration says."""

    model_config = ConfigDict(extra="forbid")

    level: AutonomyLevel | None = None
    push_threshold: Threshold | None = None
    pop_threshold: Threshold | None = None
    combine: ScoreCombiner | None = None
    suggest_in_context: bool | None = None
    heuristics: Annotated[list[HeuristicName], Field(max_length=len(HEURISTIC_NAMES))] | None = None

    def changes_by_rule(self) -> dict[str, Any]:
        """Only what was said, by the names of the rules."""
        said = self.model_dump(exclude_unset=True)
        for name in ("push_threshold", "pop_threshold"):
            if said.get(name) is not None:
                said[name] = clamp_threshold(said[name])
        if said.get("heuristics") is not None:
            said["heuristics"] = tuple(name for name in HEURISTIC_NAMES if name in said["heuristics"])
        return said


class ClearedSuggestions(TypedDict):
    cleared: int


@router.get(
    "/conversations/{conversation}/autonomy", response_model=autonomy.AutonomyView, responses=NOT_FOUND_RESPONSE
)
async def show_autonomy(asked: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """The level, the thresholds, each heuristic's score with what it is made of, and what was suggested."""
    ledger = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    config = asked.context.config
    return await respond_in_thread(
        lambda: autonomy.autonomy_view(ledger, conversations.path_state_of(ledger, thread), config, _now())
    )


@router.patch(
    "/conversations/{conversation}/autonomy", response_model=autonomy.AutonomyView, responses=NOT_FOUND_RESPONSE
)
async def set_autonomy(asked: CurrentCaller, conversation: Id, wanted: AutonomyBody) -> Response:
    """Set how much the proxy decides in this conversation, from its next request on."""
    ledger = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    if said := wanted.changes_by_rule():
        events = await autonomy.change_rules(asked.context.store, ledger, said, _now())
        asked.context.on_events_stored(ledger.conversation.tenant, ledger.conversation.id, events)
    return JsonResponse(autonomy.autonomy_view(ledger, lookup.newest_path_state(ledger), asked.context.config, _now()))


@router.delete(
    "/conversations/{conversation}/autonomy/suggestions",
    response_model=ClearedSuggestions,
    responses=NOT_FOUND_RESPONSE,
)
async def clear_suggestions(
    asked: CurrentCaller,
    conversation: Id,
    counts: Annotated[bool, Query(description="Also begin all counts anew")] = False,
) -> Response:
    """Take back what waits; words that stand on a line stay there."""
    ledger = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    events, waited = await autonomy.clear_pending_suggestions(asked.context.store, ledger, counts=counts, at=_now())
    asked.context.on_events_stored(ledger.conversation.tenant, ledger.conversation.id, events)
    return JsonResponse({"cleared": waited})


def _now() -> int:
    return time.time_ns() // 1_000_000


FORBIDDEN_RESPONSE: ResponseDocs = {
    403: {"model": Error, "description": "It holds for everybody, and this key is not an operator's"}
}


@router.get("/config", response_model=TrackingView)
async def show_config(asked: CurrentCaller) -> Response:
    """How subagents are tracked."""
    return JsonResponse(tracking_view(asked.context.live_settings))


@router.patch("/config", response_model=TrackingView, responses=FORBIDDEN_RESPONSE)
async def set_config(asked: CurrentCaller, wanted: TrackingBody) -> Response:
    """Set how subagents are tracked, from now on and after a restart."""
    if not asked.tenant.admin:
        raise Forbidden("This holds for everybody; it needs a key issued with --admin. GET tells what holds.")
    live = asked.context.live_settings
    await live.refresh()
    if said := wanted.changes_by_key(live.subagent.patterns):
        await asked.context.store.wait_until_durable(live.change(said))
    return JsonResponse(tracking_view(live))
