"""Rules of payments: what is refused, what is late, what survives a round trip."""

import unittest
from datetime import date
from decimal import Decimal

from billing.payments import Payment, PaymentError, PaymentRepository, from_row, to_row, validate

TODAY = date(2026, 11, 20)


def make(serial: int = 1, **changes: object) -> Payment:
    fields: dict[str, object] = {
        "id": f"PAY-{serial:05d}",
        "reference": f"reference {serial}",
        "received": Decimal("119.00"),
        "opened": date(2026, 10, 1),
        "state": "open",
        "due": date(2026, 10, 31),
    }
    return Payment(**{**fields, **changes})


class PaymentRules(unittest.TestCase):
    def test_a_good_record_is_given_back(self) -> None:
        self.assertEqual(validate(make()).id, "PAY-00001")

    def test_an_id_of_another_kind_is_refused(self) -> None:
        with self.assertRaisesRegex(PaymentError, "^id: "):
            validate(make(id="XX-00001"))

    def test_an_empty_reference_is_refused(self) -> None:
        with self.assertRaisesRegex(PaymentError, "^reference: "):
            validate(make(**{"reference": "  "}))

    def test_a_negative_received_is_refused(self) -> None:
        with self.assertRaisesRegex(PaymentError, "negative"):
            validate(make(**{"received": Decimal("-0.01")}))

    def test_fractions_of_a_cent_are_refused(self) -> None:
        with self.assertRaisesRegex(PaymentError, "fractions"):
            validate(make(**{"received": Decimal("1.005")}))

    def test_a_due_date_before_the_opening_is_refused(self) -> None:
        with self.assertRaisesRegex(PaymentError, "^due: "):
            validate(make(due=date(2026, 9, 30)))

    def test_a_settled_record_cannot_be_settled_again(self) -> None:
        settled = make().settled_on(TODAY)
        self.assertFalse(settled.is_open)
        with self.assertRaises(PaymentError):
            settled.settled_on(TODAY)

    def test_a_row_survives_the_round_trip(self) -> None:
        self.assertEqual(from_row(to_row(make(tags=("eu", "b2b")))), make(tags=("eu", "b2b")))


class PaymentRepositoryRules(unittest.TestCase):
    def test_the_same_id_twice_is_refused(self) -> None:
        with self.assertRaisesRegex(PaymentError, "already"):
            PaymentRepository([make(), make()])

    def test_late_ones_come_oldest_first(self) -> None:
        repository = PaymentRepository([make(1), make(2, due=date(2026, 10, 15)), make(3, state="settled")])
        self.assertEqual([record.id for record in repository.overdue(TODAY)], ["PAY-00002", "PAY-00001"])

    def test_only_open_ones_are_summed(self) -> None:
        repository = PaymentRepository([make(1), make(2), make(3, state="cancelled")])
        self.assertEqual(repository.total_received(), Decimal("238.00"))

    def test_a_reference_is_found_whatever_its_case(self) -> None:
        repository = PaymentRepository([make(7)])
        self.assertEqual([record.id for record in repository.find_by_reference("reference 7".upper())], ["PAY-00007"])


if __name__ == "__main__":
    unittest.main()
