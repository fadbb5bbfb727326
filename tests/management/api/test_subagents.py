"""Who sees which subagents: those of their own tenant, and an operator all (S1-121)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.ledger.ledger import Conversation
from tests.management.api.conftest import Served
from tests.management.api.small_ledger import records_of


async def begun(served: Served, tenant: str, parent: str, name: str) -> str:
    """A conversation that `parent` began."""
    records, ids = records_of(tenant, name)
    own = [replace(r, parent=parent) if isinstance(r, Conversation) else r for r in records]
    await served.store.wait_until_durable(served.store.write(tenant, own))
    return ids.conversation


@pytest.mark.rows("S1-119", "S1-121")
async def test_nobody_sees_or_counts_subagents_of_somebody_else(served: Served) -> None:
    mine = await begun(served, served.ours.tenant, served.ours.conversation, "x")
    theirs = await begun(served, served.theirs.tenant, served.theirs.conversation, "y")

    async def seen(key: str) -> set[str]:
        return {row["id"] for row in (await served.ask("/stack/subagents", key)).json["subagents"]}

    assert await seen("ours") == {mine}
    assert await seen("theirs") == {theirs}
    assert await seen("admin") == {mine, theirs}
    assert (await served.ask("/stack/subagents/stats", "ours")).json["detected"] == 1
    await served.ask("/stack/subagents/reset", "theirs", "POST")
    assert (await served.ask("/stack/subagents/stats", "ours")).json["last_reset"] is None
    assert (await served.ask("/stack/subagents/stats", "theirs")).json["detected"] == 0


@pytest.mark.rows("S1-121")
@pytest.mark.parametrize("query", ["filter=mine", "filter=", "limit=0", "limit=many", "filter=" + "x" * 5_000])
async def test_a_filter_that_there_is_not_is_refused(served: Served, query: str) -> None:
    assert (await served.ask(f"/stack/subagents?{query}")).status == 400
