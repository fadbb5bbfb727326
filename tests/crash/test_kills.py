"""D1, S3-29, S3-30, H9: fifty times `kill -9` in the middle of an agent's work, and the agent does not notice more
than a broken connection.

It asks again with the same body when it got no whole answer, and goes on otherwise. After each kill: the request
succeeds on the awake thread, the tree is that of the last acknowledged turn (the oracle tells), what goes upstream
begins with the bytes of the last line of that frame, and SQLite finds nothing wrong with its file.
"""

from __future__ import annotations

import gc
import http.client
import os
import random
import socket
import sqlite3
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

import pytest

from callstack_proxy.config_sources import load_config
from llm_test_provider import Cut, ReceivedRequest, ScriptedProvider
from llm_test_provider import ScriptedAnswer as Scripted
from tests import laws
from tests.client_dialects import neutral
from tests.crash.killable import KillableProxy
from tests.harness import Answer, ClientHabits, Conversation, RunningProxy, Stage
from tests.properties import disk
from tests.properties.oracle import Op, Oracle
from tests.properties.plays import Round, Words, as_answer

KILLS = int(os.environ.get("CALLSTACK_KILLS", "24"))
LONGEST_S = 0.2
"""How long a turn takes at most: a kill at a random moment comes within it."""


@dataclass
class Player:
    """The model: says the rounds of a turn one after the other, slowly enough to be killed between two bytes."""

    rounds: list[Round] = field(default_factory=list)
    taken: int = 0

    def __call__(self, received: ReceivedRequest) -> Scripted:
        done, self.taken = self.rounds[self.taken], self.taken + 1
        return as_answer(done, {"cut": Cut(120), "piece": 8, "pace_ms": 1.5, "delay_s": 0.01})


@dataclass
class Agent:
    """The client, the model and the oracle, and the dice of one run."""

    chance: random.Random
    chat: Conversation
    player: Player
    stage: Stage
    proxy: KillableProxy
    words: Words = field(default_factory=Words)
    tree: Oracle = field(default_factory=Oracle)
    killed: int = 0

    # ------------------------------------------------------------------------------------------------------- the turn
    def hears(self) -> None:
        """What the client says next: results of its calls, or words of the user."""
        for each in (self.chat.history[-1].get("tool_calls") or []) if self.chat.history else []:
            self.chat.history.append({"role": "tool", "tool_call_id": each["id"], "content": self.words.result()})
        if not self.chat.history or self.chat.history[-1]["role"] != "tool":
            self.chat.history.append({"role": "user", "content": self.words.user()})
            self.tree.user_speaks()

    def plans(self, hidden: int | None = None) -> Oracle:
        """Script a turn of up to three hidden rounds, or so many and one for the client alone; the tree it leads to."""
        after, rounds = self.tree.copy(), []
        for _ in range(self.chance.choice((0, 1, 1, 2, 3)) if hidden is None else hidden):
            done = Round(self.words.text() if self.chance.random() < 0.3 else "", (self.op(after),))
            after.group(done.ops, alone=True)
            rounds.append(done)
        last = self.chance.choice((Round(self.words.text()), Round("", (), 2), Round("", (self.op(after),), 1)))
        last = last if hidden is None else replace(last, ops=())
        after.group(last.ops, alone=not last.client)
        after.turn_ends(answered=not last.client)
        self.player.rounds, self.player.taken = [*rounds, last], 0
        return after

    def op(self, tree: Oracle) -> Op:
        if len(tree.path()) < 4 and self.chance.random() < 0.6:
            return Op("push", self.words.title())
        if len(tree.path()) > 1:
            return Op("pop", "", self.chance.choice(("completed", "failed", "blocked")))
        return Op("plan", children=(self.words.title(), self.words.title()))

    def asks(self, *, streamed: bool) -> Answer | None:
        """None where the connection broke before there was a status."""
        try:
            return self.chat.tries(**{"stream": True} if streamed else {})
        except (OSError, http.client.HTTPException):
            return None

    def keeps(self, answer: Answer, after: Oracle) -> None:
        self.chat.history.append(self.chat.habits.echo(answer.message))
        self.tree = after

    # ----------------------------------------------------------------------------------------------------- what we see
    def lines_sent(self) -> int:
        """How many went upstream so far: read no more of them than a turn needs, they grow with the work."""
        return len(self.stage.provider.asked)

    def lines_since(self, sent: int) -> list[laws.Body]:
        tongue = self.stage.tongue
        return [laws.Body.read(neutral(tongue, received.raw)) for received in self.stage.provider.asked[sent:]]

    def holds_the_tree(self, answer: Answer) -> None:
        conversation, thread = answer.headers["x-stack-conversation"], answer.headers["x-stack-thread"]
        state = self.chat.proxy.get(f"/stack/conversations/{conversation}/state?thread={thread}")
        found = {f["title"]: f["status"] for f in state["frames"].values() if "parentSessionID" in f}
        assert found == {title: status for title, status in self.tree.statuses.items() if title != "(root)"}


