"""What the model is told is true at the moment it is written.

A program at random pushes, plans, activates, pops and invalidates frames, beside a plan of the client's and beside cuts
of the proxy's own. Every sentence of ours (titles, statuses, positions, counts, next steps) is compared with the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.frames import (
    FrameEntered,
    FrameEvent,
    FrameInvalidated,
    FramePlanned,
    FramePopped,
    FramePushed,
    FrameSplit,
    Status,
    Tree,
    ancestors,
    call_key,
    frame_id,
    path_to,
)
from proxy.core.frames.tree import Frame
from proxy.core.ledger import Call
from proxy.core.tools import run
from tests.core.forest import LedgerBuilder, call, rooted

FINISHED = {Status.COMPLETED, Status.FAILED, Status.BLOCKED}
ELEMENTS = re.compile(r"<(stack-context|frame-results) .*?</\1>", re.DOTALL)
SECTION = re.compile(r"<([a-z-]+)>(.*?)</\1>", re.DOTALL)
FRAME = re.compile(r"\b(f[a-z2-7]{8})\b")
POSITION = re.compile(r"Task (\d+) of (\d+)")

STEP = st.one_of(
    st.tuples(st.just("push"), st.integers(0, 3)),
    st.tuples(st.just("pop"), st.sampled_from(["completed", "failed", "blocked"])),
    st.tuples(st.just("pop above"), st.integers(1, 3)),
    st.tuples(st.just("plan"), st.integers(1, 3)),
    st.tuples(st.just("activate"), st.integers(0, 9)),
    st.tuples(st.just("invalidate"), st.integers(0, 9)),
    st.tuples(st.just("client plans"), st.integers(1, 3)),
    st.tuples(st.just("client goes on"), st.integers(0, 9)),
    st.tuples(st.just("cut"), st.just(0)),
)


class Program:
    """A conversation that goes on step by step, and what the model is told of it."""

    def __init__(self) -> None:
        self.talk = LedgerBuilder()
        self.talk.client("user", "Build the shop")
        self.talk.happens(rooted())
        self.number = 0

    @property
    def tree(self) -> Tree:
        return self.talk.story.tree

    def step(self, kind: str, chosen: object) -> Iterator[tuple[str, Tree]]:
        """The texts of one step, each with the tree at the moment it is written."""
        self.number += 1
        tree = self.tree
        if kind in ("client plans", "client goes on", "cut"):
            self.talk.client("user", f"message {self.number}")
            for event in self._client_events(kind, chosen):
                self.talk.happens(event)
            return
        made = self._call(kind, chosen, tree)
        turn = self.talk.begun((f"thought {self.number}", (made,)))
        context = replace(
            self.talk.desk(),
            turn_id=turn,
            call_key=call_key(1, made.id),
            visible_entries=frozenset(p.path_id for p in self.talk.story.entries),
        )
        result = run(context, made)
        for event in result.events:
            self.talk.happens(event, turn, 1)
        after = self.tree
        yield result.text, after
        if isinstance(last := result.events[-1] if result.events else None, FramePopped | FrameInvalidated):
            yield last.call_result, after
        if isinstance(last, FramePushed):
            assert last.block == result.text

    def _call(self, kind: str, chosen: object, tree: Tree) -> Call:
        name = f"c{self.number}"
        number = chosen if isinstance(chosen, int) else 0
        frames = list(tree.frames)
        match kind:
            case "push":
                return call(name, "stack_frame_push", title=f"Task {self.number} & <more>", successCriteria="it works")
            case "pop":
                return call(name, "stack_frame_pop", status=chosen, results=f"Result {self.number}.")
            case "pop above":
                path = path_to(tree, tree.active)
                target = path[max(1, len(path) - number) % len(path)].id
                return call(name, "stack_frame_pop", status="completed", results="Done.", frame=target)
            case "plan":
                steps = [f"Step {self.number}.{n}: check" for n in range(number)]
                return call(name, "stack_frame_plan", children=steps)
            case "activate":
                waiting = [f.id for f in tree.frames.values() if f.status in (Status.PLANNED, Status.BLOCKED)]
                return call(name, "stack_frame_activate", frame=waiting[number % len(waiting)] if waiting else "none")
            case _:
                return call(name, "stack", op="invalidate", reason="not needed", frame=frames[number % len(frames)])

    def _client_events(self, kind: str, chosen: object) -> Iterator[FrameEvent]:
        tree, entry = self.tree, self.talk.tip
        number = chosen if isinstance(chosen, int) else 0
        if tree.root.status is not Status.IN_PROGRESS:
            return
        if kind == "cut":
            yield FrameSplit(
                frame_id(entry, 1), tree.active, f"Part {self.number} of {tree.active_frame.title}", "", ()
            )
        elif kind == "client plans":
            parent = tree.active_frame.parent if tree.active_frame.origin == "plan" else tree.active
            for n in range(number):
                yield FramePlanned(frame_id(entry, n), parent, f"Item {self.number}.{n}", "item", origin="plan")
        else:
            if tree.active_frame.origin == "plan":
                yield FramePopped(tree.active, Status.COMPLETED, "Ticked off.", "Ticked off.")
                tree = self.tree
            home = tree.active_frame.parent if tree.active_frame.origin == "plan" else tree.active
            items = [f for f in tree.frames.values() if f.origin == "plan" and f.status is Status.PLANNED]
            below = [f for f in items if f.parent == home]
            if below:
                item = below[number % len(below)]
                yield FrameEntered(item.id, item.parent, item.title, item.criteria, "plan")


# ------------------------------------------------------------------------------------------------------------ checking
def tasks_beside(tree: Tree, frame: Frame) -> list[Frame]:
    """The frame and its siblings as tasks, in the order in which they were made."""
    if not frame.parent:
        return [frame]
    beside = (f for f in tree.frames.values() if f.parent == frame.parent and f.origin != "part")
    return sorted((f for f in beside if f.status is not Status.INVALIDATED), key=lambda f: f.order)


def check(text: str, tree: Tree) -> None:
    if text.startswith(("Error", "Not ")):
        return
    for match in ELEMENTS.finditer(text):
        if match[1] == "stack-context":
            check_block(ElementTree.fromstring(match[0]), tree)
        else:
            check_results(parsed_results(match[0]), tree)
    for back in re.findall(r"You are back in (\w+) \(", text):
        assert back == tree.active
    for to_begin in re.findall(r"To begin, push (\w+) ", text):
        assert tree.frames[to_begin].status is Status.PLANNED


def parsed_results(text: str) -> ElementTree.Element:
    """What a pop returned: its attributes, and its sections, whose texts stand as they were written."""
    head, _, body = text.partition(">")
    root = ElementTree.fromstring(f"{head}/>")
    for name, said in SECTION.findall(body):
        ElementTree.SubElement(root, name).text = said
    return root


def check_block(root: ElementTree.Element, tree: Tree) -> None:
    frame = tree.frames[root.attrib["frame"]]
    assert frame.id == tree.active
    above = {f.id for f in ancestors(tree, frame.id)}
    current = root.find("current-frame")
    if current is None:  # the parent's context tells the rest
        assert {each.attrib["id"] for each in root.iterfind("in")} <= above
        assert not [f for f in tree.frames.values() if f.status is Status.PLANNED and f.parent in {frame.id, *above}]
        return
    assert (current.attrib["id"], current.attrib["status"]) == (frame.id, frame.status)
    assert current.findtext("title") == frame.title
    for each in root.iterfind("ancestors/frame"):
        assert each.attrib["id"] in above
        assert each.attrib["status"] == tree.frames[each.attrib["id"]].status
    for siblings in root.iterfind("completed-siblings"):
        assert siblings.attrib["told"] == "when each ended"  # what was open then may be done
    for each in root.iterfind("completed-siblings/frame"):
        finished = tree.frames[each.attrib.get("ref") or each.attrib["id"]]
        assert (each.attrib["status"], finished.origin == "part") == (finished.status, False)
        assert finished.status in FINISHED
        below = [f for f in tree.frames.values() if f.parent == finished.id and f.origin != "part"]
        assert int(each.attrib.get("children", "0")) == len(below)
    check_plan(root, tree, frame)
    family = tasks_beside(tree, frame)
    position = root.findtext("position")
    assert (position is None) == (len(family) < 2)
    if position is not None:
        order = sorted(family, key=lambda f: frame.is_inferred and f.status not in FINISHED)
        assert position == f"Task {[f.id for f in order].index(frame.id) + 1} of {len(family)}"
    if (counted := root.find("sibling-status")) is not None:
        names = {"completed": Status.COMPLETED, "in-progress": Status.IN_PROGRESS, "pending": Status.PLANNED}
        for name, status in names.items():
            assert int(counted.attrib[name]) == sum(f.status is status for f in family)


def check_plan(root: ElementTree.Element, tree: Tree, frame: Frame) -> None:
    planned = {f.id: f for f in tree.frames.values() if f.status is Status.PLANNED}
    children = root.find("planned-children")
    listed = [] if children is None else [each.attrib["id"] for each in children.iterfind("frame")]
    own = [f for f in planned.values() if f.parent == frame.id]
    assert int(children.attrib["count"] if children is not None else 0) == len(own)
    assert set(listed) <= {f.id for f in own}
    beside_path = {f.id for f in planned.values() if f.parent in {a.id for a in ancestors(tree, frame.id)}}
    later = root.find("planned-later")
    shown_later = set() if later is None else {each.attrib["id"] for each in later.iterfind("frame")}
    shown_next = {each.attrib["id"] for each in root.iterfind("next-sibling")}
    assert shown_later | shown_next <= beside_path
    assert int(later.attrib["count"] if later is not None else 0) == len(beside_path - shown_next)
    for name in ("first-child", "next-sibling"):
        if (named := root.find(name)) is not None:
            assert named.attrib["id"] in planned
            assert named.attrib["title"] == planned[named.attrib["id"]].title
    action = root.findtext("next-action") or ""
    assert not (action and frame.is_inferred)
    for named_frame in FRAME.findall(action):
        assert not planned[named_frame].is_inferred
    if root.find("initial-planning") is not None:
        assert not planned


def check_results(root: ElementTree.Element, tree: Tree) -> None:
    frame = tree.frames[root.attrib["ref"]]
    assert root.attrib["status"] == frame.status
    for line in (root.findtext("children") or "").splitlines():
        match = re.fullmatch(r"- (\w+) (\w+): (.*)", line)
        assert match is not None
        assert (tree.frames[match[1]].status, tree.frames[match[1]].origin == "part") == (match[2], False)
    waiting = {f.id for f in tasks_beside(tree, frame) if f.status is Status.PLANNED}
    said = root.findtext("next") or ""
    named = set(FRAME.findall(said.replace(f"retry_of={frame.id}", "")))
    if "Nothing is left" in said:
        assert not waiting
    elif waiting:
        assert named
        assert named <= waiting
    if "Push it" in said:
        assert not any(tree.frames[each].is_inferred for each in named)


@pytest.mark.rows("S0-49", "S0-50", "S0-51", "S1-148")
@given(st.lists(STEP, min_size=1, max_size=14))
def test_what_is_told_is_true_when_it_is_told(program: list[tuple[str, object]]) -> None:
    played = Program()
    for kind, chosen in program:
        for text, tree in played.step(kind, chosen):
            check(text, tree)
