"""What holds for a request in every dialect (RELIABILITY P1, P2; X-12, X-22): one law each, and one entry of `ASKED`
for each dialect. No odd value makes a body unreadable or costs a byte of it, and what cannot be read says so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ledger.messages import Message, Request
from proxy.dialects import (
    ANTHROPIC_MESSAGES,
    OPENAI_CHAT,
    OPENAI_RESPONSES,
    Dialect,
    ParseCache,
    RenderOptions,
    RequestParseError,
)
from proxy.dialects.parse_cache import STEP_BYTES, ParseSteps, countable_texts

Json = dict[str, Any]
HI = {"role": "user", "content": "hi"}


@dataclass(frozen=True)
class Holding:
    """A body with a value in it, and what has to be read of it, in order."""

    raw: bytes
    roles: tuple[str, ...]
    wires: tuple[bytes, ...]
    pieces: tuple[bytes, ...]
    """What of it must leave as it came."""
    calls: tuple[tuple[str, str], ...] = ()
    """Their ids and names."""
    answers: tuple[str, ...] = ()
    """The ids of the calls that results answer."""


@dataclass(frozen=True)
class Asked:
    """One dialect."""

    dialect: Dialect
    listing: bytes
    """The member that lists the messages."""
    unreadable: Mapping[str, bytes]
    """Bodies that are wrong in this dialect alone."""
    holding: Callable[[bytes], Holding]
    bodies: st.SearchStrategy[Json]
    """Whatever a client may say that can be read."""
    said: Json
    """What one does say, at the least."""
    tools: Sequence[Json]
    """Of a client."""
    choice: Any
    """A client's choice of calling or not, and ours of not calling."""
    no_choice: Any
    added: tuple[str, ...] = ()
    """Members that we write into a request of any client."""
    fixed: bool = False
    """Some messages are told in no other words: what the model made, and what is a picture."""

    def read(self, raw: bytes) -> Request:
        return self.dialect.parse_request(raw, ParseCache())

    def asking(self, **members: Any) -> Request:
        """A request with these members behind those of `said`."""
        return self.read(json.dumps(self.said | members).encode())

    def written(self, asked: Request, wanted: RenderOptions) -> bytes:
        """The upstream body, with the client's own head and line."""
        head = self.dialect.extend_head(asked, "")
        return b"".join(self.dialect.render(asked, asked.messages, head, wanted))


# ----------------------------------------------------------------------------------------------------------- any value
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.dictionaries(st.text(), JSON, max_size=4)


def less(members: Json, names: tuple[str, ...]) -> Json:
    return {name: value for name, value in members.items() if name not in names}


# ---------------------------------------------------------------------------------------------------- chat completions
def holding_in_chat(odd: bytes) -> Holding:
    wire = b'{ "role" : "tool", "tool_call_id":"c1",  "content": ' + odd + b', "x":1.50 }'
    user = b'{"role":"user","content":' + odd + b"}"
    raw = b'{"model":"m","temperature":1E+2,"messages":[' + user + b", " + wire + b"]}"
    return Holding(raw, ("user", "tool"), (user, wire), (user, wire), answers=("c1",))


ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "function"])
CHAT_MESSAGES = st.builds(lambda more, role, said: more | {"role": role, "content": said}, MEMBERS, ROLES, JSON)
NO_ROLE = b'{"model":"m","messages":[{"role":7}]}'
CHAT = Asked(
    OPENAI_CHAT,
    b"messages",
    {"a role that is no text": NO_ROLE},
    holding_in_chat,
    st.builds(
        lambda more, messages: more | {"model": "m", "messages": messages},
        MEMBERS,
        st.lists(CHAT_MESSAGES, min_size=1, max_size=4),
    ),
    {"model": "m", "messages": [HI]},
    [{"type": "function", "function": {"name": "bash", "parameters": {}}}],
    "auto",
    "none",
    added=("stream_options",),
)


