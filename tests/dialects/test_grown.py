"""A body read on from the one before it is what reading it alone tells, however the two differ."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ledger import Request
from proxy.dialects import DIALECTS, Dialect, raw_json
from proxy.dialects.parse_cache import BodyCache, ParseCache, ParseSteps, SplitBody

FRONT, BEHIND = b'{"model": "m", "n": 1.50, "messages": ', b', "tools": [{"name": "read"}], "x": null}'
FIRST, SECOND, THIRD = b'{"role": "user", "content": "a ]}"}', b'{"content": "", "": [0]}', b'{"content": "\xc3\xa4"}'

VALUES = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["messages", "model", "", "tools", "0"])


def alone(body: bytes) -> SplitBody:
    fields = raw_json.members(body)
    return fields, raw_json.items(fields.get("messages", b""))


def holding(*items: bytes, front: bytes = FRONT, behind: bytes = BEHIND, glue: bytes = b", ") -> bytes:
    return front + b"[" + glue.join(items) + b"]" + behind


def test_a_body_that_grew_reads_as_it_does_alone() -> None:
    bodies = BodyCache()

    for body in (holding(FIRST), holding(FIRST, SECOND), holding(FIRST, SECOND, THIRD), holding(FIRST, SECOND, THIRD)):
        assert bodies.split(body, "messages") == alone(body)
        assert list(bodies.split(body, "messages")[0]) == list(alone(body)[0]), "the order of members"


def test_what_was_read_before_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies, read, members = BodyCache(), list[bytes](), raw_json.body_members

    def watched(raw: bytes) -> dict[str, bytes]:
        read.append(raw)
        return members(raw)

    bodies.split(holding(*[FIRST] * 1000), "messages")
    monkeypatch.setattr(raw_json, "body_members", watched)  # what is told is the same: only here it can be seen

    bodies.split(holding(*[FIRST] * 1000, SECOND), "messages")

    assert sum(map(len, read)) < 200


@pytest.mark.parametrize("glue", [b", ", b"\n,\t"])
def test_a_cache_marker_that_moves_on_does_not_make_the_rest_be_read_again(
    glue: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of the messages API mark the last messages, and send them without the marker in the next request."""
    bodies, read, members = BodyCache(), list[bytes](), raw_json.body_members
    marked = b'{"role": "user", "content": [{"text": "b", "cache_control": {"type": "ephemeral"}}]}'

    def watched(raw: bytes) -> dict[str, bytes]:
        read.append(raw)
        return members(raw)

    bodies.split(holding(*[FIRST] * 1000, marked, SECOND, glue=glue), "messages")
    monkeypatch.setattr(raw_json, "body_members", watched)  # what is told is the same: only here it can be seen
    for later in ((THIRD, SECOND, marked), (THIRD, SECOND, SECOND, THIRD, marked)):
        body = holding(*[FIRST] * 1000, *later, glue=glue)

        assert bodies.split(body, "messages")[1] == [*[FIRST] * 1000, *later]
    assert sum(map(len, read)) < 800


@pytest.mark.parametrize(
    "later",
    [
        holding(FIRST, behind=b"}"),
        holding(FIRST, behind=b' , "messages": [{"role": "user"}]}'),
        holding(FIRST, behind=b', "messages": [0, 1]}'),
        holding(FIRST, behind=b', "model": "other", "": 1}'),
        holding(FIRST, SECOND, glue=b"\n,\t"),
        holding(FIRST, b"[1]", b"2", b'"three"', b"null"),
        holding(SECOND),
        holding(),
    ],
)
def test_another_body_that_begins_alike_reads_as_it_does_alone(later: bytes) -> None:
    bodies = BodyCache()
    bodies.split(holding(FIRST), "messages")

    assert bodies.split(later, "messages") == alone(later)
    assert bodies.split(holding(FIRST, SECOND), "messages") == alone(holding(FIRST, SECOND))


@pytest.mark.parametrize(("item", "longer"), [(b"1", b"12"), (b"1", b"1.5"), (b"0", b"0e1"), (b"[0]", b"[0]")])
def test_an_item_that_goes_on_where_the_known_one_ended_is_another_item(item: bytes, longer: bytes) -> None:
    bodies = BodyCache()
    bodies.split(holding(item), "messages")

    assert bodies.split(holding(longer), "messages") == alone(holding(longer))


