"""X-14, X-19: what goes wrong inside the proxy, or on the way to the provider, and what the agent sees of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, says
from proxy.store.conversation_cache import ConversationCache
from tests.crash.killable import KillableProxy
from tests.failures.conftest import Agent, at_work
from tests.harness import Conversation, Stage
from tests.ports import held_port, port_of


@pytest.mark.rows("X-14")
def test_given_an_error_while_a_line_is_assembled_then_the_clients_bytes_go_and_the_header_says_so(
    here: Agent, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patched, because no input is known that makes assembling fail; one that is found becomes a test of its own."""
    before = here.frames()
    with monkeypatch.context() as patched:
        patched.setattr("proxy.exchange.turn.build_context", broken)
        answer, _ = here.asks()
        left = provider.received[-1].raw
    assert answer.stack_status == "bypass; reason=internal"
    assert left == here.chat.proxy.stage.notes[-1].body
    assert here.asks()[0].stack_status == "full"
    assert here.frames() == before


@pytest.mark.rows("X-14")
def test_given_an_error_while_a_request_is_placed_then_the_clients_bytes_go_and_the_header_says_so(
    here: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patched for the same reason."""
    before = here.frames()
    with monkeypatch.context() as patched:
        patched.setattr("proxy.core.matching.match_history.new_entries", broken)
        answer, _ = here.asks()
    assert answer.stack_status == "bypass; reason=internal"
    assert here.asks()[0].stack_status == "full"
    assert here.frames() == before


def test_given_a_lookup_that_takes_too_long_then_the_request_does_not_wait_for_it(
    here: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Patched: a lookup that never ends is the slowest there is, on any machine."""
    before = here.frames()
    with monkeypatch.context() as patched:
        patched.setattr(ConversationCache, "locate", endless)
        answer, took = here.asks()
    assert answer.stack_status == "bypass; reason=too_slow"
    assert took < 2.0
    assert here.asks()[0].stack_status == "full"
    assert here.frames() == before


@pytest.mark.rows("X-19")
def test_given_an_upstream_that_is_down_then_the_error_has_the_apis_shape_and_the_tree_is_as_before(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """X-19."""
    with held_port() as place:
        with ScriptedProvider(port=port_of(place)) as going:
            chat = Conversation(stage.proxy(upstreams__default__url=going.url), streamed=False)
            agent = at_work(chat, going)
            before = agent.frames()
        refused = chat.proxy.post(chat.body())
        assert refused.status == 502
        assert refused.json["error"]["type"] == "api_error"
        assert agent.frames() == before
        with ScriptedProvider(port=port_of(place)) as back:
            back.will(says("here again"))
            assert chat.says("and now?").stack_status == "full"
        assert agent.frames() == before


def test_given_no_tokenizer_then_frames_are_kept_with_estimated_counts(
    stage: Stage, provider: ScriptedProvider, tmp_path: Path
) -> None:
    """The package hides behind one that cannot be imported, as where it has no wheel."""
    hiding = tmp_path / "hiding" / "tiktoken"
    hiding.mkdir(parents=True)
    (hiding / "__init__.py").write_text("raise ImportError('no wheel for this machine')\n")
    proxy = KillableProxy(stage, {"PYTHONPATH": str(hiding.parent)}, wake_at_tokens=0).start()
    agent = at_work(Conversation(proxy, streamed=False), provider)

    assert agent.asks()[0].stack_status == "full"
    assert "estimate" in str(proxy.get("/health"))


def broken(*_: Any) -> Any:
    raise RuntimeError("made by a test")


async def endless(*_: Any) -> Any:
    await asyncio.get_running_loop().create_future()
