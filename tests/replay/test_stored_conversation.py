"""A conversation of our own store becomes the recording that a client's requests were."""

import asyncio
import json

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.api.base import ReplayApi
from callstack_proxy.replay.api.messages import MESSAGES
from callstack_proxy.replay.api.responses import RESPONSES
from callstack_proxy.replay.player import play_recording
from callstack_proxy.replay.recording import (
    Json,
    NotReplayable,
    RecordedStep,
    Recording,
    body_start_and_end,
    encode_json,
)
from callstack_proxy.replay.services import PATH, TENANT, ReplayServices, build_replay
from callstack_proxy.replay.stored_conversation import stored_recording
from proxy.errors import NotFound
from proxy.exchange import HeldReply
from proxy.exchange import pipeline as exchange
from proxy.exchange.rounds import ClientRequest

MINUTE = 60_000
CHAT: list[Json] = [
    {"role": "user", "content": "begin"},
    {"role": "assistant", "content": "begun"},
    {"role": "user", "content": "go on"},
    {"role": "assistant", "content": "done"},
]


async def kept(backstage: ReplayServices) -> str:
    """Two requests, served and stored; the id of their conversation."""
    before, behind = body_start_and_end("gpt-5.4", {"temperature": 0})
    heard = HeldReply()
    for number, at in enumerate((1, 3)):
        step = RecordedStep(before, tuple(map(encode_json, CHAT[:at])), behind, CHAT[at], number * MINUTE)
        backstage.clock.advance_to(step.at_ms)
        backstage.provider.expect(step)
        heard = HeldReply()
        await exchange.handle(
            backstage.services, ClientRequest(f"r{number}", TENANT, "POST", PATH, b"", [], step.body), heard
        )
    return heard.header_values.get("x-stack-conversation", "")


def recorded_again(model: str = "") -> Recording:
    async def run() -> Recording:
        backstage = build_replay(load_config({}))
        return await stored_recording(backstage.store, await kept(backstage), model=model)

    return asyncio.run(run())


def test_what_the_client_sent_is_replayed_when_it_did_with_the_answers_it_got() -> None:
    recording = recorded_again()

    assert [step.at_ms for step in recording.steps] == [0, MINUTE]
    assert [len(step.messages) for step in recording.steps] == [1, 3]
    answers = [step.answer for step in recording.steps]
    assert [answer and answer["content"] for answer in answers] == ["begun", "done"]
    assert recording.model == "gpt-5.4"


def test_another_model_can_be_tried() -> None:
    recording = recorded_again("claude-opus-5")

    assert recording.model == "claude-opus-5"
    assert b'"temperature":0' in recording.steps[0].body


# ------------------------------------------------------------------------------------------------------- other APIs
def said(api: ReplayApi, text: str, name: str = "") -> Json:
    answer = api.answer_from_chat({"role": "assistant", "content": text})
    return {**answer, "id": name} if name else answer


def turn(api: ReplayApi, text: str, **more: object) -> tuple[bytes, bytes, tuple[bytes, ...]]:
    before, behind = body_start_and_end("gpt-5.4", more, api.messages_key)
    return before, behind, (encode_json({"role": "user", "content": text}),)


async def held_in(backstage: ReplayServices, api: ReplayApi, steps: list[RecordedStep]) -> list[str]:
    """A conversation served and stored; its id as each answer told it."""
    told = []
    for number, step in enumerate(steps):
        backstage.clock.advance_to(step.at_ms)
        backstage.provider.expect(step)
        heard = HeldReply()
        client_request = ClientRequest(f"r{number}", TENANT, "POST", api.path, b"", [], step.body)
        await exchange.handle(backstage.services, client_request, heard)
        told.append(heard.header_values.get("x-stack-conversation", ""))
    return told


def test_a_conversation_of_the_messages_api_is_replayed_in_it() -> None:
    async def run() -> Recording:
        backstage, api = build_replay(load_config({}), MESSAGES), MESSAGES
        before, behind, first = turn(api, "begin", max_tokens=9)
        second = (*first, encode_json({"role": "assistant", "content": "begun"}), *turn(api, "go on")[2])
        steps = [
            RecordedStep(before, first, behind, said(api, "begun"), 0),
            RecordedStep(before, second, behind, said(api, "done"), 1),
        ]
        (conversation,) = set(await held_in(backstage, api, steps))
        with pytest.raises(NotReplayable, match="asked in messages"):
            await stored_recording(backstage.store, conversation, dialect="chat")
        return await stored_recording(backstage.store, conversation)

    recording = asyncio.run(run())

    assert recording.dialect == "messages"
    assert [MESSAGES.as_message(step.answer).text for step in recording.steps if step.answer] == ["begun", "done"]


@pytest.mark.parametrize("hidden", [False, True])
def test_a_client_that_names_answers_is_replayed_with_the_names_it_knew(hidden: bool) -> None:
    """Its second request holds nothing but the new words and the id of the answer before, with a hidden round or
    without."""
    push = {"title": "Begin", "successCriteria": "begun"}
    call = {"id": "c1", "type": "function", "function": {"name": "stack_frame_push", "arguments": json.dumps(push)}}
    config = load_config({"wake_at_tokens": 0})

    async def run() -> tuple[Recording, list[str]]:
        backstage, api = build_replay(config, RESPONSES), RESPONSES
        first_answer = {"role": "assistant", "content": "begun", **({"tool_calls": [call]} if hidden else {})}
        before, behind, first = turn(api, "begin")
        steps = [RecordedStep(before, first, behind, {**api.answer_from_chat(first_answer), "id": "resp_1"}, 0)]
        before, behind, second = turn(api, "go on", previous_response_id="resp_1")
        steps.append(RecordedStep(before, second, behind, said(api, "done", "resp_2"), MINUTE))
        told = await held_in(backstage, api, steps)
        return await stored_recording(backstage.store, told[-1]), told

    recording, told = asyncio.run(run())

    assert len(set(told)) == 1
    assert len(recording.steps) == 2
    played = asyncio.run(play_recording(recording, config, "the store", lambda: None))
    assert (played.conversations, played.unequal) == (1, 0)
    assert not [status for status in played.statuses if status.startswith("bypass")]


def test_a_conversation_that_is_not_there_is_said_to_be_missing() -> None:
    async def ask() -> None:
        await stored_recording(build_replay(load_config({})).store, "0123456789")

    with pytest.raises(NotFound, match="no conversation"):
        asyncio.run(ask())
