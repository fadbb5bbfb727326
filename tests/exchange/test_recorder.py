"""What is kept of a request is what was told of it, whatever came after."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from proxy.accounting import Receipt
from proxy.config.sources import load_config
from proxy.exchange import pipeline as exchange
from proxy.exchange.background.scheduler import DeferredTasks
from proxy.exchange.rounds import ClientRequest
from proxy.replay.player import CapturedReply
from proxy.replay.recording import RecordedStep, body_start_and_end, encode_json
from proxy.replay.services import TENANT, build_replay

LATER_S = 60.0
BEFORE, BEHIND = body_start_and_end("claude-sonnet-4-5", {})
STEP = RecordedStep(
    BEFORE, (encode_json({"role": "user", "content": "hi"}),), BEHIND, {"role": "assistant", "content": "hello"}, 0
)


class Gone(CapturedReply):
    """A client that leaves while the last bytes are on their way to it."""

    async def end(self, last: bytes = b"") -> None:
        raise asyncio.CancelledError


async def test_a_row_and_its_receipt_tell_the_same_of_a_client_that_left_at_the_end() -> None:
    behind = build_replay(load_config({}))
    keeper = replace(behind.services.recorder, deferred_tasks=DeferredTasks(LATER_S))
    parts = replace(behind.services, recorder=keeper)
    behind.provider.expect(STEP)

    with pytest.raises(asyncio.CancelledError):
        await exchange.handle(
            parts, ClientRequest("r1", TENANT, "POST", "/v1/chat/completions", b"", [], STEP.body), Gone()
        )
    keeper.deferred_tasks.run_pending()
    kept = await behind.store.request(TENANT, "r1")

    assert kept is not None
    receipt = msgspec.json.decode(kept.record.receipt, type=Receipt)
    assert kept.record.status == receipt.status == "asleep"
