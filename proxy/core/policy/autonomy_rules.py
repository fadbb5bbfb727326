"""The rules by which the proxy decides about frames: how far it goes, from which figures on, and by which heuristics.

The law: **what is not set here and now is as the configuration says**; what somebody chose for one conversation goes
before it, member by member.

What this module does not do: it scores nothing. It imports nothing that would make reading a configuration slow.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from proxy.core.frames import PUSH, AutonomySettings

AutonomyLevel = Literal["manual", "suggest", "auto"]
ScoreCombiner = Literal["max", "noisy_or", "mean"]
ModelSettable = Literal["level", "thresholds", "suggestions", "heuristics", "stats"]
"""What of it the model may be allowed to change."""
HeuristicName = Literal[
    "failure_boundary",
    "context_switch",
    "complexity",
    "duration",
    "goal_completion",
    "stagnation",
    "context_overflow",
]
HEURISTIC_NAMES: tuple[HeuristicName, ...] = get_args(HeuristicName)
"""The heuristics: four that speak for a push, three that speak for a pop."""
MAX_SCORE = 100
"""Of a score, a combined score and a threshold."""


class AutonomyRules(msgspec.Struct, frozen=True):
    """How much the proxy decides. Thresholds are from 0 to 100; `heuristics` are those that count; `settable` is what
    the model may change of it by a tool."""

    level: str = "suggest"
    push_threshold: int = 70
    pop_threshold: int = 80
    combine: str = "max"
    suggest_in_context: bool = True
    heuristics: tuple[str, ...] = HEURISTIC_NAMES
    settable: frozenset[str] = frozenset()

    def with_overrides(self, chosen: AutonomySettings) -> AutonomyRules:
        """These rules where a conversation has none of its own."""
        if chosen == NO_OVERRIDES:
            return self
        set_here = {name: value for name in RULE_NAMES if (value := getattr(chosen, name)) is not None}
        return replace(self, **set_here) if set_here else self

    def threshold(self, kind: str) -> int:
        return self.push_threshold if kind == PUSH else self.pop_threshold


NO_OVERRIDES = AutonomySettings()
RULE_NAMES = ("level", "push_threshold", "pop_threshold", "combine", "suggest_in_context", "heuristics")
"""What can be chosen for one conversation."""


def clamp_threshold(threshold: int) -> int:
    """From 0 to 100, whatever was asked for (S1-84)."""
    return max(0, min(MAX_SCORE, threshold))
