"""What a random program is made of: the rounds of a turn as a model would play them, drawn by hypothesis.

A draft of the oracle walks along while the calls of a round are drawn, so that most of them name a frame that is
there and can be moved to; some are wrong on purpose. Titles and texts are counted up and never used twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hypothesis import strategies as st

from llm_test_provider import EVERY_BYTE, Cut, ScriptedAnswer, ScriptedCall, call
from tests.harness import activate, bash, plan, pop, push, recall
from tests.properties.oracle import Op, Oracle

CUTS = (Cut(), EVERY_BYTE, Cut(7), Cut(40, 3))
STATUSES = ("completed", "failed", "blocked")
NAMES = ("push", "push", "pop", "pop", "plan", "activate", "invalidate", "recall")


@dataclass(frozen=True, slots=True)
class Round:
    """One upstream answer: text, stack calls, calls of the client's tools."""

    text: str = ""
    ops: tuple[Op, ...] = ()
    client: int = 0

    @property
    def ends_the_turn(self) -> bool:
        return bool(self.client) or not self.ops


@dataclass(frozen=True, slots=True)
class Play:
    """The rounds of one turn, and what is said where no stack tools are offered. `break_at` cuts the round of that
    number after so many bytes."""

    rounds: tuple[Round, ...]
    plain: Round
    wire: dict[str, Any] = field(default_factory=dict)
    break_at: tuple[int, int] | None = None
    keeps_parts: bool = False
    """The client keeps what it got of an answer that broke off."""


@dataclass
class Words:
    """Titles and texts of one program."""

    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def title(self) -> str:
        return f"Task {next(self.numbers):03}"

    def text(self) -> str:
        return f"Here is remark {next(self.numbers):03} of the model, long enough to be known."

    def user(self) -> str:
        return f"Wish {next(self.numbers):03}: please go on"

    def result(self) -> str:
        return f"output {next(self.numbers):03} " + "of the command " * 6


def played(draw: st.DataObject, oracle: Oracle, words: Words, *, most_hidden: int) -> Play:
    """A turn from here on. The oracle is not changed."""
    draft, rounds = oracle.copy(), []
    for _ in range(draw.draw(st.integers(0, most_hidden), label="hidden rounds")):
        ops = _ops(draw, draft, words, alone=True)
        rounds.append(Round(words.text() if draw.draw(st.booleans(), label="text before calls") else "", ops))
    full = len(rounds) >= most_hidden
    last = draw.draw(st.sampled_from(("text", "calls", "text and calls", "mixed")), label="ends with")
    if last == "mixed" and not full:
        rounds.append(Round("", _ops(draw, draft, words, alone=False), draw.draw(st.integers(1, 2))))
    elif last in ("calls", "text and calls"):
        rounds.append(Round(words.text() if "text" in last else "", (), draw.draw(st.integers(1, 2))))
    else:
        rounds.append(Round(words.text()))
    wire = {"cut": draw.draw(st.sampled_from(CUTS), label="cut"), "piece": draw.draw(st.sampled_from((5, 40)))}
    return Play(tuple(rounds), Round(words.text()), wire, keeps_parts=draw.draw(st.booleans(), label="keeps parts"))


def _ops(draw: st.DataObject, draft: Oracle, words: Words, *, alone: bool) -> tuple[Op, ...]:
    """One to three stack calls; `draft` goes along."""
    made: list[Op] = []
    opened = ""
    for _ in range(draw.draw(st.sampled_from((1, 1, 1, 2, 3)), label="stack calls")):
        made.append(_op(draw, draft, words, opened))
        opened = draft.one(made[-1], opened, alone=alone)
    return tuple(made)


def _op(draw: st.DataObject, draft: Oracle, words: Words, opened: str) -> Op:
    name = draw.draw(st.sampled_from(NAMES), label="operation")
    known = sorted(title for title, parent in draft.parents.items() if parent) or ["Task 000"]
    match name:
        case "push":
            waiting = [] if opened else draft.planned_here()
            by_plan = bool(waiting) and draw.draw(st.booleans(), label="push what is planned")
            return Op("push", draw.draw(st.sampled_from(waiting)) if by_plan else words.title())
        case "pop":
            above = ["", "", "", *(t for t in draft.path()[1:-1])]
            return Op("pop", draw.draw(st.sampled_from(above)), draw.draw(st.sampled_from(STATUSES)))
        case "plan":
            children = tuple(words.title() for _ in range(draw.draw(st.integers(1, 3))))
            return Op("plan", draw.draw(st.sampled_from(["", *known])), children=children)
        case "invalidate":
            return Op("invalidate", draw.draw(st.sampled_from(["", *known])))
        case _:
            return Op(name, draw.draw(st.sampled_from(known)))


def as_call(made: Op) -> ScriptedCall:
    """The call a model makes for it."""
    named = {"frameID": made.title} if made.title else {}
    match made.name:
        case "push":
            return push(made.title, f"{made.title} is done")
        case "pop":
            return pop("what came of it", made.status, **named)
        case "plan":
            return plan(*made.children, **({"parentSessionID": made.title} if made.title else {}))
        case "activate":
            return activate(made.title)
        case "invalidate":
            named = {"sessionID": made.title} if made.title else {}
            return call("stack_frame_invalidate", reason="the plan changed", **named)
        case _:
            return recall(made.title)


def as_answer(done: Round, wire: dict[str, Any]) -> ScriptedAnswer:
    """Stack calls stand before, between and behind the client's."""
    ours = [as_call(made) for made in done.ops]
    theirs = [bash(f"step {number}") for number in range(done.client)]
    mixed = [*theirs[:1], *ours, *theirs[1:]]
    return ScriptedAnswer(text=done.text, calls=tuple(mixed), **wire)
