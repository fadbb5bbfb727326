"""A budget that two proxies on one PostgreSQL server hold together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from proxy.auth import BudgetChecks, CostEstimate, UsageLimits, days_since_1970
from proxy.errors import BudgetReserved, BudgetSpent, BudgetUnknown
from proxy.store.database import PostgresDatabase
from proxy.store.interface import UsageRecord
from proxy.store.sql import SqlStore
from tests.postgresql_server import PostgresServer

pytestmark = [pytest.mark.long, pytest.mark.rows("X-57")]
NOW = datetime(2026, 2, 28, 23, 0, tzinfo=UTC)
TENANT = "key-ana"
LIMITS = UsageLimits(tokens=20_000)
ONE = CostEstimate(2_000, 0.0, is_bounded=True)


class Replica:
    """A proxy's part of it."""

    def __init__(self, url: str) -> None:
        self.store = SqlStore(PostgresDatabase(url))
        self.clock = NOW
        self.budgets = BudgetChecks(self.store, lambda: int(self.clock.timestamp() * 1000))

    async def answers(self, limits: UsageLimits = LIMITS, used: int = 1_500) -> str:
        """One request, which uses less than it may."""
        try:
            reservation = await self.budgets.reserve(TENANT, limits, ONE)
        except (BudgetReserved, BudgetSpent) as error:
            return error.code
        self.store.write(TENANT, [UsageRecord(days_since_1970(NOW), 1, used, used / 1e6)])
        self.budgets.release(reservation)
        return ""


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture
async def replicas(url: str) -> AsyncIterator[list[Replica]]:
    made = [Replica(url), Replica(url)]
    for each in made:
        await each.store.start()
    yield made
    for each in made:
        await each.store.close()


async def test_what_is_under_way_on_all_of_them_fits_into_the_budget(replicas: list[Replica]) -> None:
    asked = [replicas[n % 2].budgets.reserve(TENANT, LIMITS, ONE) for n in range(24)]
    done = await asyncio.gather(*asked, return_exceptions=True)

    assert sum(not isinstance(each, Exception) for each in done) == 10
    assert {type(each) for each in done if isinstance(each, Exception)} == {BudgetReserved}


@pytest.mark.parametrize("limits", [LIMITS, UsageLimits(usd=0.02)], ids=["tokens", "usd"])
async def test_at_any_moment_either_the_reservation_or_the_use_counts(
    replicas: list[Replica], limits: UsageLimits
) -> None:
    """Requests begin and end on both all the time; no sum of them passes the budget."""
    estimate = CostEstimate(2_000, 0.002, is_bounded=True)

    async def works(replica: Replica) -> None:
        while True:
            try:
                reservation = await replica.budgets.reserve(TENANT, limits, estimate)
            except BudgetReserved:
                continue
            except BudgetSpent:
                return
            replica.store.write(TENANT, [UsageRecord(days_since_1970(NOW), 1, 1_500, 0.0015)])
            replica.budgets.release(reservation)

    await asyncio.gather(*(works(replicas[n % 2]) for n in range(8)))

    [(_, used)] = await replicas[0].store.usage_days(TENANT)
    assert 18_000 < used.tokens <= 20_000, "each of them may end with what is too little for another one"


async def test_what_a_killed_proxy_had_reserved_ends_with_its_lease(
    replicas: list[Replica], postgres: PostgresServer, url: str
) -> None:
    killed, other = replicas
    whole = CostEstimate(20_000, 0.0, is_bounded=True)
    await killed.budgets.reserve(TENANT, LIMITS, whole)
    with pytest.raises(BudgetReserved):
        await other.budgets.reserve(TENANT, LIMITS, ONE)

    postgres.run("UPDATE reservations SET until = until - 31000", url)
    reservation = await other.budgets.reserve(TENANT, LIMITS, ONE)

    assert postgres.run("SELECT id FROM reservations", url) == [(reservation.id,)]


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_replica_whose_clock_jumped_keeps_its_leases_and_sees_those_of_others(
    replicas: list[Replica], hours: int
) -> None:
    """A12: leases go by the server's clock. An hour on, this replica is in the next month."""
    jumped = replicas[0]
    half = CostEstimate(10_000, 0.0, is_bounded=True)
    before = await jumped.budgets.reserve(TENANT, LIMITS, half)
    jumped.clock += timedelta(hours=hours)
    behind = await jumped.budgets.reserve(TENANT, LIMITS, half)
    for each in replicas:
        with pytest.raises(BudgetReserved):
            await each.budgets.reserve(TENANT, LIMITS, ONE)

    for reservation in (before, behind):
        jumped.store.write(TENANT, [UsageRecord(jumped.budgets.today(), 1, 10_000)])
        jumped.budgets.release(reservation)
    jumped.clock = NOW
    for each in replicas:
        with pytest.raises(BudgetSpent):
            await each.budgets.reserve(TENANT, LIMITS, ONE)


async def test_a_proxy_that_lives_renews_the_leases_of_its_requests(
    replicas: list[Replica], postgres: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = replicas
    ours, theirs = [await each.budgets.reserve(TENANT, LIMITS, ONE) for each in replicas]
    postgres.run("UPDATE reservations SET until = until - 20000", url)
    # Patched: a test would wait ten seconds for the next renewal.
    monkeypatch.setattr("proxy.auth.budgets.RENEW_S", 0)
    renewing = asyncio.create_task(here.budgets.renew_forever())
    until = dict[object, int]()
    while not until or until[ours.id] - until[theirs.id] < 10_000:
        until = {name: int(str(ms)) for name, ms in postgres.run("SELECT id, until FROM reservations", url)}
        await asyncio.sleep(0.01)
    renewing.cancel()
    there.budgets.release(theirs)
    here.budgets.release(ours)
    assert await there.answers() == await here.answers() == ""
    for each in replicas:
        shared = each.store.shared_reservations
        assert shared is not None
        await shared.state(TENANT, 0, "")  # behind what it has still to write
    assert postgres.run("SELECT id FROM reservations", url) == []


async def test_a_further_round_sees_what_others_reserved(replicas: list[Replica]) -> None:
    here, there = replicas
    asking = await here.budgets.reserve(TENANT, LIMITS, ONE)
    await there.budgets.reserve(TENANT, LIMITS, CostEstimate(10_000, 0.0, is_bounded=True))

    with pytest.raises(BudgetSpent):
        await here.budgets.extend(asking, CostEstimate(2_000, 0.0), CostEstimate(8_001, 0.0, is_bounded=True))
    await here.budgets.extend(asking, CostEstimate(2_000, 0.0), CostEstimate(8_000, 0.0, is_bounded=True))
    with pytest.raises(BudgetReserved):
        await there.budgets.reserve(TENANT, LIMITS, ONE)


async def test_where_the_server_is_away_a_budget_admits_nothing(replicas: list[Replica], url: str) -> None:
    await replicas[0].store.close()
    with pytest.raises(BudgetUnknown):
        await replicas[0].budgets.reserve(TENANT, LIMITS, ONE)
