"""The autonomy of one conversation: rules, scores, suggestions, how a person changes the rules, and dismisses loops.

Settings are stored on the first entry, so they hold on every path; withdrawn suggestions behind the newest entry of
each path. The context window is the one of the price table: only the running proxy knows what a provider has
refused.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec.structs import asdict, replace
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from callstack_proxy.management.find_by_id import all_path_states, newest_path_state
from callstack_proxy.management.operations.base import Decision, Input, Operation, Target
from callstack_proxy.management.views import StructSchema
from proxy.config import Config
from proxy.core.frames import (
    POP,
    PUSH,
    AutonomySet,
    LoopWarningsCleared,
    PathState,
    Suggestion,
    SuggestionCounts,
    SuggestionsCleared,
)
from proxy.core.ledger import EntryKind, Ledger
from proxy.core.policy import (
    HEURISTIC_NAMES,
    HEURISTICS,
    RULE_NAMES,
    AutonomyLevel,
    AutonomyRules,
    AutonomyVerdict,
    HeuristicName,
    HeuristicScore,
    LoopRules,
    ScoreCombiner,
    ScoreInput,
    active_loops,
    clamp_threshold,
    judge,
    pending_suggestions,
    read_activity,
    reason_not_to_suggest,
    signals_of,
    tally_at,
)


class ScoreView(TypedDict):
    """One heuristic. `type` is what it speaks for, `inputs` are what its score is made of."""

    name: str
    type: str
    enabled: bool
    score: int
    reason: str
    inputs: dict[str, ScoreInput]


class VerdictView(TypedDict):
    """What the enabled heuristics come to. `status` is what a pop would end as; `pointless` says why nothing would be
    suggested, whatever speaks for it."""

    confidence: int
    threshold: int
    reached: bool
    primary: str | None
    status: str | None
    pointless: str | None


class SuggestionView(TypedDict):
    """`state`: waiting, acted, expired or cleared. Times are ms since the epoch."""

    type: str
    time: int
    confidence: int
    text: str
    reason: str
    heuristic: str
    frame: str
    told: bool
    actedUpon: bool
    state: str


class AutonomyView(AutonomyRules, frozen=True, kw_only=True):
    """The rules in force, what they say of the active frame, and what was suggested. `chosen` names the rules that were
    set for this conversation; the others are the configuration's."""

    conversation: str
    frame: str
    chosen: list[str]
    scores: list[ScoreView]
    push: VerdictView
    pop: VerdictView
    pending: list[SuggestionView]
    history: list[SuggestionView]
    stats: SuggestionCounts


def autonomy_view(ledger: Ledger, path_state: PathState, config: Config, now: int) -> AutonomyView:
    """The autonomy of one path at `now` (ms since the epoch)."""
    tree = path_state.tree
    state = tree.suggestion_state
    rules = config.autonomy_rules.with_overrides(state.settings)
    signals = signals_of(
        read_activity(path_state, config.observed_tools), tree.active_frame, _context_window(ledger, path_state, config)
    )
    push, pop = judge(PUSH, signals, rules), judge(POP, signals, rules)
    scores = {**push.scores, **pop.scores}
    return AutonomyView(
        **asdict(rules),
        conversation=ledger.conversation.id,
        frame=tree.active,
        chosen=[name for name in RULE_NAMES if getattr(state.settings, name) is not None],
        scores=[_score_view(name, score, name in rules.heuristics) for name, score in scores.items()],
        push=_verdict_view(push, reason_not_to_suggest(tree, PUSH, config.max_depth)),
        pop=_verdict_view(pop, reason_not_to_suggest(tree, POP, config.max_depth)),
        pending=[_suggestion_view(suggestion, now) for suggestion in pending_suggestions(state, now)],
        history=[_suggestion_view(suggestion, now) for suggestion in state.history],
        stats=tally_at(state, now),
    )


def _context_window(ledger: Ledger, path_state: PathState, config: Config) -> int:
    """Tokens that the path's model holds by the price table; 0 if unknown."""
    entry = ledger.entries.get(path_state.tip)
    thread = ledger.threads.get(entry.thread) if entry else None
    tariff = config.tariff_of(thread.model) if thread else None
    return tariff.window if tariff and tariff.window_known else 0


def _score_view(name: str, score: HeuristicScore, enabled: bool) -> ScoreView:  # noqa: FBT001  one of its members
    return {
        "name": name,
        "type": HEURISTICS[name].kind,
        "enabled": enabled,
        "score": score.points,
        "reason": score.reason,
        "inputs": dict(score.inputs),
    }


