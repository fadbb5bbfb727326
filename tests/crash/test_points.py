"""D2, H9: an agent's turn whose process dies at a named point of the code, in each dialect.

The judge is that of the random kills: the request that broke is asked again or, where the client has its whole answer,
followed up. Nothing acknowledged is lost, the tree is that of the last acknowledged turn, and the line keeps its bytes.
"""

from __future__ import annotations

import http.client
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from llm_test_provider import Model, says
from tests import laws
from tests.client_dialects import TONGUES, TestDialect
from tests.crash.killable import DyingProxy
from tests.crash.killed_at import KillPoint
from tests.crash.test_kills import Agent, Player, is_asked_again, is_followed_up, is_intact, works_undisturbed
from tests.harness import WAIT_S, Answer, ClientHabits, Conversation, RecordingProvider, Stage
from tests.properties import disk
from tests.scenarios.sessions import TOOLS, Session

pytestmark = pytest.mark.crash

COMMIT = "sqlalchemy.engine.default:DefaultDialect.do_commit"
TOOLS_RUN = "proxy.exchange.tool_loop:_run_stack_calls"


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in a turn of so many hidden rounds; how many of its rounds are on disk then, where that is certain; and
    whether the client has its whole answer."""

    point: KillPoint
    stored: int | None
    hidden: int = 2
    is_answered: bool = False


MOMENTS = {
    "nothing of it is committed": Moment(KillPoint("before", COMMIT), 0),
    "half of a transaction is written": Moment(KillPoint("after", "proxy.store.statements:BlockInsert.run", 3), 0),
    "a transaction is committed, and nobody was told": Moment(KillPoint("after", COMMIT), None),
    "a hidden round is on disk, the next one not asked for": Moment(KillPoint("after", TOOLS_RUN), 1),
    "a hidden round has come, and is not stored": Moment(KillPoint("before", TOOLS_RUN, 2), 1),
    "the line of the last round is made, and not sent": Moment(
        KillPoint("before", "proxy.exchange.rounds.round_sender:RoundSender.send", 3), 2
    ),
    "the last round has come, and is not stored": Moment(
        KillPoint("before", "proxy.exchange.request_handler:RequestHandler.store_last_round"), 2
    ),
    "all is stored, and the client has not its end": Moment(
        KillPoint("before", "proxy.exchange.client_response:ClientResponse.end"), 3
    ),
    "the client has its end, and its receipt is not written": Moment(
        KillPoint("before", "proxy.exchange.background.recorder:RequestRecordBuilder._store"), 3, is_answered=True
    ),
    "the client has its end, and the answer waits to be written": Moment(
        KillPoint("before", "proxy.exchange.background.recorder:RequestRecordBuilder._publish"),
        None,
        0,
        is_answered=True,
    ),
}
"""Where a turn is when its process dies."""


@pytest.fixture(params=TONGUES.values(), ids=lambda tongue: tongue.short)
def tongue(request: pytest.FixtureRequest) -> TestDialect:
    spoken: TestDialect = request.param
    return spoken


@pytest.fixture
def provider(tongue: TestDialect) -> Iterator[RecordingProvider]:
    with RecordingProvider(models=[Model("scripted-model", binding="error")] if tongue.signs else []) as running:
        yield running


@pytest.fixture
def stage(provider: RecordingProvider, tongue: TestDialect, tmp_path: Path) -> Iterator[Stage]:
    running = Stage(provider, tmp_path, streamed=False, looks_into_store=False, tongue=tongue)
    yield running
    running.stop()


@pytest.mark.rows("S3-29", "S3-30", "S0-08")
def test_an_agent_goes_on_wherever_in_a_turn_its_proxy_died(stage: Stage, provider: RecordingProvider) -> None:
    proxy = DyingProxy(stage, wake_at_tokens=0, infer_requests="false")
    player = Player()
    provider.when(lambda _: True, player, loop=True)
    chat = Conversation(proxy, streamed=False, habits=ClientHabits(arguments="respelled"))
    agent = Agent(random.Random(len(stage.tongue.name)), chat, player, stage, proxy)
    proxy.start(next(iter(MOMENTS.values())).point)
    works_undisturbed(agent)
    following = [moment.point for moment in MOMENTS.values()][1:]
    for (name, moment), dies_next_at in zip(MOMENTS.items(), [*following, None], strict=True):
        with told_of(name):
            dies_and_goes_on(agent, moment, dies_next_at)
    proxy.kill()

    assert not (found := laws.breaches(replace(stage.evidence(), kept=kept_in(proxy)))), "\n".join(found)


def dies_and_goes_on(agent: Agent, moment: Moment, dies_next_at: KillPoint | None) -> None:
    proxy = agent.proxy
    assert isinstance(proxy, DyingProxy)
    has_settled(proxy, agent.chat.last)
    agent.hears()
    after, streamed = agent.plans(moment.hidden), agent.chance.random() < 0.5
    before, rounds = agent.lines_sent(), rounds_on_disk(proxy)
    proxy.arm()
    answer = agent.asks(streamed=streamed)
    proxy.has_died()
    is_intact(proxy)
    assert moment.stored in (None, rounds_on_disk(proxy) - rounds)
    proxy.start(dies_next_at)
    told = agent.lines_since(before)
    is_whole = answer is not None and answer.ended and answer.status == 200
    assert is_whole is moment.is_answered
    if answer is not None and is_whole:
        agent.keeps(answer, after)
        agent.hears()
        is_followed_up(agent, told[-1])
    else:
        is_asked_again(agent, told, streamed=streamed)
    works_undisturbed(agent)


FOLDS = {
    "what leaves the line is decided, and nothing of it on disk": KillPoint(
        "after", "proxy.exchange.resolver:Resolver._apply_decision"
    ),
    "the fold is not committed": KillPoint("before", COMMIT),
    "the fold is on disk, and the shorter line is not sent": KillPoint(
        "before", "proxy.exchange.rounds.round_sender:RoundSender.send"
    ),
    "the shorter line has left, and its answer is not stored": KillPoint(
        "before", "proxy.exchange.request_handler:RequestHandler.store_last_round"
    ),
}
FINISHED_WORK = """
    read handbook.md
    edit handbook.md
    run make docs
