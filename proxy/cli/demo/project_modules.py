"""The modules of the project the demo works on: one per kind of record, and a test file for each.

They are real Python: the agent runs these tests, so what they print is what such tests print. Two constant templates
and a table; nothing is random, so every run of the demo sends the same tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of record. `amount` and `code` are its fields for money and for the short name people use."""

    name: str
    plural: str
    amount: str
    code: str
    prefix: str
    note: str

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))


ENTITIES: tuple[Entity, ...] = (
    Entity(
        "customer", "customers", "credit_limit", "account", "CU", "Whom we bill. Closed accounts are never deleted."
    ),
    Entity("invoice", "invoices", "gross", "number", "INV", "What was billed. Immutable once it is sent."),
    Entity(
        "payment",
        "payments",
        "received",
        "reference",
        "PAY",
        "Money that came in, matched to invoices by hand or rule.",
    ),
    Entity(
        "credit_note", "credit_notes", "credited", "number", "CN", "Takes back part of an invoice, never more than it."
    ),
    Entity(
        "subscription", "subscriptions", "monthly", "plan", "SUB", "Renewed by the nightly run on its day of the month."
    ),
    Entity("discount", "discounts", "ceiling", "coupon", "DIS", "A rebate with a ceiling; stacks with no other."),
    Entity("dispute", "disputes", "claimed", "case", "DSP", "An invoice the customer refuses, with a deadline."),
    Entity(
        "shipment", "shipments", "insured", "tracking", "SHP", "What left the warehouse, for the line on the invoice."
    ),
)

_MODULE = Template('''\
"""$plural_words: records, rules and the in-memory repository used by the nightly run.

$note
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from decimal import Decimal

from billing.money import cents, parse_amount

PREFIX = "$prefix"
OPEN_STATES = ("draft", "open", "overdue")
FINAL_STATES = ("settled", "cancelled")
DEFAULT_TERM = timedelta(days=30)


class ${title}Error(ValueError):
    """A $words breaks a rule. The message names the field."""


@dataclass(frozen=True, slots=True)
class $title:
    """One $words. `$amount` is in the customer's currency and never negative."""

    id: str
    $code: str
    $amount: Decimal
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

    def settled_on(self, day: date) -> $title:
        if self.state in FINAL_STATES:
            raise ${title}Error(f"state: {self.id} is {self.state} already")
        return replace(self, state="settled", history=(*self.history, f"settled {day.isoformat()}"))


def validate(record: $title) -> $title:
    """The record itself. Raises ${title}Error for the first rule it breaks."""
    if not record.id.startswith(PREFIX + "-"):
        raise ${title}Error(f"id: {record.id!r} does not begin with {PREFIX}-")
    if not record.$code.strip():
        raise ${title}Error("$code: must not be empty")
    if record.$amount < 0:
        raise ${title}Error(f"$amount: {record.$amount} is negative")
    if record.$amount != cents(record.$amount):
        raise ${title}Error(f"$amount: {record.$amount} has fractions of a cent")
    if record.due is not None and record.due < record.opened:
        raise ${title}Error(f"due: {record.due} lies before {record.opened}")
    if record.state not in OPEN_STATES + FINAL_STATES:
        raise ${title}Error(f"state: {record.state!r} is not known")
    return record


def from_row(row: dict[str, str]) -> $title:
    """A record from a CSV row of the export, where every value is text and an empty one is missing."""
    opened = date.fromisoformat(row["opened"])
    due = date.fromisoformat(row["due"]) if row.get("due") else opened + DEFAULT_TERM
    return validate(
        $title(
            id=row["id"],
            $code=row["$code"],
            $amount=parse_amount(row["$amount"]),
            opened=opened,
            state=row.get("state") or "draft",
            due=due,
            tags=tuple(tag for tag in row.get("tags", "").split("|") if tag),
        )
    )


def to_row(record: $title) -> dict[str, str]:
    """The inverse of `from_row`, with the columns in the order accounting expects."""
    return {
        "id": record.id,
        "$code": record.$code,
        "$amount": f"{record.$amount:.2f}",
        "opened": record.opened.isoformat(),
        "due": record.due.isoformat() if record.due else "",
        "state": record.state,
        "tags": "|".join(record.tags),
    }


class ${title}Repository:
    """All $plural_lower of one run, by id. Iterates in order of insertion."""

    def __init__(self, records: Iterable[$title] = ()) -> None:
        self._by_id: dict[str, $title] = {}
        for record in records:
            self.add(record)

    def add(self, record: $title) -> None:
        if record.id in self._by_id:
            raise ${title}Error(f"id: {record.id} is there already")
        self._by_id[record.id] = validate(record)

    def replace(self, record: $title) -> None:
        if record.id not in self._by_id:
            raise ${title}Error(f"id: {record.id} is not known")
        self._by_id[record.id] = validate(record)

    def get(self, record_id: str) -> $title:
        try:
            return self._by_id[record_id]
        except KeyError:
            raise ${title}Error(f"id: {record_id} is not known") from None

    def find_by_$code(self, wanted: str) -> list[$title]:
        folded = wanted.casefold()
        return [record for record in self if record.$code.casefold() == folded]

    def overdue(self, today: date) -> list[$title]:
        late = [record for record in self if record.is_overdue(today)]
        return sorted(late, key=lambda record: (record.due or today, record.id))

    def total_$amount(self) -> Decimal:
        return sum((record.$amount for record in self if record.is_open), Decimal("0.00"))

    def __iter__(self) -> Iterator[$title]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)
''')

