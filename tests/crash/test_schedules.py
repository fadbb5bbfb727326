"""Two replicas on one database through generated schedules of faults: pauses, kills, cut and slow links to the
database, clocks that are wrong and clocks that jump. Agents work on meanwhile as clients behind a balancer do: what
brings no whole answer is asked again, anywhere.

Whatever the schedule: the line of every conversation keeps its prefix, nothing that was acknowledged is lost, no frame
is folded twice, and only a fault makes requests pass without context management, for a bounded time.

`CALLSTACK_SCHEDULES=20` takes twenty seeds.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import struct
import threading
import time
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from llm_test_provider import ReceivedRequest, ScriptedAnswer, ScriptedProvider, says
from tests import laws
from tests.crash.killable import KillableProxy
from tests.distant_server import Link, at_distance
from tests.failures.test_store import locked
from tests.harness import NUMBER, Answer, ClientHabits, Conversation, Stage, bash, does, pop, push, tool
from tests.pace import slowness
from tests.postgresql_server import PostgresServer
from tests.properties import disk
from tests.scenarios.speaking import meanwhile

SEEDS = int(os.environ.get("CALLSTACK_SCHEDULES", "2"))
AGENTS = 3
FAULTS = 6
GAP_S = (0.2, 0.8)
FAULT_S = (0.3, 3.0)
SLOW_S = (0.02, 0.1)
"""What a slow link adds to a round trip."""
SKEWS_S = (-3600, -20, 3, 600)
JUMPS_S = (-86_400, -3_600, -5, 5, 3_600, 86_400)
"""By how much a clock jumps, forward or back, and back again at the end of the fault."""
PATIENCE_S = 2.0
"""How long a client waits for an answer the first time; each time longer, as the proxy may just be slow."""
PAUSE_S = 0.05
THINKS_S = (0.0, 0.3)
"""Between two turns of an agent: without, the machine is too busy for a process that starts."""
LOCKS_S = 2.0
"""How long a replica that stands still may hold up the other one."""
REST_S = 12.0
"""How long a replica may stand aside behind a fault of its own: its store was away for a while."""
RESULTS = re.compile(r'<frame-results ref=\\?"([^"\\]*)')
# What a process runs as it starts, of its own accord, where its folder is on the path. Its clock is set by a file.
WRONG_CLOCK = """
import mmap, struct, time
from pathlib import Path

with Path(__file__).with_name("set_by").open("rb") as file:
    set_by = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
clock, clock_ns = time.time, time.time_ns
time.time = lambda: clock() + struct.unpack("q", set_by)[0]
time.time_ns = lambda: clock_ns() + struct.unpack("q", set_by)[0] * 10**9
"""


class ProcessClock:
    """The clock of a process that is started with `environment`: wrong by `skew_s`, and by what it is set to later."""

    def __init__(self, folder: Path, skew_s: int) -> None:
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(WRONG_CLOCK)
        self._file = folder / "set_by"
        self._file.write_bytes(bytes(8))
        self._skew_s = skew_s
        self.environment = {"PYTHONPATH": str(folder)}
        self.jump(0)

    def jump(self, by_s: int) -> None:
        with self._file.open("r+b") as opened:  # in place: the process has it mapped
            opened.write(struct.pack("q", self._skew_s + by_s))


# ---------------------------------------------------------------------------------------------------------- the faults
@dataclass
class Fault:
    """Times are of the monotonic clock."""

    kind: str
    replica: int
    lasts_s: float
    began: float = 0.0
    ended: float = 0.0


def schedule(chance: random.Random) -> list[Fault]:
    """One behind the other; each kind comes at least once, and a kill, which takes long to recover from, just once."""
    kinds = ["pause", "kill", "cut", "slow", "jump", *chance.choices(["pause", "cut", "slow", "jump"], k=FAULTS - 5)]
    chance.shuffle(kinds)
    return [Fault(kind, chance.randrange(2), chance.uniform(*FAULT_S)) for kind in kinds]


def befall(fault: Fault, chance: random.Random, proxy: KillableProxy, link: Link, clock: ProcessClock) -> None:
    fault.began = time.monotonic()
    match fault.kind:
        case "pause":
            os.kill(proxy.pid, signal.SIGSTOP)
            time.sleep(fault.lasts_s)
            os.kill(proxy.pid, signal.SIGCONT)
        case "kill":
            proxy.kill()
            proxy.start()
        case "cut":
            link.hold()
            time.sleep(fault.lasts_s)
            link.let_go()
        case "slow":
            link.round_trip_s = chance.uniform(*SLOW_S)
            time.sleep(fault.lasts_s)
            link.round_trip_s = 0.0
        case "jump":
            clock.jump(chance.choice(JUMPS_S))
            time.sleep(fault.lasts_s)
            clock.jump(0)
        case _:
            raise AssertionError(fault.kind)
    fault.ended = time.monotonic()


# ----------------------------------------------------------------------------------------------------------- the agents
class Model:
    """Does what the user's last words ask for, where it has the tools, and says then what nobody said before."""

    def __init__(self) -> None:
        self._said = count(1)

    def __call__(self, received: ReceivedRequest) -> ScriptedAnswer:
        last = received.messages[-1]
        asked = laws.text_of(last)
        if last["role"] == "user" and "stack_frame_push" in received.tool_names:
            if "begin" in asked:
                return does(push(f"task {next(self._said)}"))
            if "end" in asked:
                return does(pop(f"result {next(self._said)}"))
        if last["role"] == "user" and "run" in asked:
            return does(bash(f"make {next(self._said)}"))
        return says(f"said {next(self._said)}")


