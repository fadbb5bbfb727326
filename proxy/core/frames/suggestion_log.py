"""The suggestions made to the model on a path, and what became of them.

A suggestion waits until a frame operation of its kind fulfils it, five minutes have passed, or somebody clears it. When
a long history is cut, the counts stay.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

PUSH, POP = "push", "pop"
EXPIRES_MS = 5 * 60 * 1000
"""How long a suggestion waits for a frame operation of its kind."""
MAX_SUGGESTIONS = 100
"""A longer history is cut."""
SUGGESTIONS_KEPT = 50
"""The newest suggestions that stay after a cut."""


class Suggestion(msgspec.Struct, frozen=True):
    """One suggestion. `kind` is push or pop; `frame` was active then; `heuristic` had the highest score. `title` is for
    a push, `status` for a pop. `in_context`: the model reads it. `at` and `acted` are ms since the epoch; `acted` is 0
    until somebody follows it; `cleared`: somebody withdrew it."""

    kind: str
    frame: str
    confidence: int
    heuristic: str
    reason: str
    text: str
    title: str = ""
    status: str = ""
    in_context: bool = msgspec.field(default=True, name="told")
    at: int = 0
    acted: int = 0
    cleared: bool = False

    def is_waiting(self, now: int) -> bool:
        return not (self.acted or self.cleared or self.is_expired(now))

    def is_expired(self, now: int) -> bool:
        return not self.acted and now - self.at > EXPIRES_MS


class AutonomySettings(msgspec.Struct, frozen=True):
    """Settings of one conversation, made at `at` (ms since the epoch); None means the configured value."""

    at: int = 0
    level: str | None = None
    push_threshold: int | None = None
    pop_threshold: int | None = None
    combine: str | None = None
    suggest_in_context: bool | None = None
    heuristics: tuple[str, ...] | None = None


class SuggestionCounts(msgspec.Struct, frozen=True):
    """Counts since the last reset. `ignored` left the history without being followed."""

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


def add_suggestion(state: SuggestionState, suggestion: Suggestion, now: int) -> SuggestionState:
    counts = state.counts
    is_push = suggestion.kind == PUSH
    counts = replace(counts, total=counts.total + 1, push=counts.push + is_push, pop=counts.pop + (not is_push))
    history = (*state.history, replace(suggestion, at=now))
    dropped = history[:-SUGGESTIONS_KEPT] if len(history) > MAX_SUGGESTIONS else ()
    counts = replace(counts, ignored=counts.ignored + sum(not (old.acted or old.cleared) for old in dropped))
    return replace(state, history=history[len(dropped) :], counts=counts)


def mark_acted_upon(state: SuggestionState, kind: str, frame: str, now: int) -> SuggestionState:
    """Marks waiting suggestions that a frame operation of this kind in `frame` fulfils."""
    return _update_matching(
        state,
        lambda suggestion: suggestion.kind == kind and suggestion.frame == frame and suggestion.is_waiting(now),
        lambda suggestion: replace(suggestion, acted=now),
    )


def clear_suggestions(state: SuggestionState, *, waiting: bool, counts: bool, now: int) -> SuggestionState:
    """`waiting` withdraws waiting suggestions; `counts` resets history and counts to those that still wait."""
    if waiting:
        state = _update_matching(
            state, lambda suggestion: suggestion.is_waiting(now), lambda suggestion: replace(suggestion, cleared=True)
        )
    if not counts:
        return state
    remaining = tuple(suggestion for suggestion in state.history if suggestion.is_waiting(now))
    pushes = sum(suggestion.kind == PUSH for suggestion in remaining)
    return replace(
        state,
        history=remaining,
        counts=SuggestionCounts(total=len(remaining), push=pushes, pop=len(remaining) - pushes),
    )


def count_automatic_operation(state: SuggestionState, kind: str) -> SuggestionState:
    """Counts a frame that the proxy itself opened or ended."""
    counts = state.counts
    is_push = kind == PUSH
    counts = replace(counts, auto_pushes=counts.auto_pushes + is_push, auto_pops=counts.auto_pops + (not is_push))
    return replace(state, counts=counts)


def _update_matching(
    state: SuggestionState, matches: Callable[[Suggestion], bool], update: Callable[[Suggestion], Suggestion]
) -> SuggestionState:
    history = tuple(update(suggestion) if matches(suggestion) else suggestion for suggestion in state.history)
    acted = sum(1 for old, new in zip(state.history, history, strict=True) if new.acted and not old.acted)
    return replace(state, history=history, counts=replace(state.counts, acted=state.counts.acted + acted))
