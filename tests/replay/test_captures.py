"""Captured requests of the messages and responses APIs become recordings in their own API."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.outcome import ReplayResult
from callstack_proxy.replay.player import play_recording
from callstack_proxy.replay.recording import NotReplayable, Recording
from callstack_proxy.replay.recording_formats import read_recordings

Json = dict[str, Any]
MARKED = {"type": "ephemeral"}


def written(folder: Path, *lines: Json) -> Path:
    path = folder / "captured.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def to_messages(*messages: Json, **about: Any) -> Json:
    """A request with a moving marker, as agents send it."""
    *earlier, last = messages
    block = {"type": "text", "text": last["content"]} if isinstance(last["content"], str) else last["content"][-1]
    marked = {**last, "content": [{**block, "cache_control": MARKED}]}
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    body = {"model": "claude-opus-4-6", "system": "be brief", "tools": tools, "messages": [*earlier, marked]}
    return {"path": "/v1/messages", "body": {**body, "stream": True}, **about}


def to_responses(*items: Json, **about: Any) -> Json:
    tools = [{"type": "function", "name": "Read", "parameters": {"type": "object"}}]
    body = {"model": "gpt-5.5", "instructions": "be brief", "tools": tools, "input": list(items), "stream": True}
    return {"path": "/v1/responses", "body": {**body, **about.pop("more", {})}, **about}


def text(words: str, role: str = "user") -> Json:
    return {"role": role, "content": [{"type": "text", "text": words}]}


def item(words: str) -> Json:
    return {"role": "user", "content": [{"type": "input_text", "text": words}]}


def played(recording: Recording) -> ReplayResult:
    return asyncio.run(play_recording(recording, load_config({"wake_at_tokens": 0}), "a file", lambda: None))


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "text"}
TOLD = {"status": 200, "text": "", "calls": [{"id": "call_1", "name": "Read", "args": {"path": "a"}}]}


def test_an_answer_of_messages_is_its_echo_whatever_moves_in_the_request(tmp_path: Path) -> None:
    """The echo has the API's own ids; what the line tells beside the request counts where nothing echoes it."""
    first = to_messages(text("go"), answer=TOLD)
    second = to_messages(
        text("go"),
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
        answer={"text": "done"},
    )

    (recording,) = read_recordings(written(tmp_path, first, second))

    assert recording.dialect == "messages"
    assert recording.notes == ()
    assert [step.answer and step.answer["content"] for step in recording.steps] == [
        [CALL],
        [{"type": "text", "text": "done"}],
    ]
    assert json.loads(recording.steps[0].body)["messages"][0]["content"][0]["cache_control"] == MARKED
    assert "stream" not in json.loads(recording.steps[0].body)
    told = played(recording)
    assert (told.unequal, told.conversations, told.statuses) == (0, 1, {"full": 2})


def test_an_answer_of_responses_has_the_items_that_later_requests_only_name(tmp_path: Path) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "Read", "arguments": '{"path": "a"}'}
    named = [{"type": "item_reference", "id": "rs_1"}, {"type": "item_reference", "id": "msg_1"}]
    output = {"type": "function_call_output", "call_id": "call_1", "output": "text"}
    first = to_responses(item("go"), answer={**TOLD, "text": "Reading.", "reasoning": "Let me see."})
    second = to_responses(item("go"), *named, call, output, answer={"text": "done"})

    (recording,) = read_recordings(written(tmp_path, first, second))

    answer = recording.steps[0].answer
    assert answer is not None
    assert [(one["type"], one.get("id")) for one in answer["output"]] == [
        ("reasoning", "rs_1"),
        ("message", "msg_1"),
        ("function_call", None),
    ]
    told = played(recording)
    assert (told.unequal, told.conversations, told.statuses) == (0, 1, {"full": 2})


def test_what_goes_on_from_a_recorded_answer_is_placed_behind_it(tmp_path: Path) -> None:
    said = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "hello"}],
    }
    first = to_responses(item("go"), response={"id": "resp_1", "object": "response", "output": [said]})
    second = to_responses(item("and now"), more={"previous_response_id": "resp_1"}, answer={"text": "done"})

    (recording,) = read_recordings(written(tmp_path, first, second))

    told = played(recording)
    assert (told.unequal, told.conversations) == (0, 1)
    assert not [status for status in told.statuses if status.startswith("bypass")]


def test_what_goes_on_from_an_answer_that_nobody_recorded_is_refused_with_a_way_out(tmp_path: Path) -> None:
    line = to_responses(item("and now"), more={"previous_response_id": "resp_1"}, answer={"text": "done"})

    with pytest.raises(NotReplayable, match=r"captured.jsonl:1: .*'resp_1', which is not recorded; record each reply"):
        read_recordings(written(tmp_path, line))


def test_requests_to_several_apis_are_recordings_of_their_own(tmp_path: Path) -> None:
    chat = {"path": "/v1/chat/completions", "body": {"model": "m", "messages": [{"role": "user", "content": "a"}]}}
    lines = (
        to_messages(text("a")),
        chat,
        to_responses(item("a")),
        {"path": "/v1/messages/count_tokens", "body": {"a": 1}},
    )

    found = read_recordings(written(tmp_path, *lines))

    assert [(one.name, one.dialect, len(one.steps)) for one in found] == [
        ("captured (messages)", "messages", 1),
        ("captured (chat)", "chat", 1),
        ("captured (responses)", "responses", 1),
    ]
    assert "1 to /v1/messages/count_tokens" in found[0].notes[0]


@pytest.mark.parametrize(
    ("line", "dialect"),
    [(to_messages(text("a")), "messages"), (to_responses(item("a")), "responses"), (to_responses(), "responses")],
)
def test_a_body_alone_is_known_by_what_it_holds(tmp_path: Path, line: Json, dialect: str) -> None:
    body = line["body"] | ({"input": "just words"} if not line["body"].get("input", True) else {})

    (recording,) = read_recordings(written(tmp_path, body, body))

    assert (recording.dialect, len(recording.steps)) == (dialect, 2)


@pytest.mark.parametrize(
    ("line", "wanted", "why"),
    [
        (to_messages(text("a")), "chat", "asked in messages, and can be replayed in that alone"),
        (to_responses(item("a")), "messages", "leave out --dialect"),
        ({"path": "/v1/responses", "body": {"model": "m", "input": []}}, "", "that is not empty"),
        ({"path": "/v1/responses", "body": {"model": "m", "input": [3]}}, "", "no request to responses"),
        ({"path": "/v1/messages", "body": {"model": "m", "messages": []}}, "", "`messages` is empty"),
        ({"path": "/v1/messages", "body": {"model": "m", "messages": [text("a")], "system": 3}}, "", "system text"),
    ],
)
def test_what_cannot_be_replayed_says_where_and_why(tmp_path: Path, line: Json, wanted: str, why: str) -> None:
    with pytest.raises(NotReplayable) as refused:
        read_recordings(written(tmp_path, line), dialect=wanted)

    assert "captured.jsonl:1" in str(refused.value)
    assert why in str(refused.value)
