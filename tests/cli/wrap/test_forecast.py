"""What mode `shadow` says of mode `active`, held against the same session in mode `active`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from callstack_proxy.cli.wrap.command import outcome_text
from callstack_proxy.cli.wrap.forecast import replay_as_active
from llm_test_provider import Model, ScriptedProvider, says
from proxy.errors import ProxyError
from tests.harness import RunningProxy, Stage, bash, does

MODEL = "gpt-5.4"
OUTPUT = "".join(f"{n}: a line of what the command printed\n" for n in range(400))


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider(models=[Model(MODEL, cache="openai")]) as running:
        yield running


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Stage]:
    opened = Stage(provider, tmp_path, streamed=False)
    yield opened
    opened.stop()


def work(stage: Stage, provider: ScriptedProvider, mode: str) -> RunningProxy:
    """A first request that reads much, and a second one of another matter: by then the first can leave."""
    proxy = stage.proxy(mode=mode, wake_at_tokens=None)
    chat = stage.chat(proxy, model=MODEL)
    for asked in ("Find out why the import of invoices fails.", "Now write a page about the printer in the hall."):
        provider.will(*(does(bash(f"cat part{n}")) for n in range(8)), says("That is done."))
        chat.says(asked)
        for _ in range(8):
            chat.returns(OUTPUT)
    return proxy


def test_the_forecast_is_what_mode_active_saves(stage: Stage, provider: ScriptedProvider) -> None:
    active = work(stage, provider, "active").get("/stack/totals")["total"]
    shadow = work(stage, provider, "shadow")
    stored = [conversation["id"] for conversation in shadow.conversations]

    forecast = replay_as_active(shadow.config, stored)

    assert forecast is not None
    assert active["saved"] > 0.05 * active["cost_untouched"]
    assert forecast.cost_untouched == pytest.approx(active["cost_untouched"], rel=0.02)
    assert forecast.saved == pytest.approx(active["saved"], rel=0.05)
    assert f"mode active would save ${forecast.saved:.4f}"[:30] in outcome_text([{}], "", forecast)


def test_what_is_not_stored_has_no_forecast(stage: Stage) -> None:
    with pytest.raises(ProxyError):
        replay_as_active(stage.proxy(mode="shadow").config, ["none"])


def test_a_loss_and_nothing_are_said_as_such(stage: Stage, provider: ScriptedProvider) -> None:
    proxy = stage.proxy(mode="shadow", wake_at_tokens=None)
    provider.will(says("hi"))
    stage.chat(proxy, model=MODEL).says("hello")

    forecast = replay_as_active(proxy.config, [proxy.conversations[0]["id"]])

    assert forecast is not None
    assert outcome_text([{}], "", forecast).startswith("1 request, mode active would save nothing; look: ")
    forecast = replace(forecast, saved=-0.002, saved_after=-0.002)
    assert "mode active would lose $0.0020" in outcome_text([{}], "", forecast)


def test_requests_that_failed_are_not_called_nothing() -> None:
    refused = {"status": "error", "reason": "upstream_unreachable", "client_status": 502}
    answered = {"status": "full", "client_status": 200, "saved": 0.5, "cost_untouched": 1.0}

    assert outcome_text([refused] * 8, "") == "8 requests, all failed: no connection to the provider was made"
    assert outcome_text([{**refused, "reason": ""}], "") == "1 request, all failed: status 502"
    assert outcome_text([answered, refused], "").startswith("2 requests, 1 failed, saved $0.5000 (50.0 %); look: ")


def test_what_was_not_measured_is_not_called_nothing() -> None:
    assert outcome_text([{"status": "shadow", "saved": 0.0}], "").startswith("1 request, mode active not measured; ")
