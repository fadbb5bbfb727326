"""Customers: records, rules and the in-memory repository used by the nightly run.

Whom we bill. Closed accounts are never deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal

from billing.money import cents, parse_amount

PREFIX = "CU"
OPEN_STATES = ("draft", "open", "overdue")
FINAL_STATES = ("settled", "cancelled")
DEFAULT_TERM = timedelta(days=30)


class CustomerError(ValueError):
    """A customer breaks a rule. The message names the field."""


@dataclass(frozen=True, slots=True)
class Customer:
    """One customer. `credit_limit` is in the customer's currency and never negative."""

    id: str
    account: str
    credit_limit: Decimal
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

    def settled_on(self, day: date) -> Customer:
        if self.state in FINAL_STATES:
            raise CustomerError(f"state: {self.id} is {self.state} already")
        return replace(self, state="settled", history=(*self.history, f"settled {day.isoformat()}"))


def validate(record: Customer) -> Customer:
    """The record itself. Raises CustomerError for the first rule it breaks."""
    if not record.id.startswith(PREFIX + "-"):
        raise CustomerError(f"id: {record.id!r} does not begin with {PREFIX}-")
    if not record.account.strip():
        raise CustomerError("account: must not be empty")
    if record.credit_limit < 0:
        raise CustomerError(f"credit_limit: {record.credit_limit} is negative")
    if record.credit_limit != cents(record.credit_limit):
        raise CustomerError(f"credit_limit: {record.credit_limit} has fractions of a cent")
    if record.due is not None and record.due < record.opened:
        raise CustomerError(f"due: {record.due} lies before {record.opened}")
    if record.state not in OPEN_STATES + FINAL_STATES:
        raise CustomerError(f"state: {record.state!r} is not known")
    return record


def from_row(row: dict[str, str]) -> Customer:
    """A record from a CSV row of the export, where every value is text and an empty one is missing."""
    opened = date.fromisoformat(row["opened"])
    due = date.fromisoformat(row["due"]) if row.get("due") else opened + DEFAULT_TERM
    return validate(
        Customer(
            id=row["id"],
            account=row["account"],
            credit_limit=parse_amount(row["credit_limit"]),
            opened=opened,
            state=row.get("state") or "draft",
            due=due,
            tags=tuple(tag for tag in row.get("tags", "").split("|") if tag),
        )
    )


def to_row(record: Customer) -> dict[str, str]:
    """The inverse of `from_row`, with the columns in the order accounting expects."""
    return {
        "id": record.id,
        "account": record.account,
        "credit_limit": f"{record.credit_limit:.2f}",
        "opened": record.opened.isoformat(),
        "due": record.due.isoformat() if record.due else "",
        "state": record.state,
        "tags": "|".join(record.tags),
    }


class CustomerRepository:
    """All customers of one run, by id. Iterates in order of insertion."""

    def __init__(self, records: Iterable[Customer] = ()) -> None:
        self._by_id: dict[str, Customer] = {}
        for record in records:
            self.add(record)

    def add(self, record: Customer) -> None:
        if record.id in self._by_id:
            raise CustomerError(f"id: {record.id} is there already")
        self._by_id[record.id] = validate(record)

    def replace(self, record: Customer) -> None:
        if record.id not in self._by_id:
            raise CustomerError(f"id: {record.id} is not known")
        self._by_id[record.id] = validate(record)

    def get(self, record_id: str) -> Customer:
        try:
            return self._by_id[record_id]
        except KeyError:
            raise CustomerError(f"id: {record_id} is not known") from None

    def find_by_account(self, wanted: str) -> list[Customer]:
        folded = wanted.casefold()
        return [record for record in self if record.account.casefold() == folded]

    def overdue(self, today: date) -> list[Customer]:
        late = [record for record in self if record.is_overdue(today)]
        return sorted(late, key=lambda record: (record.due or today, record.id))

    def total_credit_limit(self) -> Decimal:
        return sum((record.credit_limit for record in self if record.is_open), Decimal("0.00"))

    def __iter__(self) -> Iterator[Customer]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)
