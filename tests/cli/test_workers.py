"""`serve --workers`: several processes behind one port, on one PostgreSQL database."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.cli.conftest import Shell
from tests.postgresql_server import PostgresServer

pytestmark = pytest.mark.long
SOON_S = 20.0
CONVERSATIONS, TURNS = 8, 6


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + SOON_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.05)


class Served:
    """`serve --workers 2`, once it has said where it is."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.said = [process.stdout.readline().rstrip("\n") for _ in range(4)]
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.said[0])
        assert found is not None, process.stderr and process.stderr.read()
        self.port = int(found[1])

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(each) for each in children]

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """On a connection of its own, as from another client."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON_S)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def completes(self, history: list[dict[str, Any]], words: str) -> bool:
        """One turn; False if the connection broke, as with a server that dies."""
        asked = [*history, {"role": "user", "content": words}]
        try:
            status, told = self.ask("POST", "/v1/chat/completions", {"model": "gpt-5.4", "messages": asked})
        except (ConnectionError, http.client.HTTPException):
            return False
        assert status == 200, told
        history[:] = [*asked, told["choices"][0]["message"]]
        return True


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def serving(shell: Shell, provider: ScriptedProvider, postgres: PostgresServer) -> Iterator[Callable[..., Served]]:
    started: list[subprocess.Popen[str]] = []

    def serve(*words: str) -> Served:
        store = f"store={postgres.new_database()}"
        named = ["--upstream", provider.url, "--port", "0", "--data", str(shell.data), "--set", store]
        started.append(shell.start("serve", *named, "--workers", "2", *words))
        return Served(started[-1])

    yield serve
    for process in started:
        process.terminate()
        process.communicate(timeout=SOON_S)


def test_a_file_has_one_owner(shell: Shell) -> None:
    done = shell.run("serve", "--upstream", "http://127.0.0.1:9", "--workers", "2")

    assert done.code == 2
    assert "postgresql://" in done.errors
    assert "Traceback" not in done.errors


def test_several_processes_serve_and_end_together(shell: Shell, serving: Callable[..., Served]) -> None:
    proxy = serving()
    workers = proxy.workers()
    note = json.loads((shell.data / "server.json").read_text())
    proxy.process.send_signal(signal.SIGTERM)
    proxy.process.wait(SOON_S)

    assert [line.split()[0] for line in proxy.said] == ["clients", "data", "console", "workers"]
    assert "callstack@" not in proxy.said[1]
    assert (len(workers), note["pid"], proxy.process.returncode) == (2, proxy.process.pid, 0)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    assert not (shell.data / "server.json").exists()


def test_the_others_end_when_the_first_process_is_killed(serving: Callable[..., Served]) -> None:
    proxy = serving()
    workers = proxy.workers()
    proxy.process.kill()

    eventually(lambda: not any(_runs(pid) for pid in workers), "they go on alone")


def _runs(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_that_is_killed_costs_no_turn_and_is_replaced(
    provider: ScriptedProvider, serving: Callable[..., Served]
) -> None:
    """Agents talk, each request on a new connection; a worker is killed in between, again and again. Every turn that an
    agent has an answer for is stored, in one conversation for each agent."""
    provider.will(*(says("Done.") for _ in range(CONVERSATIONS * TURNS * 4)))
    proxy = serving()
    before = proxy.workers()
    histories: list[list[dict[str, Any]]] = [[] for _ in range(CONVERSATIONS)]
    broken = [0] * CONVERSATIONS

    def talk(at: int) -> None:
        for turn in range(TURNS):
            while not proxy.completes(histories[at], f"agent {at}, step {turn}: look at the next file please"):
                broken[at] += 1
                assert broken[at] < TURNS, "it is not answered any more"

    agents = [threading.Thread(target=talk, args=(at,)) for at in range(CONVERSATIONS)]
    for agent in agents:
        agent.start()
    for _ in range(3):
        time.sleep(0.3)
        os.kill(proxy.workers()[0], signal.SIGKILL)
    for agent in agents:
        agent.join(60)

    assert [len(history) for history in histories] == [2 * TURNS] * CONVERSATIONS
    eventually(lambda: len(proxy.workers()) == 2 and proxy.workers() != before, "no other one was started")
    _, listed = proxy.ask("GET", "/stack/conversations")
    assert len(listed["conversations"]) == CONVERSATIONS
    for row in listed["conversations"]:
        _, frames = proxy.ask("GET", f"/stack/conversations/{row['id']}/frames")
        said = ""
        for frame in frames["frames"]:
            said += json.dumps(proxy.ask("GET", f"/stack/frames/{frame['sessionID']}/log?raw=true")[1])
        agent_of = re.search(r"agent (\d+), step 0", said)
        assert agent_of is not None
        assert all(f"agent {agent_of[1]}, step {turn}" in said for turn in range(TURNS))
