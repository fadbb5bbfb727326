"""Calls and their results on a message list (L1): paired by place, counted, and never a result twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from proxy.core.context.message_list import UNANSWERED_CALL_RESULT, build_context, unpaired_calls
from proxy.core.frames.events import FrameFolded
from proxy.core.frames.reducer import reduce
from proxy.core.ledger import Call, Message
from tests.core.working import SCRIBE, GrowingConversation, bash


@dataclass
class SameIds(GrowingConversation):
    """All calls come under one id."""

    ident: str = "X"
    numbers: list[int] = field(default_factory=list)

    def _call(self, name: str, arguments: dict[str, object] | str) -> Call:
        return Call(self.ident, name, str(arguments))


def line_of(growing: GrowingConversation) -> Sequence[Message]:
    growing.arrives()
    return build_context(growing.story, SCRIBE).messages


@pytest.mark.rows("X-30")
@pytest.mark.parametrize("ident", ["X", ""], ids=["one id", "no id"])
def test_each_of_two_calls_under_one_id_has_its_result(ident: str) -> None:
    growing = SameIds(ident=ident).user("go").does(bash("a"), bash("b"), results=["A", "B"])
    growing.does(bash("c"), results=["C"]).user("and?")
    line = line_of(growing)
    assert [m.text for m in line if m.is_result] == ["A", "B", "C"]
    assert unpaired_calls(line) == ()


@pytest.mark.rows("X-30", "X-13")
@pytest.mark.parametrize("ident", ["X", ""], ids=["one id", "no id"])
def test_a_missing_result_is_missed_though_another_came_under_its_id(ident: str) -> None:
    growing = SameIds(ident=ident).user("go").does(bash("a"), bash("b"), results=["A"]).user("only one")
    line = line_of(growing)
    assert [m.text for m in line if m.is_result] == ["A", UNANSWERED_CALL_RESULT]
    assert line[-1].text == "only one"
    assert unpaired_calls(line) == ()


@pytest.mark.rows("X-30", "X-13")
def test_the_check_counts_and_does_not_compare_sets() -> None:
    said = Message("assistant", b"", "", calls=(Call("X", "a", "{}"), Call("X", "b", "{}"), Call("Y", "c", "{}")))
    given = [Message("tool", b"", "", answers=ident) for ident in ("X", "Y", "X")]
    assert unpaired_calls([said, *given]) == ()
    assert unpaired_calls([said, *given[:2]]) == ("X",)
    assert unpaired_calls([said, given[0], given[1], given[1]]) == ("X",)
    assert unpaired_calls([said, Message("user", b"", "")]) == ("X", "X", "Y")


@pytest.mark.rows("X-46")
def test_a_result_leaves_with_its_call() -> None:
    """A client that cleared a result and gives it back whole tells one that no fold knows."""
    growing = GrowingConversation().user("go").does(bash("a"), results=["A"]).does(bash("b"), results=["B"])
    growing.user("next").arrives()
    story = growing.story
    called = next(p.entry.id for p in story.entries if p.round)
    folded = reduce(story.tree, FrameFolded(story.tree.active, (called,), "trace"), 0)
    line = build_context(replace(story, tree=folded), SCRIBE).messages
    assert [m.text for m in line if m.is_result] == ["B"]
