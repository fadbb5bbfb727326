"""Two replicas on one database, of which the one at work is killed: the agent goes on with the other one, at once and
where it stood; and a database that is away while agents work.
"""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from llm_test_provider import ScriptedProvider, says
from tests import laws
from tests.crash.killable import KillableReplicas
from tests.crash.test_kills import Agent, Player, is_killed_and_goes_on, works_undisturbed
from tests.harness import ClientHabits, Conversation, Stage
from tests.postgresql_server import PostgresServer
from tests.properties import disk

KILLS = int(os.environ.get("CALLSTACK_KILLS", "25"))
OUTAGES = int(os.environ.get("CALLSTACK_OUTAGES", "5"))
SOON_S = 15.0
PAUSE_S = 0.25
"""Between two steps of an agent. Without, the proxies fail so often in so short a time that they stop trying for a
while, as they should, and what an agent with pauses meets is not tried."""


def test_an_agent_goes_on_with_the_other_replica_where_it_stood(
    stage: Stage, provider: ScriptedProvider, postgres: PostgresServer
) -> None:
    """As with one process: the tree is that of the last acknowledged turn, the line begins with the bytes it had, and
    nothing that was acknowledged is missing. Here nobody waits for a restart."""
    store = postgres.new_database()
    # What words are a new request, and where long work is cut into parts (after some 60 kills), is beyond the oracle.
    settings = {"infer_requests": "false", "frame_max_tokens": 1_000_000}
    proxy = KillableReplicas(stage, store, wake_at_tokens=0, **settings).start()
    player = Player()
    provider.when(lambda _: True, player, loop=True)
    chat = Conversation(proxy, streamed=False, habits=ClientHabits(arguments="respelled"))
    agent = Agent(random.Random(7), chat, player, stage, proxy)
    works_undisturbed(agent)
    with ThreadPoolExecutor(1) as elsewhere:
        while agent.killed < KILLS:
            is_killed_and_goes_on(agent, elsewhere)
            works_undisturbed(agent)
    proxy.stop()

    kept = disk.texts(proxy.data, store)
    assert len(kept) == 1, "the conversation was doubled"
    evidence = replace(stage.evidence(), kept=kept)
    assert not (found := laws.breaches(evidence)), "\n".join(found)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_database_that_is_away_costs_no_request_and_no_turn(
    stage: Stage, provider: ScriptedProvider, postgres: PostgresServer, how: signal.Signals
) -> None:
    """Requests pass without us meanwhile, with the reason; afterwards all of the conversation is there."""
    store = postgres.new_database()
    provider.when(lambda _: True, says("Done."), loop=True)
    proxy = KillableReplicas(stage, store, wake_at_tokens=0).start()
    chat = Conversation(proxy, streamed=False)
    assert chat.says("step 0").stack_status == "full"
    said = ["step 0"]
    for _ in range(OUTAGES):
        postgres.stop(how)
        while_away = []
        for _ in range(4):  # each of the two, twice
            said.append(f"step {len(said)}")
            answer = chat.says(said[-1])
            assert (answer.status, answer.text) == (200, "Done.")
            while_away.append(answer.stack_status.split(";")[0])
        assert "bypass" in while_away
        postgres.start()
        until = time.monotonic() + SOON_S
        back = 0
        while back < 2:  # both of them
            said.append(f"step {len(said)}")
            back = back + 1 if chat.says(said[-1]).stack_status == "full" else 0
            assert time.monotonic() < until, "it did not come back"
            time.sleep(PAUSE_S)
    proxy.shut_down()  # on a busy machine the last answer may not be on disk yet: its client has it after a second

    kept = disk.texts(proxy.data, store)
    assert len(kept) == 1, "the conversation was doubled"
    stored = "".join(next(iter(kept.values())))
    assert [each for each in said if f'"{each}"' not in stored] == []
