"""Files of recordings: every format becomes the requests it was made of, everything else one sentence that says where
and why."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.replay.captures import UNNAMED_MODEL
from callstack_proxy.replay.files import recording_files_in
from callstack_proxy.replay.recording import FAST_S, PAUSE_S, NoRecording, NotReplayable, Recording
from callstack_proxy.replay.recording_formats import read_recordings

Json = dict[str, Any]
SYSTEM: Json = {"role": "system", "content": "be brief"}
TOOL: Json = {"type": "function", "function": {"name": "read", "parameters": {}}}


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def assistant(text: str) -> Json:
    return {"role": "assistant", "content": text}


def written(folder: Path, text: str, name: str = "chat.json") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def one_of(path: Path, **options: Any) -> Recording:
    (found,) = read_recordings(path, **options)
    return found


def sent(recording: Recording) -> list[list[str]]:
    """The texts of each request."""
    return [[json.loads(wire)["content"] for wire in step.messages] for step in recording.steps]


CHAT = [SYSTEM, user("a"), assistant("b"), user("c"), assistant("d")]


# --------------------------------------------------------------------------------------------------- message lists
def test_each_assistant_message_answers_everything_before_it(tmp_path: Path) -> None:
    recording = one_of(written(tmp_path, json.dumps(CHAT)))

    assert sent(recording) == [["be brief", "a"], ["be brief", "a", "b", "c"]]
    assert [step.answer for step in recording.steps] == [CHAT[2], CHAT[4]]
    assert recording.name == "chat"


def test_a_body_is_json_with_the_model_and_the_tools(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"messages": CHAT, "tools": [TOOL], "model": "gpt-5.4"}))

    body = json.loads(one_of(path).steps[1].body)

    assert body == {"model": "gpt-5.4", "messages": CHAT[:4], "tools": [TOOL]}


def test_another_model_can_be_put_in_its_place(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"messages": CHAT, "model": "gpt-5.4"}))

    assert json.loads(one_of(path, model="claude-opus-5").steps[0].body)["model"] == "claude-opus-5"


def test_a_recording_without_a_model_says_so(tmp_path: Path) -> None:
    assert one_of(written(tmp_path, json.dumps(CHAT))).model == UNNAMED_MODEL


def test_each_line_is_a_conversation(tmp_path: Path) -> None:
    lines = [json.dumps({"messages": CHAT}), "", json.dumps(CHAT[:3])]

    found = read_recordings(written(tmp_path, "\n".join(lines), "many.jsonl"))

    assert [(one.name, len(one.steps)) for one in found] == [("many[1]", 2), ("many[2]", 1)]


def test_each_line_may_be_a_message(tmp_path: Path) -> None:
    assert len(one_of(written(tmp_path, "\n".join(map(json.dumps, CHAT)))).steps) == 2


def test_lists_of_conversations_are_opened(tmp_path: Path) -> None:
    assert len(read_recordings(written(tmp_path, json.dumps([CHAT, {"messages": CHAT}])))) == 2


def test_a_packed_file_is_seen_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "no-ending"
    path.write_bytes(gzip.compress(json.dumps(CHAT).encode()))

    assert len(one_of(path).steps) == 2


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "marked.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(CHAT).encode())

    assert len(one_of(path).steps) == 2


def test_half_a_surrogate_pair_travels(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps([user("\ud83d"), assistant("\ud83d")]))

    assert json.loads(one_of(path).steps[0].messages[0])["content"] == "\ud83d"


# ---------------------------------------------------------------------------------------------------- trajectories
def test_after_a_reset_only_what_follows_is_sent_again_behind_the_system_text(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps({"id": "t1", "messages": CHAT, "resets": [{"index": 3}]}))

    recording = one_of(path)

    assert recording.name == "t1"
    assert sent(recording) == [["be brief", "a"], ["be brief", "c"]]


def test_the_recorded_time_counts_from_the_first_request_and_never_goes_back(tmp_path: Path) -> None:
    messages = [user("a"), assistant("b"), user("c"), assistant("d"), user("e"), assistant("f")]
    path = written(tmp_path, json.dumps({"messages": messages, "ts": [5.0, 6.0, 405.0, 410.0, 300.0, None]}))

    assert [step.at_ms for step in one_of(path).steps] == [0, 400_000, 400_000]


def test_the_fast_clock_knows_no_pause_and_a_missing_one_is_assumed(tmp_path: Path) -> None:
    timed = written(tmp_path, json.dumps({"messages": CHAT, "ts": [0.0, 0.0, 1.0, 9_000.0, 9_001.0]}))
    untimed = written(tmp_path, json.dumps(CHAT), "untimed.json")

    assert [step.at_ms for step in one_of(timed, clock="fast").steps] == [0, int(FAST_S * 1000)]
    assert [step.at_ms for step in one_of(untimed).steps] == [0, int(PAUSE_S * 1000)]


# -------------------------------------------------------------------------------------------------------- captured
def request(*messages: Json, **more: Any) -> Json:
    return {"model": "m", "messages": list(messages), **more}


def test_bodies_that_go_on_from_each_other_are_requests_answered_by_their_echo(tmp_path: Path) -> None:
    lines = [request(*CHAT[:2]), request(user("another")), request(*CHAT[:4])]

    recording = one_of(written(tmp_path, "\n".join(map(json.dumps, lines))))

    assert [step.answer for step in recording.steps] == [CHAT[2], None, None]


def test_bodies_with_what_only_a_request_has_are_requests(tmp_path: Path) -> None:
    lines = [request(user("a"), stream=True, temperature=0), request(user("b"), stream=True)]

    recording = one_of(written(tmp_path, "\n".join(map(json.dumps, lines))))

    assert json.loads(recording.steps[0].body) == request(user("a"), temperature=0)


def test_a_line_about_a_request_tells_time_session_and_answer(tmp_path: Path) -> None:
    answer = {"status": 200, "text": "", "reasoning": "hm", "calls": [{"id": "c1", "name": "read", "args": {"p": 1}}]}
    headers = {"x-session-affinity": "s1", "x-stack-mode": "off"}
    line = {"path": "/v1/chat/completions", "t": 7.5, "headers": headers, "body": request(user("a")), "answer": answer}

    (step,) = one_of(written(tmp_path, json.dumps(line))).steps

    assert step.headers == ((b"x-session-affinity", b"s1"),)
    assert step.answer is not None
    assert step.answer["tool_calls"][0]["function"] == {"name": "read", "arguments": '{"p":1}'}
    assert step.answer["reasoning_content"] == "hm"


def test_what_was_refused_or_went_elsewhere_is_left_out_and_said(tmp_path: Path) -> None:
    lines = [
        {"path": "/v1/models", "body": None},
        {"path": "/v1/embeddings", "body": {"input": "x"}},
        {"path": "/v1/chat/completions", "body": request(user("a")), "answer": {"status": 500}},
        {"path": "/v1/chat/completions", "body": request(user("a")), "response": {"choices": [{"message": CHAT[2]}]}},
    ]

    recording = one_of(written(tmp_path, "\n".join(map(json.dumps, lines))))

    assert [step.answer for step in recording.steps] == [CHAT[2]]
    assert "1 to /v1/embeddings" in recording.notes[0]
    assert "1 that the provider refused" in recording.notes[1]


# --------------------------------------------------------------------------------------------------- what is wrong
CALLS: Json = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {}}}]}


@pytest.mark.parametrize(
    ("content", "place", "why"),
    [
        ("", "chat.json", "is empty"),
        ("hello", "chat.json:1", "not JSON"),
        ('{"messages": [\n  {"role": "user",\n', "chat.json:3", "not JSON"),
        ('{"messages": []}\n{"messages": [', "chat.json:2", "not JSON"),
        ("[" * 100_000, "chat.json:1", "nested too deeply"),
        ("42", "chat.json:1", "no conversation"),
        ("[]", "chat.json:1", "is empty"),
        ('{"a": 1}', "chat.json:1", "no `messages`"),
        ('{"messages": 3}', "chat.json:1", "a number"),
        ('{"messages": [3]}', "message 1", "must be an object with a role"),
        ('{"messages": [{"role": "bot"}]}', "message 1", "its role is 'bot'"),
        ('{"messages": [{"content": "x"}]}', "message 1", "has no role"),
        (json.dumps([user("a"), {"role": "assistant", "content": 7}]), "message 2", "its content"),
        (json.dumps([user("a"), CALLS]), "message 2", "must be a JSON text"),
        (json.dumps([user("a"), {"role": "tool", "content": "x"}, assistant("b")]), "message 2", "`tool_call_id`"),
        (json.dumps([user("a")]), "chat.json:1", "no assistant message"),
        (json.dumps({"messages": CHAT, "tools": {}} | {"tools": {"a": 1}}), "chat.json:1", "`tools`"),
        (json.dumps({"messages": CHAT, "ts": [1]}), "chat.json:1", "`ts`"),
        (json.dumps({"messages": CHAT, "resets": [1]}), "chat.json:1", "`resets`"),
        (json.dumps({"path": "/v1/embeddings", "body": {"a": 1}}), "chat.json", "another endpoint"),
    ],
)
def test_a_file_that_cannot_be_replayed_says_where_and_why(tmp_path: Path, content: str, place: str, why: str) -> None:
    path = written(tmp_path, content)

    with pytest.raises(NotReplayable) as refused:
        read_recordings(path)

    assert place in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "content",
    [b"\x00\xff\xfe\x80", b"\x1f\x8bno gzip", gzip.compress(b"[1, 2]" * 999)[:-9]],
    ids=["no text", "no gzip", "gzip cut short"],
)
def test_bytes_that_are_no_text_are_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(content)

    with pytest.raises(NotReplayable, match="bytes"):
        read_recordings(path)


def test_a_file_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The bound itself is a gibibyte: a file that reaches it would take the test a minute.
    monkeypatch.setattr("callstack_proxy.replay.files.MOST_BYTES", 1000)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * 100_000))

    with pytest.raises(NotReplayable, match="larger than"):
        read_recordings(path)


def test_a_missing_file_and_a_foreign_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotReplayable, match="no such file"):
        read_recordings(tmp_path / "none.json")
    with pytest.raises(NoRecording):
        read_recordings(written(tmp_path, '{"name": "a plan"}'))


def test_results_without_calls_and_calls_without_results_are_played_and_told(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "tool", "tool_call_id": "c9", "content": "r"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        user("go on"),
        assistant("done"),
    ]

    recording = one_of(written(tmp_path, json.dumps(messages)))

    assert len(recording.steps) == 2
    assert [note.split(": ")[1] for note in recording.notes] == [
        "message 1 is a result of 'c9', which no message calls",
        "message 2 calls 'c1', which has no result",
    ]


# ----------------------------------------------------------------------------------------------------- directories
def test_a_directory_stands_for_its_recordings(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("b.jsonl.gz", "a.json", "inner/c.ndjson", "README.md", ".hidden/d.json"):
        (tmp_path / name).touch()

    found = [str(path.relative_to(tmp_path)) for path in recording_files_in([tmp_path, tmp_path / "README.md"])]

    assert found == ["a.json", "b.jsonl.gz", "inner/c.ndjson", "README.md"]
