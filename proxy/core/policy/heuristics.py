"""The seven heuristics: four that speak for a push, three that speak for a pop, each from 0 to 100 (S1-85 to S1-91).

Each is a function of the signals that gives points with the figures they are made of. The constants are those of the
requirement rows; steps are tables, the highest one that is exceeded counts.

The law: **a score is explained by its inputs alone**.

What this module does not do: it weighs no heuristic against another (`combining` does) and suggests nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from proxy.core.frames.suggestion_log import POP, PUSH
from proxy.core.frames.tree import Status
from proxy.core.policy.autonomy_rules import HIGHEST
from proxy.core.policy.signals import Signals

Steps = Sequence[tuple[float, int]]
"""(exceeded, points), the highest first."""
Input = int | float | bool | str

PER_ERROR, MOST_FOR_ERRORS, FOR_NEW_GOAL = 15, 50, 30
FOR_OTHER_WORDS = 60
FILES_SWITCHED: Steps = ((3, 20), (1, 10))
MESSAGES: Steps = ((20, 40), (10, 25), (5, 10))
FILES_CHANGED: Steps = ((5, 30), (2, 15))
TOKENS: Steps = ((50_000, 70), (30_000, 50), (15_000, 30), (5_000, 15))
PER_SUCCESS, MOST_FOR_SUCCESSES = 20, 60
PER_ARTIFACT, MOST_FOR_ARTIFACTS = 10, 30
FOR_COVERAGE = 30
IDLE_TURNS: Steps = ((5, 70), (3, 40), (1, 20))
FAILURES: Steps = ((3, 40), (1, 20))
STUCK = 60
"""Points of stagnation above which a pop would end the frame as blocked or failed."""
USAGE: Steps = ((0.9, 90), (0.8, 70), (0.7, 50), (0.5, 20))


class Score(msgspec.Struct, frozen=True):
    """Points from 0 to 100 and what they are made of. `reason` is a few words for whoever reads a suggestion, `status`
    what a pop for this reason would end the frame as."""

    points: int
    reason: str
    inputs: Mapping[str, Input] = msgspec.field(default_factory=dict)
    status: str = ""


class Heuristic(msgspec.Struct, frozen=True):
    """One of the seven; `kind` is what it speaks for. `points` are asked with every request, `told` only of what has
    some weight: it makes the score of them."""

    name: str
    kind: str
    points: Callable[[Signals], int]
    told: Callable[[Signals, int], Score]

    def score(self, seen: Signals) -> Score:
        return self.told(seen, self.points(seen))


# ---------------------------------------------------------------------------------------------------------- the points
def _points_for_failures(seen: Signals) -> int:
    return min(MOST_FOR_ERRORS, PER_ERROR * seen.errors) + FOR_NEW_GOAL * bool(seen.goal)


def _points_for_a_switch(seen: Signals) -> int:
    return _points_for_words(seen) + _step(FILES_SWITCHED, seen.files)


def _points_for_words(seen: Signals) -> int:
    """The share is of the request's own keywords; without a new goal the words count nothing."""
    if not seen.wanted:
        return 0
    return half_up(FOR_OTHER_WORDS * (1 - len(seen.aims & seen.wanted) / len(seen.wanted)))


def _points_for_complexity(seen: Signals) -> int:
    return _step(MESSAGES, seen.messages) + _step(FILES_CHANGED, seen.files)


def _points_for_length(seen: Signals) -> int:
    return _step(TOKENS, seen.tokens)


def _points_for_completion(seen: Signals) -> int:
    successes = min(MOST_FOR_SUCCESSES, PER_SUCCESS * len(seen.successes))
    artifacts = min(MOST_FOR_ARTIFACTS, PER_ARTIFACT * seen.artifacts)
    return successes + artifacts + half_up(FOR_COVERAGE * seen.covered)


