"""Routes of `/stack/keys`, `/stack/users` and `/stack/usage`: client keys, and users whom a proxy in front names, with
their limits; what each tenant used; and `/stack/proof`, what held-out conversations prove.

Usage is counted by the day, in UTC, unless `tenancy` is single. It stays when conversations are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool
from typing_extensions import TypedDict

from callstack_proxy.management.api.base import CurrentCaller, JsonResponse, Limit, Offset
from callstack_proxy.management.reports import PeriodName, percent_saved, read_period
from callstack_proxy.management.views import ProofView, proof_view
from proxy.auth import (
    USER_TENANT_PREFIX,
    BudgetPeriod,
    IssuedKey,
    UsageLimits,
    UserLimits,
    days_since_1970,
    list_keys,
    name_of_tenant,
    period_at,
    read_user_limits,
    sum_usage,
    tenant_of_key,
    tenant_of_user,
)
from proxy.errors import BadRequest
from proxy.store import Store, UsageRecord

router = APIRouter()
Row = TypeVar("Row")


class LimitsView(TypedDict):
    """None and an empty list: not limited. `per` is the period of both budgets."""

    usd: float | None
    tokens: int | None
    per: BudgetPeriod
    models: list[str]
    slash_commands: str


class UsageFigures(TypedDict):
    """Money is USD, and `saved` is negative for a loss. Tokens are input and output as the provider reports them."""

    requests: int
    tokens: int
    cost: float
    cost_untouched: float
    saved: float
    saved_percent: float | None


class KeyRow(TypedDict):
    """A key, its limits, and what it used in the present period."""

    name: str
    created: str
    admin: bool
    mode: str | None
    limits: LimitsView
    begins: str
    """The first day of the period."""
    ends: str
    """The day on which the next one begins."""
    used: UsageFigures


class KeyList(TypedDict):
    keys: list[KeyRow]


class UserRow(TypedDict):
    """A user whom a proxy in front names, their limits, and what they used in the present period."""

    name: str
    own_limits: bool
    """Whether the limits are their own, and not those of everybody."""
    limits: LimitsView
    begins: str
    """The first day of the period."""
    ends: str
    """The day on which the next one begins."""
    used: UsageFigures


class UserList(TypedDict):
    everybody: LimitsView
    """Of each user who has no limits of their own."""
    users: list[UserRow]


class UsageRow(UsageFigures):
    period: str
    """A day (2026-11-27) or a month (2026-11)."""
    tenant: str
    name: str


class UsageList(TypedDict):
    by: BudgetPeriod
    rows: list[UsageRow]


@router.get("/keys", response_model=KeyList)
async def list_client_keys(caller: CurrentCaller, limit: Limit = 200, offset: Offset = 0) -> Response:
    """The client keys, oldest first; without an admin key only one's own."""
    issued = await run_in_threadpool(list_keys, caller.context.config.keys_path)
    own = _page([key for key in issued if caller.scope in (None, tenant_of_key(key.name))], limit, offset)
    return JsonResponse({"keys": await key_rows(caller.context.store, own, datetime.now(UTC))})


@router.get("/users", response_model=UserList)
async def list_users(caller: CurrentCaller, limit: Limit = 200, offset: Offset = 0) -> Response:
    """The users with limits of their own, and those who used something this month, by name; without admin rights only
    oneself."""
    limits = await run_in_threadpool(read_user_limits, caller.context.config.users_path)
    rows = await user_rows(caller.context.store, caller.scope, limits, datetime.now(UTC))
    return JsonResponse({"everybody": _limits_view(limits.everybody), "users": rows[offset : offset + limit]})


@router.get("/usage", response_model=UsageList)
async def show_usage(
    caller: CurrentCaller,
    by: Annotated[BudgetPeriod, Query(description="What a row stands for, for each tenant")] = "month",
    since: Annotated[str, Query(description="Only from this day on: 2026-11-01")] = "",
    limit: Limit = 1000,
    offset: Offset = 0,
) -> Response:
    """What each tenant used; the newest period stands at the end."""
    rows = await usage_rows(caller.context.store, caller.scope, by, since)
    return JsonResponse({"by": by, "rows": _page(rows, limit, offset)})


