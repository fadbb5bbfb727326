"""Where our texts go for models that are strict about the order of roles."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.context import LEFT_OUT_ANSWER, LEFT_OUT_WORK, AnswersLeftOut, alternate_roles
from proxy.core.ledger import Message
from proxy.dialects import DIALECTS, OPENAI_CHAT, OPENAI_RESPONSES, Dialect, DialectComposer
from proxy.dialects.chat.message import read_message
from proxy.dialects.responses.items import read_item

WRITER = DialectComposer(OPENAI_CHAT, len)


def user(text: str) -> Message:
    return OPENAI_CHAT.user_message(text)


def answer(text: str = "done") -> Message:
    return OPENAI_CHAT.assistant_message(text)


def call(name: str = "1") -> tuple[Message, Message]:
    made = {"id": name, "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    said = read_message(json.dumps({"role": "assistant", "content": None, "tool_calls": [made]}).encode())
    return said, OPENAI_CHAT.tool_result(name, f"output {name}")


def told(messages: Iterable[Message]) -> list[tuple[str, str]]:
    return [(m.role, m.text) for m in messages if not m.calls]


def alternates(messages: Iterable[Message]) -> bool:
    """As the chat templates of Mistral's models check it."""
    expects_user = True
    for message in messages:
        if message.answers or message.calls:
            continue
        if (message.role == "user") is not expects_user:
            return False
        expects_user = not expects_user
    return True


@pytest.mark.rows("X-28")
def test_a_note_behind_results_joins_the_last_of_them() -> None:
    note = user("note")

    left = alternate_roles([user("a"), *call(), note], {id(note)}, WRITER)

    assert told(left) == [("user", "a"), ("tool", "output 1\n\nnote")]


@pytest.mark.rows("X-28")
def test_a_trace_between_two_messages_of_the_client_leaves_the_first_as_it_was_sent() -> None:
    first, trace, second = user("first"), user("trace"), user("second")
    history = [first, *call(), answer(), second]

    left = alternate_roles([first, trace, second], set(), WRITER, AnswersLeftOut(history), {id(trace)})

    assert left[0] is first
    assert told(left) == [("user", "first"), ("assistant", LEFT_OUT_WORK), ("user", "trace\n\nsecond")]


@pytest.mark.rows("X-28")
def test_a_trace_behind_results_leaves_them_as_they_were_sent() -> None:
    kept, trace = call("kept"), user("trace")

    left = alternate_roles([user("first"), *kept, trace, answer()], set(), WRITER, traces={id(trace)})

    assert told(left[1:]) == [
        ("tool", "output kept"),
        ("assistant", LEFT_OUT_WORK),
        ("user", "trace"),
        ("assistant", "done"),
    ]


@pytest.mark.rows("X-28")
def test_where_calls_stand_between_two_messages_an_answer_is_told_of() -> None:
    first, second = user("first"), user("second")
    kept = call("kept")
    history = [first, *kept, answer(), second]

    left = alternate_roles([first, *kept, second], set(), WRITER, AnswersLeftOut(history))

    assert told(left) == [
        ("user", "first"),
        ("tool", "output kept"),
        ("assistant", LEFT_OUT_ANSWER),
        ("user", "second"),
    ]


@pytest.mark.rows("X-28")
def test_what_the_client_says_in_a_row_by_itself_stays_as_it_is() -> None:
    history = [user("a"), user("b"), *call(), user("c")]

    assert alternate_roles(history, set(), WRITER, AnswersLeftOut(history)) == tuple(history)


@pytest.mark.rows("X-28")
@given(
    st.lists(st.sampled_from(["call", "note", "trace", "answer"]), max_size=12),
    st.sets(st.integers(min_value=0, max_value=14)),
)
def test_whatever_leaves_and_whatever_is_added_roles_alternate_if_the_clients_did(
    steps: list[str], leaving: set[int]
) -> None:
    """A client's history alternates; any of its call groups and answers leaves, and texts of ours stand anywhere."""
    history: list[list[Message]] = [[user("begin")]]
    ours: set[int] = set()
    traces: set[int] = set()
    for number, step in enumerate(steps):
        if step == "call":
            history.append(list(call(str(number))))
        elif step == "answer":
            history += [[answer(f"answer {number}")], [user(f"request {number}")]]
        else:
            note = user(f"{step} {number}")
            (ours if step == "note" else traces).add(id(note))
            history.append([note])
    client = [m for group in history for m in group if id(m) not in ours | traces]
    assert alternates(client)
    shown = [
        m
        for number, group in enumerate(history)
        for m in group
        if number not in leaving or (m.role == "user" and not m.answers)
    ]

    left = alternate_roles(shown, ours, WRITER, AnswersLeftOut(client), traces)

    assert alternates(left)
    words = "".join(m.text for m in left)
    assert all(m.text in words for m in shown)


# ------------------------------------------------------------------------------------------------------------- dialects
@pytest.mark.rows("X-28")
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_a_joined_message_says_both_and_counts_both(dialect: Dialect) -> None:
    composer = DialectComposer(dialect, len)
    note = composer.user_message("a note")
    for first in (composer.user_message("a question"), composer.tool_result("call_1", "an output")):
        both = composer.joined(first, note)

        assert both is not None
        assert (both.role, both.answers, both.text) == (first.role, first.answers, f"{first.text}\n\na note")
        assert both.tokens == first.tokens + note.tokens
        assert composer.joined(first, note) is both


@pytest.mark.rows("X-28")
@pytest.mark.parametrize(
    ("wire", "content"),
    [
        ({"role": "user", "content": "see"}, "see\n\nnote"),
        ({"role": "user", "content": ""}, "note"),
        (
            {"role": "user", "name": "ann", "content": [{"type": "image_url", "image_url": {"url": "u"}}]},
            [{"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "note"}],
        ),
        (
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "out"}]},
            [{"type": "text", "text": "out"}, {"type": "text", "text": "note"}],
        ),
    ],
)
def test_what_else_a_message_holds_stays(wire: dict[str, object], content: object) -> None:
    both = OPENAI_CHAT.joined(read_message(json.dumps(wire).encode()), user("note"))

    assert both is not None
    assert json.loads(both.wire) == {**wire, "content": content}


@pytest.mark.rows("X-28")
def test_a_result_that_is_a_picture_is_left_alone() -> None:
    item = {"type": "computer_call_output", "call_id": "1", "output": {"type": "computer_screenshot", "image_url": "u"}}

    assert OPENAI_RESPONSES.joined(read_item(json.dumps(item).encode()), OPENAI_RESPONSES.user_message("note")) is None
