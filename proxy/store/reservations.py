"""What the requests of client keys that are under way have reserved of their budgets, for all proxies on one PostgreSQL
server.

A reservation is made in one round trip: a lock of the tenant, and an insert that looks at what was used and reserved by
then. It ends in the transaction that writes what the request used, or when its lease does, after its proxy was killed.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from proxy.store.commit import Batch
from proxy.store.interface import (
    RESERVATION_LEASE_S,
    BudgetState,
    ReservationEnd,
    ReservationRecord,
    Settlement,
    UsageRecord,
)
from proxy.store.rows import escape_text
from proxy.store.statements import pipelined

Result = TypeVar("Result")

LOCK_WAIT_MS = 1_500
"""Who holds the lock needs no further word of its proxy, so nobody waits longer but where the server stands."""
NO_MORE_TOKENS = 1 << 53
"""More is reserved as this many."""
MOST_TOKENS = 1 << 62
SMALLEST_USD = 1e-9
"""Sums of money differ by less than this when they are equal."""
_NOW_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_STATE_SQL = f"""
    SELECT requests, used.tokens, used.cost, held.tokens AS held_tokens, held.usd AS held_usd FROM
    (SELECT coalesce(sum(requests), 0)::bigint AS requests, coalesce(sum(tokens), 0)::bigint AS tokens,
            coalesce(sum(cost), 0) AS cost FROM usage_days WHERE tenant = %(tenant)s AND day >= %(since)s) used,
    (SELECT coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(usd), 0) AS usd FROM reservations
     WHERE tenant = %(tenant)s AND id <> %(id)s AND until > {_NOW_MS}) held"""  # noqa: S608 - constants
_BEGIN_SQL = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_WAITS_SQL = f"SELECT set_config('lock_timeout', '{LOCK_WAIT_MS}', true), set_config('synchronous_commit', 'off', true)"
"""Without a wait for the disk: who restarts a server ends what was under way."""
_LOCK_SQL = "SELECT pg_advisory_xact_lock(hashtextextended('callstack budget ' || %(tenant)s::text, 0))"
_RESERVE_SQL = f"""
    WITH state AS ({_STATE_SQL}),
    made AS (
        INSERT INTO reservations (tenant, id, tokens, usd, until)
        SELECT %(tenant)s, %(id)s, %(tokens)s, %(usd)s, {_NOW_MS} + %(lease)s FROM state
        WHERE state.tokens + state.held_tokens + %(tokens)s <= %(most_tokens)s
          AND state.cost + state.held_usd + %(usd)s <= %(most_usd)s::double precision
        ON CONFLICT (tenant, id) DO UPDATE SET tokens = excluded.tokens, usd = excluded.usd, until = excluded.until
        RETURNING 1),
    gone AS (DELETE FROM reservations WHERE tenant = %(tenant)s AND id <> %(id)s AND until <= {_NOW_MS})
    SELECT state.*, (SELECT count(*) FROM made) AS made FROM state"""  # noqa: S608 - constants
_RENEW_SQL = f"""
    UPDATE reservations SET until = {_NOW_MS} + %(lease)s
    WHERE (tenant, id) IN (SELECT * FROM unnest(%(tenants)s::text[], %(ids)s::text[]))"""  # noqa: S608 - constants


class Read(Protocol):
    """Reads in a thread, behind those of the batches that wait to be written with which it is concerned."""

    def __call__(
        self, read: Callable[[Connection], Result], *, concerns: Callable[[Batch], bool], is_one_query: bool
    ) -> Awaitable[Result]: ...


class ReservationTable:
    def __init__(self, read: Read) -> None:
        self._read = read

    async def state(self, tenant: str, since: int, without: str) -> BudgetState:
        values = {"tenant": escape_text(tenant), "since": since, "id": without}
        return await self._read(
            lambda c: _state_of(c.exec_driver_sql(_STATE_SQL, values).one()),
            concerns=_uses_of(tenant),
            is_one_query=True,
        )

    async def reserve(
        self, tenant: str, since: int, wanted: ReservationRecord, most_tokens: int | None, most_usd: float | None
    ) -> tuple[bool, BudgetState]:
        values = {
            "tenant": escape_text(tenant),
            "since": since,
            "id": wanted.id,
            "tokens": min(wanted.tokens, NO_MORE_TOKENS),
            "usd": float(wanted.usd),
            "lease": int(RESERVATION_LEASE_S * 1_000),
            "most_tokens": MOST_TOKENS if most_tokens is None else most_tokens,
            "most_usd": math.inf if most_usd is None else most_usd + SMALLEST_USD,
        }
        return await self._read(lambda c: _reserve(c, values), concerns=_uses_of(tenant), is_one_query=True)

    async def renew(self, reservations: Collection[tuple[str, str]]) -> None:
        await self._read(lambda c: _renew(c, reservations), concerns=lambda _: False, is_one_query=True)


def _uses_of(tenant: str) -> Callable[[Batch], bool]:
    """What this process has still to write of what the tenant used: until then, the reservation of it counts."""
    return lambda batch: (
        batch.tenant == tenant and any(isinstance(r, UsageRecord | Settlement | ReservationEnd) for r in batch.records)
    )


def _reserve(connection: Connection, values: dict[str, object]) -> tuple[bool, BudgetState]:
    """Outside of a transaction of `connection`."""
    with pipelined(connection) as driver:
        driver.execute(_BEGIN_SQL)
        driver.execute(_WAITS_SQL)
        driver.execute(_LOCK_SQL, values)
        told = driver.execute(_RESERVE_SQL, values)
        driver.execute("COMMIT")
    row = told.fetchall()[0]
    return bool(row[5]), _state_of(row)


def _renew(connection: Connection, reservations: Collection[tuple[str, str]]) -> None:
    """Outside of a transaction of `connection`."""
    values = {
        "tenants": [escape_text(tenant) for tenant, _ in reservations],
        "ids": [name for _, name in reservations],
        "lease": int(RESERVATION_LEASE_S * 1_000),
    }
    with pipelined(connection) as driver:
        driver.execute(_BEGIN_SQL)
        driver.execute(_RENEW_SQL, values)
        driver.execute("COMMIT")


def _state_of(row: Any) -> BudgetState:
    return BudgetState(UsageRecord(0, int(row[0]), int(row[1]), float(row[2])), int(row[3]), float(row[4]))