"""
TRACE = "The texts of its files and outputs are gone from here."


@pytest.mark.rows("S3-29", "S3-30")
def test_finished_work_leaves_the_line_once_wherever_its_proxy_died(stage: Stage, provider: RecordingProvider) -> None:
    """Each time in a conversation of its own: the request at whose arrival work is folded is asked again."""
    proxy = DyingProxy(stage, wake_at_tokens=0).start(next(iter(FOLDS.values())))
    following = [*FOLDS.values()][1:]
    for number, (name, dies_next_at) in enumerate(zip(FOLDS, [*following, None], strict=True)):
        with told_of(name):
            session = Session(Conversation(proxy, streamed=True, tools=TOOLS), provider)
            session.turn(
                f"Fix the title of handbook {number}.",
                *FINISHED_WORK.split("\n")[1:4],
                closing="The title of the handbook is right now.",
            )
            session.chat.history.append(
                {"role": "user", "content": f"Implement a rate limiter for the public API {number}."}
            )
            dies_and_folds_once(session, dies_next_at)
    has_settled(proxy, session.chat.last)
    proxy.kill()

    for ledger in disk.ledgers(proxy.data):
        events = [event.kind for each in ledger.events.values() for event in each]
        assert events.count("folded") == 1
    assert not (found := laws.breaches(replace(stage.evidence(), kept=kept_in(proxy)))), "\n".join(found)


def dies_and_folds_once(session: Session, dies_next_at: KillPoint | None) -> None:
    chat, stage, provider = session.chat, session.chat.proxy.stage, session.provider
    proxy = chat.proxy
    assert isinstance(proxy, DyingProxy)
    has_settled(proxy, chat.last)
    answers = says("There is a token bucket in limit.py.")
    provider.will(answers)
    before = len(provider.received)
    stage.excuse()  # what the fold takes away is told by a receipt that is never written
    proxy.arm()
    with suppress(OSError, http.client.HTTPException):
        answer = chat.tries()
        assert not answer.ended
    proxy.has_died()
    is_intact(proxy)
    told = [received.raw for received in provider.received[before:]]
    proxy.start(dies_next_at)

    if told:
        provider.will(answers)
    stage.excuse()
    chat.asks()
    (line,) = provider.received[before + len(told) :]
    session.turn("How many calls were there today?", "run count", closing="There were nine.")

    assert sum(TRACE in str(message["content"]) for message in line.messages) == 1
    assert [line.raw] * len(told) == told
    again = provider.received[-1].messages
    assert again[: len(line.messages)] == line.messages


def rounds_on_disk(proxy: DyingProxy) -> int:
    """Whole ones: on a busy machine the part of a round that has come so far is on disk too, as its draft."""
    with closing(sqlite3.connect(proxy.database)) as reading:
        return int(reading.execute("SELECT count(*) FROM rounds WHERE complete").fetchone()[0])


def has_settled(proxy: DyingProxy, last: Answer | None) -> None:
    """Returns when the receipt of the last answer is stored: the next commit is the next request's."""
    assert last is not None
    until = time.monotonic() + WAIT_S
    while last.headers["x-stack-request-id"] not in [receipt["id"] for receipt in proxy.receipts()]:
        assert time.monotonic() < until, "its receipt was not stored"


def kept_in(proxy: DyingProxy) -> dict[str, frozenset[str]]:
    """The texts on disk by conversation, as the judge reads them."""
    tongue, stored = proxy.stage.tongue, disk.texts(proxy.data)
    return {at: frozenset(each for wire in wires for each in tongue.kept(wire)) for at, wires in stored.items()}


@contextmanager
def told_of(moment: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"The process died where {moment}.")
        raise