# ------------------------------------------------------------------------------------------------------- messages API
def holding_in_messages(odd: bytes) -> Holding:
    result = b'{ "type" : "tool_result", "tool_use_id":"t1",  "content": ' + odd + b', "x":1.50 }'
    text = b'{"type":"text", "text": ' + odd + b"}"
    said = b'{"role":"assistant","content":[ {"type":"tool_use","id":"t1","name":"n","input":' + odd + b"} ]}"
    last = b'{"role":"user","content":[' + result + b" , " + text + b"]}"
    whole = b'{"role":"user", "content":' + odd + b"}"
    return Holding(
        b'{"temperature":1E+2,"model":"m","messages":[' + b", ".join([whole, said, last]) + b"]}",
        ("user", "assistant", "tool", "user"),
        (whole, said, b"[" + result + b"]", b"[" + text + b"]"),
        (whole, said, result, text),
        calls=(("t1", "n"),),
        answers=("t1",),
    )


BLOCKS = st.builds(
    lambda more, kind, said: more | {"type": kind, "tool_use_id": "t", "id": "t", "name": "n", **said},
    MEMBERS,
    st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "unheard_of"]),
    st.fixed_dictionaries({}, optional={"text": JSON, "content": JSON, "input": JSON}),
)
CONTENTS = JSON | st.lists(BLOCKS | JSON, max_size=4)
ASSISTANTS = st.builds(lambda more, said: more | {"role": "assistant", "content": said}, MEMBERS, CONTENTS)
USERS = st.builds(lambda said: {"role": "user", "content": said}, CONTENTS)


def is_split(said: Json) -> bool:
    blocks = said["content"] if isinstance(said["content"], list) else []
    return said["role"] == "user" and any(isinstance(b, dict) and b.get("type") == "tool_result" for b in blocks)


def without_neighbours(messages: list[Json]) -> list[Json]:
    """No two messages of results in a row: their blocks become one message, as the API itself makes of them."""
    kept: list[Json] = []
    for each in messages:
        if not (kept and is_split(each) and is_split(kept[-1])):
            kept.append(each)
    return kept


MESSAGES = Asked(
    ANTHROPIC_MESSAGES,
    b"messages",
    {
        "a role that is no text": NO_ROLE,
        "a system text that is none": b'{"model":"m","system":{"role":"x"},"messages":[{"role":"user"}]}',
    },
    holding_in_messages,
    st.builds(
        lambda more, messages: less(more, ("system",)) | {"model": "m", "messages": without_neighbours(messages)},
        MEMBERS,
        st.lists(ASSISTANTS | USERS, min_size=1, max_size=4),
    ),
    {"model": "m", "max_tokens": 9, "messages": [HI]},
    [{"name": "Bash", "description": "d", "input_schema": {"type": "object"}}, {"type": "web_search_20250305"}],
    {"type": "auto", "disable_parallel_tool_use": True},
    {"type": "none"},
)


# ------------------------------------------------------------------------------------------------------ responses API
def holding_in_responses(odd: bytes) -> Holding:
    result = b'{ "call_id":"c1",  "output": ' + odd + b', "type" : "function_call_output", "x":1.50 }'
    call = b'{"type":"function_call","name":"bash","call_id":"c1","arguments":' + odd + b"}"
    run = b'{"type":"message","role":"assistant","content":' + odd + b"} , \n" + call
    user = b'{"role":"user","content":' + odd + b"}"
    items = b"[" + user + b"," + run + b"," + result + b"]"
    return Holding(
        b'{"model":"m","temperature":1E+2,"instructions":"a","input": ' + items + b"}",
        ("user", "assistant", "tool"),
        (user, b"[" + run + b"]", result),
        (user, run, result),
        calls=(("c1", "bash"),),
        answers=("c1",),
    )


KINDS = ["message", "reasoning", "function_call", "function_call_output", "compaction", "unheard_of", "item_reference"]
ITEMS = (
    st.builds(
        lambda more, type_, role, said: (
            more | {"type": type_, "role": role, "content": said, "call_id": said, "tools": said}
        ),
        MEMBERS,
        st.sampled_from([*KINDS, None]) | st.text(),
        st.sampled_from(["system", "user", "assistant", "tool", "developer", None]),
        JSON,
    )
    | MEMBERS
)
RESPONSES = Asked(
    OPENAI_RESPONSES,
    b"input",
    {
        "no model but a text": b'{"input":"hi"}',
        "a model that is no text before a text": b'{"model":1,"input":"hi"}',
        "no input": b'{"model":"m","instructions":"x"}',
        "an item that is an array": b'{"model":"m","input":[[{"type":"reasoning"}]]}',
        "a model item that is no object": b'{"model":"m","input":[{"type":"reasoning"},7,{"type":"reasoning"}]}',
        "something behind a text": b'{"model":"m","input":"hi"} {}',
    },
    holding_in_responses,
    st.builds(
        lambda more, items, instructions: more | {"model": "m", "instructions": instructions, "input": items},
        MEMBERS,
        st.lists(ITEMS, min_size=1, max_size=6) | st.text(),
        JSON,
    ),
    {"model": "m", "input": [HI]},
    [{"type": "function", "name": "bash", "description": "", "strict": False, "parameters": {}}],
    "auto",
    "none",
    fixed=True,
)
ASKED = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
"""By the short name of the dialect."""
every_dialect = pytest.mark.parametrize("form", ASKED.values(), ids=ASKED)


