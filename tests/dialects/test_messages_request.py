"""A request of the messages API taken apart and written again (RELIABILITY P1, P3, H6; X-21..X-23; CLIENTS 8), beyond
what holds in every dialect (`test_every_request.py`)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ledger.messages import Message, Request, identity_of
from proxy.dialects.base import RenderOptions
from proxy.dialects.messages.message import (
    EMPTY_RUN,
    messages_in,
    read_message,
    tool_result,
    user_message,
    with_content,
    without_calls,
    without_reasoning,
)
from proxy.dialects.messages.request import ANTHROPIC_MESSAGES, client_body, extend_head, render, tools_json
from proxy.dialects.parse_cache import ParseCache, RequestParseError, countable_texts, with_token_counts

read = ANTHROPIC_MESSAGES.parse_request

USER = {"role": "user", "content": "Fix the login."}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
HIDDEN = {"type": "redacted_thinking", "data": "b3BhcXVl"}
LOOK = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
READ = {"type": "tool_use", "id": "t2", "name": "Read", "input": {"file_path": "a.py"}}
CALLED = {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "Looking."}, LOOK, READ]}
LISTED = {"type": "tool_result", "tool_use_id": "t1", "content": "login.py"}
SHOWN = {
    "type": "tool_result",
    "tool_use_id": "t2",
    "content": [{"type": "text", "text": "x = 1"}],
    "is_error": False,
    "x": 1.50,
}
WORDS = {"type": "text", "text": "And hurry."}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
ODDITY = {"type": "unheard_of", "deep": {"a": [1, 2]}}
ANSWERED = {"role": "user", "content": [LISTED, SHOWN, WORDS, IMAGE, ODDITY]}
REMINDER = {"role": "system", "content": "The plan is empty."}
SYSTEM = [{"type": "text", "text": "You are Ada."}, {"type": "text", "text": "Be brief."}]
TOOLS = [{"name": "Bash", "description": "d", "input_schema": {"type": "object"}}, {"type": "web_search_20250305"}]
OURS = tools_json([{"name": "stack_recall", "description": "r", "parameters": {"type": "object"}}])


def compact(said: object) -> bytes:
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def body(*messages: object, **members: Any) -> bytes:
    return compact({"model": "m", "max_tokens": 9, "messages": list(messages), **members})


def request(*messages: object, **members: Any) -> Request:
    return read(body(*messages, **members), ParseCache())


def written(
    asked: Request, line: list[Message] | None = None, wanted: RenderOptions | None = None, guidance: str = ""
) -> bytes:
    """The upstream body with this line, the client's own where none is given."""
    messages = asked.messages if line is None else line
    return b"".join(render(asked, messages, extend_head(asked, guidance), wanted or RenderOptions()))


def rendered(asked: Request, *args: Any, **more: Any) -> dict[str, Any]:
    found = json.loads(written(asked, *args, **more))
    assert isinstance(found, dict)
    return found


def message(said: object) -> Message:
    return read_message(compact(said))


# -------------------------------------------------------------------------------------------------------------- read
def test_a_request_is_read() -> None:
    asked = request(USER, REMINDER, CALLED, ANSWERED, system=SYSTEM, tools=TOOLS, stream=True)
    assert [m.role for m in asked.head] == ["system"]
    assert [m.role for m in asked.messages] == ["user", "system", "assistant", "tool", "tool", "user"]
    assert (asked.model, asked.stream, asked.wants_usage, asked.choice_count) == ("m", True, True, 1)
    assert asked.tool_names == ("Bash", "web_search_20250305")
    assert [(c.id, c.name, c.arguments) for c in asked.messages[2].calls] == [
        ("t1", "Bash", '{"command":"ls"}'),
        ("t2", "Read", '{"file_path":"a.py"}'),
    ]
    assert [m.answers for m in asked.messages] == ["", "", "", "t1", "t2", ""]
    assert [m.text for m in asked.messages[:5]] == [
        "Fix the login.", "The plan is empty.", "Looking.", "login.py", "x = 1"
    ]  # fmt: skip


def test_a_user_message_with_results_is_taken_apart_into_runs_of_its_blocks() -> None:
    listed, words, shown, rest = messages_in(
        compact({"role": "user", "content": [LISTED, WORDS, SHOWN, IMAGE, ODDITY]})
    )
    assert [listed.wire, words.wire] == [compact([LISTED]), compact([WORDS])]
    assert [shown.wire, rest.wire] == [compact([SHOWN]), compact([IMAGE, ODDITY])]
    assert [m.role for m in (listed, words, shown, rest)] == ["tool", "user", "tool", "user"]
    assert words.text == "And hurry."
    assert json.loads(rest.text.split("\n\n")[1]) == ODDITY


