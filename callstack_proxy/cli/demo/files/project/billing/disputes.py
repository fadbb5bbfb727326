"""Disputes: records, rules and the in-memory repository used by the nightly run.

An invoice the customer refuses, with a deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal

from billing.money import cents, parse_amount

PREFIX = "DSP"
OPEN_STATES = ("draft", "open", "overdue")
FINAL_STATES = ("settled", "cancelled")
DEFAULT_TERM = timedelta(days=30)


class DisputeError(ValueError):
    """A dispute breaks a rule. The message names the field."""


@dataclass(frozen=True, slots=True)
class Dispute:
    """One dispute. `claimed` is in the customer's currency and never negative."""

    id: str
    case: str
    claimed: Decimal
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

    def settled_on(self, day: date) -> Dispute:
        if self.state in FINAL_STATES:
            raise DisputeError(f"state: {self.id} is {self.state} already")
        return replace(self, state="settled", history=(*self.history, f"settled {day.isoformat()}"))


def validate(record: Dispute) -> Dispute:
    """The record itself. Raises DisputeError for the first rule it breaks."""
    if not record.id.startswith(PREFIX + "-"):
        raise DisputeError(f"id: {record.id!r} does not begin with {PREFIX}-")
    if not record.case.strip():
        raise DisputeError("case: must not be empty")
    if record.claimed < 0:
        raise DisputeError(f"claimed: {record.claimed} is negative")
    if record.claimed != cents(record.claimed):
        raise DisputeError(f"claimed: {record.claimed} has fractions of a cent")
    if record.due is not None and record.due < record.opened:
        raise DisputeError(f"due: {record.due} lies before {record.opened}")
    if record.state not in OPEN_STATES + FINAL_STATES:
        raise DisputeError(f"state: {record.state!r} is not known")
    return record


def from_row(row: dict[str, str]) -> Dispute:
    """A record from a CSV row of the export, where every value is text and an empty one is missing."""
    opened = date.fromisoformat(row["opened"])
    due = date.fromisoformat(row["due"]) if row.get("due") else opened + DEFAULT_TERM
    return validate(
        Dispute(
            id=row["id"],
            case=row["case"],
            claimed=parse_amount(row["claimed"]),
            opened=opened,
            state=row.get("state") or "draft",
            due=due,
            tags=tuple(tag for tag in row.get("tags", "").split("|") if tag),
        )
    )


def to_row(record: Dispute) -> dict[str, str]:
    """The inverse of `from_row`, with the columns in the order accounting expects."""
    return {
        "id": record.id,
        "case": record.case,
        "claimed": f"{record.claimed:.2f}",
        "opened": record.opened.isoformat(),
        "due": record.due.isoformat() if record.due else "",
        "state": record.state,
        "tags": "|".join(record.tags),
    }


class DisputeRepository:
    """All disputes of one run, by id. Iterates in order of insertion."""

    def __init__(self, records: Iterable[Dispute] = ()) -> None:
        self._by_id: dict[str, Dispute] = {}
        for record in records:
            self.add(record)

    def add(self, record: Dispute) -> None:
        if record.id in self._by_id:
            raise DisputeError(f"id: {record.id} is there already")
        self._by_id[record.id] = validate(record)

    def replace(self, record: Dispute) -> None:
        if record.id not in self._by_id:
            raise DisputeError(f"id: {record.id} is not known")
        self._by_id[record.id] = validate(record)

    def get(self, record_id: str) -> Dispute:
        try:
            return self._by_id[record_id]
        except KeyError:
            raise DisputeError(f"id: {record_id} is not known") from None

    def find_by_case(self, wanted: str) -> list[Dispute]:
        folded = wanted.casefold()
        return [record for record in self if record.case.casefold() == folded]

    def overdue(self, today: date) -> list[Dispute]:
        late = [record for record in self if record.is_overdue(today)]
        return sorted(late, key=lambda record: (record.due or today, record.id))

    def total_claimed(self) -> Decimal:
        return sum((record.claimed for record in self if record.is_open), Decimal("0.00"))

    def __iter__(self) -> Iterator[Dispute]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)
