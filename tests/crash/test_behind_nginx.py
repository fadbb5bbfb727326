"""Two replicas behind nginx with the file of `deploy/`: answers are streamed, any request may go to any of them, and
one that is killed is passed over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider, says, stall
from tests.crash.killable import KillableProxy
from tests.harness import Conversation, RunningProxy, Stage, bash, does, pop, push
from tests.postgresql_server import PostgresServer
from tests.replicas_behind_nginx import nginx, nginx_program

pytestmark = pytest.mark.skipif(nginx_program() is None, reason="nginx is not installed: apt-get install nginx-light")
PATIENCE_S = 20.0


class Balanced(RunningProxy):
    """Two replicas as one: what is sent goes to nginx."""

    def __init__(self, stage: Stage, store: str) -> None:
        self.replicas = [
            KillableProxy(stage, None, data=stage.folder / f"data{at}", store=store, wake_at_tokens=0).start()
            for at in range(2)
        ]
        super().__init__(self.replicas[0].config, stage)
        stage.proxies.append(self)

    def stop(self) -> None:
        """The replicas are the stage's."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ScriptedProvider() as provider:
        running = Stage(provider, tmp_path, streamed=True, looks_into_store=False)
        yield running
        running.stop()


@pytest.fixture
def proxy(stage: Stage, postgres: PostgresServer) -> Iterator[Balanced]:
    balanced = Balanced(stage, postgres.new_database())
    with nginx(stage.folder, [replica.port for replica in balanced.replicas], balanced.port):
        until_it_answers(balanced)
        yield balanced


def until_it_answers(proxy: Balanced) -> None:
    late = time.monotonic() + PATIENCE_S
    while True:
        try:
            proxy.get("/stack/conversations")
        except OSError:
            assert time.monotonic() < late
            time.sleep(0.05)
        else:
            return


def test_frames_hold_over_both_and_one_that_dies_is_passed_over(stage: Stage, proxy: Balanced) -> None:
    provider = stage.provider
    chat = Conversation(proxy, streamed=True)
    provider.will(does(push("The lexer")), does(bash("make")), does(pop("it is written")), says("Done."))
    chat.says("Write the lexer.")
    chat.returns("made")
    assert chat.history[-1]["content"] == "Done."
    for turn in range(4):
        provider.will(says(f"Answer {turn}."))
        assert chat.says(f"Question {turn}?").stack_status == "full"
    assert all('callstack_requests_total{reason="",status="full"}' in each.page("/metrics") for each in proxy.replicas)
    (conversation,) = proxy.conversations
    assert [frame["title"] for frame in proxy.frames(conversation["id"]).values()].count("The lexer") == 1

    proxy.replicas[0].kill()
    for turn in range(4, 8):
        provider.will(says(f"Answer {turn}."))
        assert chat.says(f"Question {turn}?").stack_status == "full"
    assert len(proxy.conversations) == 1


def test_the_first_words_arrive_before_the_last_are_said(stage: Stage, proxy: Balanced) -> None:
    may_end = threading.Event()
    stage.provider.will(stall(says("one_two_thr_four", piece=4), after_events=3, until=may_end.is_set))
    with proxy.sent(Conversation(proxy, streamed=True, history=[{"role": "user", "content": "Count."}]).body()) as line:
        line.settimeout(PATIENCE_S)
        heard = b""
        while b"one" not in heard:
            heard += line.recv(65536)
        assert b"four" not in heard
        may_end.set()
        while b"[DONE]" not in heard:
            heard += line.recv(65536)
    assert b"four" in heard
