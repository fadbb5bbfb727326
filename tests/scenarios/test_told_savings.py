"""Nobody is told a saving that is none: where a client's cache markers stand, where nothing was cut, and where a
request came to nothing. The judge of every scenario checks the last two of each request (L9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llm_test_provider import Ending, Model, ScriptedProvider, says, status
from proxy.accounting import tariff_for
from tests.bill import charged
from tests.client_dialects import MESSAGES
from tests.harness import Json, RecordingProvider, Stage, bash, does, running_stage
from tests.scenarios.test_bill import play_session
from tests.scenarios.test_money import CACHED_MODELS, charged_without_a_proxy
from tests.scenarios.test_offering import client_of, words

OPUS = "claude-opus-4-8"
MARK = {"cache_control": {"type": "ephemeral"}}
LONG = {"type": "text", "text": words(3_000)}
SHORT = {"type": "text", "text": "go on"}
MARKERS: dict[str, tuple[Json, list[Json]]] = {
    "at the end": (MARK, [LONG, {**SHORT, **MARK}]),
    "in the middle of the last message": (MARK, [{**SHORT, **MARK}, LONG]),
    "on the system text alone": (MARK, [LONG, SHORT]),
    "nowhere": ({}, [LONG, SHORT]),
}


@pytest.mark.rows("X-41")
@pytest.mark.spoken_in("messages", reason="no other API has markers")
@pytest.mark.parametrize("where", list(MARKERS))
def test_a_request_is_priced_by_where_its_markers_stand(tmp_path: Path, where: str) -> None:
    """Three requests, each with all that came before, and `stack_recall` beside the client's tools."""
    on_head, newest = MARKERS[where]
    with (
        RecordingProvider(models=[Model(OPUS, cache="anthropic")]) as provider,
        running_stage(provider, tmp_path, streamed=False, tongue=MESSAGES) as stage,
    ):
        proxy = stage.proxy(wake_at_tokens=None)
        history: list[Json] = []
        for number in range(3):
            provider.will(says(f"read {number}"))
            asked = {"role": "user", "content": newest}
            body = {
                "model": OPUS,
                "max_tokens": 500,
                "system": [{"type": "text", "text": words(4_500), **on_head}],
                "tools": [{"name": "bash", "input_schema": {"type": "object"}}],
                "messages": [*history, asked],
            }
            proxy.post(json.dumps(body).encode(), {}, streamed=False)
            plain = [{name: value for name, value in block.items() if name != "cache_control"} for block in newest]
            history += [{"role": "user", "content": plain}, {"role": "assistant", "content": f"read {number}"}]

        receipts = proxy.receipts()
        assert ["stack_recall" in received.tool_names for received in provider.received] == [True] * 3
        for receipt, received in zip(receipts, provider.asked, strict=True):
            assert received.usage is not None
            assert receipt["cost"] == pytest.approx(charged(received.usage, tariff_for(OPUS)))
            assert receipt["saved"] <= 0
            sent, usage = receipt["sent"], received.usage
            assert sent["cached"] == pytest.approx(usage.cached, abs=40)
            assert sent["written"] == pytest.approx(usage.written, abs=40)
        untouched = sum(receipt["cost_untouched"] for receipt in receipts)
        alone = charged_without_a_proxy(stage, provider, OPUS)
        if where == "in the middle of the last message":  # it goes up at the end: a saving, but nothing was cut
            assert untouched <= alone
        else:
            assert untouched == pytest.approx(alone, rel=0.005)


@pytest.mark.rows("X-41")
@pytest.mark.parametrize("model", list(CACHED_MODELS))
@pytest.mark.parametrize("head", [5_000, 5_050, 5_100])
def test_a_request_that_cuts_nothing_is_never_told_as_cheaper(
    stage: Stage, provider: ScriptedProvider, model: str, head: int
) -> None:
    """Wherever the steps of the cache end."""
    chat = client_of(stage, head)
    chat.model = model
    provider.will(*(does(bash(f"{n}")) for n in range(6)), says("done"))
    chat.says("read the logs")
    for n in range(6):
        chat.returns(f"log {n} {words(70 + 41 * n)}")

    receipts = chat.proxy.receipts()
    assert all(receipt["tokens_sent"] > receipt["tokens_in"] for receipt in receipts)
    assert [receipt["saved"] for receipt in receipts if receipt["saved"] > 0] == []


@pytest.mark.rows("X-41")
@pytest.mark.parametrize("how", ["refused", "broken off"])
def test_a_request_that_came_to_nothing_has_saved_nothing(tmp_path: Path, streamed: bool, how: str) -> None:
    """Of a long history most had left."""
    with (
        RecordingProvider(models=[Model("gpt-5.4", cache="openai")]) as provider,
        running_stage(provider, tmp_path, streamed=True) as stage,
    ):
        chat = stage.chat(stage.proxy(), model="gpt-5.4", options={"stream_options": {"include_usage": True}})
        play_session(provider, chat)
        assert chat.proxy.receipts()[-1]["tokens_saved"] > 0
        before = chat.proxy.get("/stack/totals")["total"]
        broken = says("and so ").but(ending=Ending("reset", after_events=1))
        provider.will(broken if how == "broken off" else status(400))

        answer = chat.proxy.post(chat.body(), {}, streamed=True)

        receipt, total = chat.proxy.receipts()[-1], chat.proxy.get("/stack/totals")["total"]
        assert receipt["saved"] <= 0
        assert receipt["tokens_saved"] <= 0
        assert total["saved"] <= before["saved"]
        assert total["tokens_saved"] <= before["tokens_saved"]
        if how == "refused":
            assert int(answer.headers["x-stack-tokens-saved"]) <= 0