@pytest.mark.parametrize("content", ["Fix it.", "", None, [], [WORDS], [WORDS, IMAGE, ODDITY]])
def test_a_user_message_without_results_is_one_with_its_own_bytes(content: object) -> None:
    raw = b' {"x":1e2, "content": ' + json.dumps(content).encode() + b',"role":"user" }'
    asked = read(b'{"model":"m","messages":[' + raw + b"]}", ParseCache())
    assert [m.wire for m in asked.messages] == [raw.strip()]


def test_an_input_is_the_text_it_came_as() -> None:
    raw = b'{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"n","input":{ "b":1E+2, "a":"\\u00e9"}}]}'
    assert read_message(raw).calls[0].arguments == '{ "b":1E+2, "a":"\\u00e9"}'
    assert message({"role": "assistant", "content": [{"type": "tool_use"}]}).calls[0].arguments == "{}"


def test_what_a_server_runs_is_no_call_of_the_client() -> None:
    ran = [{**LOOK, "type": "server_tool_use"}, {"type": "web_search_tool_result", "tool_use_id": "t1", "content": []}]
    found = message({"role": "assistant", "content": ran})
    assert found.calls == ()
    assert "web_search_tool_result" in found.text
    assert message(CALLED | {"role": "user"}).calls == ()


@pytest.mark.rows("X-23")
@pytest.mark.parametrize(
    ("members", "choice"),
    [
        ({}, "auto"),
        ({"tool_choice": None}, "auto"),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, "auto"),
        ({"tool_choice": {"type": "none"}}, "none"),
        ({"tool_choice": {"type": "any"}}, "required"),
        ({"tool_choice": {"type": "tool", "name": "Bash"}}, "forced"),
        ({"tool_choice": {"type": ["new"]}}, "forced"),
    ],
)
def test_x23_a_forced_choice_is_known(members: dict[str, Any], choice: str) -> None:
    assert request(USER, **members).tool_choice == choice


@pytest.mark.rows("X-23")
def test_x23_structured_answers_are_known() -> None:
    assert request(USER, output_config={"effort": "high", "format": {"type": "json_schema"}}).wants_structured_output
    assert request(USER, output_format={"type": "json_schema"}).wants_structured_output
    assert not request(USER, output_config={"effort": "high"}).wants_structured_output
    assert not request(USER, output_config=7).wants_structured_output


@pytest.mark.rows("X-22")
def test_x22_a_message_of_results_with_members_of_its_own_is_not_taken_apart() -> None:
    """They would be lost where its blocks are spliced; the client's own bytes lose nothing."""
    with pytest.raises(RequestParseError):
        request(USER, CALLED, ANSWERED | {"unheard_of": 1})
    assert request(USER | {"unheard_of": 1}, CALLED | {"more": None}).messages[1].calls


# ---------------------------------------------------------------------------------------------------------- identity
@pytest.mark.parametrize(
    "other",
    [
        {"role": "assistant", "content": CALLED["content"][1:]},
        {"role": "assistant", "content": [HIDDEN, *CALLED["content"]]},
        {"role": "assistant", "content": [*CALLED["content"], {"type": "text", "text": ""}]},
        CALLED | {"unheard_of": {"a": 1}},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking.", "citations": [], "cache_control": {"type": "ephemeral"}},
                LOOK | {"caller": {"type": "direct"}},
                READ | {"cache_control": {"type": "ephemeral"}},
            ],
        },
    ],
)
def test_forms_a_client_may_echo_a_message_in_have_one_identity(other: object) -> None:
    assert message(other).identity == message(CALLED).identity


def test_a_string_and_one_text_block_are_the_same() -> None:
    assert message({"role": "user", "content": [{"type": "text", "text": "Fix the login."}]}).identity == (
        message(USER).identity
    )
    assert messages_in(compact({"role": "user", "content": [LISTED | {"content": [WORDS]}]}))[0].identity == (
        tool_result("t1", "And hurry.").identity
    )