@pytest.mark.parametrize(
    "front",
    [
        b'{"model": 1, "messages": [{"a": 1}], "messages": ',
        b'{"prompt": {"messages": [{"a": 1}]}, "messages": ',
        b'{"prompt": [{"a": 1}], "messages": ',
        b'{"prompt": [[{"a": 1}]], "messages": ',
    ],
)
def test_the_same_array_in_front_of_it_is_not_taken_for_the_one_that_grows(front: bytes) -> None:
    bodies = BodyCache()
    item = b'{"a": 1}'
    bodies.split(holding(item, front=front), "messages")

    for later in (holding(item, SECOND, front=front), holding(item, front=front).replace(b"}]", b"},{}]", 1)):
        assert bodies.split(later, "messages") == alone(later)


@pytest.mark.parametrize("broken", [holding(FIRST, behind=b""), holding(FIRST)[:-1], holding(FIRST, behind=b"]}")])
def test_a_body_that_cannot_be_read_alone_cannot_be_read_on(broken: bytes) -> None:
    bodies = BodyCache()
    bodies.split(holding(FIRST), "messages")

    with pytest.raises(raw_json.JsonSplitError):
        alone(broken)
    with pytest.raises(raw_json.JsonSplitError):
        bodies.split(broken, "messages")


def test_a_value_that_only_the_scanner_takes_is_no_hindrance() -> None:
    bodies = BodyCache()
    body, later = holding(FIRST, b'{"n": NaN}'), holding(FIRST, b'{"n": NaN}', b'{"s": "\\ud800"}')

    assert bodies.split(body, "messages") == alone(body)
    assert bodies.split(later, "messages") == alone(later)


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(NAMES, VALUES), max_size=3), st.lists(VALUES), st.lists(st.tuples(NAMES, VALUES))),
        max_size=6,
    ),
    st.sampled_from([",", " , "]),
)
def test_whatever_was_read_before_a_body_reads_as_it_does_alone(said: list[Any], glue: str) -> None:
    bodies, history = BodyCache(), list[str]()
    for front, new, behind in said:
        history += map(json.dumps, new)
        members = [*front, ("messages", None), *behind]
        written = ("[" + glue.join(history) + "]" if value is None else json.dumps(value) for _, value in members)
        named = (f"{json.dumps(name)}:{text}" for (name, _), text in zip(members, written, strict=True))
        body = ("{" + glue.join(named) + "}").encode()
        for form in (body, body.replace(b"}", b"},", 1), body[:-1]):
            assert outcome(bodies, form) == outcome(None, form)


def outcome(bodies: BodyCache | None, body: bytes) -> SplitBody | None:
    try:
        return alone(body) if bodies is None else bodies.split(body, "messages")
    except raw_json.JsonSplitError:
        return None


def test_no_more_is_remembered_than_there_is_room_for() -> None:
    bodies = BodyCache(most_bytes=3 * len(holding(FIRST)))

    for number in range(20):
        bodies.split(holding(FIRST, front=b'{"number": %d, "messages": ' % number), "messages")

    assert 0 < bodies.size <= 3 * len(holding(FIRST))


@pytest.mark.rows("X-56")
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.name)
def test_between_the_readings_of_a_large_body_others_have_their_turn(dialect: Dialect) -> None:
    """Each is the work of a thread; what is read is the same."""
    name = b"input" if dialect.name == "openai_responses" else b"messages"
    said = b'{"role": "user", "content": "' + b"a" * 7_000_000 + b'"}'
    body = b'{"model": "m", "max_tokens": 1, "' + name + b'": [' + said + b"]}"
    works = []

    def told(steps: ParseSteps[Request]) -> Request:
        answer = None
        while True:
            step = steps.send(answer)
            answer = step() if step is not None else None
            works.append(step)

    with pytest.raises(StopIteration) as ended:
        told(dialect.parse_in_steps(body, ParseCache()))

    assert sum(step is not None for step in works) >= 3
    assert ended.value.value.messages == dialect.parse_request(body, ParseCache()).messages
