"""Credit notes: records, rules and the in-memory repository used by the nightly run.

Takes back part of an invoice, never more than it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal

from billing.money import cents, parse_amount

PREFIX = "CN"
OPEN_STATES = ("draft", "open", "overdue")
FINAL_STATES = ("settled", "cancelled")
DEFAULT_TERM = timedelta(days=30)


class CreditNoteError(ValueError):
    """A credit note breaks a rule. The message names the field."""


@dataclass(frozen=True, slots=True)
class CreditNote:
    """One credit note. `credited` is in the customer's currency and never negative."""

    id: str
    number: str
    credited: Decimal
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

    def settled_on(self, day: date) -> CreditNote:
        if self.state in FINAL_STATES:
            raise CreditNoteError(f"state: {self.id} is {self.state} already")
        return replace(self, state="settled", history=(*self.history, f"settled {day.isoformat()}"))


def validate(record: CreditNote) -> CreditNote:
    """The record itself. Raises CreditNoteError for the first rule it breaks."""
    if not record.id.startswith(PREFIX + "-"):
        raise CreditNoteError(f"id: {record.id!r} does not begin with {PREFIX}-")
    if not record.number.strip():
        raise CreditNoteError("number: must not be empty")
    if record.credited < 0:
        raise CreditNoteError(f"credited: {record.credited} is negative")
    if record.credited != cents(record.credited):
        raise CreditNoteError(f"credited: {record.credited} has fractions of a cent")
    if record.due is not None and record.due < record.opened:
        raise CreditNoteError(f"due: {record.due} lies before {record.opened}")
    if record.state not in OPEN_STATES + FINAL_STATES:
        raise CreditNoteError(f"state: {record.state!r} is not known")
    return record


def from_row(row: dict[str, str]) -> CreditNote:
    """A record from a CSV row of the export, where every value is text and an empty one is missing."""
    opened = date.fromisoformat(row["opened"])
    due = date.fromisoformat(row["due"]) if row.get("due") else opened + DEFAULT_TERM
    return validate(
        CreditNote(
            id=row["id"],
            number=row["number"],
            credited=parse_amount(row["credited"]),
            opened=opened,
            state=row.get("state") or "draft",
            due=due,
            tags=tuple(tag for tag in row.get("tags", "").split("|") if tag),
        )
    )


def to_row(record: CreditNote) -> dict[str, str]:
    """The inverse of `from_row`, with the columns in the order accounting expects."""
    return {
        "id": record.id,
        "number": record.number,
        "credited": f"{record.credited:.2f}",
        "opened": record.opened.isoformat(),
        "due": record.due.isoformat() if record.due else "",
        "state": record.state,
        "tags": "|".join(record.tags),
    }


class CreditNoteRepository:
    """All credit notes of one run, by id. Iterates in order of insertion."""

    def __init__(self, records: Iterable[CreditNote] = ()) -> None:
        self._by_id: dict[str, CreditNote] = {}
        for record in records:
            self.add(record)

    def add(self, record: CreditNote) -> None:
        if record.id in self._by_id:
            raise CreditNoteError(f"id: {record.id} is there already")
        self._by_id[record.id] = validate(record)

    def replace(self, record: CreditNote) -> None:
        if record.id not in self._by_id:
            raise CreditNoteError(f"id: {record.id} is not known")
        self._by_id[record.id] = validate(record)

    def get(self, record_id: str) -> CreditNote:
        try:
            return self._by_id[record_id]
        except KeyError:
            raise CreditNoteError(f"id: {record_id} is not known") from None

    def find_by_number(self, wanted: str) -> list[CreditNote]:
        folded = wanted.casefold()
        return [record for record in self if record.number.casefold() == folded]

    def overdue(self, today: date) -> list[CreditNote]:
        late = [record for record in self if record.is_overdue(today)]
        return sorted(late, key=lambda record: (record.due or today, record.id))

    def total_credited(self) -> Decimal:
        return sum((record.credited for record in self if record.is_open), Decimal("0.00"))

    def __iter__(self) -> Iterator[CreditNote]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)