def test_the_texts_of_a_message_are_joined_as_those_of_the_rounds_of_a_turn() -> None:
    """What a client echoes of a turn with hidden rounds has the identity that the turn has."""
    blank, done = {"type": "text", "text": " "}, {"type": "text", "text": "Done."}
    echoed = message({"role": "assistant", "content": [WORDS, THOUGHT, blank, done, LOOK]})
    assert echoed.text == "And hurry.\n\nDone."
    assert echoed.identity == identity_of("assistant", "And hurry.\n\nDone.", echoed.calls)


@pytest.mark.parametrize(
    "other",
    [
        CALLED | {"content": [WORDS, LOOK, READ]},
        CALLED | {"content": [{"type": "text", "text": "Looking."}, READ, LOOK]},
        CALLED | {"content": [{"type": "text", "text": "Looking."}, ODDITY, LOOK, READ]},
        CALLED | {"role": "user"},
    ],
)
def test_another_content_is_another_identity(other: object) -> None:
    assert message(other).identity != message(CALLED).identity


def test_the_system_text_is_known_by_its_words() -> None:
    marked = [SYSTEM[0], SYSTEM[1] | {"cache_control": {"type": "ephemeral"}}]
    hashes = [
        request(USER, system=said).system_hash for said in (SYSTEM, marked, "You are Ada.\n\nBe brief.", "x", None)
    ]
    assert hashes[0] == hashes[1] == hashes[2]
    assert len(set(hashes)) == 3


# ------------------------------------------------------------------------------------------------------------- known
def test_a_message_is_read_and_counted_once() -> None:
    known = ParseCache()
    first = read(body(USER, CALLED, ANSWERED, system=SYSTEM, tools=TOOLS), known)
    texts = countable_texts(first)
    assert texts[:2] == ["You are Ada.\n\nBe brief.", "Fix the login."]
    assert texts[3:5] == ["login.py", "x = 1"]
    full = with_token_counts(first, [len(t) for t in texts], known)
    assert full.tokens == sum(len(t) for t in texts)
    assert (len(full.head), len(full.messages)) == (1, 5)
    again = read(body(USER, CALLED, ANSWERED, REMINDER, system=SYSTEM, tools=TOOLS), known)
    assert countable_texts(again) == ["The plan is empty."]
    assert again.messages[3] is full.messages[3]


# ------------------------------------------------------------------------------------------------------------ render
def test_p1_what_is_not_changed_is_the_clients_bytes() -> None:
    for members in ({"system": SYSTEM}, {"system": "Be brief."}, {"system": None}, {}):
        raw = body(USER, REMINDER, CALLED, {"role": "user", "content": [LISTED, SHOWN]}, tools=TOOLS, x=[1], **members)
        asked = read(raw, ParseCache())
        assert written(asked) == raw
        assert b"".join(client_body(asked)) == raw
        assert {source.raw for source in asked.slices[len(asked.head) :]} <= set(client_body(asked))


def test_a_message_put_together_again_is_equal_and_every_message_is_a_piece() -> None:
    asked = request({"role": "user", "content": [LISTED]}, CALLED, ANSWERED, USER, ANSWERED)
    assert rendered(asked) == json.loads(asked.body)
    pieces = render(asked, asked.messages, (), RenderOptions())
    for wire in (asked.messages[0].wire, asked.messages[1].wire, compact(LISTED), compact(SHOWN)):
        assert wire in pieces


def test_neighbouring_messages_of_results_become_one() -> None:
    asked = request(CALLED, {"role": "user", "content": [LISTED]}, {"role": "user", "content": [SHOWN]})
    assert rendered(asked)["messages"][1:] == [{"role": "user", "content": [LISTED, SHOWN]}]


def test_l1_results_of_ours_stand_inside_the_clients_message_in_the_order_of_the_line() -> None:
    asked = request(USER, CALLED, ANSWERED)
    user, called, listed, shown, rest = asked.messages
    line = [
        user,
        called,
        listed,
        tool_result("s1", "pushed"),
        shown,
        tool_result("s2", "popped"),
        rest,
        user_message("n"),
    ]
    (_, _, answered) = rendered(asked, line)["messages"]
    assert answered["role"] == "user"
    ours = [{"type": "tool_result", "tool_use_id": f"s{n}", "content": t} for n, t in ((1, "pushed"), (2, "popped"))]
    assert answered["content"] == [LISTED, ours[0], SHOWN, ours[1], WORDS, IMAGE, ODDITY, {"type": "text", "text": "n"}]


