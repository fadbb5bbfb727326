"""Holds the requests of a client key or a user to their budget per day or calendar month (UTC).

Before a request is sent, what it and each further round may cost at most is reserved, until it was answered and what it
used stands in the store. A request that names no bound of its output reserves what the model can write, or all of the
rest where that is less and takes its input and what requests of this key take on average: its answer may pass the
budget, as the last one. Proxies on one PostgreSQL server reserve in a table of it, each for a lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Literal, NamedTuple

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from proxy.config import Switch
from proxy.errors import BudgetReserved, BudgetSpent, BudgetUnknown, StoreError
from proxy.store import (
    RESERVATION_LEASE_S,
    BudgetState,
    ReservationEnd,
    ReservationRecord,
    SharedReservations,
    Store,
    UsageRecord,
)

log = logging.getLogger(__name__)

BudgetPeriod = Literal["day", "month"]
DAY_S = 86_400
LEAST_TOKENS = 2_000
"""Reserved at least: what providers and our own tools add to a small request."""
RENEW_S = RESERVATION_LEASE_S / 3
MAX_ATTEMPTS = 5
"""To reserve what others take away at the same moment."""
RESERVED_RETRY_S = 1
SMALLEST_USD = 1e-9
"""Sums of money differ by less than this when they are equal."""
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


class CostEstimate(NamedTuple):
    """What a request may cost at most, and what its input costs. `is_bounded`: the client named the most that the
    answer may have."""

    tokens: int
    usd: float
    is_bounded: bool = False
    input_tokens: int = 0
    input_usd: float = 0.0


class Renewal(NamedTuple):
    """When a budget begins anew, and in how many seconds."""

    at: datetime
    seconds: int

    def words(self, holder: str) -> str:
        return (
            f"It begins anew on {self.at:%Y-%m-%d} at 00:00 UTC; whoever runs this proxy can raise it with "
            f"`callstack {holder} limit`."
        )


@dataclass(eq=False)
class Reservation:
    """What a request that is under way may cost."""

    tenant: str
    limits: UsageLimits
    tokens: int = 0
    usd: float = 0.0
    id: str = field(default_factory=lambda: token_hex(8))


class Room(NamedTuple):
    """What is reserved for a request."""

    tokens: int
    usd: float


class BudgetChecks:
    """`now` returns ms since the epoch."""

    def __init__(self, store: Store, now: Callable[[], int]) -> None:
        self._store = store
        self._now = now
        self._reserved: dict[str, set[Reservation]] = {}
        self._released: dict[str, int] = {}
        """How often something was released, by tenants with reservations."""

    def now(self) -> int:
        """In ms since 1970."""
        return self._now()

    def today(self) -> int:
        return self._now() // (DAY_S * 1000)

    async def reserve(self, tenant: str, limits: UsageLimits, estimate: CostEstimate | None) -> Reservation:
        """Room for a request in the budget of a tenant (an id). None as estimate: it costs nothing, and is refused only
        where the budget is spent. Raises BudgetSpent, BudgetReserved or BudgetUnknown."""
        reservation = Reservation(tenant, limits)

        def room_in(state: BudgetState, renewal: Renewal) -> Room:
            _check_budget(limits, state.used, renewal, holder_of(tenant))
            if estimate is None:
                return Room(0, 0.0)
            _check_estimate(limits, state.used, estimate, renewal, holder_of(tenant))
            return _find_room(limits, state, estimate, tenant)

        await self._take(reservation, room_in)
        return reservation

    async def extend(self, reservation: Reservation, spent: CostEstimate, estimate: CostEstimate) -> None:
        """Make room for another round of a request that is under way. `spent` is what its rounds used so far, of which
        nothing stands in the store yet. A round without a bound must find room for its input. Raises BudgetSpent,
        BudgetUnknown, or BudgetReserved where others took the room at the same moment; the reservation is as it was
        then."""
        tenant, limits = reservation.tenant, reservation.limits

        def room_in(state: BudgetState, renewal: Renewal) -> Room:
            tokens, usd = state.used.tokens + spent.tokens + state.tokens, state.used.cost + spent.usd + state.usd
            taken = replace(state.used, tokens=tokens, cost=usd)
            _check_budget(limits, taken, renewal, holder_of(tenant))
            _check_estimate(limits, taken, estimate, renewal, holder_of(tenant))
            room = _find_room(limits, BudgetState(taken), estimate, tenant)
            return Room(spent.tokens + room.tokens, spent.usd + room.usd)

        await self._take(reservation, room_in)

    async def _take(self, reservation: Reservation, room_in: Callable[[BudgetState, Renewal], Room]) -> None:
        """Reserve what `room_in` finds. Raises its errors and BudgetUnknown."""
        now = datetime.fromtimestamp(self._now() / 1000, UTC)
        begins, ends = period_at(now, reservation.limits.per)
        renewal, since = Renewal(ends, max(1, int((ends - now).total_seconds()))), days_since_1970(begins)
        try:
            if (shared := self._store.shared_reservations) is not None:
                room = await self._take_shared(shared, reservation, since, lambda state: room_in(state, renewal))
            else:
                room = room_in(await self._read_state(reservation, since), renewal)
        except StoreError as error:
            holder = holder_of(reservation.tenant)
            raise BudgetUnknown(
                f"This {holder} has a budget, and what was spent of it cannot be read now ({error.code}). Try again "
                "later."
            ) from error
        reservation.tokens, reservation.usd = room
        self._reserved.setdefault(reservation.tenant, set()).add(reservation)

    async def _take_shared(
        self,
        shared: SharedReservations,
        reservation: Reservation,
        since: int,
        room_in: Callable[[BudgetState], Room],
    ) -> Room:
        """What the state tells may be over when the reservation is made; then the one of that moment counts."""
        tenant, limits = reservation.tenant, reservation.limits
        state = await shared.state(tenant, since, reservation.id)
        for _ in range(MAX_ATTEMPTS):
            room = room_in(state)
            if not room.tokens and not room.usd:
                return room
            wanted = ReservationRecord(reservation.id, room.tokens, room.usd)
            try:
                fits, state = await shared.reserve(tenant, since, wanted, limits.tokens, limits.usd)
            except asyncio.CancelledError:
                self._end_shared(reservation)  # it may stand there
                raise
            if fits:
                return room
        raise _error_of_reserved(limits, tenant)

    async def _read_state(self, reservation: Reservation, since: int) -> BudgetState:
        tenant = reservation.tenant
        while True:
            before = self._released.get(tenant, 0)
            used = sum_usage(await self._store.usage_days(tenant, since))
            if before == self._released.get(tenant, 0):  # else what was released may be missing in `used`
                break
        others = self._reserved.get(tenant, set()) - {reservation}
        return BudgetState(used, sum(r.tokens for r in others), sum(r.usd for r in others))

    def release(self, reservation: Reservation) -> None:
        """The request is over, and what it used stands in the store, or in the queue of what is to be written."""
        tenant = reservation.tenant
        there = self._reserved.get(tenant, set())
        there.discard(reservation)
        if not there:
            self._reserved.pop(tenant, None)
        self._released[tenant] = self._released.get(tenant, 0) + 1
        if self._store.shared_reservations is not None and (reservation.tokens or reservation.usd):
            self._end_shared(reservation)

    def _end_shared(self, reservation: Reservation) -> None:
        with suppress(StoreError):  # then its lease ends it
            self._store.write(reservation.tenant, [ReservationEnd(reservation.id)])

    async def renew_forever(self) -> None:
        """Let the reservations of this process last as long as their requests."""
        while (shared := self._store.shared_reservations) is not None:
            await asyncio.sleep(RENEW_S)
            under_way = [(tenant, r.id) for tenant, held in self._reserved.items() for r in held]
            try:
                if under_way:
                    await shared.renew(under_way)
            except StoreError as error:
                log.warning("reservations not renewed", extra={"reason": error.code})


def _find_room(limits: UsageLimits, state: BudgetState, estimate: CostEstimate, tenant: str) -> Room:
    """Raises BudgetReserved if the other requests under way leave no room."""
    tokens = max(estimate.tokens, LEAST_TOKENS)
    usd = estimate.usd * tokens / max(1, estimate.tokens)
    fits = True
    if limits.tokens is not None:
        left = limits.tokens - state.used.tokens
        tokens = min(tokens, left)
        fits = tokens <= left - state.tokens
    if limits.usd is not None:
        rest = limits.usd - state.used.cost
        usd = min(usd, rest)
        fits = fits and usd <= rest - state.usd + SMALLEST_USD
    if not fits:
        raise _error_of_reserved(limits, tenant)
    return Room(tokens, usd)


def _error_of_reserved(limits: UsageLimits, tenant: str) -> BudgetReserved:
    return BudgetReserved(
        f"What the requests of this {holder_of(tenant)} that are under way may cost takes the rest of its budget "
        f"({limits.describe()}). Send this one again when they are answered, or name a smaller max_tokens.",
        retry_after_s=RESERVED_RETRY_S,
    )


def holder_of(tenant: str) -> str:
    """Whose limits they are; `callstack key` and `callstack user` change them."""
    return "user" if tenant.startswith(USER_TENANT_PREFIX) else "key"


def _check_budget(limits: UsageLimits, used: UsageRecord, renewal: Renewal, holder: str) -> None:
    """Raises BudgetSpent if nothing is left."""
    if limits.usd is not None and used.cost >= limits.usd:
        spent, whole = format_budget(used.cost), format_budget(limits.usd)
    elif limits.tokens is not None and used.tokens >= limits.tokens:
        spent, whole = f"{used.tokens:,}", f"{limits.tokens:,} tokens"
    else:
        return
    raise BudgetSpent(
        f"The budget of this {holder} is spent: {spent} of {whole} a {limits.per}. {renewal.words(holder)}",
        retry_after_s=renewal.seconds,
    )


def _check_estimate(
    limits: UsageLimits, used: UsageRecord, estimate: CostEstimate, renewal: Renewal, holder: str
) -> None:
    """Raises BudgetSpent for a request that needs more than what is left of the budget: by its own bound, or without
    one by what can be expected."""
    tokens, usd = (estimate.tokens, estimate.usd) if estimate.is_bounded else _expected(used, estimate)
    if limits.tokens is not None and tokens > (left := limits.tokens - used.tokens):
        needed, rest = f"{tokens:,} tokens", f"{left:,} of {limits.tokens:,} tokens"
    elif limits.usd is not None and usd > (remaining := limits.usd - used.cost):
        needed, rest = format_budget(usd), f"{format_budget(remaining)} of {format_budget(limits.usd)}"
    else:
        return
    if estimate.is_bounded:
        told, remedy = "(its input, and the output that it allows)", "Name a smaller max_tokens, or send less"
    else:
        told = f"(it names no bound; its input, or what requests of this {holder} take on average)"
        remedy = "Name max_tokens, so that it is known to fit, or send less"
    raise BudgetSpent(
        f"This request may cost {needed} {told}, and of the budget of this {holder} {rest} a {limits.per} are left. "
        f"{remedy}. {renewal.words(holder)}",
        retry_after_s=renewal.seconds,
    )


def _expected(used: UsageRecord, estimate: CostEstimate) -> tuple[int, float]:
    """Tokens and USD of a request without a bound: its input, or more where requests took more on average. Never more
    than the model can write."""
    count = max(1, used.requests)
    tokens = min(estimate.tokens, max(estimate.input_tokens, used.tokens // count if used.requests else 0))
    return tokens, min(estimate.usd, max(estimate.input_usd, used.cost / count if used.requests else 0.0))


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