def _points_for_stagnation(seen: Signals) -> int:
    return _step(IDLE_TURNS, seen.idle) + _step(FAILURES, len(seen.failures))


def _points_for_usage(seen: Signals) -> int:
    return _step(USAGE, seen.usage)


# ---------------------------------------------------------------------------------------------------------- the scores
def failure_boundary(seen: Signals, points: int) -> Score:
    """Errors without a success since, and something else to do: a unit that may be tried again (S0-05)."""
    told = [_counted(seen.errors, "error") + " since the last success"] if seen.errors else []
    told += ["a new goal"] if seen.goal else []
    return _scored(points, " and ".join(told), errors=seen.errors, new_goal=bool(seen.goal))


def context_switch(seen: Signals, points: int) -> Score:
    """The user asks for something in other words, and other files come into it (S0-06)."""
    shared = len(seen.aims & seen.wanted)
    words = _points_for_words(seen)
    told = [f"{shared} of the {len(seen.wanted)} keywords of the request are this frame's"] if words else []
    told += [f"{seen.files} files changed lately"] if seen.files > 1 else []
    return _scored(points, ", ".join(told), keywords=len(seen.wanted), shared=shared, files=seen.files)


def complexity(seen: Signals, points: int) -> Score:
    """So much was done that a part of it deserves a summary of its own (S0-07)."""
    told = f"{seen.messages} messages and {_counted(seen.files, 'changed file')} in this frame"
    return _scored(points, told, messages=seen.messages, files=seen.files)


def duration(seen: Signals, points: int) -> Score:
    """The frame's own messages have grown long."""
    return _scored(points, f"{seen.tokens:,} tokens in this frame", tokens=seen.tokens)


def goal_completion(seen: Signals, points: int) -> Score:
    """What the frame was for seems to be done."""
    signs = f" ({', '.join(seen.successes[:3])})" if seen.successes else ""
    told = f"{_counted(len(seen.successes), 'sign')} of success{signs}, {_counted(seen.artifacts, 'file')} made"
    covered, artifacts = round(seen.covered, 2), seen.artifacts
    return _scored(points, told, Status.COMPLETED, successes=len(seen.successes), artifacts=artifacts, covered=covered)


def stagnation(seen: Signals, points: int) -> Score:
    """Turns that gave nothing new, and failures that stayed."""
    failing = len(seen.failures) > len(seen.successes)
    status = (Status.FAILED if failing else Status.BLOCKED) if points > STUCK else ""
    told = f"{_counted(seen.idle, 'turn')} without progress, {_counted(len(seen.failures), 'failure')}"
    return _scored(points, told, status, idle_turns=seen.idle, failures=len(seen.failures))


def context_overflow(seen: Signals, points: int) -> Score:
    """The model's window is nearly full."""
    share = round(seen.usage, 3)
    status = Status.COMPLETED if len(seen.successes) > len(seen.failures) else Status.BLOCKED
    return _scored(points, f"the window is {seen.usage:.0%} full", status, usage=share)


HEURISTICS: Mapping[str, Heuristic] = {
    told.__name__: Heuristic(told.__name__, kind, points, told)
    for kind, points, told in (
        (PUSH, _points_for_failures, failure_boundary),
        (PUSH, _points_for_a_switch, context_switch),
        (PUSH, _points_for_complexity, complexity),
        (PUSH, _points_for_length, duration),
        (POP, _points_for_completion, goal_completion),
        (POP, _points_for_stagnation, stagnation),
        (POP, _points_for_usage, context_overflow),
    )
}


def half_up(value: float) -> int:
    """Rounded, one half upwards: the constants were made that way, and Python rounds to even."""
    return int(value + 0.5)


def _step(steps: Steps, value: float) -> int:
    for exceeded, points in steps:
        if value > exceeded:
            return points
    return 0


def _scored(points: int, reason: str, status: str = "", **inputs: Input) -> Score:
    return Score(min(HIGHEST, points), reason, inputs, status)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
