"""Rules of discounts: what is refused, what is late, what survives a round trip."""

import unittest
from datetime import date
from decimal import Decimal

from billing.discounts import Discount, DiscountError, DiscountRepository, from_row, to_row, validate

TODAY = date(2026, 11, 20)


def make(serial: int = 1, **changes: object) -> Discount:
    fields: dict[str, object] = {
        "id": f"DIS-{serial:05d}",
        "coupon": f"coupon {serial}",
        "ceiling": Decimal("119.00"),
        "opened": date(2026, 10, 1),
        "state": "open",
        "due": date(2026, 10, 31),
    }
    return Discount(**{**fields, **changes})


class DiscountRules(unittest.TestCase):
    def test_a_good_record_is_given_back(self) -> None:
        self.assertEqual(validate(make()).id, "DIS-00001")

    def test_an_id_of_another_kind_is_refused(self) -> None:
        with self.assertRaisesRegex(DiscountError, "^id: "):
            validate(make(id="XX-00001"))

    def test_an_empty_coupon_is_refused(self) -> None:
        with self.assertRaisesRegex(DiscountError, "^coupon: "):
            validate(make(**{"coupon": "  "}))

    def test_a_negative_ceiling_is_refused(self) -> None:
        with self.assertRaisesRegex(DiscountError, "negative"):
            validate(make(**{"ceiling": Decimal("-0.01")}))

    def test_fractions_of_a_cent_are_refused(self) -> None:
        with self.assertRaisesRegex(DiscountError, "fractions"):
            validate(make(**{"ceiling": Decimal("1.005")}))

    def test_a_due_date_before_the_opening_is_refused(self) -> None:
        with self.assertRaisesRegex(DiscountError, "^due: "):
            validate(make(due=date(2026, 9, 30)))

    def test_a_settled_record_cannot_be_settled_again(self) -> None:
        settled = make().settled_on(TODAY)
        self.assertFalse(settled.is_open)
        with self.assertRaises(DiscountError):
            settled.settled_on(TODAY)

    def test_a_row_survives_the_round_trip(self) -> None:
        self.assertEqual(from_row(to_row(make(tags=("eu", "b2b")))), make(tags=("eu", "b2b")))


class DiscountRepositoryRules(unittest.TestCase):
    def test_the_same_id_twice_is_refused(self) -> None:
        with self.assertRaisesRegex(DiscountError, "already"):
            DiscountRepository([make(), make()])

    def test_late_ones_come_oldest_first(self) -> None:
        repository = DiscountRepository([make(1), make(2, due=date(2026, 10, 15)), make(3, state="settled")])
        self.assertEqual([record.id for record in repository.overdue(TODAY)], ["DIS-00002", "DIS-00001"])

    def test_only_open_ones_are_summed(self) -> None:
        repository = DiscountRepository([make(1), make(2), make(3, state="cancelled")])
        self.assertEqual(repository.total_ceiling(), Decimal("238.00"))

    def test_a_coupon_is_found_whatever_its_case(self) -> None:
        repository = DiscountRepository([make(7)])
        self.assertEqual([record.id for record in repository.find_by_coupon("coupon 7".upper())], ["DIS-00007"])


if __name__ == "__main__":
    unittest.main()
