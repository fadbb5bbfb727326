"""Rules of shipments: what is refused, what is late, what survives a round trip."""

import unittest
from datetime import date
from decimal import Decimal

from billing.shipments import Shipment, ShipmentError, ShipmentRepository, from_row, to_row, validate

TODAY = date(2026, 11, 20)


def make(serial: int = 1, **changes: object) -> Shipment:
    fields: dict[str, object] = {
        "id": f"SHP-{serial:05d}",
        "tracking": f"tracking {serial}",
        "insured": Decimal("119.00"),
        "opened": date(2026, 10, 1),
        "state": "open",
        "due": date(2026, 10, 31),
    }
    return Shipment(**{**fields, **changes})


class ShipmentRules(unittest.TestCase):
    def test_a_good_record_is_given_back(self) -> None:
        self.assertEqual(validate(make()).id, "SHP-00001")

    def test_an_id_of_another_kind_is_refused(self) -> None:
        with self.assertRaisesRegex(ShipmentError, "^id: "):
            validate(make(id="XX-00001"))

    def test_an_empty_tracking_is_refused(self) -> None:
        with self.assertRaisesRegex(ShipmentError, "^tracking: "):
            validate(make(**{"tracking": "  "}))

    def test_a_negative_insured_is_refused(self) -> None:
        with self.assertRaisesRegex(ShipmentError, "negative"):
            validate(make(**{"insured": Decimal("-0.01")}))

    def test_fractions_of_a_cent_are_refused(self) -> None:
        with self.assertRaisesRegex(ShipmentError, "fractions"):
            validate(make(**{"insured": Decimal("1.005")}))

    def test_a_due_date_before_the_opening_is_refused(self) -> None:
        with self.assertRaisesRegex(ShipmentError, "^due: "):
            validate(make(due=date(2026, 9, 30)))

    def test_a_settled_record_cannot_be_settled_again(self) -> None:
        settled = make().settled_on(TODAY)
        self.assertFalse(settled.is_open)
        with self.assertRaises(ShipmentError):
            settled.settled_on(TODAY)

    def test_a_row_survives_the_round_trip(self) -> None:
        self.assertEqual(from_row(to_row(make(tags=("eu", "b2b")))), make(tags=("eu", "b2b")))


class ShipmentRepositoryRules(unittest.TestCase):
    def test_the_same_id_twice_is_refused(self) -> None:
        with self.assertRaisesRegex(ShipmentError, "already"):
            ShipmentRepository([make(), make()])

    def test_late_ones_come_oldest_first(self) -> None:
        repository = ShipmentRepository([make(1), make(2, due=date(2026, 10, 15)), make(3, state="settled")])
        self.assertEqual([record.id for record in repository.overdue(TODAY)], ["SHP-00002", "SHP-00001"])

    def test_only_open_ones_are_summed(self) -> None:
        repository = ShipmentRepository([make(1), make(2), make(3, state="cancelled")])
        self.assertEqual(repository.total_insured(), Decimal("238.00"))

    def test_a_tracking_is_found_whatever_its_case(self) -> None:
        repository = ShipmentRepository([make(7)])
        self.assertEqual([record.id for record in repository.find_by_tracking("tracking 7".upper())], ["SHP-00007"])


if __name__ == "__main__":
    unittest.main()
