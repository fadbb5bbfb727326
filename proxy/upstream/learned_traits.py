"""What was learned of a model at an upstream from its refusals, in one shape for people to read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
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


Model = tuple[str, str]
"""An upstream's name, and its name for a model."""
_LASTS_MS: dict[TraitKind, int] = {"calls_anyway": 3_600_000}
"""So long no model is asked for a round without calls that has called our tools in one: each is paid for."""
MAX_TRAITS = 3072
"""Beyond that all are learned anew."""


class LearnedTraits:
    """What the rounds in one dialect have learned of models. `now` returns ms since the epoch."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._since: dict[tuple[TraitKind, Model], int] = {}

    def has(self, kind: TraitKind, model: Model) -> bool:
        since = self._since.get((kind, model))
        return since is not None and self._now() - since <= _LASTS_MS.get(kind, math.inf)

    def learn(self, kind: TraitKind, model: Model) -> bool:
        """Whether that was not known yet. A trait that lasts for some time lasts for as long from now on."""
        is_new = not self.has(kind, model)
        if is_new or kind in _LASTS_MS:
            if len(self._since) >= MAX_TRAITS:
                self._since.clear()
            self._since[kind, model] = self._now()
        return is_new

    def traits(self) -> Iterator[LearnedTrait]:
        for (kind, model), since in self._since.items():
            if self.has(kind, model):
                lasts = _LASTS_MS.get(kind)
                yield LearnedTrait(*model, kind, since, since + lasts if lasts else None)
