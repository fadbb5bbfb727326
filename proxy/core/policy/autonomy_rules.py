"""The rules by which the proxy decides about frames: how far it goes, from which figures on, and by which heuristics.

The law: **what is not set here and now is as the configuration says**; what somebody chose for one conversation goes
before it, member by member.

What this module does not do: it scores nothing. It imports nothing that would make reading a configuration slow.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from proxy.core.frames.suggestion_log import PUSH, Chosen

Level = Literal["manual", "suggest", "auto"]
Combiner = Literal["max", "noisy_or", "mean"]
Settable = Literal["level", "thresholds", "suggestions", "heuristics", "stats"]
"""What of it the model may be allowed to change."""
Heuristic = Literal[
    "failure_boundary",
    "context_switch",
    "complexity",
    "duration",
    "goal_completion",
    "stagnation",
    "context_overflow",
]
NAMES: tuple[Heuristic, ...] = get_args(Heuristic)
"""The heuristics: four that speak for a push, three that speak for a pop."""
HIGHEST = 100
"""Of a score, a combined score and a threshold."""


class Autonomy(msgspec.Struct, frozen=True):
    """How much the proxy decides. Thresholds are from 0 to 100; `heuristics` are those that count; `settable` is what
    the model may change of it by a tool."""

    level: str = "suggest"
    push_threshold: int = 70
    pop_threshold: int = 80
    combine: str = "max"
    suggest_in_context: bool = True
    heuristics: tuple[str, ...] = NAMES
    settable: frozenset[str] = frozenset()

    def with_chosen(self, chosen: Chosen) -> Autonomy:
        """These rules where a conversation has none of its own."""
        if chosen == NOTHING:
            return self
        set_here = {name: value for name in RULES if (value := getattr(chosen, name)) is not None}
        return replace(self, **set_here) if set_here else self

    def threshold(self, kind: str) -> int:
        return self.push_threshold if kind == PUSH else self.pop_threshold


NOTHING = Chosen()
RULES = ("level", "push_threshold", "pop_threshold", "combine", "suggest_in_context", "heuristics")
"""What can be chosen for one conversation."""


def clamped(threshold: int) -> int:
    """From 0 to 100, whatever was asked for (S1-84)."""
    return max(0, min(HIGHEST, threshold))
