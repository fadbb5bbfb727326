"""What was suggested to the model of a path, and what was made of it: values of the tree, and how they follow.

A suggestion waits until a frame operation of its kind is done, five minutes are over, or somebody clears it. What is
kept here is what happened; whether a suggestion has expired is a question with a time in it, and asked by whoever has
one (S1-92, S1-93, S1-95).

The law: **the counts outlive the list**: of a long list the older half goes, and every figure stays what it was.

What this module does not do: it decides no suggestion, and words none (`autonomy` does).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

PUSH, POP = "push", "pop"
EXPIRES_MS = 5 * 60 * 1000
"""How long a suggestion waits; a frame operation of its kind within this time acts upon it."""
MAX_SUGGESTIONS = 100
"""Suggestions on the list before it is cut."""
SUGGESTIONS_KEPT = 50
"""Of these, so many of the newest stay."""


class Suggestion(msgspec.Struct, frozen=True):
    """One suggestion. `kind` is push or pop, `frame` was active then, `heuristic` had the highest score. `title` is
    what a push would be for, `status` what a pop would end as. `told`: the model reads it. `at` and `acted` are ms
    since the epoch, `acted` 0 until somebody does it; `cleared`: somebody took it back."""

    kind: str
    frame: str
    confidence: int
    heuristic: str
    reason: str
    text: str
    title: str = ""
    status: str = ""
    told: bool = True
    at: int = 0
    acted: int = 0
    cleared: bool = False

    def is_waiting(self, now: int) -> bool:
        return not (self.acted or self.cleared or self.is_expired(now))

    def is_expired(self, now: int) -> bool:
        return not self.acted and now - self.at > EXPIRES_MS


class AutonomySettings(msgspec.Struct, frozen=True):
    """What somebody set for one conversation, at `at` (ms since the epoch); None is what the configuration says."""

    at: int = 0
    level: str | None = None
    push_threshold: int | None = None
    pop_threshold: int | None = None
    combine: str | None = None
    suggest_in_context: bool | None = None
    heuristics: tuple[str, ...] | None = None


class SuggestionCounts(msgspec.Struct, frozen=True):
    """What was counted since it was begun anew. `ignored` are those that left the list without being acted upon."""

    total: int = 0
    push: int = 0
    pop: int = 0
    acted: int = 0
    ignored: int = 0
    auto_pushes: int = 0
    auto_pops: int = 0


class SuggestionState(msgspec.Struct, frozen=True):
    """`history` is oldest first."""

    history: tuple[Suggestion, ...] = ()
    counts: SuggestionCounts = SuggestionCounts()
    settings: AutonomySettings = AutonomySettings()


def add_suggestion(advice: SuggestionState, suggestion: Suggestion, now: int) -> SuggestionState:
    """One more, made at `now`."""
    tally = advice.counts
    is_push = suggestion.kind == PUSH
    tally = replace(tally, total=tally.total + 1, push=tally.push + is_push, pop=tally.pop + (not is_push))
    history = (*advice.history, replace(suggestion, at=now))
    gone = history[:-SUGGESTIONS_KEPT] if len(history) > MAX_SUGGESTIONS else ()
    tally = replace(tally, ignored=tally.ignored + sum(not (each.acted or each.cleared) for each in gone))
    return replace(advice, history=history[len(gone) :], counts=tally)


def mark_acted_upon(advice: SuggestionState, kind: str, frame: str, now: int) -> SuggestionState:
    """A frame operation of this kind was done in, or with, `frame`: the suggestion that waited for it did its work."""
    return _update_matching(
        advice,
        lambda each: each.kind == kind and each.frame == frame and each.is_waiting(now),
        lambda each: replace(each, acted=now),
    )


def clear_suggestions(advice: SuggestionState, *, waiting: bool, counts: bool, now: int) -> SuggestionState:
    """With `waiting` nothing waits any more; with `counts` list and figures begin anew with what still waits."""
    if waiting:
        advice = _update_matching(advice, lambda each: each.is_waiting(now), lambda each: replace(each, cleared=True))
    if not counts:
        return advice
    left = tuple(each for each in advice.history if each.is_waiting(now))
    pushes = sum(each.kind == PUSH for each in left)
    return replace(advice, history=left, counts=SuggestionCounts(total=len(left), push=pushes, pop=len(left) - pushes))


def set_autonomy(advice: SuggestionState, chosen: AutonomySettings) -> SuggestionState:
    """What was set last counts, on whatever entry of the path it hangs."""
    return replace(advice, settings=chosen) if chosen.at >= advice.settings.at else advice


def count_automatic_operation(advice: SuggestionState, kind: str) -> SuggestionState:
    """The proxy opened or ended a frame by itself."""
    tally = advice.counts
    is_push = kind == PUSH
    tally = replace(tally, auto_pushes=tally.auto_pushes + is_push, auto_pops=tally.auto_pops + (not is_push))
    return replace(advice, counts=tally)


def _update_matching(
    advice: SuggestionState, which: Callable[[Suggestion], bool], how: Callable[[Suggestion], Suggestion]
) -> SuggestionState:
    history = tuple(how(each) if which(each) else each for each in advice.history)
    acted = sum(1 for old, new in zip(advice.history, history, strict=True) if new.acted and not old.acted)
    return replace(advice, history=history, counts=replace(advice.counts, acted=advice.counts.acted + acted))