_TESTS = Template('''\
"""Rules of $plural_lower: what is refused, what is late, what survives a round trip."""

import unittest
from datetime import date
from decimal import Decimal

from billing.$plural import $title, ${title}Error, ${title}Repository, from_row, to_row, validate

TODAY = date(2026, 11, 20)


def make(serial: int = 1, **changes: object) -> $title:
    fields: dict[str, object] = {
        "id": f"$prefix-{serial:05d}",
        "$code": f"$code {serial}",
        "$amount": Decimal("119.00"),
        "opened": date(2026, 10, 1),
        "state": "open",
        "due": date(2026, 10, 31),
    }
    return $title(**{**fields, **changes})


class ${title}Rules(unittest.TestCase):
    def test_a_good_record_is_given_back(self) -> None:
        self.assertEqual(validate(make()).id, "$prefix-00001")

    def test_an_id_of_another_kind_is_refused(self) -> None:
        with self.assertRaisesRegex(${title}Error, "^id: "):
            validate(make(id="XX-00001"))

    def test_an_empty_${code}_is_refused(self) -> None:
        with self.assertRaisesRegex(${title}Error, "^$code: "):
            validate(make(**{"$code": "  "}))

    def test_a_negative_${amount}_is_refused(self) -> None:
        with self.assertRaisesRegex(${title}Error, "negative"):
            validate(make(**{"$amount": Decimal("-0.01")}))

    def test_fractions_of_a_cent_are_refused(self) -> None:
        with self.assertRaisesRegex(${title}Error, "fractions"):
            validate(make(**{"$amount": Decimal("1.005")}))

    def test_a_due_date_before_the_opening_is_refused(self) -> None:
        with self.assertRaisesRegex(${title}Error, "^due: "):
            validate(make(due=date(2026, 9, 30)))

    def test_a_settled_record_cannot_be_settled_again(self) -> None:
        settled = make().settled_on(TODAY)
        self.assertFalse(settled.is_open)
        with self.assertRaises(${title}Error):
            settled.settled_on(TODAY)

    def test_a_row_survives_the_round_trip(self) -> None:
        self.assertEqual(from_row(to_row(make(tags=("eu", "b2b")))), make(tags=("eu", "b2b")))


class ${title}RepositoryRules(unittest.TestCase):
    def test_the_same_id_twice_is_refused(self) -> None:
        with self.assertRaisesRegex(${title}Error, "already"):
            ${title}Repository([make(), make()])

    def test_late_ones_come_oldest_first(self) -> None:
        repository = ${title}Repository([make(1), make(2, due=date(2026, 10, 15)), make(3, state="settled")])
        self.assertEqual([record.id for record in repository.overdue(TODAY)], ["$prefix-00002", "$prefix-00001"])

    def test_only_open_ones_are_summed(self) -> None:
        repository = ${title}Repository([make(1), make(2), make(3, state="cancelled")])
        self.assertEqual(repository.total_$amount(), Decimal("238.00"))

    def test_a_${code}_is_found_whatever_its_case(self) -> None:
        repository = ${title}Repository([make(7)])
        self.assertEqual([record.id for record in repository.find_by_$code("$code 7".upper())], ["$prefix-00007"])


if __name__ == "__main__":
    unittest.main()
''')


def module_files() -> dict[str, str]:
    """Path -> text of every generated module and its tests."""
    written = {}
    for entity in ENTITIES:
        words = _words(entity)
        written[f"billing/{entity.plural}.py"] = _MODULE.substitute(words)
        written[f"tests/test_{entity.plural}.py"] = _TESTS.substitute(words)
    return written


def _words(entity: Entity) -> dict[str, str]:
    plural = entity.plural.replace("_", " ")
    return {
        "title": entity.title,
        "words": entity.name.replace("_", " "),
        "plural": entity.plural,
        "plural_words": plural.capitalize(),
        "plural_lower": plural,
        "amount": entity.amount,
        "code": entity.code,
        "prefix": entity.prefix,
        "note": entity.note,
    }
