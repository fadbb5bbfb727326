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

from proxy.config.model import Config
from proxy.core.frames.events import AutonomySet, FrameEvent, SuggestionsCleared, recorded
from proxy.core.frames.path_state import Story
from proxy.core.frames.suggestion_log import POP, PUSH, Suggestion, Tally
from proxy.core.ledger.ledger import Event, Kind, Ledger
from proxy.core.policy.autonomy_rules import RULES
from proxy.core.policy.heuristics import HEURISTICS, Input, Score
from proxy.core.policy.scoring import Verdict, judged
from proxy.core.policy.signals import read, signals
from proxy.core.policy.suggest import pointless, stats, waiting
from proxy.management.views.lookup import newest_story, stories
from proxy.store import Owned, Store


class ScoreTold(TypedDict):
    """One heuristic. `type` is what it speaks for, `inputs` are what its score is made of."""

    name: str
    type: str
    enabled: bool
    score: int
    reason: str
    inputs: dict[str, Input]


class VerdictTold(TypedDict):
    """What the enabled heuristics come to. `status` is what a pop would end as; `pointless` says why nothing would be
    suggested, whatever speaks for it."""

    confidence: int
    threshold: int
    reached: bool
    primary: str | None
    status: str | None
    pointless: str | None


class SuggestionTold(TypedDict):
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


class StatsTold(TypedDict):
    total: int
    push: int
    pop: int
    acted: int
    ignored: int
    auto_pushes: int
    auto_pops: int


class AutonomyTold(TypedDict):
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
    scores: list[ScoreTold]
    push: VerdictTold
    pop: VerdictTold
    pending: list[SuggestionTold]
    history: list[SuggestionTold]
    stats: StatsTold


def explained(ledger: Ledger, story: Story, config: Config, now: int) -> AutonomyTold:
    """Everything about one path at `now` (ms since the epoch)."""
    tree = story.tree
    advice = tree.advice
    rules = config.autonomy_rules.with_chosen(advice.chosen)
    seen = signals(read(story, config.observed_tools), tree.current, _window(ledger, story, config))
    push, pop = judged(PUSH, seen, rules), judged(POP, seen, rules)
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
        "chosen": [name for name in RULES if getattr(advice.chosen, name) is not None],
        "scores": [_score_told(name, score, name in rules.heuristics) for name, score in scores.items()],
        "push": _verdict_told(push, pointless(tree, PUSH, config.max_depth)),
        "pop": _verdict_told(pop, pointless(tree, POP, config.max_depth)),
        "pending": [_suggestion_told(each, now) for each in waiting(advice, now)],
        "history": [_suggestion_told(each, now) for each in advice.history],
        "stats": _stats_told(stats(advice, now)),
    }


def _stats_told(tally: Tally) -> StatsTold:
    return {
        "total": tally.total,
        "push": tally.push,
        "pop": tally.pop,
        "acted": tally.acted,
        "ignored": tally.ignored,
        "auto_pushes": tally.auto_pushes,
        "auto_pops": tally.auto_pops,
    }


def _window(ledger: Ledger, story: Story, config: Config) -> int:
    """What the model of a path holds by its row of prices, in tokens; 0 where it has none."""
    entry = ledger.entries.get(story.tip)
    thread = ledger.threads.get(entry.thread) if entry else None
    tariff = config.tariff_of(thread.model) if thread else None
    return tariff.window if tariff and tariff.window_known else 0


def _score_told(name: str, score: Score, enabled: bool) -> ScoreTold:  # noqa: FBT001  one of its members
    return {
        "name": name,
        "type": HEURISTICS[name].kind,
        "enabled": enabled,
        "score": score.points,
        "reason": score.reason,
        "inputs": dict(score.inputs),
    }


def _verdict_told(verdict: Verdict, reason: str) -> VerdictTold:
    return {
        "confidence": verdict.confidence,
        "threshold": verdict.threshold,
        "reached": verdict.reached,
        "primary": verdict.primary or None,
        "status": verdict.status or None,
        "pointless": reason or None,
    }


def _suggestion_told(each: Suggestion, now: int) -> SuggestionTold:
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
        "state": state_of(each, now),
    }


def state_of(each: Suggestion, now: int) -> str:
    """What became of a suggestion: acted, cleared, expired, or that it waits."""
    return "acted" if each.acted else "cleared" if each.cleared else "expired" if each.expired(now) else "waiting"


# ------------------------------------------------------------------------------------------------------- changing them
async def choose(store: Store, ledger: Ledger, wanted: Mapping[str, Any], at: int) -> Sequence[Event]:
    """Record at `at` (ms since the epoch) what a person sets for this conversation, by the names of `RULES`; None goes
    back to the configuration. Durable when this returns. Raises StoreError."""
    chosen = replace(newest_story(ledger).tree.advice.chosen, at=at, **wanted)
    firsts = [entry for entry in ledger.entries.values() if not entry.parent and entry.kind is not Kind.OVERLAY]
    placed = [(AutonomySet(chosen), first.id, 0) for first in firsts]
    return await _stored(store, ledger, placed, at)


async def take_back(store: Store, ledger: Ledger, *, counts: bool, at: int) -> tuple[Sequence[Event], int]:
    """Record at `at` that nothing waits any more, with `counts` that the counts begin anew; how many waited. Durable
    when this returns. Raises StoreError."""
    placed: list[tuple[FrameEvent, str, int]] = []
    waited = 0
    for story in stories(ledger):
        if story.tree.advice.history or counts:
            rounds = ledger.rounds.get(story.tip, ())
            event = SuggestionsCleared(at, waiting=True, counts=counts)
            placed.append((event, story.tip, rounds[-1].number if rounds else 0))
            waited = waited or len(waiting(story.tree.advice, at))
    return await _stored(store, ledger, placed, at), waited


async def _stored(
    store: Store, ledger: Ledger, placed: Sequence[tuple[FrameEvent, str, int]], at: int
) -> Sequence[Event]:
    events = [recorded(event, entry, number, ledger.seq + n, at) for n, (event, entry, number) in enumerate(placed)]
    if events:
        owner = ledger.conversation
        await store.durable(store.write(owner.tenant, [Owned(owner.id, event) for event in events]))
        for event in events:
            ledger.add_event(event)
    return events
