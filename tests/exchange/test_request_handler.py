"""A long answer is recorded in steps, between which other requests have their turn."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from proxy.core.ledger import Message, ModelResponse
from proxy.exchange.request_handler import LONG_ANSWER_BYTES, RequestHandler
from proxy.exchange.turn import Turn

LONG = ModelResponse(Message("assistant", b" " * LONG_ANSWER_BYTES, "long", "words"), "stop")
SHORT = ModelResponse(Message("assistant", b"{}", "short", "words"), "stop")


class Recording(RequestHandler):
    """Says what is done, in order."""

    def __init__(self) -> None:
        self.done: list[str] = []

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
    [(LONG, ["another", "counted", "another", "stored"]), (SHORT, ["stored"])],
    ids=["long", "short"],
)
async def test_others_have_their_turn_while_a_long_answer_is_recorded(spoken: ModelResponse, order: list[str]) -> None:
    handler = Recording()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(handler.store_last_round_in_steps(None, spoken))
        tasks.create_task(others(handler.done))

    assert handler.done == order


async def test_a_long_answer_is_stored_when_its_client_leaves_meanwhile() -> None:
    handler = Recording()
    recording = asyncio.create_task(handler.store_last_round_in_steps(None, LONG))
    await asyncio.sleep(0)

    recording.cancel()
    with suppress(asyncio.CancelledError):
        await recording

    assert recording.cancelled()
    assert handler.done == ["stored"]
