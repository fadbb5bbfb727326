"""When the budget of a key is spent, and when it begins anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from proxy.auth import BudgetChecks, UsageLimits, days_since_1970, period_at
from proxy.errors import BudgetSpent, BudgetUnknown, ModelNotAllowed, ProxyError, StoreError
from proxy.store import MemoryStore, UsageRecord

NOW = datetime(2026, 2, 28, 23, 0, tzinfo=UTC)


async def check(
    limits: UsageLimits,
    *used: UsageRecord,
    at: datetime = NOW,
    model: str | None = "gpt-x",
    method: str = "POST",
    path: str = "/v1/chat/completions",
    store: MemoryStore | None = None,
) -> ProxyError | None:
    """The refusal of a request, or None."""
    store = store or MemoryStore()
    store.write("key-ana", used)
    try:
        await BudgetChecks(store, lambda: int(at.timestamp() * 1000)).check(
            "key-ana", limits, method, path, lambda: model
        )
    except ProxyError as error:
        return error
    return None


def day(moment: datetime) -> int:
    return days_since_1970(moment)


@pytest.mark.parametrize(
    ("moment", "per", "begins", "ends"),
    [
        (NOW, "day", "2026-02-28", "2026-03-01"),
        (NOW, "month", "2026-02-01", "2026-03-01"),
        (datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC), "month", "2026-12-01", "2027-01-01"),
        (datetime(2026, 3, 1, 1, 0, tzinfo=timezone(timedelta(hours=3))), "day", "2026-02-28", "2026-03-01"),
    ],
)
def test_a_period_is_a_day_or_a_calendar_month_in_utc(moment: datetime, per: str, begins: str, ends: str) -> None:
    found = period_at(moment, "day" if per == "day" else "month")
    assert [each.date().isoformat() for each in found] == [begins, ends]
    assert {each.timetz().isoformat() for each in found} == {"00:00:00+00:00"}


async def test_only_what_was_used_in_the_period_counts() -> None:
    yesterday = UsageRecord(day(NOW) - 1, cost=4.0)
    assert await check(UsageLimits(usd=5, per="day"), yesterday, UsageRecord(day(NOW), cost=4.0)) is None
    refused = await check(UsageLimits(usd=5), yesterday, UsageRecord(day(NOW), cost=4.0))

    assert isinstance(refused, BudgetSpent)
    assert refused.retry_after_s == 3600
    assert "$8.00 of $5.00 a month. It begins anew on 2026-03-01" in str(refused)
    assert await check(UsageLimits(usd=5), yesterday, at=NOW + timedelta(hours=2)) is None


def test_small_budgets_are_told_in_digits_that_count() -> None:
    told = [UsageLimits(usd=usd).describe() for usd in (1234.5, 0.01, 0.0025)]
    assert told == ["$1,234.50 a month", "$0.01 a month", "$0.0025 a month"]


async def test_either_budget_ends_it() -> None:
    used = UsageRecord(day(NOW), tokens=100, cost=1.0)
    assert await check(UsageLimits(usd=2, tokens=101), used) is None
    assert isinstance(await check(UsageLimits(usd=2, tokens=100), used), BudgetSpent)
    assert isinstance(await check(UsageLimits(usd=1, tokens=101), used), BudgetSpent)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/models"), ("DELETE", "/v1/responses/r1"), ("POST", "/v1/responses/r1/cancel")]
)
async def test_looking_and_clearing_away_are_free(method: str, path: str) -> None:
    spent = UsageRecord(day(NOW), tokens=100)
    limits = UsageLimits(tokens=1, models=("gpt-x",))
    assert await check(limits, spent, method=method, path=path, model=None) is None
    assert isinstance(await check(limits, spent), BudgetSpent)


async def test_a_model_is_named_whole_or_by_a_pattern() -> None:
    limits = UsageLimits(models=("gpt-x", "claude-*"))
    assert await check(limits, model="claude-opus-4-8") is None
    assert isinstance(await check(limits, model="gpt-x2"), ModelNotAllowed)
    assert isinstance(await check(limits, model="GPT-X"), ModelNotAllowed)
    assert isinstance(await check(limits, model=None), ModelNotAllowed)


class UnreadableStore(MemoryStore):
    """A mock: a real database fails to read in `tests/store`, and here it matters only that it does."""

    async def usage_days(self, tenant: str | None, since: int = 0) -> tuple[tuple[str, UsageRecord], ...]:
        raise StoreError("the disk is gone", code="store_unreachable")


async def test_where_nobody_can_say_what_was_spent_a_budget_admits_nothing() -> None:
    refused = await check(UsageLimits(usd=5), store=UnreadableStore())
    assert isinstance(refused, BudgetUnknown)
    assert refused.status == 503
    assert await check(UsageLimits(models=("gpt-x",)), store=UnreadableStore()) is None
