"""A recording says the same and saves the same in every API it is replayed in."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.api.replay_api_list import APIS
from callstack_proxy.replay.outcome import ReplayResult
from callstack_proxy.replay.player import play_recording
from callstack_proxy.replay.recording import NotReplayable, Recording
from callstack_proxy.replay.recording_formats import read_recordings
from llm_test_provider.apis import messages_checks as messages_check
from llm_test_provider.apis import responses_checks as responses_check
from proxy.core.ledger.messages import Request
from proxy.dialects import ParseCache

Json = dict[str, Any]
MODEL = "claude-sonnet-4-5"
SYSTEM: Json = {"role": "system", "content": "You work in a repository. " * 800}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": name, "parameters": {"type": "object"}}}
    for name in ("Read", "TodoWrite")
]
STEPS = ("read the parser", "read the writer", "read the tests", "read the docs")
NEAR = 0.01
"""How far the share of the cost that is left may lie from that of chat completions."""


def calls(number: int, *made: tuple[str, Json], text: str | None = None, thought: str = "") -> Json:
    listed = [
        {"id": f"c{number}_{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for at, (name, arguments) in enumerate(made)
    ]
    return {"role": "assistant", "content": text, "tool_calls": listed} | (
        {"reasoning_content": thought} if thought else {}
    )


def result(call: str, text: str) -> Json:
    return {"role": "tool", "tool_call_id": call, "content": text}


def plan(done: int) -> tuple[str, Json]:
    status = ["completed"] * done + ["in_progress"] + ["pending"] * len(STEPS)
    return "TodoWrite", {"todos": [{"content": step, "status": status[at]} for at, step in enumerate(STEPS)]}


def session() -> Iterator[Json]:
    """A plan of four items, each of them long reading in pairs of parallel calls."""
    yield SYSTEM
    yield {"role": "user", "content": "Read everything, one after the other."}
    number = 0
    for done, step in enumerate(STEPS):
        number += 1
        yield calls(number, plan(done), text=f"Now: {step}.", thought=f"What comes is to {step}.")
        yield result(f"c{number}_0", "Noted.")
        for part in range(5):
            number += 1
            yield calls(number, *(("Read", {"path": f"{step[9:]}/{part}{side}.py"}) for side in "ab"))
            for at, side in enumerate("ab"):
                yield result(f"c{number}_{at}", f"def part_{part}{side}(): pass  # {step}\n" * 80)
    number += 1
    yield calls(number, plan(len(STEPS)), text="All is read.")
    yield result(f"c{number}_0", "Noted.")
    for at in range(6):
        yield {"role": "assistant", "content": f"Answer {at}."}
        yield {"role": "user", "content": f"And then, number {at}?"}
    yield {"role": "assistant", "content": "That is all."}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "session.json"
    path.write_text(json.dumps({"messages": list(session()), "tools": TOOLS, "model": MODEL}))
    return path


def told_in(file: Path, dialect: str) -> Recording:
    (found,) = read_recordings(file, dialect=dialect)
    return found


FOLDING = {"folding": "full", "frame_max_tokens": 16_000}
"""As much leaves as can, so that a short recording has folds."""


def played(recording: Recording, **flags: object) -> ReplayResult:
    return asyncio.run(
        play_recording(recording, load_config({"wake_at_tokens": 5_000, **FOLDING, **flags}), "a file", lambda: None)
    )


def read(recording: Recording) -> list[Request]:
    known = ParseCache()
    return [APIS[recording.dialect].dialect.parse_request(step.body, known) for step in recording.steps]


# --------------------------------------------------------------------------------------------------------------- write
@pytest.mark.parametrize("dialect", APIS)
def test_a_recording_says_the_same_in_every_api(file: Path, dialect: str) -> None:
    """Who says what, calls what and answers which call, in every request and in every answer."""
    one, chat = told_in(file, dialect), told_in(file, "chat")

    assert [_heard(request) for request in read(one)] == [_heard(request) for request in read(chat)]
    answers = [APIS[dialect].as_message(step.answer) for step in one.steps if step.answer]
    in_chat = [APIS["chat"].as_message(step.answer) for step in chat.steps if step.answer]
    assert [(a.text, _arguments(a.calls)) for a in answers] == [(a.text, _arguments(a.calls)) for a in in_chat]
    assert {request.tool_names for request in read(one)} == {("Read", "TodoWrite")}


def _heard(request: Request) -> list[Any]:
    return [(m.role, m.text, _arguments(m.calls), m.answers) for m in (*request.head, *request.messages)]


def _arguments(made: Any) -> list[Any]:
    return [(call.id, call.name, json.loads(call.arguments)) for call in made]


def test_messages_are_written_as_agents_write_them(file: Path) -> None:
    """Results of one group in one user message; markers on the system text and on the last block, and nowhere else."""
    bodies = [json.loads(step.body) for step in told_in(file, "messages").steps]

    parallel = bodies[3]["messages"][-1]
    assert [block["type"] for block in parallel["content"]] == ["tool_result", "tool_result"]
    assert [m["role"] for m in bodies[-1]["messages"]][:3] == ["user", "assistant", "user"]
    for body in bodies:
        *earlier, last = body["messages"]
        assert last["content"][-1]["cache_control"] == body["system"][-1]["cache_control"] == {"type": "ephemeral"}
        assert "cache_control" not in json.dumps([earlier, last["content"][:-1]])
    assert bodies[0]["tools"][0] == {"name": "Read", "description": "Read", "input_schema": {"type": "object"}}


def test_responses_are_written_as_items_that_the_client_keeps(file: Path) -> None:
    body = json.loads(told_in(file, "responses").steps[1].body)

    assert (body["instructions"], body["store"]) == (SYSTEM["content"], False)
    kinds = [item["type"] for item in body["input"]]
    assert kinds == ["message", "reasoning", "message", "function_call", "function_call_output"]
    assert body["tools"][0]["name"] == "Read"


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_what_is_written_is_what_the_api_takes(file: Path, tmp_path: Path, dialect: str) -> None:
    """By the checks of the scripted provider; also where an agent says the same twice, or nothing beside its calls."""
    again = [
        calls(1, ("Read", {}), text=" "),
        result("c1_0", "a"),
        calls(2, ("Read", {}), text=" "),
        result("c2_0", "a"),
    ]
    said = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "ok"}]
    path = tmp_path / "twice.json"
    path.write_text(json.dumps({"messages": [*said, said[0], *again, *said[1:], *said]}))

    bodies = [json.loads(step.body) for one in (file, path) for step in told_in(one, dialect).steps]

    if dialect == "messages":
        # This session was recorded without the thoughts of most of its steps, which a budget would ask for.
        assert {messages_check.refusal(body | {"thinking": {"type": "adaptive"}}) for body in bodies} == {""}
    else:
        assert {responses_check.refusal(body, body["input"]) for body in bodies} == {None}


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_free_text_calls_and_pictures_have_their_words_in_every_api(tmp_path: Path, dialect: str) -> None:
    patch = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
        {"role": "assistant", "content": None, "tool_calls": [patch]},
        result("c1", "done"),
        {"role": "assistant", "content": "ok"},
    ]
    path = tmp_path / "chat.json"
    tool = {"type": "custom", "custom": {"name": "patch", "description": "edits", "format": {"type": "text"}}}
    path.write_text(json.dumps({"messages": messages, "tools": [tool]}))

    recording = told_in(path, dialect)

    (first, second) = read(recording)
    assert "AAAA" in recording.steps[0].body.decode()
    assert first.messages[0].text.startswith("look")
    assert [m.role for m in second.messages] == ["user", "assistant", "tool"]
    assert "*** Begin" in second.messages[1].calls[0].arguments
    assert first.tool_names == ("patch",)
    assert played(recording).unequal == 0


def test_what_only_chat_completions_can_say_is_refused_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    path.write_text(json.dumps([{"role": "user", "content": "a"}, legacy]))

    assert len(told_in(path, "chat").steps) == 1
    with pytest.raises(NotReplayable, match=r"message 2 has a call of the old form.*replay it as chat"):
        read_recordings(path, dialect="messages")


def test_a_greeting_behind_nothing_but_a_system_text_is_asked_for_in_chat_alone(tmp_path: Path) -> None:
    path = tmp_path / "greeting.json"
    path.write_text(json.dumps([SYSTEM, {"role": "assistant", "content": "Hello."}]))

    assert len(told_in(path, "chat").steps) == 1
    with pytest.raises(NotReplayable, match="no request of this holds a message"):
        read_recordings(path, dialect="responses")


def test_a_list_in_the_messages_api_is_replayed_in_it(tmp_path: Path) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a"}}
    answered = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [answered]},
        {"role": "assistant", "content": "done"},
    ]
    path = tmp_path / "native.json"
    path.write_text(json.dumps({"system": "be brief", "messages": messages, "model": MODEL}))

    (recording,) = read_recordings(path)

    assert (recording.dialect, recording.notes) == ("messages", ())
    assert [len(request.messages) for request in read(recording)] == [1, 3]
    assert played(recording).unequal == 0
    with pytest.raises(NotReplayable, match="asked in messages"):
        read_recordings(path, dialect="responses")


# ---------------------------------------------------------------------------------------------------------------- play
@pytest.mark.parametrize("dialect", APIS)
def test_off_costs_what_the_untouched_run_costs_in_every_api(file: Path, dialect: str) -> None:
    told = played(told_in(file, dialect), mode="off")

    assert told.row.cost == pytest.approx(told.row.cost_untouched)
    assert (told.unequal, told.left) == (0, [])
    if told.by_markers:
        assert told.by_markers.cost == pytest.approx(told.by_markers.cost_untouched)


@pytest.mark.parametrize("dialect", ["messages", "responses"])
def test_the_same_is_saved_in_every_api(file: Path, dialect: str) -> None:
    """The same wakes and folds, and a share of the cost that differs by less than one point."""
    one, chat = played(told_in(file, dialect)), played(told_in(file, "chat"))

    assert chat.events["folded"] >= 2
    assert one.events.get("woken") == chat.events.get("woken") == 1
    assert abs(one.events["folded"] - chat.events["folded"]) <= 1
    assert one.unequal == chat.unequal == 0
    assert chat.row.cost < 0.8 * chat.row.cost_untouched
    assert abs(one.row.cost / one.row.cost_untouched - chat.row.cost / chat.row.cost_untouched) < NEAR
    assert one.needs.lost == chat.needs.lost


def test_markers_save_what_the_receipts_say(file: Path) -> None:
    """Where the provider caches at nothing but the markers in the requests, as much is saved."""
    told = played(told_in(file, "messages"))

    assert told.by_markers is not None
    by_receipts = told.row.cost / told.row.cost_untouched
    assert abs(told.by_markers.cost / told.by_markers.cost_untouched - by_receipts) < NEAR
