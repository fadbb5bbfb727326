"""Cache markers of the messages API: taken off what is read, put where a request is worth them (CLIENTS 8, P4)."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ledger.messages import Message, Request
from proxy.dialects.base import RenderOptions
from proxy.dialects.messages.message import read_message, tool_result, user_message
from proxy.dialects.messages.request import ANTHROPIC_MESSAGES, client_body, render
from proxy.dialects.parse_cache import ParseCache

read = ANTHROPIC_MESSAGES.parse_request

SHORT = {"type": "ephemeral"}
LONG = {"type": "ephemeral", "ttl": "1h"}
TOOL = {"name": "Bash", "input_schema": {"type": "object"}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def said(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def call(id_: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": "Bash", "input": {}}


def result(id_: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": f"r{id_}"}


def marked(block: dict[str, Any], form: object = SHORT) -> dict[str, Any]:
    return block | {"cache_control": form}


def request(*messages: object, **members: Any) -> Request:
    raw = json.dumps({"model": "m", "messages": messages, **members}, separators=(",", ":")).encode()
    return read(raw, ParseCache())


def rendered(asked: Request, line: list[Message] | None = None, fork: int = 0) -> dict[str, Any]:
    messages = asked.messages if line is None else line
    found = json.loads(b"".join(render(asked, messages, [m.wire for m in asked.head], RenderOptions(fork=fork))))
    assert isinstance(found, dict)
    return found


def forms(message: dict[str, Any]) -> list[object]:
    blocks = message["content"] if isinstance(message["content"], list) else []
    return [block["cache_control"] for block in blocks if "cache_control" in block]


def places(found: dict[str, Any]) -> dict[int, list[object]]:
    """Forms of the markers by the number of the message that holds them."""
    return {at: held for at, message in enumerate(found["messages"]) if (held := forms(message))}


LOOP = [user(text("go")), *(m for n in "abcdef" for m in (said(text(n), call(n)), user(result(n))))]
"""A user's message and six call groups; the user's messages stand at even numbers."""


def with_last(form: object) -> list[dict[str, Any]]:
    return [*LOOP[:-1], user(marked(result("f"), form))]


# -------------------------------------------------------------------------------------------------------------- read
@pytest.mark.parametrize(
    "message",
    [
        user(text("a"), text("b")),
        said(text("a"), call("t")),
        user(result("t"), text("b")),
        user(text('"cache_control"')),
    ],
)
def test_a_moving_marker_changes_neither_identity_nor_bytes(message: dict[str, Any]) -> None:
    """98 of 98 follow-up requests of a client match once its markers are dropped."""
    last = message["content"][-1]
    moved = message | {"content": [*message["content"][:-1], marked(last)]}
    plain, other = request(message).messages, request(moved).messages
    assert [(m.identity, m.wire) for m in plain] == [(m.identity, m.wire) for m in other]


def test_a_marker_inside_a_result_is_taken_off_too() -> None:
    inner = result("t") | {"content": [text("a"), marked(text("b"))], "x": 1}
    (found,) = request(user(inner)).messages
    assert json.loads(found.wire) == [inner | {"content": [text("a"), text("b")]}]
    assert places(rendered(request(user(inner)))) == {0: [SHORT]}


def test_what_only_looks_like_a_marker_stays() -> None:
    asks = said({"type": "tool_use", "id": "t", "name": "Edit", "input": {"cache_control": {"type": "ephemeral"}}})
    null = user(marked(text("a"), None))
    asked = request(asks, null, user(text('{"cache_control": 1}')), tools=[TOOL])
    assert rendered(asked, fork=2) == json.loads(asked.body)
    assert all(m.wire in asked.body for m in asked.messages)


def test_the_clients_own_body_keeps_its_markers() -> None:
    asked = request(*with_last(LONG), system=[marked(text("s"))])
    assert b"".join(client_body(asked)) == asked.body


# ------------------------------------------------------------------------------------------------------------- place
def test_p1_what_is_not_changed_has_its_markers_where_they_were() -> None:
    asked = request(*with_last(LONG), system=[marked(text("s"))], tools=[marked(TOOL)])
    assert b"".join(render(asked, asked.messages, [m.wire for m in asked.head], RenderOptions())) == asked.body


def test_no_marker_is_put_where_the_client_has_none() -> None:
    asked = request(*LOOP, system=[marked(text("s"))])
    assert places(rendered(asked, fork=4)) == {}


def test_a_marker_stands_at_the_end_of_the_line_and_at_the_fork_point() -> None:
    asked = request(*with_last(LONG))
    assert places(rendered(asked)) == {12: [LONG]}
    assert places(rendered(asked, fork=5)) == {4: [LONG], 12: [LONG]}
    line = [*asked.messages, read_message(json.dumps(said(text("x"), call("s"))).encode()), tool_result("s", "pushed")]
    assert places(rendered(asked, line, fork=5)) == {4: [LONG], 14: [LONG]}


def test_the_mark_of_a_fork_point_inside_a_message_of_results_stands_inside_it() -> None:
    asked = request(user(text("go")), said(call("a"), call("b")), user(result("a"), marked(result("b"))))
    line = [*asked.messages[:3], tool_result("s", "pushed"), *asked.messages[3:]]
    (_, _, answered) = rendered(asked, line, fork=4)["messages"]
    assert [("cache_control" in block, block["tool_use_id"]) for block in answered["content"]] == [
        (False, "a"), (True, "s"), (True, "b")
    ]  # fmt: skip


def test_where_the_client_stops_short_of_its_end_so_does_the_line() -> None:
    """What asks for a summary is said once, and not worth keeping."""
    asks = [*LOOP[:-2], said(text("f"), marked(call("f"))), user(result("f"), text("summarise"))]
    asked = request(*asks)
    assert rendered(asked) == json.loads(asked.body)
    assert places(rendered(asked, fork=3)) == {2: [SHORT], 11: [SHORT]}
    gone = [*asked.messages[:2], *asked.messages[-2:]]
    assert places(rendered(asked, gone)) == {2: [SHORT]}
    inside = request(*LOOP[:-1], user(marked(result("f")), text("summarise")))
    assert rendered(inside) == json.loads(inside.body)


FORK, BEFORE, END = 8, len(LOOP) - 1, len(LOOP) + 1


@pytest.mark.parametrize(
    ("calls", "others", "marked_places"),
    [
        (9, 0, {FORK: [SHORT], END: [SHORT]}),
        (10, 0, {FORK: [SHORT], BEFORE: [SHORT], END: [SHORT]}),
        (10, 2, {BEFORE: [SHORT], END: [SHORT]}),
        (10, 3, {END: [SHORT]}),
    ],
)
def test_where_more_blocks_came_than_the_api_looks_back_the_end_before_is_marked_first(
    calls: int, others: int, marked_places: dict[int, list[object]]
) -> None:
    """Else all that was cached would be written again, after a dozen edits in one message."""
    ids = [f"n{number}" for number in range(calls)]
    asked = request(
        *LOOP,
        said(*map(call, ids)),
        user(*map(result, ids[:-1]), marked(result(ids[-1]))),
        tools=[marked(TOOL) for _ in range(others)],
    )

    assert places(rendered(asked, fork=FORK + 1)) == marked_places


def test_a_fork_point_at_the_end_of_the_line_is_marked_once_and_adds_none() -> None:
    asked = request(*with_last(SHORT))
    assert places(rendered(asked, fork=len(LOOP))) == {12: [SHORT]}


def test_more_markers_stand_at_the_ends_of_earlier_user_messages() -> None:
    """A client that marks its last two user messages reads its own cache again after a fork."""
    more = [*LOOP[:-3], user(marked(result("e"))), LOOP[-2], user(marked(result("f")))]
    assert places(rendered(request(*more))) == {10: [SHORT], 12: [SHORT]}
    assert places(rendered(request(*more), fork=4)) == {3: [SHORT], 10: [SHORT], 12: [SHORT]}
    assert places(rendered(request(*more), fork=11)) == {8: [SHORT], 10: [SHORT], 12: [SHORT]}


def test_a_message_of_several_results_is_marked_at_its_end_alone() -> None:
    group = [said(call("a"), call("b")), user(result("a"), result("b"), text("c"))]
    ends = [said(call("d")), user(marked(result("d"))), said(call("e")), user(marked(text("x")), marked(result("e")))]
    found = rendered(request(user(text("go")), *group, *ends))
    assert places(found) == {2: [SHORT], 4: [SHORT], 6: [SHORT]}
    assert found["messages"][2] == user(result("a"), result("b"), marked(text("c")))


def test_there_are_never_more_than_four() -> None:
    crowd = [user(marked(result(n))) if m["role"] == "user" else m for n, m in zip("xaabbccddeeff", LOOP, strict=True)]
    assert len(places(rendered(request(*crowd), fork=4))) == 4
    asked = request(*with_last(SHORT), system=[marked(text("s")), marked(text("t"))], tools=[marked(TOOL)])
    assert places(rendered(asked, fork=4)) == {12: [SHORT]}
    asked = request(*with_last(SHORT), system=[marked(text("s")), marked(text("t"))])
    assert places(rendered(asked, fork=4)) == {3: [SHORT], 12: [SHORT]}
    asked = request(*with_last(SHORT), system=[marked(text(n)) for n in "abcde"])
    assert places(rendered(asked, fork=4)) == {}


def test_long_lived_markers_stand_before_short_lived_ones() -> None:
    mixed = [user(marked(text("go"), LONG)), *with_last(SHORT)[1:]]
    assert places(rendered(request(*mixed), fork=5)) == {4: [LONG], 10: [LONG], 12: [SHORT]}
    room = [marked(text(n), LONG) for n in "abc"]
    assert places(rendered(request(*mixed, system=room), fork=5)) == {12: [SHORT]}


def test_where_the_provider_marks_the_end_itself_only_the_fork_point_is_marked() -> None:
    assert places(rendered(request(*LOOP, cache_control=LONG))) == {}
    assert places(rendered(request(*LOOP, cache_control=LONG), fork=4)) == {3: [LONG]}
    assert places(rendered(request(*LOOP, cache_control=LONG), fork=len(LOOP))) == {}
    assert places(rendered(request(*LOOP, cache_control=None), fork=4)) == {}
    full = [marked(text(n)) for n in "abc"]
    assert places(rendered(request(*LOOP, cache_control=SHORT, system=full), fork=4)) == {}


THOUGHT = {"type": "thinking", "thinking": "h", "signature": "s"}


@pytest.mark.parametrize(
    "tail",
    [
        [said(THOUGHT)],
        [said(text(" "))],
        [user(text(""))],
        [user({"type": "unheard_of"})],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": []}],
        [{"role": "system", "content": "the plan is empty"}, {"role": "system", "content": [text("x")]}],
    ],
)
def test_what_may_not_carry_a_marker_is_stepped_over(tail: list[dict[str, Any]]) -> None:
    asked = request(*with_last(SHORT))
    line = [*asked.messages, *request(*tail).messages]
    assert places(rendered(asked, line)) == {12: [SHORT]}


def test_a_message_of_the_system_carries_the_marker_that_the_client_set_on_it() -> None:
    """As Claude Code does with its first request: 2,000 tokens behind it would be written anew with the next."""
    opened = [user(text("go")), {"role": "system", "content": [marked(text("the environment"))]}]
    asked = request(*opened)
    assert places(rendered(asked, [*asked.messages[:1], *asked.messages])) == {2: [SHORT]}
    stopped = request(*opened, user(text("say no more")))
    assert places(rendered(stopped, [*stopped.messages[:1], *stopped.messages])) == {3: [SHORT]}


def test_a_marker_stands_on_the_last_block_that_may_carry_it() -> None:
    asked = request(user(marked(text("a"))))
    line = [*asked.messages, *request(said(THOUGHT, text("b"), {"type": "unheard_of"})).messages]
    (_, last) = rendered(asked, line)["messages"]
    assert last["content"] == [THOUGHT, marked(text("b")), {"type": "unheard_of"}]


def test_a_string_becomes_a_block_only_where_a_marker_must_stand() -> None:
    plain = {"role": "user", "content": "go \U0001f600", "x": 1}
    asked = request(plain, said(text("a")), user(marked(text("b"))))
    assert rendered(asked)["messages"][0] == plain
    first = rendered(asked, list(asked.messages[:1]))["messages"]
    assert first == [plain | {"content": [marked(text("go \U0001f600"))]}]


def test_texts_of_ours_carry_the_marker_of_the_end() -> None:
    asked = request(*with_last(SHORT))
    last = rendered(asked, [*asked.messages, user_message("note")])["messages"][-1]
    assert last["content"] == [result("f"), marked(text("note"))]


def test_a_line_without_a_place_has_no_marker() -> None:
    asked = request(user(marked(text("a"))))
    assert places(rendered(asked, list(request(said(THOUGHT)).messages))) == {}


# -------------------------------------------------------------------------------------------------------------- laws
BLOCKS = st.sampled_from([text("a"), text(""), THOUGHT, call("t"), result("t"), {"type": "unheard_of"}])
MARKED = st.builds(
    lambda block, form: block if form is None else marked(block, form), BLOCKS, st.sampled_from([None, SHORT])
)
CONTENTS = st.lists(MARKED, max_size=3) | st.just("words")
ROLES = st.sampled_from(["user", "assistant", "system"])
MESSAGES = st.lists(st.builds(lambda r, c: {"role": r, "content": c}, ROLES, CONTENTS), min_size=1, max_size=6)


def stripped(said: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Without markers, neighbouring runs of user blocks as one message, and a string as a block."""
    messages: list[tuple[str, list[dict[str, Any]]]] = []
    for is_user, same in groupby(said, key=lambda m: m["role"] == "user"):
        group = [(m["role"], [text(c)] if isinstance(c := m["content"], str) else c) for m in same]
        bare = [(r, [{k: v for k, v in b.items() if k != "cache_control"} for b in c]) for r, c in group]
        messages += [("user", [block for _, blocks in bare for block in blocks])] if is_user else bare
    return messages


@given(MESSAGES, st.integers(0, 20), st.integers(0, 5), st.booleans())
def test_markers_alone_differ_and_are_at_most_the_clients_and_the_forks(
    messages: list[dict[str, Any]], fork: int, elsewhere: int, whole: bool
) -> None:
    more: dict[str, Any] = {"cache_control": SHORT} if whole else {}
    asked = request(*messages, system=[marked(text("s"))] * elsewhere, **more)
    found = rendered(asked, fork=fork)
    theirs, ours = (sum(len(forms(m)) for m in said) for said in (messages, found["messages"]))
    assert stripped(found["messages"]) == stripped(messages)
    assert ours <= theirs + (fork > 0 and bool(theirs or whole))
    assert ours == 0 or ours + elsewhere + whole <= 4
