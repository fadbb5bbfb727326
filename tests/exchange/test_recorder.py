"""What is kept of a request is what was told of it, whatever came after."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.recording import RecordedStep, body_start_and_end, encode_json
from callstack_proxy.replay.services import TENANT, build_replay
from proxy.accounting import Receipt
from proxy.dialects import DIALECTS, ParseCache
from proxy.exchange import HeldReply
from proxy.exchange import pipeline as exchange
from proxy.exchange.background.recorder import body_to_store
from proxy.exchange.background.scheduler import DeferredTasks
from proxy.exchange.rounds import ClientRequest
from proxy.exchange.thread.placement import Placement

LATER_S = 60.0
BEFORE, BEHIND = body_start_and_end("claude-sonnet-4-5", {})
STEP = RecordedStep(
    BEFORE, (encode_json({"role": "user", "content": "hi"}),), BEHIND, {"role": "assistant", "content": "hello"}, 0
)


class Gone(HeldReply):
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


def _history(ids: list[str], result: str) -> list[dict[str, Any]]:
    made = [
        {"id": i, "type": "function", "function": {"name": "read", "arguments": json.dumps({"of": i})}} for i in ids
    ]
    told = [{"role": "tool", "tool_call_id": i, "content": result} for i in ids]
    return [{"role": "assistant", "content": "see new1", "tool_calls": made}, *told]


def test_ids_that_a_client_makes_anew_are_stored_as_they_were() -> None:
    """Only where an id stands by itself: texts and arguments that mention one stay."""
    messages = _history(["new1", "new2"], 'says \\"new1\\"\\n and new2')
    body = json.dumps({"model": "m", "messages": messages}).encode()
    request = DIALECTS["/chat/completions"].parse_request(body, ParseCache())
    placement = SimpleNamespace(call_ids={"new1": "old1", "new2": "old2"}, request=request)

    stored = b"".join(body_to_store(cast("Placement", placement), tuple(piece.raw for piece in request.slices)))

    expected = json.dumps(messages)
    for new, old in (("new1", "old1"), ("new2", "old2")):
        expected = expected.replace(f'"id": "{new}"', f'"id": "{old}"')
        expected = expected.replace(f'"tool_call_id": "{new}"', f'"tool_call_id": "{old}"')
    assert stored.decode() == "".join(json.dumps(message) for message in json.loads(expected))