def _page(rows: Sequence[Row], limit: int, offset: int) -> list[Row]:
    """Without the newest `offset`, the newest `limit`, in their order."""
    end = max(0, len(rows) - offset)
    return list(rows[max(0, end - limit) : end])


async def key_rows(store: Store, keys: Iterable[IssuedKey], now: datetime) -> list[KeyRow]:
    rows: list[KeyRow] = []
    for key in keys:
        begins, ends = period_at(now, key.limits.per)
        used = sum_usage(await store.usage_days(tenant_of_key(key.name), days_since_1970(begins)))
        rows.append(
            {
                "name": key.name,
                "created": key.created,
                "admin": key.admin,
                "mode": key.mode,
                "limits": _limits_view(key.limits),
                "begins": begins.date().isoformat(),
                "ends": ends.date().isoformat(),
                "used": _figures(used),
            }
        )
    return rows


async def user_rows(store: Store, scope: str | None, limits: UserLimits, now: datetime) -> list[UserRow]:
    """By name. `scope` is the tenant whose row alone is wanted, None for all."""
    month = days_since_1970(period_at(now, "month")[0])
    days_by_tenant: dict[str, list[tuple[str, UsageRecord]]] = {tenant_of_user(name): [] for name in limits.users}
    for tenant, used in await store.usage_days(scope, month):
        days_by_tenant.setdefault(tenant, []).append((tenant, used))
    rows: list[UserRow] = []
    for tenant, days in sorted(days_by_tenant.items()):
        if not tenant.startswith(USER_TENANT_PREFIX) or scope not in (None, tenant):
            continue
        name = name_of_tenant(tenant)
        begins, ends = period_at(now, limits.of(name).per)
        first = days_since_1970(begins)
        rows.append(
            {
                "name": name,
                "own_limits": name in limits.users,
                "limits": _limits_view(limits.of(name)),
                "begins": begins.date().isoformat(),
                "ends": ends.date().isoformat(),
                "used": _figures(sum_usage(day for day in days if day[1].day >= first)),
            }
        )
    return rows


def _limits_view(limits: UsageLimits) -> LimitsView:
    return {
        "usd": limits.usd,
        "tokens": limits.tokens,
        "per": limits.per,
        "models": list(limits.models),
        "slash_commands": limits.slash_commands,
    }


async def usage_rows(store: Store, scope: str | None, by: BudgetPeriod, since: str) -> list[UsageRow]:
    """By period, then by tenant. Raises BadRequest for a `since` that is no date."""
    try:
        first = days_since_1970(datetime.combine(date.fromisoformat(since), datetime.min.time(), UTC)) if since else 0
    except ValueError:
        raise BadRequest(f"since: {since[:40]!r} is no day. Write it as 2026-11-01.") from None
    sums: dict[tuple[str, str], UsageRecord] = {}
    for tenant, used in await store.usage_days(scope, first):
        day = datetime.fromtimestamp(used.day * 86_400, UTC).date().isoformat()
        key = (day if by == "day" else day[:7], tenant)
        sums[key] = sums.get(key, UsageRecord(0)).plus(used)
    return [
        {"period": period, "tenant": tenant, "name": name_of_tenant(tenant), **_figures(used)}
        for (period, tenant), used in sorted(sums.items())
    ]


def _figures(used: UsageRecord) -> UsageFigures:
    saved = used.cost_untouched - used.cost
    return {
        "requests": used.requests,
        "tokens": used.tokens,
        "cost": used.cost,
        "cost_untouched": used.cost_untouched,
        "saved": saved,
        "saved_percent": percent_saved(saved, used.cost_untouched),
    }


@router.get("/proof", response_model=ProofView)
async def show_proof(
    caller: CurrentCaller,
    period: Annotated[PeriodName, Query(description="The last 1, 7 or 30 days of the proxy's time zone")] = "all",
    since: Annotated[str, Query(description="From this day on, `YYYY-MM-DD`")] = "",
    until: Annotated[str, Query(description="Up to this day, which counts, `YYYY-MM-DD`")] = "",
) -> Response:
    """Whether sessions with folds went better, worse, or without a difference seen, against those that `holdout`
    passed untouched."""
    context, days = caller.context, read_period(period, since, until)
    return JsonResponse(await proof_view(context.store, caller.scope, context.config.observed_tools, days))
