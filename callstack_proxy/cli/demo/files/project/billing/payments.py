"""Payments: records, rules and the in-memory repository used by the nightly run.

Money that came in, matched to invoices by hand or rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal

from billing.money import cents, parse_amount

PREFIX = "PAY"
OPEN_STATES = ("draft", "open", "overdue")
FINAL_STATES = ("settled", "cancelled")
DEFAULT_TERM = timedelta(days=30)


class PaymentError(ValueError):
    """A payment breaks a rule. The message names the field."""


@dataclass(frozen=True, slots=True)
class Payment:
    """One payment. `received` is in the customer's currency and never negative."""

    id: str
    reference: str
    received: Decimal
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

    def settled_on(self, day: date) -> Payment:
        if self.state in FINAL_STATES:
            raise PaymentError(f"state: {self.id} is {self.state} already")
        return replace(self, state="settled", history=(*self.history, f"settled {day.isoformat()}"))


def validate(record: Payment) -> Payment:
    """The record itself. Raises PaymentError for the first rule it breaks."""
    if not record.id.startswith(PREFIX + "-"):
        raise PaymentError(f"id: {record.id!r} does not begin with {PREFIX}-")
    if not record.reference.strip():
        raise PaymentError("reference: must not be empty")
    if record.received < 0:
        raise PaymentError(f"received: {record.received} is negative")
    if record.received != cents(record.received):
        raise PaymentError(f"received: {record.received} has fractions of a cent")
    if record.due is not None and record.due < record.opened:
        raise PaymentError(f"due: {record.due} lies before {record.opened}")
    if record.state not in OPEN_STATES + FINAL_STATES:
        raise PaymentError(f"state: {record.state!r} is not known")
    return record


def from_row(row: dict[str, str]) -> Payment:
    """A record from a CSV row of the export, where every value is text and an empty one is missing."""
    opened = date.fromisoformat(row["opened"])
    due = date.fromisoformat(row["due"]) if row.get("due") else opened + DEFAULT_TERM
    return validate(
        Payment(
            id=row["id"],
            reference=row["reference"],
            received=parse_amount(row["received"]),
            opened=opened,
            state=row.get("state") or "draft",
            due=due,
            tags=tuple(tag for tag in row.get("tags", "").split("|") if tag),
        )
    )


def to_row(record: Payment) -> dict[str, str]:
    """The inverse of `from_row`, with the columns in the order accounting expects."""
    return {
        "id": record.id,
        "reference": record.reference,
        "received": f"{record.received:.2f}",
        "opened": record.opened.isoformat(),
        "due": record.due.isoformat() if record.due else "",
        "state": record.state,
        "tags": "|".join(record.tags),
    }


class PaymentRepository:
    """All payments of one run, by id. Iterates in order of insertion."""

    def __init__(self, records: Iterable[Payment] = ()) -> None:
        self._by_id: dict[str, Payment] = {}
        for record in records:
            self.add(record)

    def add(self, record: Payment) -> None:
        if record.id in self._by_id:
            raise PaymentError(f"id: {record.id} is there already")
        self._by_id[record.id] = validate(record)

    def replace(self, record: Payment) -> None:
        if record.id not in self._by_id:
            raise PaymentError(f"id: {record.id} is not known")
        self._by_id[record.id] = validate(record)

    def get(self, record_id: str) -> Payment:
        try:
            return self._by_id[record_id]
        except KeyError:
            raise PaymentError(f"id: {record_id} is not known") from None

    def find_by_reference(self, wanted: str) -> list[Payment]:
        folded = wanted.casefold()
        return [record for record in self if record.reference.casefold() == folded]

    def overdue(self, today: date) -> list[Payment]:
        late = [record for record in self if record.is_overdue(today)]
        return sorted(late, key=lambda record: (record.due or today, record.id))

    def total_received(self) -> Decimal:
        return sum((record.received for record in self if record.is_open), Decimal("0.00"))

    def __iter__(self) -> Iterator[Payment]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)