def test_texts_of_ours_stand_alone_among_messages_that_are_none_of_ours() -> None:
    asked = request(USER, USER)
    line = [user_message("trace"), *asked.messages, user_message("a"), user_message("b")]
    alone, first, second, last = rendered(asked, line)["messages"]
    assert alone == {"role": "user", "content": [{"type": "text", "text": "trace"}]}
    assert first == second == USER
    assert [block["text"] for block in last["content"]] == ["a", "b"]


TRACE = '<stack-context note="earlier work">Two steps.</stack-context>'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"role": "assistant", "content": "It is done."}, ["user", "system", "assistant", "user", "user"]),
        (CALLED, ["user", "user", "system", "assistant", "user"]),
    ],
)
def test_what_stands_for_work_behind_a_system_message_waits_for_the_closing_words(
    answer: dict[str, Any], expected: list[str]
) -> None:
    """In front of it, the system message would be written to the cache anew. Where calls follow, it cannot wait."""
    reminder = {"role": "system", "content": "The environment."}
    asked = request(USER, reminder, answer, USER)
    line = [*asked.messages[:2], user_message(TRACE), *asked.messages[2:]]

    sent = rendered(asked, line)["messages"]

    assert [each["role"] for each in sent] == expected
    assert [m.role for m in ANTHROPIC_MESSAGES.in_sent_order(line, asked.messages)] == expected
    assert ANTHROPIC_MESSAGES.in_sent_order(asked.messages, asked.messages) is asked.messages


def test_a_rule_inside_a_frame_that_returned_stands_in_front_of_the_call_that_opened_it() -> None:
    """Behind the user's next words it would read as new; while the frame runs it stands where it came."""
    use = {"type": "tool_use", "id": "s1", "name": "stack_frame_push", "input": {}}
    pushed = {"role": "assistant", "content": [use]}
    line = [*request(USER).messages, message(pushed), tool_result("s1", "results"), message(REMINDER)]
    wires = [each.wire for each in line]

    def places(*behind: Message) -> list[int]:
        sent = ANTHROPIC_MESSAGES.in_sent_order([*line, *behind], ())
        return [wires.index(each.wire) for each in sent[:4]]

    in_place, in_front = [0, 1, 2, 3], [0, 3, 1, 2]
    assert places() == places(message(CLOSING)) == places(message(CALLED), message(USER)) == in_place
    assert places(user_message("next")) == places(user_message("next"), message(CLOSING), message(USER)) == in_front


NOTE = '<stack-context note="loop" nonce="0">You repeat yourself.</stack-context>'
CLOSING = {"role": "assistant", "content": "Done."}
STEPS: dict[str, list[object]] = {
    "user": [USER],
    "note of ours": [user_message(NOTE)],
    "system": [REMINDER],
    "said": [CLOSING],
    "called": [CALLED],
    "work that left in front of closing words": [user_message(TRACE), CLOSING],
    "work that left in front of calls": [user_message(TRACE), CALLED],
}


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=8), st.sampled_from(["said", "called"]))
def test_l2_an_answer_moves_nothing_that_was_sent_before_it(steps: list[str], answer: str) -> None:
    """Else the provider's cache breaks where nothing left, and what the model answered stands in front of it."""

    def sent(names: list[str]) -> list[bytes]:
        line = [each if isinstance(each, Message) else message(each) for name in names for each in STEPS[name]]
        return [each.wire for each in ANTHROPIC_MESSAGES.in_sent_order(line, ())]

    before = sent(steps)

    assert sent([*steps, answer])[: len(before)] == before


def test_a_tool_of_ours_has_an_input_schema() -> None:
    assert json.loads(OURS) == [{"name": "stack_recall", "description": "r", "input_schema": {"type": "object"}}]


@pytest.mark.rows("S4-07")
def test_s4_07_usage_is_never_asked_for() -> None:
    assert "stream_options" not in rendered(request(USER, stream=True))


def test_p3_the_same_request_is_the_same_bytes() -> None:
    asked = [request(USER, CALLED, ANSWERED, system=SYSTEM, tools=TOOLS, stream=True) for _ in range(2)]
    assert len({written(a, wanted=RenderOptions(OURS, fork=1), guidance="g") for a in asked}) == 1


