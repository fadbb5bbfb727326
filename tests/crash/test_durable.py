"""What the documents say is on disk is on disk: behind a kill, and in a copy of the data directory.

An answer that can be named is there once its end has come; a conversation that was being forgotten is whole or gone,
and a second `forget` leaves nothing of it in any file. `CALLSTACK_KILLS` says how many kills there are.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedProvider, says
from tests.crash.killable import DyingProxy, KillableProxy
from tests.crash.test_kills import is_intact
from tests.crash.test_points import has_settled
from tests.crash.test_store_points import files_with
from tests.harness import WAIT_S, Conversation, Stage
from tests.properties import disk
from tests.scenarios.test_references import Forgetful

pytestmark = pytest.mark.crash
log = logging.getLogger(__name__)

KILLS = int(os.environ.get("CALLSTACK_KILLS", "8"))
NEVER = 10**9
"""Tokens at which nothing wakes."""
MAX_PADDING = 12_000
"""Repetitions of a secret in a message: deleting takes from one to a hundred milliseconds."""
Json = dict[str, Any]


@pytest.fixture
def stage(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Stage]:
    running = Stage(provider, tmp_path, streamed=True, looks_into_store=False)
    yield running
    running.stop()


# ------------------------------------------------------------------------------------------- answers that can be named
def killed_behind_the_end(proxy: DyingProxy, body: Json) -> tuple[str, dict[str, str]]:
    """The id of an answer, and its headers; the process dies as soon as the client has the end."""
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=WAIT_S)
    connection.request("POST", "/v1/responses", json.dumps(body).encode(), {"content-type": "application/json"})
    response = connection.getresponse()
    assert response.status == 200, response.read()
    got = b""
    while not (b'"response.completed"' in got and got.endswith(b"\n\n")) if body["stream"] else response.length != 0:
        got += response.read1(1 << 16)
    proxy.kill()
    connection.close()
    told = json.loads(got.split(b"data: ")[-1])["response"] if body["stream"] else json.loads(got)
    return told["id"], {name.lower(): value for name, value in response.getheaders()}


@pytest.mark.rows("X-61", "S3-29")
@pytest.mark.parametrize("wakes_at", [0, NEVER], ids=["awake", "asleep"])
def test_an_answer_that_can_be_named_survives_a_kill_right_behind_its_end(
    stage: Stage, provider: ScriptedProvider, wakes_at: int
) -> None:
    """The provider is not asked for it: the store has it."""
    proxy = DyingProxy(stage, wake_at_tokens=wakes_at).start()
    provider.when(lambda _: True, says("Done, as you said."), loop=True)
    client = Forgetful(proxy, streamed=False)
    previous = client.says("look").id
    for number in range(max(2, KILLS // 4)):
        body: Json = {"model": "gpt-x", "input": f"step {number}", "previous_response_id": previous}
        previous, headers = killed_behind_the_end(proxy, {**body, "stream": number % 2 == 0})
        is_intact(proxy)
        proxy.start()
        went_on = client.answered({"role": "user", "content": f"and {number}?"}, previous_response_id=previous)
        assert went_on.stack_status == ("asleep" if wakes_at else "full")
        assert went_on.headers["x-stack-conversation"] == headers["x-stack-conversation"]
        previous = went_on.id
    assert not [each for each in provider.received if each.method == "GET"]


# ------------------------------------------------------------------------------------------------------- the snapshot
PATHS = ("/v1/responses", "/v1/responses", "/v1/chat/completions")
"""What each client speaks: two whose answers can be named, and one whose turns are on disk a moment later."""
SOON_S = 1.0
"""After this time any turn is on disk; a quarter of it is promised, on a machine that has nothing else to do."""


@dataclass
class Agent:
    """A client that talks without a pause, and notes when it had the end of each answer."""

    proxy: KillableProxy
    path: str
    name: str
    acknowledged: dict[str, float] = field(default_factory=dict)
    is_over: bool = False

    def talks(self) -> None:
        history: list[Json] = []
        number = 0
        while not self.is_over:
            number += 1
            marker = f"<{self.name}-{number}>"
            history.append({"role": "user", "content": f"say {marker}"})
            body = {"model": "gpt-x", "stream": number % 2 == 0, self.member: history}
            connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=WAIT_S)
            connection.request("POST", self.path, json.dumps(body).encode(), {"content-type": "application/json"})
            answer = connection.getresponse().read()
            self.acknowledged[marker] = time.monotonic()
            connection.close()
            assert (b'"completed"' if self.path == "/v1/responses" else b'"stop"') in answer
            history.append({"role": "assistant", "content": f"heard {marker}"})

    @property
    def member(self) -> str:
        return "input" if self.path == "/v1/responses" else "messages"

    def due_before(self, moment: float) -> list[str]:
        """The turns that must be on disk at this moment."""
        late = 0.0 if self.path == "/v1/responses" else SOON_S
        return [marker for marker, at in list(self.acknowledged.items()) if at + late < moment]


def echo(received: ReceivedRequest) -> ScriptedAnswer:
    return says(str(received.messages[-1]["content"]).replace("say", "heard"))


@pytest.mark.rows("X-61", "S3-29")
def test_a_copy_of_the_data_has_every_acknowledged_turn(stage: Stage, provider: ScriptedProvider) -> None:
    """The process stands still while its data is copied, as a snapshot of a disk does it."""
    proxy = KillableProxy(stage, wake_at_tokens=0).start()
    provider.when(lambda _: True, echo, loop=True)
    agents = [Agent(proxy, path, f"m{number}") for number, path in enumerate(PATHS)]
    chance = random.Random(7)
    missing: list[str] = []
    checked = 0
    with ThreadPoolExecutor(len(agents)) as elsewhere:
        talking = [elsewhere.submit(agent.talks) for agent in agents]
        for number in range(max(3, KILLS // 2)):
            time.sleep(chance.uniform(0.1, 0.4))
            moment = time.monotonic()
            due = [marker for agent in agents for marker in agent.due_before(moment)]
            os.kill(proxy.pid, signal.SIGSTOP)
            copy = stage.folder / f"copy{number}"
            shutil.copytree(proxy.data, copy)
            os.kill(proxy.pid, signal.SIGCONT)
            kept = "".join(text for texts in disk.texts(copy).values() for text in texts)
            missing += [marker for marker in due if not (f"say {marker}" in kept and f"heard {marker}" in kept)]
            checked += len(due)
        for agent in agents:
            agent.is_over = True
        for each in talking:
            each.result()

    assert missing == []
    assert checked


# ------------------------------------------------------------------------------------------------------ a killed forget
@pytest.mark.rows("X-61", "S3-29")
def test_a_conversation_whose_forgetting_was_killed_is_whole_or_gone(stage: Stage, provider: ScriptedProvider) -> None:
    """At any moment of it; where it was answered nothing is left, and a second one leaves nothing."""
    proxy = DyingProxy(stage, wake_at_tokens=0).start()
    provider.when(lambda _: True, echo, loop=True)
    stays = Conversation(proxy, streamed=False)
    stays.says("say that this one stays")
    chance = random.Random(11)
    moments: list[float] = []
    ends: Counter[str] = Counter()
    with ThreadPoolExecutor(1) as elsewhere:
        for number in range(KILLS):
            secret = f"SESAME-{number}X"
            told = is_told(proxy, secret, chance)
            at = told.last.headers["x-stack-conversation"] if told.last else ""
            asking = elsewhere.submit(is_forgotten, proxy, at)
            took = is_waited_for(asking, moments, chance)
            proxy.kill()
            moments += [took] if took else []
            is_answered = "answered" if asking.result() else "unanswered"
            assert not (asking.result() and files_with(proxy.data, secret)), "it was answered"
            proxy.start()
            ends[f"{is_answered}, {state_of(proxy, at, secret)}"] += 1
            assert proxy.asked("DELETE", f"/stack/conversations/{at}")[0] in (200, 404)
            assert files_with(proxy.data, secret) == []
            assert proxy.asked("GET", f"/stack/conversations/{at}")[0] == 404
    proxy.kill()

    assert list(disk.texts(proxy.data)) == [stays.last.headers["x-stack-conversation"] if stays.last else ""]
    is_intact(proxy)
    log.info("%s", dict(ends))


def is_told(proxy: DyingProxy, secret: str, chance: random.Random) -> Conversation:
    """A conversation of three turns in which the secret stands many times, on disk."""
    chat = Conversation(proxy, streamed=False)
    for turn in range(3):
        chat.says(f"say {secret}-{turn} " + f"{secret} and " * chance.randint(10, MAX_PADDING))
    has_settled(proxy, chat.last)
    assert files_with(proxy.data, secret)
    return chat


def is_forgotten(proxy: DyingProxy, at: str) -> bool:
    """Whether the client was told so."""
    try:
        return proxy.asked("DELETE", f"/stack/conversations/{at}")[0] == 200
    except (OSError, http.client.HTTPException, ValueError):
        return False


def is_waited_for(asking: Future[bool], moments: Sequence[float], chance: random.Random) -> float | None:
    """Until a moment in it, by how long others took (`moments`, in seconds), or its end; then how long that was."""
    began = time.monotonic()
    ends = not moments or chance.random() < 0.2
    try:
        asking.result(WAIT_S if ends else chance.uniform(0, 1.1 * max(moments)))
    except TimeoutError:
        return None
    return time.monotonic() - began


def state_of(proxy: DyingProxy, at: str, secret: str) -> str:
    """`whole` or `gone`; anything between fails."""
    status = proxy.asked("GET", f"/stack/conversations/{at}")[0]
    if status == 404:
        assert files_with(proxy.data, secret) == []
        return "gone"
    exported = proxy.file(f"/stack/conversations/{at}/export").decode()
    assert [turn for turn in range(3) if f"{secret}-{turn} " not in exported] == []
    return "whole"
