"""Who sets how subagents are tracked: operators, for it holds for everybody (S1-118)."""

from __future__ import annotations

import pytest

from tests.management.api.conftest import Served

pytestmark = pytest.mark.rows("S1-118")

PATH = "/stack/config"


@pytest.mark.parametrize("key", ["admin", "token"])
async def test_an_operator_sets_it_and_everybody_reads_it(served: Served, key: str) -> None:
    told = await served.ask(PATH, key, "PATCH", json={"minMessageCount": 7, "addPattern": "scout"})
    assert (told.status, told.json["changed"]) == (200, ["minMessageCount", "patterns"])

    for reader in ("ours", "theirs"):
        assert (await served.ask(PATH, reader)).json == told.json


@pytest.mark.parametrize(("key", "status"), [("ours", 403), ("theirs", 403), (None, 401)])
async def test_nobody_else_sets_it(served: Served, key: str | None, status: int) -> None:
    before = (await served.ask(PATH)).json
    refused = await served.ask(PATH, key, "PATCH", json={"enabled": False})

    assert refused.status == status
    assert status == 401 or "a key issued with --admin" in refused.json["error"]["message"]
    assert (await served.ask(PATH)).json == before


async def test_asking_for_nothing_changes_nothing(served: Served) -> None:
    before = (await served.ask(PATH)).json
    told = await served.ask(PATH, "admin", "PATCH", json={})

    assert (told.status, told.json) == (200, before)
    assert await served.store.settings("") == ()