# ---------------------------------------------------------------------------------------------------------- unreadable
UNREADABLE = {
    "nothing": b"",
    "no JSON": b"no json",
    "an array": b"[]",
    "a string": b'"text"',
    "no members": b"{}",
    "no model": b'{"LIST":[{"role":"user"}]}',
    "a model that is no text": b'{"model":1,"LIST":[{"role":"user"}]}',
    "messages that are no list": b'{"model":"m","LIST":{}}',
    "no messages": b'{"model":"m","LIST":[]}',
    "a message that is no object": b'{"model":"m","LIST":["hi"]}',
    "cut off": b'{"model":"m","LIST":[{"role":"user"}]',
    "something behind it": b'{"model":"m","LIST":[{"role":"user"}]} {}',
    "deep arrays": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "brackets that cross": b'{"model":"\\ud800","LIST":[}',
    "no text at all": b"\x00\xff",
    "no colon": b'{"a" "b"}',
}
"""In any dialect; LIST stands for the member that lists the messages."""


@every_dialect
@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_taken_apart_says_so_and_never_crashes(form: Asked, raw: bytes) -> None:
    with pytest.raises(RequestParseError):
        form.read(raw.replace(b"LIST", form.listing))


@pytest.mark.parametrize(
    ("form", "raw"),
    [
        pytest.param(form, raw, id=f"{name}-{wrong}")
        for name, form in ASKED.items()
        for wrong, raw in form.unreadable.items()
    ],
)
def test_what_one_dialect_cannot_take_apart_says_so(form: Asked, raw: bytes) -> None:
    with pytest.raises(RequestParseError):
        form.read(raw)


# ----------------------------------------------------------------------------------------------------------------- odd
ODD = {
    "lone surrogate": rb'"\ud83d alone"',
    "30 digits": b"123456789012345678901234567890",
    "5000 digits": b"9" * 5000,
    "NUL": rb'"a\u0000b"',
    "raw NUL": b'"a\x00b"',
    "nesting": b"[" * 50_000 + b"]" * 50_000,
    "NaN": b"NaN",
    "invalid UTF-8": b'"\xff\xfe"',
    "odd escapes": rb'"\q"',
}


@every_dialect
@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_p2_an_odd_value_makes_no_body_unreadable_and_is_kept_byte_for_byte(form: Asked, odd: bytes) -> None:
    holding = form.holding(odd)
    asked = form.read(holding.raw)
    said = asked.messages
    assert tuple(m.role for m in said) == holding.roles
    assert tuple(m.wire for m in said) == holding.wires
    assert tuple((c.id, c.name) for m in said for c in m.calls) == holding.calls
    assert answered(said) == holding.answers
    assert asked.fields["temperature"] == b"1E+2"
    assert b"".join(form.dialect.client_body(asked)) == holding.raw
    for text in [*countable_texts(asked), *(m.text for m in said)]:
        text.encode()
    assert [m.identity for m in form.read(holding.raw).messages] == [m.identity for m in said]
    left = form.written(asked, RenderOptions())
    for piece in holding.pieces:
        assert piece in left


@every_dialect
def test_a_value_of_any_depth_is_read_or_refused(form: Asked) -> None:
    """There is a depth that a parser still takes and a writer does not."""
    for depth in range(900, 1000, 2):
        holding = form.holding(b'{"a":' * depth + b"1" + b"}" * depth)
        try:
            asked = form.read(holding.raw)
        except RequestParseError:
            assert depth > 920
        else:
            assert tuple(m.wire for m in asked.messages) == holding.wires, depth
            assert answered(asked.messages) == holding.answers, depth


