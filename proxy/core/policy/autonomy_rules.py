"""The rules by which the proxy decides about frames: level, thresholds and heuristics. A choice made for one
conversation overrides the configuration, member by member. The module imports little, because reading the configuration
imports it."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from proxy.core.frames import PUSH, AutonomySettings

AutonomyLevel = Literal["manual", "suggest", "auto"]
ScoreCombiner = Literal["max", "noisy_or", "mean"]
ModelSettable = Literal["level", "thresholds", "suggestions", "heuristics", "stats"]
"""What the configuration may allow the model to change."""
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
"""Four speak for a push, three for a pop."""
MAX_SCORE = 100  # of a score, a combined score and a threshold


class AutonomyRules(msgspec.Struct, frozen=True):
    """How much the proxy decides. Thresholds are 0 to 100; `heuristics` are the enabled ones."""

    level: str = "suggest"
    push_threshold: int = 70
    pop_threshold: int = 80
    combine: str = "max"
    suggest_in_context: bool = True
    heuristics: tuple[str, ...] = HEURISTIC_NAMES

    def with_overrides(self, chosen: AutonomySettings) -> AutonomyRules:
        """These rules with the choices made for one conversation on top."""
        if chosen == NO_OVERRIDES:
            return self
        set_here = {name: value for name in RULE_NAMES if (value := getattr(chosen, name)) is not None}
        return replace(self, **set_here) if set_here else self

    def threshold(self, kind: str) -> int:
        return self.push_threshold if kind == PUSH else self.pop_threshold


NO_OVERRIDES = AutonomySettings()
RULE_NAMES = ("level", "push_threshold", "pop_threshold", "combine", "suggest_in_context", "heuristics")
"""Can be chosen for one conversation."""


def clamp_threshold(threshold: int) -> int:
    return max(0, min(MAX_SCORE, threshold))
