"""Discounts: records, rules and the in-memory repository used by the nightly run.

A rebate with a ceiling; stacks with no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal

from billing.money import cents, parse_amount

PREFIX = "DIS"
OPEN_STATES = ("draft", "open", "overdue")
FINAL_STATES = ("settled", "cancelled")
DEFAULT_TERM = timedelta(days=30)


class DiscountError(ValueError):
    """A discount breaks a rule. The message names the field."""


@dataclass(frozen=True, slots=True)
class Discount:
    """One discount. `ceiling` is in the customer's currency and never negative."""

    id: str
    coupon: str
    ceiling: Decimal
    opened: date
    state: str = "draft"
    due: date | None = None
    tags: tuple[str, ...] = ()
    history: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    def is_overdue(self, today: date) -> bool:
        return self.is_open and self.due is not None and self.due < today

    def settled_on(self, day: date) -> Discount:
        if self.state in FINAL_STATES:
            raise DiscountError(f"state: {self.id} is {self.state} already")
        return replace(self, state="settled", history=(*self.history, f"settled {day.isoformat()}"))


def validate(record: Discount) -> Discount:
    """The record itself. Raises DiscountError for the first rule it breaks."""
    if not record.id.startswith(PREFIX + "-"):
        raise DiscountError(f"id: {record.id!r} does not begin with {PREFIX}-")
    if not record.coupon.strip():
        raise DiscountError("coupon: must not be empty")
    if record.ceiling < 0:
        raise DiscountError(f"ceiling: {record.ceiling} is negative")
    if record.ceiling != cents(record.ceiling):
        raise DiscountError(f"ceiling: {record.ceiling} has fractions of a cent")
    if record.due is not None and record.due < record.opened:
        raise DiscountError(f"due: {record.due} lies before {record.opened}")
    if record.state not in OPEN_STATES + FINAL_STATES:
        raise DiscountError(f"state: {record.state!r} is not known")
    return record


def from_row(row: dict[str, str]) -> Discount:
    """A record from a CSV row of the export, where every value is text and an empty one is missing."""
    opened = date.fromisoformat(row["opened"])
    due = date.fromisoformat(row["due"]) if row.get("due") else opened + DEFAULT_TERM
    return validate(
        Discount(
            id=row["id"],
            coupon=row["coupon"],
            ceiling=parse_amount(row["ceiling"]),
            opened=opened,
            state=row.get("state") or "draft",
            due=due,
            tags=tuple(tag for tag in row.get("tags", "").split("|") if tag),
        )
    )


def to_row(record: Discount) -> dict[str, str]:
    """The inverse of `from_row`, with the columns in the order accounting expects."""
    return {
        "id": record.id,
        "coupon": record.coupon,
        "ceiling": f"{record.ceiling:.2f}",
        "opened": record.opened.isoformat(),
        "due": record.due.isoformat() if record.due else "",
        "state": record.state,
        "tags": "|".join(record.tags),
    }


class DiscountRepository:
    """All discounts of one run, by id. Iterates in order of insertion."""

    def __init__(self, records: Iterable[Discount] = ()) -> None:
        self._by_id: dict[str, Discount] = {}
        for record in records:
            self.add(record)

    def add(self, record: Discount) -> None:
        if record.id in self._by_id:
            raise DiscountError(f"id: {record.id} is there already")
        self._by_id[record.id] = validate(record)

    def replace(self, record: Discount) -> None:
        if record.id not in self._by_id:
            raise DiscountError(f"id: {record.id} is not known")
        self._by_id[record.id] = validate(record)

    def get(self, record_id: str) -> Discount:
        try:
            return self._by_id[record_id]
        except KeyError:
            raise DiscountError(f"id: {record_id} is not known") from None

    def find_by_coupon(self, wanted: str) -> list[Discount]:
        folded = wanted.casefold()
        return [record for record in self if record.coupon.casefold() == folded]

    def overdue(self, today: date) -> list[Discount]:
        late = [record for record in self if record.is_overdue(today)]
        return sorted(late, key=lambda record: (record.due or today, record.id))

    def total_ceiling(self) -> Decimal:
        return sum((record.ceiling for record in self if record.is_open), Decimal("0.00"))

    def __iter__(self) -> Iterator[Discount]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)
