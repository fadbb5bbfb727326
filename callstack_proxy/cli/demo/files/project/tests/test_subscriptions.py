"""Rules of subscriptions: what is refused, what is late, what survives a round trip."""

import unittest
from datetime import date
from decimal import Decimal

from billing.subscriptions import Subscription, SubscriptionError, SubscriptionRepository, from_row, to_row, validate

TODAY = date(2026, 11, 20)


def make(serial: int = 1, **changes: object) -> Subscription:
    fields: dict[str, object] = {
        "id": f"SUB-{serial:05d}",
        "plan": f"plan {serial}",
        "monthly": Decimal("119.00"),
        "opened": date(2026, 10, 1),
        "state": "open",
        "due": date(2026, 10, 31),
    }
    return Subscription(**{**fields, **changes})


class SubscriptionRules(unittest.TestCase):
    def test_a_good_record_is_given_back(self) -> None:
        self.assertEqual(validate(make()).id, "SUB-00001")

    def test_an_id_of_another_kind_is_refused(self) -> None:
        with self.assertRaisesRegex(SubscriptionError, "^id: "):
            validate(make(id="XX-00001"))

    def test_an_empty_plan_is_refused(self) -> None:
        with self.assertRaisesRegex(SubscriptionError, "^plan: "):
            validate(make(**{"plan": "  "}))

    def test_a_negative_monthly_is_refused(self) -> None:
        with self.assertRaisesRegex(SubscriptionError, "negative"):
            validate(make(**{"monthly": Decimal("-0.01")}))

    def test_fractions_of_a_cent_are_refused(self) -> None:
        with self.assertRaisesRegex(SubscriptionError, "fractions"):
            validate(make(**{"monthly": Decimal("1.005")}))

    def test_a_due_date_before_the_opening_is_refused(self) -> None:
        with self.assertRaisesRegex(SubscriptionError, "^due: "):
            validate(make(due=date(2026, 9, 30)))

    def test_a_settled_record_cannot_be_settled_again(self) -> None:
        settled = make().settled_on(TODAY)
        self.assertFalse(settled.is_open)
        with self.assertRaises(SubscriptionError):
            settled.settled_on(TODAY)

    def test_a_row_survives_the_round_trip(self) -> None:
        self.assertEqual(from_row(to_row(make(tags=("eu", "b2b")))), make(tags=("eu", "b2b")))


class SubscriptionRepositoryRules(unittest.TestCase):
    def test_the_same_id_twice_is_refused(self) -> None:
        with self.assertRaisesRegex(SubscriptionError, "already"):
            SubscriptionRepository([make(), make()])

    def test_late_ones_come_oldest_first(self) -> None:
        repository = SubscriptionRepository([make(1), make(2, due=date(2026, 10, 15)), make(3, state="settled")])
        self.assertEqual([record.id for record in repository.overdue(TODAY)], ["SUB-00002", "SUB-00001"])

    def test_only_open_ones_are_summed(self) -> None:
        repository = SubscriptionRepository([make(1), make(2), make(3, state="cancelled")])
        self.assertEqual(repository.total_monthly(), Decimal("238.00"))

    def test_a_plan_is_found_whatever_its_case(self) -> None:
        repository = SubscriptionRepository([make(7)])
        self.assertEqual([record.id for record in repository.find_by_plan("plan 7".upper())], ["SUB-00007"])


if __name__ == "__main__":
    unittest.main()
