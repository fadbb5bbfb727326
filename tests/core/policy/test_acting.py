"""Frames of level `auto`: when they open and end, and that they go with what else divides the work."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.context.message_list import unpaired_calls
from proxy.core.frames.events import FrameEvent
from proxy.core.frames.tree import Status, children, path_to
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES
from proxy.core.policy.automatic_frames import AutonomyInput, decide_automatic_frames
from proxy.core.policy.autonomy_rules import AutonomyRules
from proxy.core.policy.signals import read_activity, signals_of
from tests.core.working import GrowingConversation, bash, padded, todo
from tests.properties.depth import searched

RULES = AutonomyRules(level="auto", push_threshold=25, pop_threshold=101)
ELSEWHERE = "Unrelated: translate the onboarding email into French."


class Divided(GrowingConversation):
    """A conversation in which the proxy opens and ends frames by itself."""

    def __init__(self, folds: bool = False, **rules: Any) -> None:
        super().__init__(folds=folds)
        self.rules = replace(RULES, **rules)
        self.user("Rename the class in every file.")

    def edits(self, *paths: str) -> Divided:
        for path in paths:
            self.does(("edit", {"filePath": path, "oldString": "a", "newString": path}), results=[padded("Updated.")])
            self.looks()
        return self

    def looks(self) -> tuple[FrameEvent, ...]:
        """What the proxy does with each request."""
        self.arrives()
        reading = read_activity(self.story, DEFAULT_TOOL_ROLES)
        seen = signals_of(reading, self.story.tree.active_frame, 0)
        events = decide_automatic_frames(
            AutonomyInput(self.story, self.story.tip, self.now, DEFAULT_TOOL_ROLES, 10), reading, seen, self.rules
        )
        for event in events:
            self._happens(event, self.story.tip)
        if events:
            self.story = self.again
        return events

    @property
    def origins(self) -> list[tuple[str, str]]:
        return [(frame.origin, str(frame.status)) for frame in self.story.tree.frames.values()]


@pytest.mark.rows("S1-83")
def test_frames_follow_each_other_under_what_they_are_part_of() -> None:
    watched = Divided().edits(*(f"{n}.py" for n in range(8)))

    root, *steps = watched.story.tree.frames.values()
    assert [frame.title for frame in steps] == [f"Step {n} of: {root.title}" for n in range(2, 2 + len(steps))]
    assert {frame.parent for frame in steps} == {root.id}
    assert [str(frame.status) for frame in steps] == ["completed"] * (len(steps) - 1) + ["in_progress"]
    assert len(steps) >= 2
    assert steps[0].artifacts


@pytest.mark.rows("S1-83")
def test_nothing_happens_while_a_call_has_no_result() -> None:
    watched = Divided().edits("0.py", "1.py")
    watched.does(("edit", {"filePath": "2.py"}), bash("ls"), results=["Updated."])

    assert watched.looks() == ()


@pytest.mark.rows("S1-83")
def test_what_seems_done_ends_and_nothing_else_begins() -> None:
    watched = Divided(pop_threshold=50).edits(*(f"{n}.py" for n in range(4)))
    assert watched.origins[-1] == ("auto", "in_progress")
    watched.does(bash("pytest -q"), results=["5 passed\nExit code: 0"])
    assert watched.looks() == ()
    watched.does(bash("ruff check ."), results=["All checks passed!"])

    assert len(watched.looks()) == 1
    assert watched.origins[1:] == [("auto", "completed")]


@pytest.mark.rows("S1-81", "S1-83")
def test_where_the_client_plans_its_plan_divides_the_work() -> None:
    watched = Divided().edits(*(f"{n}.py" for n in range(4)))
    assert watched.origins[-1] == ("auto", "in_progress")
    watched.does(todo("[>] Lexer | [ ] Parser"), results=["ok"])
    watched.edits(*(f"src/{n}.py" for n in range(6)))

    tree = watched.story.tree
    assert watched.origins[1:] == [("auto", "completed"), ("plan", "in_progress"), ("plan", "planned")]
    assert {frame.title for frame in children(tree, tree.root.id) if frame.origin == "plan"} == {"Lexer", "Parser"}


def test_another_request_ends_it_with_the_request_it_belongs_to() -> None:
    """The first request of a conversation has no frame until it ends."""
    watched = Divided().edits(*(f"{n}.py" for n in range(5))).says("All are renamed.")
    watched.user(ELSEWHERE).says("Bonjour.")

    frames = watched.story.tree.frames.values()
    assert {frame.status for frame in frames if frame.origin == "auto"} == {Status.COMPLETED}
    assert [str(frame.status) for frame in frames if frame.origin == "request"] == ["completed", "in_progress"]


def test_what_it_ended_leaves_the_line_as_what_the_proxy_saw_does() -> None:
    """L1: no call group is cut through."""
    watched = Divided(folds=True).edits(*(f"{n}.py" for n in range(14)))
    watched.settings = {"cold": True}
    watched.does(bash("ls"), results=["done"]).says("All are renamed.")

    assert sum(1 for trim in watched.story.tree.removals if trim.frame) >= 1
    assert all(not unpaired_calls(line.messages) for line in watched.lines)


STEPS = st.sampled_from(["edit", "fail", "pass", "plan", "next item", "planned out", "says", "elsewhere", "go on"])
PLANS = {
    "plan": "[>] Lexer | [ ] Parser",
    "next item": "[x] Lexer | [>] Parser",
    "planned out": "[x] Lexer | [x] Parser",
}


@searched(60)
@given(st.lists(STEPS, max_size=40), st.booleans())
@example(["edit", "edit", "edit", "next item"], False)  # an item that ends without having begun
def test_whatever_divides_the_work_lines_stay_whole_and_one_frame_is_active(steps: list[str], folds: bool) -> None:
    """L1, and that at most one frame of level auto is under way, with every frame on the way to it."""
    watched = Divided(folds=folds)
    watched.settings = {"cold": True, "frame_max": 2_000}
    for n, step in enumerate(steps):
        if step == "edit":
            watched.does(("edit", {"filePath": f"{n}.py", "newString": str(n)}), results=[padded("Updated.")])
        elif step in ("fail", "pass"):
            watched.does(bash("pytest -q"), results=[f"Exit code: {int(step == 'fail')}"])
        elif step in PLANS:
            watched.does(todo(PLANS[step]), results=["ok"])
        elif step == "says":
            watched.says("There.")
        else:
            watched.user(ELSEWHERE if step == "elsewhere" else "go on")
        watched.looks()
        tree = watched.story.tree
        under_way = [f for f in tree.frames.values() if f.origin == "auto" and f.status is Status.IN_PROGRESS]
        assert all(frame in path_to(tree, tree.active) for frame in under_way)
        assert all(frame.status is Status.IN_PROGRESS for frame in path_to(tree, tree.active))
    assert all(not unpaired_calls(line.messages) for line in watched.lines)
    assert watched.again.tree == watched.story.tree