def _verdict_view(verdict: AutonomyVerdict, reason: str) -> VerdictView:
    return {
        "confidence": verdict.confidence,
        "threshold": verdict.threshold,
        "reached": verdict.is_reached,
        "primary": verdict.primary or None,
        "status": verdict.status or None,
        "pointless": reason or None,
    }


def _suggestion_view(suggestion: Suggestion, now: int) -> SuggestionView:
    return {
        "type": suggestion.kind,
        "time": suggestion.at,
        "confidence": suggestion.confidence,
        "text": suggestion.text,
        "reason": suggestion.reason,
        "heuristic": suggestion.heuristic,
        "frame": suggestion.frame,
        "told": suggestion.in_context,
        "actedUpon": bool(suggestion.acted),
        "state": suggestion_status(suggestion, now),
    }


def suggestion_status(suggestion: Suggestion, now: int) -> str:
    """acted, cleared, expired or waiting."""
    return (
        "acted"
        if suggestion.acted
        else "cleared"
        if suggestion.cleared
        else "expired"
        if suggestion.is_expired(now)
        else "waiting"
    )


# ------------------------------------------------------------------------------------------------------- changing them
MAX_THRESHOLD = 2**53
"""Accepted values; they are clamped to 0 to 100."""
Threshold = Annotated[int, Field(ge=-MAX_THRESHOLD, le=MAX_THRESHOLD)]


class AutonomyBody(Input):
    """What is to hold for this conversation from its next request on. What is left out stays as it is; null goes back
    to what the configuration says."""

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


def set_autonomy(target: Target, operation_input: AutonomyBody) -> Decision:
    """Set how much the proxy decides in this conversation, from its next request on."""
    ledger, events = target.ledger, []
    if changes := operation_input.changes_by_rule():
        settings = replace(target.path_state.tree.suggestion_state.settings, at=target.now, **changes)
        events = target.events_at(
            (AutonomySet(settings), first.id, 0)
            for first in ledger.entries.values()
            if not first.parent and first.kind is not EntryKind.OVERLAY
        )
    for event in events:
        ledger.add_event(event)
    return Decision(autonomy_view(ledger, newest_path_state(ledger), target.config, target.now), events)


class ClearedSuggestions(TypedDict):
    cleared: int


class CountsQuery(BaseModel):
    counts: Annotated[bool, Field(description="Also begin all counts anew")] = False


def clear_suggestions(target: Target, operation_input: CountsQuery) -> Decision:
    """Take back what waits; words that stand on a line stay there."""
    cleared = [
        path_state
        for path_state in all_path_states(target.ledger)
        if path_state.tree.suggestion_state.history or operation_input.counts
    ]
    event = SuggestionsCleared(target.now, waiting=True, counts=operation_input.counts)
    waited = (len(pending_suggestions(path_state.tree.suggestion_state, target.now)) for path_state in cleared)
    view: ClearedSuggestions = {"cleared": next(filter(None, waited), 0)}
    return Decision(view, target.events_at_tips((event, path_state) for path_state in cleared))


AUTONOMY = Operation(
    "PATCH",
    "/conversations/{conversation}/autonomy",
    set_autonomy,
    AutonomyBody,
    Annotated[AutonomyView, StructSchema()],
    refusal="",
)
CLEAR_SUGGESTIONS = Operation(
    "DELETE",
    "/conversations/{conversation}/autonomy/suggestions",
    clear_suggestions,
    CountsQuery,
    ClearedSuggestions,
    refusal="",
    in_query=True,
)


# --------------------------------------------------------------------------------------------------------------- loops
class ClearedLoopCount(TypedDict):
    cleared: int


def clear_loops(target: Target, _: None) -> Decision:
    """Begin to count anew: what was done up to now is no part of a loop. The list keeps what was warned of."""
    window = LoopRules().window
    looping = [path_state for path_state in all_path_states(target.ledger) if active_loops(path_state, window)]
    view: ClearedLoopCount = {
        "cleared": len({loop.at for path_state in looping for loop in active_loops(path_state, window)})
    }
    return Decision(
        view,
        target.events_at_tips(
            (LoopWarningsCleared(path_state.tree.active, path_state.tip), path_state) for path_state in looping
        ),
    )


CLEAR_LOOPS = Operation(
    "DELETE", "/conversations/{conversation}/loops", clear_loops, None, ClearedLoopCount, refusal=""
)
