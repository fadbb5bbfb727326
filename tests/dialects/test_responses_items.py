"""Items of the responses API: whose they are, which stand together, what they are known by (CLIENTS 8; REASONING)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.core.context import UNANSWERED_CALL_RESULT
from proxy.core.ledger.messages import Message
from proxy.dialects.base import RenderOptions
from proxy.dialects.parse_cache import ParseCache
from proxy.dialects.responses.items import (
    items_by_id,
    read_item,
    read_run,
    tool_result,
    user_message,
    with_call_id,
    with_content,
    without_calls,
    without_reasoning,
    without_unneeded_reasoning,
)
from proxy.dialects.responses.request import (
    OPENAI_RESPONSES,
    client_body,
    is_answer_stored,
    previous_response_id,
    referenced_item_ids,
    render,
    resolve_references,
    unresolvable_reason,
)
from tests.dialects.responses_items import (
    ADDED,
    CALL,
    CUSTOM,
    DEVELOPER,
    PATCHED,
    REASONING,
    RESULT,
    SAID,
    SEALED,
    USER,
    request,
)

read = OPENAI_RESPONSES.parse_request

CAPTURES = Path(__file__).parents[3] / "shared" / "captures"
SESSIONS = sorted([*CAPTURES.glob("codex/*.jsonl"), *CAPTURES.glob("*/*responses*.jsonl")])


def run(*items: object) -> Message:
    return read_run(json.dumps(items).encode())


def item(said: object) -> Message:
    return read_item(json.dumps(said).encode())


def messages(*items: object) -> list[tuple[str, Any]]:
    """The messages of a request: the role and the items of each."""
    return [(m.role, json.loads(m.wire)) for m in request(*items).messages]


# -------------------------------------------------------------------------------------------------------------- runs
WEB = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
FOUND: dict[str, Any] = {"type": "tool_search_output", "execution": "server", "call_id": None, "tools": []}
LISTED = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []}
REQUESTED = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "t", "server_label": "s", "arguments": "{}"}
APPROVED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
REFERENCE = {"type": "item_reference", "id": "msg_1"}
BARE = {"id": "rs_1"}
SHELL = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c3", "action": {"type": "exec", "command": ["ls"]}}
SHELL_RESULT = {"type": "local_shell_call_output", "id": "c3", "output": '{"output":"a"}'}
UNKNOWN = {"type": "unheard_of", "x": 1}
EASY = {"role": "assistant", "content": "I look."}


def test_what_the_model_made_in_a_row_is_one_message_and_each_result_is_its_own() -> None:
    assert messages(USER, REASONING, SAID, CALL, CUSTOM, RESULT, PATCHED, SAID, USER) == [
        ("user", USER),
        ("assistant", [REASONING, SAID, CALL, CUSTOM]),
        ("tool", RESULT),
        ("tool", PATCHED),
        ("assistant", [SAID]),
        ("user", USER),
    ]


@pytest.mark.parametrize("made", [WEB, FOUND, LISTED, REQUESTED, REFERENCE, BARE, SHELL, CUSTOM, REASONING, EASY])
def test_whatever_the_model_makes_belongs_to_its_message(made: dict[str, Any]) -> None:
    assert messages(USER, made, SAID, USER)[1] == ("assistant", [made, SAID])
    assert messages(USER, SAID, made, USER)[1] == ("assistant", [SAID, made])


def test_an_unknown_item_is_the_models_between_items_of_the_model_and_itself_elsewhere() -> None:
    assert messages(SAID, UNKNOWN, UNKNOWN, CALL) == [("assistant", [SAID, UNKNOWN, UNKNOWN, CALL])]
    assert messages(UNKNOWN, SAID, UNKNOWN, RESULT) == [
        ("item", UNKNOWN),
        ("assistant", [SAID]),
        ("item", UNKNOWN),
        ("tool", RESULT),
    ]
    assert messages(USER, UNKNOWN | {"role": "critic"})[1] == ("critic", UNKNOWN | {"role": "critic"})


def test_a_clients_item_ends_a_message_of_the_model() -> None:
    assert [role for role, _ in messages(REQUESTED, APPROVED, SAID)] == ["assistant", "tool", "assistant"]
    assert [role for role, _ in messages(SAID, ADDED, SAID)] == ["assistant", "developer", "assistant"]


@pytest.mark.parametrize("type_", ["compaction", "compaction_summary", "context_compaction"])
def test_a_sealed_item_is_a_message_by_itself_known_by_what_is_in_it(type_: str) -> None:
    sealed = SEALED | {"type": type_}
    assert messages(USER, SAID, sealed, REASONING, CALL, RESULT) == [
        ("user", USER),
        ("assistant", [SAID]),
        ("assistant", [sealed]),
        ("assistant", [REASONING, CALL]),
        ("tool", RESULT),
    ]
    assert run(sealed).identity == run(sealed | {"id": "cmp_2"}).identity
    assert run(sealed).identity != run(sealed | {"encrypted_content": "b3RoZXI="}).identity
    assert (kept := run(sealed)) is without_reasoning(kept)


# ------------------------------------------------------------------------------------------------------------- calls
CALLS = {
    "function": (CALL, ("c1", "bash", '{"cmd": "ls", "a": 1}')),
    "in a namespace that has a tool like one of ours": (
        CALL | {"namespace": "mcp__callstack", "name": "stack_recall"},
        ("c1", "mcp__callstack.stack_recall", '{"cmd": "ls", "a": 1}'),
    ),
    "in a namespace": (CALL | {"namespace": "agents"}, ("c1", "bash", '{"cmd": "ls", "a": 1}')),
    "arguments as an object": (CALL | {"arguments": {"b": 1, "a": 2}}, ("c1", "bash", '{"a":2,"b":1}')),
    "freeform": (CUSTOM, ("c2", "apply_patch", "*** Begin Patch\n")),
    "shell": (SHELL, ("c3", "local_shell", '{"command":["ls"],"type":"exec"}')),
    "patch": (
        {"type": "apply_patch_call", "call_id": "c4", "operation": {"path": "a"}},
        ("c4", "apply_patch", '{"path":"a"}'),
    ),
    "search": (
        {"type": "tool_search_call", "call_id": "c5", "execution": "client", "arguments": {"q": 1}},
        ("c5", "tool_search", '{"q":1}'),
    ),
    "approval of a server's tool, whatever its name": (
        REQUESTED | {"name": "stack_recall"},
        (
            "mcpr_1",
            "mcp_approval_request",
            '{"arguments":"{}","name":"stack_recall","server_label":"s","type":"mcp_approval_request"}',
        ),
    ),
}


@pytest.mark.parametrize(("made", "call"), CALLS.values(), ids=CALLS)
def test_a_call_that_a_client_answers_is_a_call(made: dict[str, Any], call: tuple[str, str, str]) -> None:
    assert [(c.id, c.name, c.arguments) for c in run(REASONING, made).calls] == [call]


@pytest.mark.parametrize(
    "items",
    [
        (WEB,),
        ({"type": "tool_search_call", "call_id": "c5", "execution": "server", "arguments": {}},),
        (
            {"type": "shell_call", "call_id": "c6", "action": {}},
            {"type": "shell_call_output", "call_id": "c6", "output": []},
        ),
    ],
)
def test_what_the_provider_answers_itself_is_no_call(items: tuple[Any, ...]) -> None:
    assert run(SAID, *items).calls == ()


OUTPUTS = {
    "text": (RESULT, "c1", "login.py"),
    "parts": (
        RESULT | {"output": [{"type": "input_text", "text": "Exit 0"}, {"type": "input_text", "text": "a.py"}]},
        "c1",
        "Exit 0\n\na.py",
    ),
    "nothing": (RESULT | {"output": None}, "c1", ""),
    "a picture": (
        {"type": "computer_call_output", "call_id": "c1", "output": {"type": "computer_screenshot", "image_url": "u"}},
        "c1",
        '{"image_url":"u","type":"computer_screenshot"}',
    ),
    "shell": (
        {"type": "shell_call_output", "call_id": "c1", "output": [{"stdout": "a\n", "stderr": "b", "outcome": {}}]},
        "c1",
        "a\nb",
    ),
    "local shell": (SHELL_RESULT, "c3", '{"output":"a"}'),
    "found tools": (
        {"type": "tool_search_output", "call_id": "c1", "status": "x", "tools": [1]},
        "c1",
        '{"tools":[1]}',
    ),
}


@pytest.mark.parametrize(("said", "answers", "text"), OUTPUTS.values(), ids=OUTPUTS)
def test_a_result_is_read_by_its_call_and_its_words(said: dict[str, Any], answers: str, text: str) -> None:
    found = item(said)
    assert (found.role, found.answers, found.text) == ("tool", answers, text)


# ---------------------------------------------------------------------------------------------------------- identity
@pytest.mark.parametrize(
    "other",
    [
        (SAID | {"id": "msg_2", "status": "incomplete", "phase": "x"}, CALL | {"id": "fc_2", "status": None}),
        ({"role": "assistant", "content": "I look."}, {n: v for n, v in CALL.items() if n not in ("id", "status")}),
        (SAID, WEB, CALL | {"arguments": '{"a":1,"cmd":"ls"}', "namespace": "n"}),
        (REASONING | {"encrypted_content": "x"}, SAID, UNKNOWN, CALL),
        (SAID | {"content": [*SAID["content"], {"type": "output_text", "text": ""}]}, CALL),
    ],
)
def test_forms_a_client_may_echo_an_answer_in_have_one_identity(other: tuple[Any, ...]) -> None:
    assert run(*other).identity == run(REASONING, SAID, CALL).identity


def test_several_texts_are_paragraphs_as_several_rounds_are() -> None:
    more = SAID | {"content": [{"type": "output_text", "text": said} for said in ("One.", " ", "Two.")]}
    refused = EASY | {"content": [{"type": "refusal", "refusal": "No."}]}
    assert run(SAID, more, refused).text == "I look.\n\nOne.\n\nTwo.\n\nNo."
    assert run(SAID, more).identity == run(EASY | {"content": "I look.\n\nOne.\n\nTwo."}).identity


def test_a_users_parts_count_by_their_words_and_their_content() -> None:
    def user(*parts: dict[str, Any]) -> Message:
        return item({"role": "user", "content": list(parts)})

    text, picture = {"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": "data:a"}
    file = {"type": "input_file", "file_id": "f1"}
    assert user(text, text).text == "See\n\nSee"
    assert user(text).identity == item({"role": "user", "content": "See"}).identity
    assert user(text, picture).text == 'See\n\n{"image_url":"data:a","type":"input_image"}'
    assert len({user(text, part).identity for part in (picture, picture | {"image_url": "data:b"}, file)}) == 3


@pytest.mark.parametrize("other", [(SAID,), (CALL,), (SAID, CALL | {"call_id": "c9"}), (SAID, CALL | {"name": "sh"})])
def test_another_content_is_another_identity(other: tuple[Any, ...]) -> None:
    assert run(*other).identity != run(SAID, CALL).identity


def test_what_has_no_words_is_known_by_its_content_without_ids() -> None:
    assert item(ADDED).identity == item(ADDED | {"id": "at_2"}).identity != item(ADDED | {"tools": []}).identity
    assert run(REFERENCE).identity != run(REFERENCE | {"id": "msg_2"}).identity
    assert run(REASONING).identity == run(REASONING | {"id": "rs_2"}).identity


def test_calls_go_with_the_reasoning_that_was_for_them_and_nothing_else_does() -> None:
    made = run(REASONING, SAID, CALL, REASONING, CUSTOM)
    one, other = (c.id for c in made.calls)
    assert json.loads(without_calls(made, {other}).wire) == [REASONING, SAID, CALL]
    assert without_calls(made, {one}).calls == made.calls[1:]
    left = without_calls(made, {one, other})
    assert json.loads(left.wire) == [REASONING, SAID]
    assert (left.identity, left.calls) == (run(SAID).identity, ())


# --------------------------------------------------------------------------------------------------------- reasoning
def test_l8_without_reasoning_the_ids_of_what_was_made_with_it_go_too() -> None:
    bare = without_reasoning(run(SAID, REASONING, SAID, CALL, CUSTOM, WEB, REFERENCE, SEALED))
    said, *behind = json.loads(bare.wire)
    assert said == SAID
    assert behind == [
        *({n: v for n, v in made.items() if n != "id"} for made in (SAID, CALL, CUSTOM)),
        REFERENCE,
        SEALED,
    ]
    assert (bare.identity, bare.text) == (run(SAID, SAID, CALL, CUSTOM).identity, "I look.\n\nI look.")


COMPUTER = {"type": "computer_call", "id": "cu_1", "call_id": "c7", "action": {"type": "screenshot"}}
LATER = REASONING | {"id": "rs_2"}


@pytest.mark.rows("X-46")
@pytest.mark.parametrize("kept", [WEB, LISTED, REQUESTED, SHELL, COMPUTER, REFERENCE, UNKNOWN | {"id": "u_1"}])
def test_reasoning_stays_that_an_item_needs_which_keeps_its_id(kept: dict[str, Any]) -> None:
    """And so does all that was made with it; the rest goes."""
    free, taken = SAID | {"id": "msg_2"}, CALL | {"id": "fc_2"}
    made = run(REASONING, SAID, LATER, kept, taken, REASONING, free)
    bare = [{n: v for n, v in item.items() if n != "id"} for item in (SAID, free)]
    assert json.loads(without_unneeded_reasoning(made).wire) == [bare[0], LATER, kept, taken, bare[1]]


@pytest.mark.rows("X-46")
@pytest.mark.parametrize("untouched", [run(REASONING, WEB, SAID), run(REASONING, LATER, WEB), run(SAID)])
def test_where_all_reasoning_is_needed_the_message_is_the_very_same(untouched: Message) -> None:
    assert without_unneeded_reasoning(untouched) is untouched


@pytest.mark.rows("X-46")
def test_where_no_reasoning_may_stay_what_the_provider_ran_goes_with_it() -> None:
    """What stands before the reasoning was not made with it."""
    bare = without_reasoning(run(WEB | {"id": "ws_0"}, REASONING, WEB, LISTED, LATER, CALL | {"id": "fc_2"}))
    assert json.loads(bare.wire) == [WEB | {"id": "ws_0"}, {n: v for n, v in CALL.items() if n != "id"}]


@pytest.mark.rows("X-46")
@pytest.mark.parametrize("called", [SHELL, COMPUTER, REQUESTED])
def test_what_the_client_answers_by_its_id_keeps_its_reasoning_at_any_model(called: dict[str, Any]) -> None:
    """It cannot leave without its result, and is not taken without its id."""
    bare = without_reasoning(run(REASONING, SAID | {"id": "msg_1"}, LATER, called, REASONING, WEB))
    assert json.loads(bare.wire) == [{n: v for n, v in SAID.items() if n != "id"}, LATER, called]
    assert without_reasoning(once := run(LATER, called)) is once


@pytest.mark.rows("X-46")
def test_the_answer_to_a_request_for_approval_is_its_result() -> None:
    told = item(APPROVED | {"id": "mcprr_1"})
    assert (told.role, told.answers, told.text) == ("tool", "mcpr_1", '{"approve":true}')
    assert with_content(told, "other words") is told
    assert json.loads(with_call_id(told, "mcpr_2").wire) == APPROVED | {
        "id": "mcprr_1",
        "approval_request_id": "mcpr_2",
    }


@pytest.mark.rows("X-46")
def test_a_request_for_approval_that_nobody_answered_gets_no_answer_of_ours() -> None:
    asked = request(USER, REQUESTED, SAID)
    line = [*asked.messages[:2], tool_result("mcpr_1", UNANSWERED_CALL_RESULT)]
    assert json.loads(b"".join(render(asked, line, [], RenderOptions())))["input"] == [USER, REQUESTED, SAID]


@pytest.mark.rows("X-46")
def test_what_was_run_after_an_approval_is_linked_to_the_request() -> None:
    ran = {"type": "mcp_call", "id": "mcp_1", "approval_request_id": "mcpr_1", "name": "t", "arguments": "{}"}
    assert run(REQUESTED).links == run(ran, SAID).links == ("mcpr_1",)
    assert (run(SAID, WEB, CALL).links, item(APPROVED).links) == ((), ())


def test_l8_every_other_byte_stays() -> None:
    raw = b'[{"type":"reasoning"} , { "id":"m","x":1.50,"type":"message","role":"assistant","content":"\\ud800"}]'
    assert without_reasoning(read_run(raw)).wire == (
        b'[{"x":1.50,"type":"message","role":"assistant","content":"\\ud800"}]'
    )


@pytest.mark.parametrize("kept", [run(SAID, CALL), run(SAID | {"x": "reasoning"}), item(USER)])
def test_a_message_without_reasoning_stays_the_very_same(kept: Message) -> None:
    assert without_reasoning(kept) is kept


def test_an_answer_of_reasoning_alone_then_leaves_nothing_in_the_request() -> None:
    asked = request(USER, REASONING, USER)
    line = [without_reasoning(m) for m in asked.messages]
    assert json.loads(b"".join(render(asked, line, [], RenderOptions())))["input"] == [USER, USER]


UNSIGNED = {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "hm"}]}
PLAIN = UNSIGNED | {"content": [{"type": "reasoning_text", "text": "hm"}]}


@pytest.mark.parametrize(
    ("members", "stays"),
    [({}, True), ({"store": False, "include": ["reasoning.encrypted_content"]}, True), ({"store": False}, False)],
)
def test_reasoning_that_nobody_kept_stays_out_of_what_is_asked_next(members: dict[str, Any], stays: bool) -> None:
    """With `store: false` and nothing encrypted, its id leads nowhere: the provider refuses it."""
    asked = request(USER, UNSIGNED, SAID, CALL, RESULT, PLAIN, REASONING, SAID, **members)
    found = json.loads(b"".join(render(asked, asked.messages, [], RenderOptions())))["input"]
    bare = [{n: v for n, v in made.items() if n != "id"} for made in (SAID, CALL)]
    made = [UNSIGNED, SAID, CALL] if stays else bare
    assert found == [USER, *made, RESULT, PLAIN, REASONING, SAID]


# -------------------------------------------------------------------------------------------------------------- ours
def test_messages_of_ours_are_read_like_any_other() -> None:
    assert json.loads(tool_result("c1", "done \ud800").wire) == RESULT | {"output": "done \ufffd"}
    assert tool_result("c1", "login.py").identity == item(RESULT).identity
    assert json.loads(user_message("Fix the login.").wire) == USER
    assert user_message("Fix the login.").identity == item({"role": "user", "content": "Fix the login."}).identity


@pytest.mark.parametrize(
    ("said", "member", "told"),
    [
        (RESULT | {"id": "fco_1", "x": 1}, "output", "short"),
        (PATCHED | {"output": [{"type": "input_text", "text": "long"}]}, "output", "short"),
        (USER, "content", "short"),
        (
            {"type": "shell_call_output", "call_id": "c1", "output": []},
            "output",
            [{"stdout": "short", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        ),
    ],
)
def test_a_result_retold_has_other_words_and_nothing_else(said: dict[str, Any], member: str, told: object) -> None:
    found = with_content(item(said), "short")
    assert json.loads(found.wire) == said | {member: told}
    assert (found.text, found.answers, found.tokens) == ("short", item(said).answers, 0)
    assert found.identity == read_item(found.wire).identity


def test_a_picture_and_an_answer_of_the_model_are_never_retold() -> None:
    for told in (item(OUTPUTS["a picture"][0]), run(SAID)):
        assert with_content(told, "short") is told


# ---------------------------------------------------------------------------------------------------------- resolved
def test_the_answer_a_request_goes_on_from_is_told() -> None:
    assert previous_response_id(request(USER, previous_response_id="resp_1")) == "resp_1"
    assert previous_response_id(request(USER, previous_response_id=None)) == previous_response_id(request(USER)) == ""


def test_a_request_that_goes_on_from_an_answer_becomes_one_that_holds_everything() -> None:
    before = request(DEVELOPER, USER, SAID, CALL)
    asked = request(RESULT, instructions="a", previous_response_id="resp_1", store=True)
    whole = resolve_references(asked, (*before.head, *before.messages))
    assert list(whole.fields) == ["model", "input", "instructions", "store"]
    assert json.loads(whole.body)["input"] == [DEVELOPER, USER, SAID, CALL, RESULT]
    alike = request(DEVELOPER, USER, SAID, CALL, RESULT, instructions="a", store=True)
    assert [m.identity for m in whole.head] == [m.identity for m in alike.head]
    assert [m.identity for m in whole.messages] == [m.identity for m in alike.messages]
    assert whole.system_hash == alike.system_hash
    assert [source.has_token_counts for source in whole.slices] == [False, True, True, True, False]
    assert b"".join(client_body(whole)) == whole.body
    assert read(whole.body, ParseCache()).messages == whole.messages


def test_the_body_of_a_client_that_names_an_answer_can_stay_what_it_was() -> None:
    asked = request(RESULT, previous_response_id="resp_1")
    whole = replace(resolve_references(asked, request(USER, SAID, CALL).messages), body=asked.body)
    assert client_body(whole) == (asked.body,)
    named = request(USER, CALL, REFERENCE, RESULT)
    filled = replace(resolve_references(named, (), {"msg_1": json.dumps(SAID).encode()}), body=named.body)
    assert client_body(filled) == (named.body,)


@pytest.mark.parametrize(("members", "told"), [({}, True), ({"store": True}, True), ({"store": False}, False)])
def test_an_answer_may_be_named_unless_the_client_asks_to_forget_it(members: dict[str, Any], told: bool) -> None:
    assert is_answer_stored(request(USER, **members)) is told


def test_items_are_known_by_their_ids_where_they_have_one() -> None:
    assert items_by_id(run(SAID, EASY, CALL)).keys() == {"msg_1", "fc_1"}
    assert items_by_id(item(USER | {"id": "msg_u"})) == {}


def test_a_text_that_goes_on_from_an_answer_is_the_last_item() -> None:
    asked = request(input="go on", previous_response_id="resp_1")
    whole = resolve_references(asked, request(USER, SAID).messages)
    assert json.loads(whole.body)["input"] == [USER, SAID, {"role": "user", "content": "go on"}]
    assert (previous_response_id(whole), b"".join(client_body(whole))) == ("", whole.body)


def test_items_a_request_refers_to_are_put_in_by_their_ids() -> None:
    whole_items = items_by_id(run(REASONING, SAID, CALL))
    bare = {name: value for name, value in CALL.items() if name != "id"}
    asked = request(USER, BARE, REFERENCE, bare, RESULT)
    assert referenced_item_ids(asked) == ("rs_1", "msg_1")
    whole = resolve_references(asked, (), whole_items)
    assert json.loads(whole.body)["input"] == [USER, REASONING, SAID, bare, RESULT]
    assert whole.messages[1].identity == run(SAID, CALL).identity
    assert whole.messages[0] is asked.messages[0]
    assert (referenced_item_ids(whole), unresolvable_reason(whole)) == ((), "")


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"background": False, "conversation": None, "previous_response_id": "resp_1"}, ""),
    ],
)
def test_what_only_the_provider_can_place_is_named(members: dict[str, Any], reason: str) -> None:
    assert unresolvable_reason(request(USER, **members)) == reason


def test_a_reference_to_an_item_that_nobody_knows_is_named() -> None:
    asked = request(USER, BARE, REFERENCE, USER)
    assert unresolvable_reason(asked) == unresolvable_reason(asked, {"rs_1"}) == "item_reference"
    assert unresolvable_reason(asked, {"rs_1", "msg_1"}) == ""


def test_a_reference_beside_a_call_needs_nobody_to_know_it() -> None:
    assert unresolvable_reason(request(USER, BARE, REFERENCE, CALL, RESULT)) == ""


# ---------------------------------------------------------------------------------------------------------- captures
def captured(path: Path) -> Iterator[dict[str, Any]]:
    records = (json.loads(line) for line in path.read_text().splitlines())
    return (record for record in records if record["path"].endswith("/responses"))


@pytest.mark.rows("X-22")
@pytest.mark.skipif(not SESSIONS, reason="the captured sessions are not beside this checkout")
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_x22_captured_requests_survive_and_hold_each_answer_as_one_message(path: Path) -> None:
    known, told = ParseCache(), set()
    for record in captured(path):
        raw = json.dumps(record["body"], ensure_ascii=False).encode()
        asked = read(raw, known)
        assert b"".join(client_body(asked)) == raw
        written = render(asked, asked.messages, [m.wire for m in asked.head], RenderOptions())
        assert json.loads(b"".join(written)) == record["body"]
        for made in (m for m in asked.messages if m.role == "assistant"):
            assert tuple(c.id for c in made.calls) in told
            assert made.text in told or referenced_item_ids(asked)
        told |= {tuple(c["id"] for c in record["answer"].get("calls") or []), record["answer"].get("text")}