@dataclass(frozen=True)
class Attempt:
    """One request, at which replica, and what it came to: the `x-stack-status`, or empty where no answer came."""

    number: int
    replica: int
    began: float
    ended: float
    came_to: str


@dataclass
class Agent:
    name: str
    chance: random.Random
    stage: Stage
    replicas: list[KillableProxy]
    history: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    turns: int = 0

    def works(self, until: threading.Event) -> None:
        while not until.is_set():
            self.turn(self.chance.choice(("begin", "run", "run", "run", "end", "talk")))
            time.sleep(self.chance.uniform(*THINKS_S))

    def turn(self, order: str, replica: int | None = None) -> str:
        """Returns the status of its last answer."""
        self.turns += 1
        self.history.append({"role": "user", "content": f"{self.name} {self.turns}: {order}"})
        message, status = self.heard(replica)
        for call in message.get("tool_calls") or []:
            output = f"{self.name} {self.turns} output\n" + "a line of what it wrote\n" * 60
            self.history.append({"role": "tool", "tool_call_id": call["id"], "content": output})
        return self.heard(replica)[1] if message.get("tool_calls") else status

    def heard(self, replica: int | None) -> tuple[dict[str, Any], str]:
        """Ask until there is a whole answer; what was heard is kept."""
        streamed = self.chance.random() < 0.5
        body = {"model": "gpt-x", "messages": self.history, "tools": [tool("bash")], "stream": streamed}
        for attempt in count(1):
            at = self.chance.randrange(2) if replica is None else replica
            answer = self.asks(at, json.dumps(body).encode(), PATIENCE_S * attempt, streamed=streamed)
            if answer is not None:
                self.history.append(ClientHabits().echo(answer.message))
                return answer.message, answer.stack_status
            time.sleep(PAUSE_S)
        raise AssertionError("unreachable")

    def asks(self, replica: int, body: bytes, patience_s: float, *, streamed: bool) -> Answer | None:
        note, began = self.stage.noted(body), time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.replicas[replica].port, timeout=patience_s)
        headers = {"content-type": "application/json", NUMBER: str(note.number)}
        answer = None
        try:
            connection.request("POST", "/v1/chat/completions", body, headers)
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            answer = Answer(response.status, told, response.read(), True, streamed)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        whole = answer if answer is not None and answer.status == 200 and answer.ended else None
        came_to = "" if answer is None else answer.stack_status
        self.attempts.append(Attempt(note.number, replica, began, time.monotonic(), came_to))
        note.answer = whole
        return whole


# ------------------------------------------------------------------------------------------------------------ the tests
@pytest.mark.crash
@pytest.mark.rows("X-55")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_through_any_schedule_of_faults_nothing_is_lost_doubled_or_moved(
    stage: Stage, postgres: PostgresServer, seed: int
) -> None:
    """Every client hears each of its answers once, whoever gave it; an answer that nobody waited for moves nothing."""
    chance = random.Random(seed)
    near = make_url(postgres.new_database())
    store = near.render_as_string(hide_password=False)
    stage.provider.when(lambda _: True, Model(), loop=True)
    clocks = [ProcessClock(stage.folder / f"clock{n}", skew) for n, skew in enumerate((0, chance.choice(SKEWS_S)))]
    faults = schedule(chance)
    with ExitStack() as links:
        assert near.port
        between = [links.enter_context(at_distance(near.port)) for _ in range(2)]
        replicas = []
        for number, link in enumerate(between):
            url = near.set(port=link.port).render_as_string(hide_password=False)
            settings = {"store": url, "data": stage.folder / f"data{number}", "infer_requests": "false"}
            own = clocks[number].environment
            replicas.append(KillableProxy(stage, own, wake_at_tokens=0, assembly_budget_ms=1000, **settings))
        with ThreadPoolExecutor(AGENTS) as pool:
            list(pool.map(KillableProxy.start, replicas))
            agents = [Agent(f"agent{n}", random.Random(f"{seed} {n}"), stage, replicas) for n in range(AGENTS)]
            for agent in agents:
                assert agent.turn("begin") == "full"
            enough = threading.Event()
            working = [pool.submit(agent.works, enough) for agent in agents]
            try:
                for fault in faults:
                    time.sleep(chance.uniform(*GAP_S))
                    at = fault.replica
                    befall(fault, chance, replicas[at], between[at], clocks[at])
                time.sleep(GAP_S[1])
            finally:
                enough.set()
            for each in working:
                each.result()
        all_are_managed_again(agents)
        for replica in replicas:
            replica.terminate()

    kept = disk.texts(stage.folder / "read", store)
    evidence = replace(stage.evidence(), kept=kept)
    alone = gone_on_without_us(evidence)
    attempts = [
        replace(attempt, came_to="gone on without us") if attempt.number in alone else attempt
        for agent in agents
        for attempt in agent.attempts
    ]
    print(f"seed {seed}: {[(f.kind, f.replica, round(f.ended - f.began, 1)) for f in faults]}")  # noqa: T201
    print(f"{dict(Counter(each.came_to for each in attempts))} of {sum(a.turns for a in agents)} turns")  # noqa: T201
    assert lost(agents, kept) == []
    assert len(kept) == AGENTS, "a conversation was doubled"
    assert doubled(stage) == []
    assert unexplained(attempts, faults) == []
    found = laws.breaches(without_last_rounds(evidence, alone))
    assert not found, "\n".join(found)


