"""What leaves a line that does not fit, by values."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.compaction.context_overflow import OverflowNotes, drop_oldest, drop_oldest_messages
from proxy.core.context.message_list import Context, build_context, unpaired_calls
from proxy.core.frames.events import ContextTrimmed, RootStarted, call_key
from proxy.core.frames.path_state import PathState
from proxy.core.ledger.messages import Call, LoadedTool, Message
from proxy.core.observers import DEFAULT_TOOL_ROLES
from proxy.dialects import OPENAI_CHAT
from proxy.dialects.compose import DialectComposer
from tests.core.forest import LedgerBuilder, call, popped, pushed

NOTES = OverflowNotes(DEFAULT_TOOL_ROLES, "0123456789abcdef")
WRITER = DialectComposer(OPENAI_CHAT, len)


def worked(files: int) -> LedgerBuilder:
    """A talk in which the model read so many files, one a turn."""
    talk = LedgerBuilder()
    talk.client("user", "read them all")
    talk.happens(RootStarted("froot", "Read", "All are read."))
    for number in range(files):
        talk.model(("", (call(f"c{number}", "read", path=f"file{number}.py"),)))
        talk.client("tool", f"content {number} " * 20, answers=f"c{number}")
    return talk


def line_of(talk: LedgerBuilder) -> Context:
    """The line, its messages weighed by their characters."""
    line = build_context(talk.story, WRITER)
    return replace(line, messages=tuple(replace(m, tokens=len(m.text) + 10) for m in line.messages))


def story_of(talk: LedgerBuilder) -> PathState:
    """The story, what the client sent weighed by its characters."""
    weighed = tuple(
        replace(p, entry=replace(p.entry, message=replace(p.entry.message, tokens=len(p.entry.message.text))))
        if p.entry.message
        else p
        for p in talk.story.entries
    )
    return replace(talk.story, entries=weighed)


def read_on(line: Context) -> list[str]:
    return [c.arguments for m in line.messages for c in m.calls]


@pytest.mark.rows("S4-24", "S4-69")
def test_the_oldest_groups_leave_whole_and_can_be_asked_for() -> None:
    """S4-24: head, user messages and the newest groups stay; what left has a ref."""
    talk = worked(6)
    line = line_of(talk)
    event = drop_oldest(story_of(talk), line, line.tokens // 2, NOTES)
    assert event is not None
    assert 'ref="froot"' in event.trace
    assert 'note="overflow" nonce="0123456789abcdef"' in event.trace
    assert "This is your own earlier work: the" in event.trace
    assert "<files>read: " in event.trace
    talk.happens(event)
    left = build_context(talk.story, WRITER)
    assert left.messages[0].text == "read them all"
    assert "stack-context" in left.messages[1].text
    assert "file5.py" in read_on(left)[-1]
    assert "file0.py" not in "".join(read_on(left))
    assert unpaired_calls(left.messages) == ()


def test_the_last_group_never_leaves() -> None:
    talk = worked(1)
    assert drop_oldest(talk.story, line_of(talk), 1, NOTES) is None


def test_a_line_that_fits_is_left_alone() -> None:
    talk = worked(4)
    assert drop_oldest(talk.story, line_of(talk), 1_000_000, NOTES) is None


def test_a_line_may_be_trimmed_twice_at_one_request() -> None:
    """Both events stand: the second is not taken for another writer's first."""
    talk = worked(6)
    for entry in (talk.ledger.path(talk.tip)[1].id, talk.ledger.path(talk.tip)[3].id):
        talk.happens(ContextTrimmed((entry,), "gone"))
    assert len(talk.story.tree.removals) == 2


def test_a_trace_stays_when_the_entry_before_it_is_trimmed_too() -> None:
    """L7: whatever left can be asked for, however often a line was trimmed."""
    talk = worked(6)
    first, second = talk.ledger.path(talk.tip)[1].id, talk.ledger.path(talk.tip)[3].id
    talk.happens(ContextTrimmed((second,), 'ref="second"', first))
    talk.happens(ContextTrimmed((first,), 'ref="first"'))
    texts = [m.text for m in build_context(talk.story, WRITER).messages]
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
    event = drop_oldest(story_of(talk), line_of(talk), -10_000, NOTES)
    assert event is not None
    assert 'ref="fchild"' in event.trace


