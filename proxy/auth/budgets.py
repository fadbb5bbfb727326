"""Holds the requests of a client key or a user to their limits: models, and a budget per day or calendar month (UTC).

What was used stands in the store, so replicas count together and a restart forgets nothing. Requests that are being
answered are not counted yet: a budget ends the next request, never one under way. Only what gets a receipt is counted,
so other endpoints of a provider (images, embeddings) are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from proxy.config import Switch
from proxy.errors import BudgetSpent, BudgetUnknown, ModelNotAllowed, StoreError
from proxy.store import Store, UsageRecord

FREE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
"""With them a client looks or clears away; no model answers."""
FREE_ENDINGS = ("/cancel",)


BudgetPeriod = Literal["day", "month"]
DAY_S = 86_400
USER_TENANT_PREFIX = "user-"
"""Begins the ids of tenants whom a proxy in front names."""


class UsageLimits(BaseModel):
    """What the requests of a key or a user may cost, and for which models. What is not set is not limited."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    tokens: int | None = Field(default=None, gt=0)
    """Input and output together, as the provider reports them."""
    per: BudgetPeriod = "month"
    """The period of both budgets: a day or a calendar month, in UTC."""
    models: tuple[str, ...] = ()
    """Names that a client may ask for; `*` stands for any characters."""
    slash_commands: Switch = "on"
    """`off`: no message is a command to the proxy."""

    @property
    def has_budget(self) -> bool:
        return self.usd is not None or self.tokens is not None

    def describe(self) -> str:
        """`$50.00 a month; gpt-5*`."""
        amounts = [format_budget(self.usd)] if self.usd is not None else []
        amounts += [f"{self.tokens:,} tokens"] if self.tokens is not None else []
        said = [f"{' and '.join(amounts)} a {self.per}"] if amounts else []
        said += [", ".join(self.models)] if self.models else []
        said += ["no slash commands"] if self.slash_commands == "off" else []
        return "; ".join(said) or "everything"


NO_LIMITS = UsageLimits()


def format_budget(usd: float) -> str:
    """`$50.00`, and below a cent two digits that count: `$0.0025`."""
    return f"${usd:,.2f}" if usd >= 0.01 or not usd else f"${usd:.2g}"


class BudgetChecks:
    """`now` returns ms since the epoch."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now

    async def check(
        self, tenant: str, limits: UsageLimits, method: str, path: str, model_of: Callable[[], str | None]
    ) -> None:
        """`tenant` is an id, and `model_of` finds the model that is asked for. Raises ModelNotAllowed, BudgetSpent or
        BudgetUnknown."""
        if method in FREE_METHODS or path.endswith(FREE_ENDINGS):
            return
        if limits.models:
            _check_model(limits, model_of(), _holder(tenant))
        if not limits.has_budget:
            return
        now = datetime.fromtimestamp(self._now() / 1000, UTC)
        begins, ends = period_at(now, limits.per)
        try:
            used = sum_usage(await self._store.usage_days(tenant, days_since_1970(begins)))
        except StoreError as error:
            raise BudgetUnknown(
                f"This {_holder(tenant)} has a budget, and what was spent of it cannot be read now ({error.code}). Try "
                "again later."
            ) from error
        _check_budget(limits, used, ends, now, _holder(tenant))


def _holder(tenant: str) -> str:
    """Whose limits they are; `callstack key` and `callstack user` change them."""
    return "user" if tenant.startswith(USER_TENANT_PREFIX) else "key"


def _check_model(limits: UsageLimits, model: str | None, holder: str) -> None:
    if model is None or not any(fnmatchcase(model, pattern) for pattern in limits.models):
        asked = "names no model" if model is None else f"asks for {model[:80]!r}"
        raise ModelNotAllowed(f"This {holder} may ask for {', '.join(limits.models)}; the request {asked}.")


def _check_budget(limits: UsageLimits, used: UsageRecord, ends: datetime, now: datetime, holder: str) -> None:
    if limits.usd is not None and used.cost >= limits.usd:
        spent, whole = format_budget(used.cost), format_budget(limits.usd)
    elif limits.tokens is not None and used.tokens >= limits.tokens:
        spent, whole = f"{used.tokens:,}", f"{limits.tokens:,} tokens"
    else:
        return
    raise BudgetSpent(
        f"The budget of this {holder} is spent: {spent} of {whole} a {limits.per}. It begins anew on {ends:%Y-%m-%d} "
        f"at 00:00 UTC; whoever runs this proxy can raise it with `callstack {holder} limit`.",
        retry_after_s=max(1, int((ends - now).total_seconds())),
    )


def period_at(moment: datetime, per: BudgetPeriod) -> tuple[datetime, datetime]:
    """Beginning and end of the day or calendar month, in UTC."""
    midnight = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if per == "day":
        return midnight, midnight + timedelta(days=1)
    first = midnight.replace(day=1)
    return first, (first + timedelta(days=32)).replace(day=1)


def days_since_1970(moment: datetime) -> int:
    return int(moment.timestamp()) // DAY_S


def sum_usage(days: Iterable[tuple[str, UsageRecord]]) -> UsageRecord:
    """All of them in one record, whose day is 0."""
    total = UsageRecord(0)
    for _, used in days:
        total = total.plus(used)
    return total
