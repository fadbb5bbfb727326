"""A conversation of our own store becomes the recording that a client's requests were."""

import asyncio

import pytest

from proxy import exchange
from proxy.asking import Incoming
from proxy.config import load_config
from proxy.errors import UnknownFrame
from proxy.replaying.playing import Heard
from proxy.replaying.recording import Json, Recording, Step, around, encoded
from proxy.replaying.stored import stored_recording
from proxy.replaying.wiring import PATH, TENANT, Backstage, wired

MINUTE = 60_000
CHAT: list[Json] = [
    {"role": "user", "content": "begin"},
    {"role": "assistant", "content": "begun"},
    {"role": "user", "content": "go on"},
    {"role": "assistant", "content": "done"},
]


async def kept(backstage: Backstage) -> str:
    """Two requests, served and stored; the id of their conversation."""
    before, behind = around("gpt-5.4", {"temperature": 0})
    heard = Heard()
    for number, at in enumerate((1, 3)):
        step = Step(before, tuple(map(encoded, CHAT[:at])), behind, CHAT[at], number * MINUTE)
        backstage.clock.to(step.at_ms)
        backstage.provider.expect(step)
        heard = Heard()
        await exchange.serve(backstage.parts, Incoming(f"r{number}", TENANT, "POST", PATH, b"", [], step.body), heard)
    return heard.header(b"x-stack-conversation")


def recorded_again(model: str = "") -> Recording:
    async def run() -> Recording:
        backstage = wired(load_config({}))
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


def test_a_conversation_that_is_not_there_is_said_to_be_missing() -> None:
    async def ask() -> None:
        await stored_recording(wired(load_config({})).store, "0123456789")

    with pytest.raises(UnknownFrame, match="no conversation"):
        asyncio.run(ask())