def answered(said: Sequence[Message]) -> tuple[str, ...]:
    return tuple(message.answers for message in said if message.role == "tool")


# --------------------------------------------------------------------------------------------------------- tools of
# ours
OFFERED = [{"name": "stack_recall", "description": "r", "parameters": {"type": "object"}}]


@every_dialect
def test_our_tools_stand_behind_the_clients_and_their_bytes_are_constant(form: Asked) -> None:
    ours = form.dialect.tools_json(OFFERED)
    asked = form.asking(tools=form.tools, temperature=0)
    left = form.written(asked, RenderOptions(ours))
    assert json.loads(left)["tools"] == [*form.tools, *json.loads(ours)]
    assert asked.fields["tools"][:-1] + b"," + ours[1:] in left


@every_dialect
@pytest.mark.parametrize("members", [{}, {"tools": []}, {"tools": None}], ids=["absent", "empty", "null"])
def test_an_array_of_ours_where_the_client_sends_none(form: Asked, members: Json) -> None:
    ours = form.dialect.tools_json(OFFERED)
    found = json.loads(form.written(form.asking(**members, temperature=0), RenderOptions(ours)))
    assert list(found) == [*form.said, "tools", "temperature"]
    assert found["tools"] == json.loads(ours)


@pytest.mark.rows("X-12")
@every_dialect
def test_x12_the_last_round_takes_no_calls_and_keeps_its_arrays(form: Asked) -> None:
    last = RenderOptions(form.dialect.tools_json(OFFERED), tool_choice_none=True)
    found = json.loads(form.written(form.asking(tools=form.tools, tool_choice=form.choice), last))
    assert found["tool_choice"] == form.no_choice
    assert len(found["tools"]) == len(form.tools) + 1
    assert (
        json.loads(form.written(form.asking(), RenderOptions(tool_choice_none=True)))["tool_choice"] == form.no_choice
    )


# ---------------------------------------------------------------------------------------------------------------- laws
@pytest.mark.rows("X-22")
@every_dialect
@given(st.data(), st.booleans(), st.sampled_from([None, 1]))
def test_x22_any_request_survives_byte_for_byte(
    form: Asked, data: st.DataObject, ascii_only: bool, indent: int | None
) -> None:
    said = data.draw(form.bodies)
    try:
        raw = json.dumps(said, ensure_ascii=ascii_only, indent=indent).encode()
    except UnicodeEncodeError:
        raw = json.dumps(said, indent=indent).encode()
    asked = form.read(raw)
    assert b"".join(form.dialect.client_body(asked)) == raw
    left = form.written(asked, RenderOptions())
    assert less(json.loads(left), form.added) == less(said, form.added)
    again = form.read(left)
    assert b"".join(form.dialect.client_body(again)) == left
    assert [m.identity for m in again.messages] == [m.identity for m in asked.messages]
    for message in asked.messages:
        assert json.loads(form.dialect.without_reasoning(message).wire) is not None
        told = form.dialect.with_content(message, "t")
        assert told.text == "t" or (form.fixed and told is message)


# ------------------------------------------------------------------------------------------------------------ in bits
@every_dialect
def test_a_long_history_is_read_bit_by_bit_whatever_is_read_meanwhile(form: Asked) -> None:
    """Reading one of 161k tokens at once kept everybody else waiting for 7 ms."""
    listed = form.listing.decode()
    history = [{"role": "user", "content": f"{at} " + "parcel " * 2_000} for at in range(20)]
    body = json.dumps(form.said | {listed: history}).encode()
    known = ParseCache()
    reading = form.dialect.parse_in_steps(body, known)
    bits, found, apart = 0, None, next(reading)
    while found is None:
        bits += 1
        form.dialect.parse_request(json.dumps(form.said | {listed: history[: bits * 4]}).encode(), known)
        found, apart = _next_bit(reading, apart)

    assert bits >= len(body) // STEP_BYTES - 1
    assert found.messages == form.read(body).messages
    assert form.dialect.parse_request(body, known).messages == found.messages


def _next_bit(reading: ParseSteps[Request], apart: Callable[[], object] | None) -> tuple[Request | None, Any]:
    """The request, or else what is to be done apart before the next bit. `apart` is that of the last one."""
    try:
        return None, reading.send(apart() if apart else None)
    except StopIteration as ended:
        found: Request = ended.value
        return found, None
