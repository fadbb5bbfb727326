"""Routes of a conversation's autonomy settings, and of `/stack/config`, the subagent tracking settings. An operator
sets what holds for everybody; other keys only read it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from callstack_proxy.management.actions import autonomy
from callstack_proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    CurrentCaller,
    Error,
    Id,
    JsonResponse,
    ResponseDocs,
    Thread,
    now_ms,
    respond_in_thread,
)
from callstack_proxy.management.views import TrackingBody, TrackingView, conversations, tracking_view
from proxy.core.policy import HEURISTIC_NAMES, AutonomyLevel, HeuristicName, ScoreCombiner, clamp_threshold
from proxy.errors import Forbidden
from proxy.store import find_by_id

router = APIRouter()
MAX_THRESHOLD = 2**53
"""Accepted values; they are clamped to 0 to 100."""
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
        """The given settings by rule name."""
        changes = self.model_dump(exclude_unset=True)
        for name in ("push_threshold", "pop_threshold"):
            if changes.get(name) is not None:
                changes[name] = clamp_threshold(changes[name])
        if changes.get("heuristics") is not None:
            changes["heuristics"] = tuple(name for name in HEURISTIC_NAMES if name in changes["heuristics"])
        return changes


class ClearedSuggestions(TypedDict):
    cleared: int


@router.get(
    "/conversations/{conversation}/autonomy", response_model=autonomy.AutonomyView, responses=NOT_FOUND_RESPONSE
)
async def show_autonomy(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """The level, the thresholds, each heuristic's score with what it is made of, and what was suggested."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    config = caller.context.config
    return await respond_in_thread(
        lambda: autonomy.autonomy_view(ledger, conversations.path_state_of(ledger, thread), config, now_ms())
    )


@router.patch(
    "/conversations/{conversation}/autonomy", response_model=autonomy.AutonomyView, responses=NOT_FOUND_RESPONSE
)
async def set_autonomy(caller: CurrentCaller, conversation: Id, wanted: AutonomyBody) -> Response:
    """Set how much the proxy decides in this conversation, from its next request on."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    if changes := wanted.changes_by_rule():
        events = await autonomy.change_rules(caller.context.store, ledger, changes, now_ms())
        caller.context.on_events_stored(ledger.conversation.tenant, ledger.conversation.id, events)
    return JsonResponse(
        autonomy.autonomy_view(ledger, find_by_id.newest_path_state(ledger), caller.context.config, now_ms())
    )


@router.delete(
    "/conversations/{conversation}/autonomy/suggestions",
    response_model=ClearedSuggestions,
    responses=NOT_FOUND_RESPONSE,
)
async def clear_suggestions(
    caller: CurrentCaller,
    conversation: Id,
    counts: Annotated[bool, Query(description="Also begin all counts anew")] = False,
) -> Response:
    """Take back what waits; words that stand on a line stay there."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    events, cleared = await autonomy.clear_pending_suggestions(caller.context.store, ledger, counts=counts, at=now_ms())
    caller.context.on_events_stored(ledger.conversation.tenant, ledger.conversation.id, events)
    return JsonResponse({"cleared": cleared})


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
