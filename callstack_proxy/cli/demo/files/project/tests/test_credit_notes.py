"""Rules of credit notes: what is refused, what is late, what survives a round trip."""

import unittest
from datetime import date
from decimal import Decimal

from billing.credit_notes import CreditNote, CreditNoteError, CreditNoteRepository, from_row, to_row, validate

TODAY = date(2026, 11, 20)


def make(serial: int = 1, **changes: object) -> CreditNote:
    fields: dict[str, object] = {
        "id": f"CN-{serial:05d}",
        "number": f"number {serial}",
        "credited": Decimal("119.00"),
        "opened": date(2026, 10, 1),
        "state": "open",
        "due": date(2026, 10, 31),
    }
    return CreditNote(**{**fields, **changes})


class CreditNoteRules(unittest.TestCase):
    def test_a_good_record_is_given_back(self) -> None:
        self.assertEqual(validate(make()).id, "CN-00001")

    def test_an_id_of_another_kind_is_refused(self) -> None:
        with self.assertRaisesRegex(CreditNoteError, "^id: "):
            validate(make(id="XX-00001"))

    def test_an_empty_number_is_refused(self) -> None:
        with self.assertRaisesRegex(CreditNoteError, "^number: "):
            validate(make(**{"number": "  "}))

    def test_a_negative_credited_is_refused(self) -> None:
        with self.assertRaisesRegex(CreditNoteError, "negative"):
            validate(make(**{"credited": Decimal("-0.01")}))

    def test_fractions_of_a_cent_are_refused(self) -> None:
        with self.assertRaisesRegex(CreditNoteError, "fractions"):
            validate(make(**{"credited": Decimal("1.005")}))

    def test_a_due_date_before_the_opening_is_refused(self) -> None:
        with self.assertRaisesRegex(CreditNoteError, "^due: "):
            validate(make(due=date(2026, 9, 30)))

    def test_a_settled_record_cannot_be_settled_again(self) -> None:
        settled = make().settled_on(TODAY)
        self.assertFalse(settled.is_open)
        with self.assertRaises(CreditNoteError):
            settled.settled_on(TODAY)

    def test_a_row_survives_the_round_trip(self) -> None:
        self.assertEqual(from_row(to_row(make(tags=("eu", "b2b")))), make(tags=("eu", "b2b")))


class CreditNoteRepositoryRules(unittest.TestCase):
    def test_the_same_id_twice_is_refused(self) -> None:
        with self.assertRaisesRegex(CreditNoteError, "already"):
            CreditNoteRepository([make(), make()])

    def test_late_ones_come_oldest_first(self) -> None:
        repository = CreditNoteRepository([make(1), make(2, due=date(2026, 10, 15)), make(3, state="settled")])
        self.assertEqual([record.id for record in repository.overdue(TODAY)], ["CN-00002", "CN-00001"])

    def test_only_open_ones_are_summed(self) -> None:
        repository = CreditNoteRepository([make(1), make(2), make(3, state="cancelled")])
        self.assertEqual(repository.total_credited(), Decimal("238.00"))

    def test_a_number_is_found_whatever_its_case(self) -> None:
        repository = CreditNoteRepository([make(7)])
        self.assertEqual([record.id for record in repository.find_by_number("number 7".upper())], ["CN-00007"])


if __name__ == "__main__":
    unittest.main()
