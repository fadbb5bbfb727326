"""What was learned of a model at an upstream from its refusals, in one shape for people to read."""

from __future__ import annotations

from typing import Literal, NamedTuple

TraitKind = Literal[
    "strict", "mild", "bare", "own", "window_named", "window_size", "no_usage", "no_reasoning", "calls_anyway"
]
"""The form that helped where the full one was refused; a window that a refusal named, and one known only by the size of
what was refused; the usage option is refused; reasoning in messages is refused; the model calls our tools in a round
that allows no calls."""


class LearnedTrait(NamedTuple):
    """`since` and `until` are ms since the epoch; `until` is None for what holds until the process ends. `tokens` is
    the size of a window, else 0."""

    upstream: str
    model: str
    kind: TraitKind
    since: int
    until: int | None
    tokens: int = 0
