"""An agent in the middle of its work, and the proxy as a process, so that its store can be taken from it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.crash.killable import KillableProxy
from tests.harness import Answer, Conversation, Json, Stage, does, plan, pop, push

REST_S = 10.0
"""How long a store that keeps failing is left alone before it is tried again."""
PATIENCE_S = 13.0


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Stage]:
    running = Stage(provider, tmp_path, streamed=False)
    yield running
    running.stop()


@dataclass
class Agent:
    """A client at work. Its model answers every request with words, so each one that fails is the proxy's fault."""

    chat: Conversation
    provider: ScriptedProvider
    said: int = 0

    def asks(self) -> tuple[Answer, float]:
        """The next request, and how long it took in seconds."""
        self.said += 1
        text = f"This is answer {self.said} of the model."
        self.provider.will(says(text))
        began = time.perf_counter()
        answer = self.chat.says(f"question {self.said}")
        took = time.perf_counter() - began
        assert (answer.status, answer.ended) == (200, True), answer.raw
        assert answer.text == text
        return answer, took

    def until_full(self) -> Answer:
        """Asks until the proxy takes part again."""
        until = time.monotonic() + PATIENCE_S
        while (answer := self.asks()[0]).stack_status != "full":
            assert time.monotonic() < until, answer.stack_status
            time.sleep(0.05)  # an agent thinks between two requests; there is no event to wait for
        return answer

    def asks_until(self, holds: Callable[[], bool]) -> None:
        """Asks until that holds."""
        until = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < until, "it did not come to that"
            self.asks()

    def until_bypass(self) -> Iterator[tuple[Answer, float]]:
        """Asks until the proxy stands aside; all answers, with what they took, that one the last."""
        until = time.monotonic() + PATIENCE_S
        while True:
            yield (asked := self.asks())
            if asked[0].stack_status != "full":
                return
            assert time.monotonic() < until, "the proxy notices nothing"
            time.sleep(0.01)  # an agent thinks between two requests; there is no event to wait for

    def frames(self) -> dict[str, Json]:
        return {title: frame | {"updatedAt": 0} for title, frame in self.chat.proxy.frames().items()}


def at_work(chat: Conversation, provider: ScriptedProvider) -> Agent:
    """An awake thread in a frame, with one behind it whose messages have left the line: so each request waits until
    what it leaves out is on disk."""
    provider.will(does(push("First")), says("I am in the first one."))
    chat.says("do the work")
    provider.will(says("Still in the first one."))
    chat.says("go on")
    provider.will(
        does(pop("first done")),
        does(push("Second")),
        does(plan("Third")),
        says("I am in the second one."),
    )
    assert chat.says("and now the rest").stack_status == "full"
    assert chat.proxy.active() == "Second"
    return Agent(chat, provider)


@pytest.fixture
def proxy(stage: Stage) -> KillableProxy:
    return KillableProxy(stage, wake_at_tokens=0, assembly_budget_ms=5_000).start()


@pytest.fixture
def agent(proxy: KillableProxy, provider: ScriptedProvider) -> Agent:
    return at_work(Conversation(proxy, streamed=False), provider)


@pytest.fixture
def here(stage: Stage, provider: ScriptedProvider) -> Agent:
    """The same with the proxy in this process, where its insides can be reached."""
    return at_work(Conversation(stage.proxy(assembly_budget_ms=500), streamed=False), provider)
