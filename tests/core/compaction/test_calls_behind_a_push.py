"""What a message did before it opened a frame is told of the parent, what it did behind that of the frame."""

import pytest

from proxy.core.compaction.facts import facts_of
from proxy.core.frames.events import FramePushed, RootStarted, as_ledger_event
from proxy.core.frames.path_state import PathState, replay
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, Round
from proxy.core.ledger.messages import Call, Message, ModelResponse
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES

pytestmark = pytest.mark.rows("S0-04")


def called(number: int, name: str, path: str = "") -> Call:
    return Call(f"c{number}", name, f'{{"path": "{path}"}}')


def played(*calls: Call) -> PathState:
    """A request, a message with these calls of which the push is the second, and the results of the client's."""
    ledger = Ledger(Conversation("c" * 32, "tenant"))
    ledger.add_entry(Entry("e1", "", 1, EntryKind.MESSAGE, "main", Message("user", b"{}", "", "Build it.")))
    ledger.add_entry(Entry("t1", "e1", 2, EntryKind.TURN, "main"))
    ledger.add_round(Round("t1", 0, ModelResponse(Message("assistant", b"{}", "", "", calls)), (), True))
    root = RootStarted("root", "Build it.", "built")
    pushed = FramePushed("f1", "root", "Read", "read", "t1", "0/c1", "<block>")
    ledger.add_event(as_ledger_event(root, "e1", 0, 3, 0))
    ledger.add_event(as_ledger_event(pushed, "t1", 0, 4, 0))
    at = "t1"
    for number, call in enumerate(c for c in calls if not c.is_stack_call):
        said = Message("tool", b"{}", "", f"text {number}", answers=call.id)
        ledger.add_entry(Entry(f"r{number}", at, 5 + number, EntryKind.MESSAGE, "main", said))
        at = f"r{number}"
    return replay(ledger, ledger.path(at), {})


def test_each_frame_is_told_its_own_calls() -> None:
    state = played(called(0, "read", "a.py"), called(1, "stack_frame_push"), called(2, "read", "b.py"))
    frames = state.tree.frames
    parent, child = (state.entries_of(frames[frame].owner.__eq__) for frame in ("root", "f1"))
    told = [facts_of(entries, DEFAULT_TOOL_ROLES) for entries in (parent, child)]

    assert [facts.read for facts in told] == [("a.py",), ("b.py",)]
    assert all(len(facts.told_steps) == 1 for facts in told), told
    assert facts_of(state.entries, DEFAULT_TOOL_ROLES).read == ("a.py", "b.py")


def test_a_call_whose_id_also_stands_before_the_push_stays() -> None:
    """Of two calls by one id nobody knows which result is whose."""
    state = played(called(0, "read", "a.py"), called(1, "stack_frame_push"), called(0, "read", "b.py"))

    assert all(not entry.inner_calls for entry in state.entries)
