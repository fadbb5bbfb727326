"""How much the proxy decides in one conversation, and why: the rules, each heuristic's score with what it is made of,
what was suggested and what came of it; and how a person changes the rules (S1-81 to S1-96).

What a person sets hangs on the first entry of the conversation, so it holds on every path, also on those that begin
later; what is taken back hangs behind the newest entry of each path, for it is about what was suggested there.

What this module does not do: the window is that of the model's row of prices; what its provider taught by refusing is
known to the running proxy alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace
from typing_extensions import TypedDict

from proxy.config import Config
from proxy.core.frames import (
    POP,
    PUSH,
    AutonomySet,
    FrameEvent,
    PathState,
    Suggestion,
    SuggestionCounts,
    SuggestionsCleared,
    as_ledger_event,
)
from proxy.core.ledger import EntryKind, Ledger, LedgerEvent
from proxy.core.policy import (
    HEURISTICS,
    RULE_NAMES,
    AutonomyVerdict,
    HeuristicScore,
    ScoreInput,
    judge,
    pending_suggestions,
    read_activity,
    reason_not_to_suggest,
    signals_of,
    tally_at,
)
from proxy.management.views import all_path_states, newest_path_state
from proxy.store import LedgerRecord, Store


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


class AutonomyStatsView(TypedDict):
    total: int
    push: int
    pop: int
    acted: int
    ignored: int
    auto_pushes: int
    auto_pops: int


class AutonomyView(TypedDict):
    """The rules in force, what they say of the active frame, and what was suggested. `chosen` names the rules that were
    set for this conversation; the others are the configuration's."""

    conversation: str
    frame: str
    level: str
    push_threshold: int
    pop_threshold: int
    combine: str
    suggest_in_context: bool
    heuristics: list[str]
    chosen: list[str]
    scores: list[ScoreView]
    push: VerdictView
    pop: VerdictView
    pending: list[SuggestionView]
    history: list[SuggestionView]
    stats: AutonomyStatsView


def autonomy_view(ledger: Ledger, path_state: PathState, config: Config, now: int) -> AutonomyView:
    """Everything about one path at `now` (ms since the epoch)."""
    tree = path_state.tree
    advice = tree.suggestion_state
    rules = config.autonomy_rules.with_overrides(advice.settings)
    seen = signals_of(
        read_activity(path_state, config.observed_tools), tree.active_frame, _context_window(ledger, path_state, config)
    )
    push, pop = judge(PUSH, seen, rules), judge(POP, seen, rules)
    scores = {**push.scores, **pop.scores}
    return {
        "conversation": ledger.conversation.id,
        "frame": tree.active,
        "level": rules.level,
        "push_threshold": rules.push_threshold,
        "pop_threshold": rules.pop_threshold,
        "combine": rules.combine,
        "suggest_in_context": rules.suggest_in_context,
        "heuristics": list(rules.heuristics),
        "chosen": [name for name in RULE_NAMES if getattr(advice.settings, name) is not None],
        "scores": [_score_view(name, score, name in rules.heuristics) for name, score in scores.items()],
        "push": _verdict_view(push, reason_not_to_suggest(tree, PUSH, config.max_depth)),
        "pop": _verdict_view(pop, reason_not_to_suggest(tree, POP, config.max_depth)),
        "pending": [_suggestion_view(each, now) for each in pending_suggestions(advice, now)],
        "history": [_suggestion_view(each, now) for each in advice.history],
        "stats": _stats_view(tally_at(advice, now)),
    }


def _stats_view(tally: SuggestionCounts) -> AutonomyStatsView:
    return {
        "total": tally.total,
        "push": tally.push,
        "pop": tally.pop,
        "acted": tally.acted,
        "ignored": tally.ignored,
        "auto_pushes": tally.auto_pushes,
        "auto_pops": tally.auto_pops,
    }


def _context_window(ledger: Ledger, path_state: PathState, config: Config) -> int:
    """What the model of a path holds by its row of prices, in tokens; 0 where it has none."""
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


def _suggestion_view(each: Suggestion, now: int) -> SuggestionView:
    return {
        "type": each.kind,
        "time": each.at,
        "confidence": each.confidence,
        "text": each.text,
        "reason": each.reason,
        "heuristic": each.heuristic,
        "frame": each.frame,
        "told": each.told,
        "actedUpon": bool(each.acted),
        "state": suggestion_status(each, now),
    }


def suggestion_status(each: Suggestion, now: int) -> str:
    """What became of a suggestion: acted, cleared, expired, or that it waits."""
    return "acted" if each.acted else "cleared" if each.cleared else "expired" if each.is_expired(now) else "waiting"


# ------------------------------------------------------------------------------------------------------- changing them
async def change_rules(store: Store, ledger: Ledger, wanted: Mapping[str, Any], at: int) -> Sequence[LedgerEvent]:
    """Record at `at` (ms since the epoch) what a person sets for this conversation, by the names of `RULES`; None goes
    back to the configuration. Durable when this returns. Raises StoreError."""
    chosen = replace(newest_path_state(ledger).tree.suggestion_state.settings, at=at, **wanted)
    firsts = [entry for entry in ledger.entries.values() if not entry.parent and entry.kind is not EntryKind.OVERLAY]
    path_entry = [(AutonomySet(chosen), first.id, 0) for first in firsts]
    return await _store_events(store, ledger, path_entry, at)


async def clear_pending_suggestions(
    store: Store, ledger: Ledger, *, counts: bool, at: int
) -> tuple[Sequence[LedgerEvent], int]:
    """Record at `at` that nothing waits any more, with `counts` that the counts begin anew; how many waited. Durable
    when this returns. Raises StoreError."""
    path_entry: list[tuple[FrameEvent, str, int]] = []
    waited = 0
    for path_state in all_path_states(ledger):
        if path_state.tree.suggestion_state.history or counts:
            rounds = ledger.rounds.get(path_state.tip, ())
            event = SuggestionsCleared(at, waiting=True, counts=counts)
            path_entry.append((event, path_state.tip, rounds[-1].number if rounds else 0))
            waited = waited or len(pending_suggestions(path_state.tree.suggestion_state, at))
    return await _store_events(store, ledger, path_entry, at), waited


async def _store_events(
    store: Store, ledger: Ledger, path_entries: Sequence[tuple[FrameEvent, str, int]], at: int
) -> Sequence[LedgerEvent]:
    events = [
        as_ledger_event(event, entry, number, ledger.next_seq + n, at)
        for n, (event, entry, number) in enumerate(path_entries)
    ]
    if events:
        owner = ledger.conversation
        await store.wait_until_durable(store.write(owner.tenant, [LedgerRecord(owner.id, event) for event in events]))
        for event in events:
            ledger.add_event(event)
    return events
