"""The head that is cached for an hour, behind a provider of the messages API that bills each lifetime at its price."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from llm_test_provider import Model, ScriptedProvider, says
from llm_test_provider.prompt_cache import CACHE_RULES
from llm_test_provider.script import ReceivedRequest
from tests.client_dialects import MESSAGES, messages
from tests.clocks import Clock, set_clock
from tests.harness import Conversation, RecordingProvider, bash, does, running_stage
from tests.scenarios.test_bill import SYSTEM, TOOLS
from tests.scenarios.test_model_bills import BILLS, CACHE, CLOSE, direct_bill, send

BILL = next(bill for bill in BILLS if bill.model == "claude-opus-5-5")
MINUTES = 60_000
HOUR_LONG = "1h"


@pytest.fixture
def clock() -> Iterator[Clock]:
    with set_clock() as clock:
        yield clock


def lifetimes(received: ReceivedRequest) -> set[str]:
    """Of the markers in system text and tools."""
    assert isinstance(received.body, dict)
    blocks = [*received.body["system"], *received.body["tools"]]
    return {block["cache_control"].get("ttl", "5m") for block in blocks if "cache_control" in block}


def works(provider: RecordingProvider, chat: Conversation, steps: int) -> None:
    """One request of the user, with so many long outputs."""
    provider.will(*(does(bash(f"cat {step}.py")) for step in range(steps)), says("That is it."))
    chat.says(f"Please look at this. {'word ' * 8_000}")
    for step in range(steps):
        chat.returns(f"{step} " * 1_000)


def charged(requests: Sequence[ReceivedRequest]) -> float:
    """USD."""
    return sum(BILL.charge(each.usage, each.usage.completion) for each in requests if each.usage)


def with_short_heads(requests: Sequence[ReceivedRequest], sent_at: Sequence[int]) -> float:
    """USD of the same requests with markers of five minutes, each sent at its time (ms)."""
    now = [0]
    with ScriptedProvider(models=[Model(BILL.model, cache=CACHE)], clock=lambda: now[0] / 1000) as alone:
        for each, now[0] in zip(requests, sent_at, strict=True):
            alone.will(says("That is it."))
            send(alone, MESSAGES, json.dumps(each.body).replace(HOUR_LONG, "5m").encode())
        return charged(alone.asked)


@pytest.mark.rows("X-76")
def test_from_a_pause_on_where_it_costs_little_the_head_is_kept_for_an_hour(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first pause an hour would cost more than 3 % of what was paid; after the second it does not, through
    two of 40 minutes the head lives, and after one of 90 minutes it is written anew."""
    monkeypatch.setitem(CACHE_RULES, CACHE, BILL.rule)
    # The scripted client asks for an hour where this one has to ask for five minutes: it is the client that is set.
    monkeypatch.setattr(messages, "LASTING", messages.MARK)
    with (
        RecordingProvider(models=[Model(BILL.model, cache=CACHE)], clock=lambda: clock() / 1000) as provider,
        running_stage(provider, tmp_path, streamed=False, tongue=MESSAGES) as stage,
    ):
        proxy = stage.proxy(long_head_cache=True)
        chat = stage.chat(proxy, model=BILL.model, system=SYSTEM[:8_000], tools=TOOLS[:6])
        for steps, pause in ((1, 10), (9, 20), (1, 40), (1, 40), (1, 90), (1, 0)):
            works(provider, chat, steps)
            clock.set_by += pause * MINUTES
        receipts = proxy.receipts()
        total = proxy.get("/stack/totals")["total"]
        direct = direct_bill(stage, provider, BILL, [receipt["created"] for receipt in receipts])

    asked = provider.asked
    first_long = 2 + 10
    assert all(lifetimes(each) == {"5m"} for each in asked[:first_long])
    assert all(lifetimes(each) == {HOUR_LONG} for each in asked[first_long:])
    written = [each.usage.written_long for each in asked if each.usage]
    assert [at for at, tokens in enumerate(written) if tokens] == [first_long, first_long + 6]
    assert total["cost"] == pytest.approx(charged(asked), rel=CLOSE)
    assert total["cost_untouched"] == pytest.approx(direct, rel=CLOSE)
    assert charged(asked) < with_short_heads(asked, [receipt["created"] for receipt in receipts])
