"""What leaves a line that does not fit, by values."""

from dataclasses import replace

import msgspec

from proxy.dialects import OPENAI_CHAT
from proxy.scribe import Writer
from proxy.stack.context import Line, assemble, unpaired
from proxy.stack.events import Rooted, Trimmed, call_key
from proxy.stack.trim import trimmed
from tests.stack.forest import Talk, call, popped, pushed

WRITER = Writer(OPENAI_CHAT, len)


def worked(files: int) -> Talk:
    """A talk in which the model read so many files, one a turn."""
    talk = Talk()
    talk.client("user", "read them all")
    talk.happens(Rooted("froot", "Read", "All are read."))
    for number in range(files):
        talk.model(("", (call(f"c{number}", "read", path=f"file{number}.py"),)))
        talk.client("tool", f"content {number} " * 20, answers=f"c{number}")
    return talk


def line_of(talk: Talk) -> Line:
    """The line, its messages weighed by their characters."""
    line = assemble(talk.story, WRITER)
    return replace(line, messages=tuple(replace(m, tokens=len(m.text) + 10) for m in line.messages))


def read_on(line: Line) -> list[str]:
    return [c.arguments for m in line.messages for c in m.calls]


def test_the_oldest_groups_leave_whole_and_can_be_asked_for() -> None:
    """S4-24: head, user messages and the newest groups stay; what left has a ref."""
    talk = worked(6)
    story = talk.story
    weighed = tuple(
        replace(p, entry=replace(p.entry, message=replace(p.entry.message, tokens=len(p.entry.message.text))))
        if p.entry.message
        else p
        for p in story.placed
    )
    line = line_of(talk)
    event = trimmed(replace(story, placed=weighed), line, line.tokens // 2)
    assert event is not None
    assert 'ref="froot"' in event.trace
    talk.happens(event)
    left = assemble(talk.story, WRITER)
    assert left.messages[0].text == "read them all"
    assert "stack-context" in left.messages[1].text
    assert "file5.py" in read_on(left)[-1]
    assert "file0.py" not in "".join(read_on(left))
    assert unpaired(left.messages) == ()


def test_the_last_group_never_leaves() -> None:
    talk = worked(1)
    assert trimmed(talk.story, line_of(talk), 1) is None


def test_a_line_that_fits_is_left_alone() -> None:
    talk = worked(4)
    assert trimmed(talk.story, line_of(talk), 1_000_000) is None


def test_a_line_may_be_trimmed_twice_at_one_request() -> None:
    """Both events stand: the second is not taken for another writer's first."""
    talk = worked(6)
    for entry in (talk.ledger.path(talk.tip)[1].id, talk.ledger.path(talk.tip)[3].id):
        talk.happens(Trimmed((entry,), "gone"))
    assert len(talk.story.tree.trims) == 2


def test_a_trace_stays_when_the_entry_before_it_is_trimmed_too() -> None:
    """L7: whatever left can be asked for, however often a line was trimmed."""
    talk = worked(6)
    first, second = talk.ledger.path(talk.tip)[1].id, talk.ledger.path(talk.tip)[3].id
    talk.happens(Trimmed((second,), 'ref="second"', first))
    talk.happens(Trimmed((first,), 'ref="first"'))
    texts = [m.text for m in assemble(talk.story, WRITER).messages]
    assert [t for t in texts if t.startswith("ref=")] == ['ref="first"', 'ref="second"']


def test_a_trace_names_the_frames_that_returned_into_what_left() -> None:
    """L7: the results of a finished child leave with the call that opened it; its ref stays."""
    talk = worked(0)
    opened = talk.model(("", (call("p", "stack_frame_push", title="Look", successCriteria="It is seen."),)))
    talk.happens(msgspec.structs.replace(pushed("fchild"), turn=opened, call=call_key(1, "p")), opened, 1)
    talk.happens(popped("fchild"), opened, 1)
    for number in range(4):
        talk.model(("", (call(f"c{number}", "read", path=f"file{number}.py"),)))
        talk.client("tool", f"content {number} " * 20, answers=f"c{number}")
    event = trimmed(talk.story, line_of(talk), -10_000)
    assert event is not None
    assert 'ref="fchild"' in event.trace
