"""L12: the last thing that is tried is the client's own request, byte for byte: where a provider refuses every form of
ours, and what is left of the client's request without the reasoning that fails elsewhere (L8), it goes as it came."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedProvider, When, says, status
from tests.harness import Conversation, RecordingProvider, Stage, bash, does

pytestmark = pytest.mark.rows("X-47")
BOUND = "claude-opus-5.5"
"""A model that binds its reasoning, so that some of it is left out past us."""
REFUSED = status(400, body={"error": {"message": "Unsupported request.", "type": "invalid_request_error"}})
FOLDS = {"wake_at_tokens": 0, "frame_max_tokens": 2_000}


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    """One that takes whatever the client sends."""
    with RecordingProvider() as running:
        yield running


@pytest.fixture(autouse=True)
def _not_judged(stage: Stage) -> None:
    stage.judged = False


def worked(stage: Stage, provider: ScriptedProvider, refusal: ScriptedAnswer = REFUSED) -> Conversation:
    """A conversation of which much is folded, with a thought in each answer; from now on the provider gives this
    refusal to whatever is not the client's own request."""
    chat = stage.chat(stage.proxy(**FOLDS), model=BOUND)
    for job in ("Fix the parser.", "Now, unrelated: translate the email.", "Now, unrelated: draw the diagram."):
        steps = [does(bash(f"{job} {n}"), reasoning=f"about {n} of {job}") for n in range(3)]
        provider.will(*steps, says(f"It is done: {job}", reasoning=f"closing {job}"))
        chat.says(job)
        for n in range(3):
            chat.returns(f"result {n} of {job} " + "word " * 1_500)
    assert "folded" in str(chat.proxy.receipts())
    provider.when(lambda received: received.raw != stage.notes[-1].body, refusal, loop=True)
    return chat


def is_without_thoughts(received: ReceivedRequest) -> bool:
    return not any(message.get("reasoning_content") for message in received.messages)


def test_after_all_forms_of_ours_the_clients_own_bytes_go(stage: Stage, provider: ScriptedProvider) -> None:
    chat = worked(stage, provider)
    provider.will(says("Here."), says("There."))

    for words, answer in (("And now?", "Here."), ("And then?", "There.")):
        heard = chat.says(words)
        assert (heard.status, heard.text, heard.stack_status) == (200, answer, "bypass; reason=form; form=own")
        assert provider.received[-1].raw == stage.notes[-1].body
        assert not is_without_thoughts(provider.received[-1])
        assert is_without_thoughts(provider.received[-2])  # that rung is tried first
        assert b"stack_" not in provider.received[-2].raw


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_past_us_the_clients_own_bytes_go_at_last(stage: Stage, provider: ScriptedProvider, mode: str) -> None:
    chat = worked(stage, provider)
    provider.will(says("Here."))
    heard = chat.says("And now?", headers={"x-stack-mode": mode})

    assert (heard.status, heard.text, heard.stack_status) == (200, "Here.", mode)
    assert provider.received[-1].raw == stage.notes[-1].body
    assert is_without_thoughts(provider.received[-2])


@pytest.mark.one_process("it looks into SQLite's file, or damages it")
def test_while_the_store_is_away_the_clients_own_bytes_go_at_last(stage: Stage, provider: ScriptedProvider) -> None:
    chat = worked(stage, provider)

    def another(received: ReceivedRequest) -> ScriptedAnswer:
        return says(f"Answer {received.number}.")

    provider.when(When(user="while it is locked"), another, loop=True)
    path = chat.proxy.config.store_path
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as intruder:
        intruder.execute("BEGIN EXCLUSIVE")
        chat.history.append({"role": "user", "content": "while it is locked"})
        until = time.monotonic() + 10
        while not (past := chat.tries()).stack_status.startswith("bypass; reason=store") and time.monotonic() < until:
            pass
        past = chat.tries()  # it is not even placed
        intruder.execute("ROLLBACK")

    assert (past.status, past.stack_status) == (200, "bypass; reason=store_locked")
    assert provider.received[-1].raw == stage.notes[-1].body
    assert is_without_thoughts(provider.received[-2])
    chat.proxy.until_the_store_is_back()


@pytest.mark.parametrize("refusal", [status(401), status(429)])
def test_a_refusal_for_another_reason_is_passed_at_once(
    stage: Stage, provider: ScriptedProvider, refusal: ScriptedAnswer
) -> None:
    chat = worked(stage, provider, refusal)
    before = len(provider.received)

    assert chat.says("And now?", headers={"x-stack-mode": "off"}).status in (401, 429)
    assert len(provider.received) == before + 1