@pytest.mark.rows("S3-29", "S3-30", "S0-08")
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(2))
def test_an_agent_goes_on_after_every_kill_where_it_stood(stage: Stage, provider: ScriptedProvider, seed: int) -> None:
    # What words are a new request, and where long work is cut into parts (after some 60 kills), is beyond the oracle.
    proxy = KillableProxy(stage, wake_at_tokens=0, infer_requests="false", frame_max_tokens=1_000_000).start()
    player = Player()
    provider.when(lambda _: True, player, loop=True)
    chat = Conversation(proxy, streamed=False, habits=ClientHabits(arguments="respelled"))
    agent = Agent(random.Random(seed), chat, player, stage, proxy)
    works_undisturbed(agent)
    with ThreadPoolExecutor(1) as elsewhere:
        while agent.killed < KILLS // 2:
            is_killed_and_goes_on(agent, elsewhere)
            is_intact(proxy)
            works_undisturbed(agent)
    proxy.kill()

    evidence = replace(stage.evidence(), kept=disk.texts(proxy.data))
    assert not (found := laws.breaches(evidence)), "\n".join(found)


def test_a_client_leaves_no_socket_open_where_the_process_died_in_the_first_line(stage: Stage) -> None:
    """One kill in a hundred comes there, and the warning ended the run long after it."""
    proxy = RunningProxy(load_config({"upstreams.default.url": stage.provider.url, "data": stage.folder}), stage)
    with socket.create_server(("127.0.0.1", 0)) as dying, ThreadPoolExecutor(1) as elsewhere:
        stage.proxies.append(proxy)
        proxy.next_port = lambda: int(dying.getsockname()[1])  # type: ignore[method-assign]

        def dies() -> None:
            connection = dying.accept()[0]
            with connection:
                while not connection.recv(65536).endswith(b"{}"):  # what is unread when it closes makes a reset of it
                    pass
                connection.sendall(b"HTTP/1")

        died = elsewhere.submit(dies)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises(http.client.BadStatusLine):
                proxy.post(b"{}")
            died.result()
            gc.collect()

    assert [each for each in warned if each.category is ResourceWarning] == []


def works_undisturbed(agent: Agent) -> None:
    """A turn nobody disturbs: it is acknowledged when the client has its end."""
    agent.hears()
    answer = finished(agent, agent.plans())
    agent.holds_the_tree(answer)


def is_killed_and_goes_on(agent: Agent, elsewhere: ThreadPoolExecutor) -> None:
    """A turn in whose middle, or right behind whose end, the process dies; then what every client does: it goes on
    where it has the whole answer, else it asks again."""
    agent.hears()
    after, streamed = agent.plans(), agent.chance.random() < 0.5
    before = agent.lines_sent()
    asking = elsewhere.submit(agent.asks, streamed=streamed)
    waits_for_the_moment(agent, asking)
    agent.proxy.kill()
    agent.killed += 1
    answer = asking.result()
    agent.proxy.start()
    told = agent.lines_since(before)
    if answer is not None and answer.ended and answer.status == 200:
        agent.keeps(answer, after)
        agent.hears()
        is_followed_up(agent, told[-1])
    else:
        is_asked_again(agent, told, streamed=streamed)


def waits_for_the_moment(agent: Agent, asking: Future[Answer | None]) -> None:
    """Before a certain round is answered (so: between two), at a random moment, or behind the end."""
    how = agent.chance.choice(("round", "round", "moment", "moment", "end"))
    if how == "round":
        number = agent.chance.randrange(len(agent.player.rounds)) + 1
        agent.stage.provider.wait_until(lambda: agent.player.taken >= number)
        return
    patience = LONGEST_S * agent.chance.random() if how == "moment" else 10.0
    try:
        asking.result(patience)
    except TimeoutError:
        assert how == "moment"


def is_followed_up(agent: Agent, last: laws.Body) -> None:
    """S3-30: where the frame is the same, the line goes on with the bytes it had."""
    before = agent.lines_sent()
    answer = finished(agent, agent.plans())
    agent.holds_the_tree(answer)
    first = agent.lines_since(before)[0]
    if first.place() == last.place():
        assert first.written[: len(last.written)] == last.written
        assert first.tools == last.tools


def is_asked_again(agent: Agent, told: list[laws.Body], *, streamed: bool) -> None:
    """The same request has the same line, byte for byte: nothing of the turn that was not acknowledged is on it."""
    agent.stage.excuse()
    before = agent.lines_sent()
    answer = finished(agent, agent.plans(), streamed=streamed)
    agent.holds_the_tree(answer)
    if told:
        assert agent.lines_since(before)[0] == told[0]


def finished(agent: Agent, after: Oracle, *, streamed: bool = False) -> Answer:
    answer = agent.asks(streamed=streamed)
    assert answer is not None
    assert (answer.status, answer.ended, answer.stack_status) == (200, True, "full"), answer.raw
    assert answer.text == "\n\n".join(done.text for done in agent.player.rounds if done.text)
    agent.keeps(answer, after)
    return answer


def is_intact(proxy: KillableProxy) -> None:
    with closing(sqlite3.connect(proxy.database)) as reading:
        assert reading.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