def gone_on_without_us(evidence: laws.Evidence) -> frozenset[int]:
    """Requests that were told `full` as their stream began, and of which a later round could not be kept: what was
    answered last is the client's own request. Only the receipt can tell it by then."""
    bodies = {each.number: laws.Body.read(each.body) for each in evidence.asked if each.status == laws.AWAKE}
    sent = [(each.of, laws.Body.read(each.body)) for each in evidence.left if each.of in bodies]
    several = {number for number, times in Counter(number for number, _ in sent).items() if times > 1}
    return frozenset(number for number, body in dict(sent).items() if number in several and body == bodies[number])


def without_last_rounds(evidence: laws.Evidence, numbers: Collection[int]) -> laws.Evidence:
    last = {each.of: each for each in evidence.left if each.of in numbers}
    return replace(evidence, left=[each for each in evidence.left if each is not last.get(each.of)])


def test_a_stream_that_went_on_without_us_is_told_from_a_line_that_changed(
    stage: Stage, provider: ScriptedProvider
) -> None:
    """The judge of the schedules took the client's own request for the line of the frame."""
    proxy = KillableProxy(stage, wake_at_tokens=0, assembly_budget_ms=5_000).start()
    chat = Conversation(proxy, streamed=True)
    provider.will(says("hello"))
    chat.says("do the work")
    with ExitStack() as trouble:
        meanwhile(provider, 2, lambda: trouble.enter_context(locked(proxy)), does(push("Lost")))
        provider.will(says("an answer"))
        alone = chat.says("go on")
    evidence = stage.evidence()

    assert (alone.stack_status, alone.text) == ("full", "an answer")
    assert [breach for breach in laws.breaches(evidence) if "changed in its past at message 0" in breach]
    assert gone_on_without_us(evidence) == {2}
    assert laws.breaches(without_last_rounds(evidence, {2})) == []


def all_are_managed_again(agents: list[Agent]) -> None:
    """Behind the last fault, within the time for which a replica may stand aside."""
    until = time.monotonic() + REST_S * slowness()
    for agent in agents:
        for replica in range(2):
            while agent.turn("talk", replica) != "full":
                assert time.monotonic() < until, "it did not come back"
                time.sleep(PAUSE_S)


def lost(agents: list[Agent], kept: dict[str, frozenset[str]]) -> list[str]:
    """Messages of a client that are missing from the conversation that holds most of them."""
    missing: list[str] = []
    for agent in agents:
        said = [json.dumps(m.get("content") or m["tool_calls"][0]["id"]) for m in agent.history]
        stored = ["".join(texts) for texts in kept.values()]
        gaps = [[word for word in said if word not in text] for text in stored]
        fewest = min(gaps, key=len)
        missing += fewest
    return missing


def doubled(stage: Stage) -> list[str]:
    """Results of frames that stand twice on a line."""
    found = []
    for received in stage.provider.asked:
        refs = Counter(RESULTS.findall(received.raw.decode()))
        found += [f"{ref} stands {times} times" for ref, times in refs.items() if times > 1]
    return found


def unexplained(attempts: list[Attempt], faults: list[Fault]) -> list[Attempt]:
    """Requests that passed without context management, or were refused, and no fault was near."""

    def is_explained(attempt: Attempt, fault: Fault) -> bool:
        lasts = fault.ended + REST_S if fault.replica == attempt.replica else fault.began + LOCKS_S * slowness()
        return fault.began <= attempt.ended and attempt.began <= lasts

    odd = [each for each in attempts if each.came_to not in ("", "full")]
    disturbing = [fault for fault in faults if fault.kind != "jump"]  # a wrong clock is no reason
    return [each for each in odd if not any(is_explained(each, fault) for fault in disturbing)]