@pytest.mark.rows("S1-102")
@pytest.mark.parametrize(
    ("system", "extended"),
    [
        ("Be brief.", 'Be brief.\n\nUse "frames".\n'),
        ("", 'Use "frames".\n'),
        (None, 'Use "frames".\n'),
        ([], [{"type": "text", "text": 'Use "frames".\n'}]),
        (SYSTEM, [*SYSTEM, {"type": "text", "text": 'Use "frames".\n'}]),
    ],
)
def test_guidance_stands_at_the_end_of_the_clients_system_text(system: object, extended: object) -> None:
    assert rendered(request(USER, system=system), guidance='Use "frames".\n')["system"] == extended


def test_guidance_is_a_system_text_of_ours_where_the_client_sends_none() -> None:
    found = rendered(request(USER, x=1), guidance="g")
    assert list(found) == ["model", "max_tokens", "system", "messages", "x"]
    assert found["system"] == "g"


def test_guidance_moves_no_marker() -> None:
    marked = [SYSTEM[0], SYSTEM[1] | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    assert rendered(request(USER, system=marked), guidance="g")["system"] == [*marked, {"type": "text", "text": "g"}]


# --------------------------------------------------------------------------------------------------------------- ours
def test_messages_of_ours_are_read_like_any_other() -> None:
    ours = tool_result("t1", "done \ud800")
    assert json.loads(ours.wire) == [LISTED | {"content": "done \ufffd"}]
    assert tool_result("t1", "login.py") == messages_in(compact({"role": "user", "content": [LISTED]}))[0]
    assert user_message("Fix the login.").identity == message(USER).identity
    assert json.loads(user_message("a\ud800").wire) == [{"type": "text", "text": "a\ufffd"}]


def test_thinking_is_taken_out_and_everything_else_stays() -> None:
    said = message({"x": 1, "role": "assistant", "content": [THOUGHT, HIDDEN, WORDS, THOUGHT, LOOK, ODDITY], "y": 2})
    less = without_reasoning(said)
    assert json.loads(less.wire) == {"x": 1, "role": "assistant", "content": [WORDS, LOOK, ODDITY], "y": 2}
    assert (less.identity, less.text, less.calls) == (said.identity, said.text, said.calls)


def test_calls_go_with_the_thinking_that_was_for_them_and_nothing_else_does() -> None:
    made = message({"x": 1, "role": "assistant", "content": [THOUGHT, WORDS, HIDDEN, LOOK], "y": 2})
    left = without_calls(made, {c.id for c in made.calls})
    assert json.loads(left.wire) == {"x": 1, "role": "assistant", "content": [THOUGHT, WORDS], "y": 2}
    assert (left.text, left.calls) == (made.text, ())
    assert json.loads(without_calls(made, {"another"}).wire) == json.loads(made.wire)


@pytest.mark.parametrize(
    "said", [USER, CALLED | {"content": [WORDS, LOOK]}, CALLED | {"content": "thinking"}, CALLED | {"role": "user"}]
)
def test_a_message_without_thinking_is_the_very_same(said: object) -> None:
    one = message(said)
    assert without_reasoning(one) is one


def test_an_answer_that_was_thinking_alone_leaves_no_message_without_it() -> None:
    """An empty message is refused, and nothing may be put in the assistant's mouth."""
    asked = request(USER, {"role": "assistant", "content": [THOUGHT]}, USER)
    line = [without_reasoning(m) for m in asked.messages]
    assert line[1].wire == EMPTY_RUN
    assert rendered(asked, line)["messages"] == [USER, USER]
    assert without_reasoning(line[1]) is line[1]


def test_a_result_retold_keeps_every_member_but_its_content() -> None:
    failed = SHOWN | {"is_error": True}
    (result,) = messages_in(compact({"role": "user", "content": [failed]}))
    told = with_content(result, "gone \ud800")
    assert json.loads(told.wire) == [failed | {"content": "gone \ufffd"}]
    assert (told.role, told.answers, told.text, told.tokens) == ("tool", "t2", "gone \ud800", 0)
    assert told.identity != result.identity


def test_any_message_can_be_retold() -> None:
    assert json.loads(with_content(message(USER | {"x": 1}), "b").wire) == {"role": "user", "content": "b", "x": 1}
    assert json.loads(with_content(user_message("a"), "b").wire) == [{"type": "text", "text": "b"}]
    told = with_content(message(CALLED), "b")
    assert json.loads(told.wire)["content"] == [{"type": "text", "text": "b"}, LOOK, READ]
    assert told.calls == message(CALLED).calls
