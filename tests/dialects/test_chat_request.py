"""A chat request taken apart and written again (RELIABILITY P1, P3; X-21, X-23; CLIENTS 8, canonical form), beyond what
holds in every dialect (`test_every_request.py`)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.ledger.messages import Message, Request
from proxy.dialects.base import RenderOptions
from proxy.dialects.chat.message import read_message, tool_result, user_message, without_calls, without_reasoning
from proxy.dialects.chat.request import OPENAI_CHAT, client_body, extend_head, render, tools_json
from proxy.dialects.parse_cache import ParseCache, SliceCache, countable_texts, run_steps, with_token_counts

read = OPENAI_CHAT.parse_request

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Fix the login."}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls", "a": 1}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "login.py"}
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]
OURS = tools_json([{"name": "stack_recall"}])


def body(*messages: object, **members: Any) -> bytes:
    return json.dumps({"model": "m", "messages": list(messages), **members}).encode()


def request(*messages: object, **members: Any) -> Request:
    return read(body(*messages, **members), ParseCache())


def unseen(asked: Request) -> tuple[int, ...]:
    """Where the messages stand whose tokens are not counted yet."""
    return tuple(at for at, source in enumerate(asked.slices) if not source.has_token_counts)


def rendered(asked: Request, wanted: RenderOptions) -> dict[str, Any]:
    found = json.loads(b"".join(render(asked, asked.messages, [m.wire for m in asked.head], wanted)))
    assert isinstance(found, dict)
    return found


def identity(message: object) -> str:
    return read_message(json.dumps(message).encode()).identity


# -------------------------------------------------------------------------------------------------------------- read
def test_a_request_is_read() -> None:
    asked = request(SYSTEM, {"role": "developer", "content": "x"}, USER, CALLED, RESULT, tools=TOOLS, stream=True)
    assert [m.role for m in asked.head] == ["system", "developer"]
    assert [m.role for m in asked.messages] == ["user", "assistant", "tool"]
    assert (asked.model, asked.stream, asked.wants_usage, asked.tool_names) == ("m", True, False, ("bash",))
    assert asked.messages[1].calls[0].name == "bash"
    assert asked.messages[2].answers == "c1"
    assert list(asked.fields) == ["model", "messages", "tools", "stream"]


@pytest.mark.rows("X-31")
def test_x31_tools_of_ours_join_the_allowed_ones_once() -> None:
    allowed = {"mode": "required", "x": 1, "tools": [{"type": "function", "function": {"name": "bash"}}]}
    asked = request(USER, tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    ours = tools_json([{"name": name, "description": "", "parameters": {}} for name in ("stack_recall", "stack")])

    def choice(options: RenderOptions) -> Any:
        return json.loads(b"".join(render(asked, asked.messages, [], options)))["tool_choice"]

    assert choice(RenderOptions()) == {"type": "allowed_tools", "allowed_tools": allowed}
    joined = choice(RenderOptions(ours))["allowed_tools"]
    assert [tool["function"]["name"] for tool in joined["tools"]] == ["bash", "stack_recall", "stack"]
    assert {name: joined[name] for name in ("mode", "x")} == {"mode": "required", "x": 1}
    assert choice(RenderOptions(ours, tool_choice_none=True)) == "none"


@pytest.mark.rows("X-23")
@pytest.mark.parametrize(
    ("members", "choice"),
    [
        ({}, "auto"),
        ({"tool_choice": None}, "auto"),
        ({"tool_choice": "none"}, "none"),
        ({"tool_choice": "required"}, "required"),
        ({"tool_choice": {"type": "function", "function": {"name": "bash"}}}, "forced"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}}, "required"),
        ({"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}}, "forced"),
        ({"function_call": {"name": "bash"}}, "forced"),
    ],
)
def test_x23_a_forced_choice_is_known(members: dict[str, Any], choice: str) -> None:
    assert request(USER, **members).tool_choice == choice


@pytest.mark.rows("X-23")
def test_x23_structured_answers_and_several_answers_are_known() -> None:
    assert request(USER, response_format={"type": "json_schema"}).wants_structured_output
    assert not request(USER, response_format={"type": "text"}).wants_structured_output
    assert request(USER, n=3).choice_count == 3


# ---------------------------------------------------------------------------------------------------------- identity
@pytest.mark.parametrize(
    "other",
    [
        CALLED | {"content": ""},
        {k: v for k, v in CALLED.items() if k != "content"},
        CALLED | {"reasoning_content": "because", "name": "x", "unheard_of": {"a": 1}},
        CALLED
        | {
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "cache_control": {"type": "ephemeral"},
                    "function": {"name": "bash", "arguments": '{"a":1,"cmd":"ls"}'},
                }
            ]
        },
    ],
)
def test_forms_a_client_may_echo_a_message_in_have_one_identity(other: object) -> None:
    assert identity(other) == identity(CALLED)


def test_a_list_of_text_parts_is_the_joined_text() -> None:
    parts = [{"type": "text", "text": "Fix "}, {"type": "text", "text": "the login.", "cache_control": {"t": 1}}]
    assert identity({"role": "user", "content": parts}) == identity(USER)


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "because"}]}


@pytest.mark.rows("X-21")
def test_a_thought_in_the_content_counts_as_little_as_one_beside_it() -> None:
    parts = [THOUGHT, {"type": "text", "text": "Done."}]
    assert identity({"role": "assistant", "content": parts}) == identity({"role": "assistant", "content": "Done."})


@pytest.mark.parametrize(
    ("content", "left"),
    [([THOUGHT, {"type": "text", "text": "Done."}], '[{"type": "text", "text": "Done."}]'), ([THOUGHT], '""')],
)
def test_thoughts_are_taken_out_of_a_content_and_everything_else_stays(content: object, left: str) -> None:
    said = read_message(json.dumps({"role": "assistant", "content": content, "x": 1.50}).encode())
    assert json.loads(without_reasoning(said).wire) == {"role": "assistant", "content": json.loads(left), "x": 1.5}


def test_parts_that_are_no_text_count_by_their_content() -> None:
    def image(url: str, **more: object) -> object:
        return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url, "detail": "low"}, **more}]}

    assert identity(image("data:a", cache_control={})) == identity(image("data:a"))
    assert identity(image("data:a")) != identity(image("data:b"))


@pytest.mark.parametrize(
    "other",
    [USER | {"role": "assistant"}, USER | {"content": "fix the login."}, CALLED, RESULT | {"tool_call_id": "c2"}],
)
def test_another_content_is_another_identity(other: object) -> None:
    assert identity(other) not in (identity(USER), identity(RESULT))


def test_a_legacy_function_call_is_a_call_without_an_id() -> None:
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "bash", "arguments": "{}"}}
    found = read_message(json.dumps(legacy).encode())
    assert [(c.id, c.name, c.arguments) for c in found.calls] == [("", "bash", "{}")]


def test_the_system_text_is_known_by_its_words() -> None:
    parts = {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {}}]}
    assert request(parts, USER).system_hash == request(SYSTEM, USER).system_hash
    assert request(SYSTEM, USER).system_hash != request(USER).system_hash


# ------------------------------------------------------------------------------------------------------------- known
def test_a_message_is_read_and_counted_once() -> None:
    known = ParseCache()
    first = read(body(SYSTEM, USER, CALLED, tools=TOOLS), known)
    assert unseen(first) == (0, 1, 2)
    texts = countable_texts(first)
    assert texts[:2] == ["Be brief.", "Fix the login."]
    assert texts[2] == '\nbash {"cmd": "ls", "a": 1}'
    assert json.loads(texts[3]) == TOOLS
    full = with_token_counts(first, [len(t) for t in texts], known)
    assert full.tokens == sum(len(t) for t in texts)
    again = read(body(SYSTEM, USER, CALLED, RESULT, tools=TOOLS), known)
    assert unseen(again) == (3,)
    assert countable_texts(again) == ["login.py"]
    assert again.messages[0] is full.messages[0]
    assert with_token_counts(again, [5], known).tokens == full.tokens + 5


def test_a_message_that_was_never_counted_is_asked_for_again() -> None:
    known = ParseCache()
    read(body(USER), known)
    assert unseen(read(body(USER), known)) == (0,)


def test_what_is_known_is_bounded_by_number_and_by_bytes() -> None:
    few, small = SliceCache(messages=2), SliceCache(size=5000)
    for n in range(50):
        asked = body({"role": "user", "content": f"{n}" * 500})
        read(asked, ParseCache(few))
        read(asked, ParseCache(small))
    assert len(few) == 2
    assert 0 < small.size <= 5000


def test_dialects_share_the_room_but_not_what_they_read() -> None:
    slices, raw = SliceCache(messages=3), json.dumps(USER).encode()
    chat, other = ParseCache(slices, "chat"), ParseCache(slices, "messages")
    run_steps(chat.parse_messages([raw], lambda _: (Message("user", raw, "read by chat"),)))
    (found,) = run_steps(other.parse_messages([raw], lambda _: (Message("user", raw, "read by the other"),)))
    assert found.messages[0].identity == "read by the other"
    for number in range(3):
        run_steps(other.parse_messages([b"%d" % number], lambda _: ()))
    assert len(slices) == 3
    (again,) = run_steps(chat.parse_messages([raw], lambda _: (Message("user", raw, "read again"),)))
    assert again.messages[0].identity == "read again"


def test_what_is_still_used_is_known_longest() -> None:
    known = ParseCache(SliceCache(messages=2))
    for asked in (body(USER), body(RESULT), body(USER), body(SYSTEM)):
        found = read(asked, known)
        with_token_counts(found, [1] * len(unseen(found)), known)
    assert unseen(read(body(USER), known)) == ()
    assert unseen(read(body(RESULT), known)) == (0,)


# ------------------------------------------------------------------------------------------------------------ render
def test_p1_what_is_not_changed_is_the_clients_bytes() -> None:
    raw = b'{"model":"m","x":{"y": [1,  2]},"messages":[{"role":"system","content":"a"},{"content":"b","role":"user"}]}'
    asked = read(raw, ParseCache())
    pieces = render(asked, asked.messages, [m.wire for m in asked.head], RenderOptions())
    assert b"".join(pieces) == raw
    assert asked.messages[0].wire in pieces


def test_a_tool_of_ours_is_a_function() -> None:
    assert json.loads(OURS) == [{"type": "function", "function": {"name": "stack_recall"}}]


@pytest.mark.rows("S4-07")
def test_s4_07_usage_is_asked_for_in_streams_only_and_beside_other_options() -> None:
    assert "stream_options" not in rendered(request(USER), RenderOptions())
    assert rendered(request(USER, stream=True), RenderOptions())["stream_options"] == {"include_usage": True}
    kept = rendered(request(USER, stream=True, stream_options={"x": 1, "include_usage": False}), RenderOptions())
    assert kept["stream_options"] == {"x": 1, "include_usage": True}
    asked = request(USER, stream=True, stream_options={"include_usage": True})
    assert asked.wants_usage
    assert b"".join(render(asked, asked.messages[:1], [], RenderOptions())).count(b"include_usage") == 1


def test_p3_the_same_request_is_the_same_bytes() -> None:
    asked = [request(SYSTEM, USER, tools=TOOLS, stream=True) for _ in range(2)]
    assert len({render(a, a.messages[:1], extend_head(a, "g"), RenderOptions(OURS)) for a in asked}) == 1


@pytest.mark.rows("S1-102")
def test_guidance_stands_at_the_end_of_the_clients_system_text() -> None:
    asked = request({"role": "system", "content": "first"}, SYSTEM | {"name": "x"}, USER)
    head = extend_head(asked, 'Use "frames".\n')
    assert head[0] == asked.head[0].wire
    assert json.loads(head[1]) == SYSTEM | {"name": "x", "content": 'Be brief.\n\nUse "frames".\n'}


def test_guidance_in_a_list_of_parts_is_one_more_part() -> None:
    part = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    (head,) = extend_head(request({"role": "system", "content": [part]}, USER), "g")
    assert json.loads(head)["content"] == [part, {"type": "text", "text": "g"}]


@pytest.mark.parametrize("content", [None, "", []])
def test_guidance_in_an_empty_system_message_stands_alone(content: object) -> None:
    (head,) = extend_head(request({"role": "system", "content": content}, USER), "g")
    assert read_message(head).text == "g"


def test_guidance_is_a_system_message_of_ours_where_the_client_sends_none() -> None:
    assert [json.loads(w) for w in extend_head(request(USER), "g")] == [{"role": "system", "content": "g"}]


@pytest.mark.parametrize("gap", [",", ", ", " ,\n", ",  "])
def test_a_body_is_cut_at_the_borders_of_its_messages_however_they_are_parted(gap: str) -> None:
    raws = [json.dumps(message) for message in (SYSTEM, USER, CALLED, RESULT)]
    front, behind = '{"model": "m", "messages": [', '], "n": 1}'
    asked = read(f"{front}{gap.join(raws)}{behind}".encode(), ParseCache())

    parted = [piece for raw in raws for piece in (raw, gap)]
    assert client_body(asked) == tuple(piece.encode() for piece in (front, *parted[:-1], behind))


def test_a_body_whose_first_message_stands_apart_is_cut_at_it() -> None:
    asked = read(
        b'{"model":"m","messages":[ {"role":"user","content":"a"},{"role":"user","content":"b"} ]}', ParseCache()
    )
    assert client_body(asked)[1:4] == (b'{"role":"user","content":"a"}', b",", b'{"role":"user","content":"b"}')
    assert b"".join(client_body(asked)) == asked.body


def test_a_changed_history_is_read_as_one_that_was_never_seen() -> None:
    known = ParseCache()
    one, other = (SYSTEM, USER, CALLED, RESULT, USER), (SYSTEM, USER, CALLED, RESULT | {"content": "other"}, USER)
    for asked in (body(*one), body(*other), body(*one[:3]), body(*one), body(*one), body(*other, RESULT)):
        again, alone = read(asked, known), read(asked, ParseCache())
        assert [source.raw for source in again.slices] == [source.raw for source in alone.slices]
        assert [m.identity for m in again.messages] == [m.identity for m in alone.messages]
        with_token_counts(again, [1] * len(countable_texts(again)), known)
    assert unseen(read(body(*one), known)) == ()


@pytest.mark.parametrize("text", ["", "Fix the login.", " \n", "посылка 📦", "half \ud800", '"quoted" \\ \x00\x7f'])
def test_words_of_ours_are_what_their_bytes_are_read_as(text: str) -> None:
    assert user_message(text) == read_message(user_message(text).wire)


def test_messages_of_ours_are_read_like_any_other() -> None:
    assert json.loads(tool_result("c1", "done \ud800").wire) == RESULT | {"content": "done \ufffd"}
    assert tool_result("c1", "login.py").identity == identity(RESULT)
    assert user_message("Fix the login.").identity == identity(USER)


@pytest.mark.parametrize(
    ("gone", "left"),
    [
        ({"c1"}, {"tool_calls": [{"id": "c2", "type": "custom", "custom": {"name": "edit", "input": "x"}}]}),
        ({"c1", "c2"}, {}),
        ({"c3"}, {"tool_calls": "all"}),
    ],
)
def test_calls_go_and_every_other_member_stays(gone: set[str], left: dict[str, Any]) -> None:
    words = {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "x": 1.50}
    listed = [
        {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
        {"id": "c2", "type": "custom", "custom": {"name": "edit", "input": "x"}},
    ]
    less = without_calls(read_message(json.dumps(words | {"tool_calls": listed}).encode()), gone)

    expected = words | ({"tool_calls": listed} if left.get("tool_calls") == "all" else left)
    assert json.loads(less.wire) == expected
    assert [c.id for c in less.calls] == [c["id"] for c in listed if c["id"] not in gone]


def test_a_call_of_the_old_kind_goes_by_its_empty_id() -> None:
    said = {"role": "assistant", "content": "I look.", "function_call": {"name": "bash", "arguments": '{"comm'}}
    less = without_calls(read_message(json.dumps(said).encode()), {""})
    assert json.loads(less.wire) == {"role": "assistant", "content": "I look."}
