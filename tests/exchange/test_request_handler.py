"""A long answer is recorded in steps, between which other requests have their turn."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

from proxy.core.ledger import Message, ModelResponse, Request
from proxy.dialects import OPENAI_CHAT, ParseCache
from proxy.exchange.client_response import ClientResponse, HeldReply, stopped_error
from proxy.exchange.request_handler import LONG_ANSWER_BYTES, RequestHandler
from proxy.exchange.turn import Turn
from proxy.upstream import Answer

LONG = ModelResponse(Message("assistant", b" " * LONG_ANSWER_BYTES, "long", "words"), "stop")
SHORT = ModelResponse(Message("assistant", b"{}", "short", "words"), "stop")


class Recording(RequestHandler):
    """Says what is done, in order."""

    def __init__(self, *, end_has_come: bool = False, end_is_held: bool = False, stream: bool = True) -> None:
        self.done: list[str] = []
        self.request = cast("Request", SimpleNamespace(stream=stream))
        # The writer of a real answer would need a stream; all that is asked of it is whether the end has left.
        writer = SimpleNamespace(is_finished=end_has_come)
        self.client_response = cast("ClientResponse", SimpleNamespace(writer=writer, end_is_held=end_is_held))

    def _counted(self, message: Message) -> Message:
        self.done.append("counted")
        return message

    def store_last_round(self, turn: Turn | None, spoken: ModelResponse) -> None:
        self.done.append("stored")


async def others(done: list[str]) -> None:
    while "stored" not in done:
        done.append("another")
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("spoken", "order"),
    [(LONG, ["another", "another", "counted", "another", "another", "stored"]), (SHORT, ["stored"])],
    ids=["long", "short"],
)
@pytest.mark.parametrize(
    "end",
    [{}, {"end_has_come": True, "end_is_held": True}, {"end_has_come": True, "stream": False}],
    ids=["comes", "is-held", "plain"],
)
async def test_others_have_their_turn_while_a_long_answer_is_recorded(
    spoken: ModelResponse, order: list[str], end: dict[str, bool]
) -> None:
    handler = Recording(**end)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(handler.store_last_round_in_steps(None, spoken))
        tasks.create_task(others(handler.done))

    assert handler.done == order


async def test_nothing_comes_between_the_end_of_a_stream_and_its_storing() -> None:
    """The client may ask again as soon as it has the end, and refer to the answer."""
    handler = Recording(end_has_come=True)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(handler.store_last_round_in_steps(None, LONG))
        tasks.create_task(others(handler.done))

    assert handler.done == ["stored"]


async def test_a_long_answer_is_stored_when_its_client_leaves_meanwhile() -> None:
    handler = Recording()
    recording = asyncio.create_task(handler.store_last_round_in_steps(None, LONG))
    await asyncio.sleep(0)

    recording.cancel()
    with suppress(asyncio.CancelledError):
        await recording

    assert recording.cancelled()
    assert handler.done == ["stored"]


class FullReply(HeldReply):
    """A client that takes no more for a while: who sends waits before anything is written, as in the server."""

    is_full = False

    async def send(self, chunk: bytes) -> None:
        if self.is_full:
            raise asyncio.CancelledError
        await super().send(chunk)


async def test_no_comment_stands_behind_half_an_event_whose_rest_was_not_written() -> None:
    """There it would become a part of the event."""
    asked = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]}'
    request, reply = OPENAI_CHAT.parse_request(asked, ParseCache()), FullReply()
    answer = ClientResponse(OPENAI_CHAT, request, reply, list, intercept=False)
    # Of an answer its head is asked here, and a real one would need a provider.
    head = SimpleNamespace(status=200, headers=[(b"content-type", b"text/event-stream")], header=lambda _: b"")
    await answer.begin_round(cast("Answer", head))

    await answer.feed(b'data: {"choices":')
    reply.is_full = True
    with suppress(asyncio.CancelledError):
        await answer.feed(b"[]}\n\n")
    reply.is_full = False
    await answer.send_error(stopped_error())

    assert reply.body == b'data: {"choices":'
    assert reply.was_aborted