def test_nothing_leaves_where_the_trace_is_no_shorter() -> None:
    """Where every request is too long for its window a trace after the other would fill the line."""
    talk = worked(0)
    for number in range(2):
        talk.model(("", (call(f"c{number}", "read", path="a.py"),)))
        talk.client("tool", "short", answers=f"c{number}")
    assert drop_oldest(story_of(talk), line_of(talk), 1, NOTES) is None


@pytest.mark.parametrize("hidden", [0, 1, 2])
def test_what_the_client_sent_last_stays_behind_rounds_that_it_does_not_see(hidden: int) -> None:
    """L4: with its call, whatever stands behind it; it is no more the newest group then."""
    talk = worked(4)
    if hidden:
        talk.begun(*(("", (call(f"r{n}", "stack_recall", ref="froot"),)) for n in range(hidden)))
    event = drop_oldest(story_of(talk), line_of(talk), 1, NOTES)
    assert event is not None
    talk.happens(event, talk.ledger.entries[talk.tip].parent if hidden else talk.tip)
    assert [c for c in read_on(build_context(talk.story, WRITER)) if "file" in c] == ['{"path": "file3.py"}']


# ---------------------------------------------------------------------------------------------------------- stateless
def said(role: str, number: int, tokens: int = 10) -> Message:
    calls = (Call(f"c{number}", "read", "{}"),) if role == "assistant" else ()
    return Message(role, b"{}", str(number), f"{role} {number}", calls, f"c{number}" if role == "tool" else "", tokens)


def history(steps: int) -> list[Message]:
    """A task, so many steps of a call and its result, and what the user says then."""
    work = [m for n in range(steps) for m in (said("assistant", n), said("tool", n))]
    return [said("user", 100), *work[: steps // 2 * 2], said("user", 101), *work[steps // 2 * 2 :], said("user", 102)]


def test_from_the_request_alone_all_user_messages_and_the_newest_groups_stay() -> None:
    """DESIGN 11: a history that cannot fit is trimmed, never refused."""
    kept = drop_oldest_messages(history(6), 30 + 45)
    assert kept is not None
    assert kept.dropped_groups == 4
    assert "4 oldest steps" in kept.trace
    assert [m.text for m in kept.before] == ["user 100"]
    assert [m.text for m in kept.after] == [
        "user 101", "assistant 4", "tool 4", "assistant 5", "tool 5", "user 102",
    ]  # fmt: skip


def test_a_history_without_a_group_to_give_up_stays_as_it_is() -> None:
    assert drop_oldest_messages([said("user", 1, 500)], 10) is None
    assert drop_oldest_messages(history(1), 10) is None
    assert drop_oldest_messages(history(4), 10_000) is None


@pytest.mark.rows("X-46")
def test_a_history_is_shortened_around_the_searches_that_loaded_tools() -> None:
    loaded = history(6)
    loaded[2] = replace(loaded[2], loaded_tools=(LoadedTool("issue"),))
    kept = drop_oldest_messages(loaded, 30 + 65)

    assert kept is not None
    assert [m.text for m in (*kept.before, *kept.after)] == [
        "user 100", "assistant 0", "tool 0", "user 101",
        "assistant 4", "tool 4", "assistant 5", "tool 5", "user 102",
    ]  # fmt: skip
    assert kept.dropped_groups == 3


roles = st.lists(st.sampled_from(["user", "assistant", "tool", "tool"]), max_size=12)


@pytest.mark.rows("S3-34")
@given(roles, st.integers(-10, 150))
def test_what_stays_of_a_history_is_whole_groups_in_their_order(order: list[str], room: int) -> None:
    """L1: a result stays with its call."""
    calls = 0
    messages: list[Message] = []
    for role in order:
        calls += role == "assistant"
        messages.append(said(role, calls if role != "user" else len(messages) + 1_000))
    kept = drop_oldest_messages(messages, room)
    if kept is None:
        return
    left = [*kept.before, *kept.after]
    assert [m for m in messages if m in left] == left
    assert [m for m in left if m.role == "user"] == [m for m in messages if m.role == "user"]
    asked = {m.identity for m in left if m.role == "assistant"}
    assert all(m.identity in asked for m in left if m.role == "tool" and m.identity != "0")
    assert sum(m.role == "assistant" for m in messages) - len(asked) == kept.dropped_groups
