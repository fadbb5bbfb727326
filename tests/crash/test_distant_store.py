"""Two proxies on a database that is 50 ms away: requests wait longer, and are served all the same, many at once too."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import make_url

from callstack_proxy.cli.doctor import _check_contents
from callstack_proxy.config_sources import load_config
from llm_test_provider import ScriptedProvider, says
from tests.distant_server import at_distance
from tests.harness import Conversation, RunningProxy, Stage
from tests.postgresql_server import PostgresServer

ROUND_TRIP_S = 0.05
AT_ONCE = 10


def two_turns(proxies: Sequence[RunningProxy], number: int) -> list[str]:
    """The statuses of a conversation of its own, of which each turn goes to another proxy."""
    chat = Conversation(proxies[number % 2], streamed=False)
    first = chat.says(f"first question of {number}")
    chat.proxy = proxies[(number + 1) % 2]
    return [first.stack_status, chat.says(f"second question of {number}").stack_status]


@pytest.mark.rows("X-55")
async def test_a_database_50_ms_away_is_no_reason_to_stand_aside(postgres: PostgresServer, tmp_path: Path) -> None:
    near = make_url(postgres.new_database())
    assert near.port
    with ScriptedProvider() as provider, at_distance(near.port, ROUND_TRIP_S) as link:
        provider.when(lambda _: True, says("fine"), loop=True)
        url = near.set(port=link.port).render_as_string(hide_password=False)
        stage = Stage(provider, tmp_path, streamed=False)
        try:
            here, there = (stage.proxy(store=url, assembly_budget_ms=1000) for _ in range(2))
            chat = Conversation(here, streamed=False)
            statuses = []
            for number in range(6):
                chat.proxy = (here, there)[number % 2]
                statuses.append(chat.says(f"question {number}").stack_status)
            with ThreadPoolExecutor(AT_ONCE) as clients:
                at_once = list(clients.map(lambda number: two_turns((here, there), number), range(AT_ONCE)))
        finally:
            stage.stop()
        checks = await _check_contents(load_config({"store": url, "data": str(tmp_path / "d")}))

    assert statuses == ["full"] * 6
    assert at_once == [["full"] * 2] * AT_ONCE
    [told] = [check for check in checks if check.about == "store distance"]
    assert told.state == "unsure"
