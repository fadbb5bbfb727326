"""Totals as the ledger computes them: tax is rounded once per rate."""

import unittest
from decimal import Decimal

from billing.totals import Line, gross, tax


def lines(*amounts: str, rate: str = "0.19") -> list[Line]:
    return [Line(f"position {index}", Decimal(amount), Decimal(rate)) for index, amount in enumerate(amounts)]


class Totals(unittest.TestCase):
    def test_one_line(self) -> None:
        self.assertEqual(gross(lines("100.00")), Decimal("119.00"))

    def test_no_lines_cost_nothing(self) -> None:
        self.assertEqual(gross([]), Decimal("0.00"))

    def test_half_a_cent_goes_up(self) -> None:
        self.assertEqual(tax(lines("0.50", rate="0.05")), Decimal("0.03"))

    def test_tax_is_rounded_once_not_line_by_line(self) -> None:
        self.assertEqual(tax(lines("0.13", "0.13", "0.13")), Decimal("0.07"))

    def test_many_small_lines_agree_with_the_ledger(self) -> None:
        self.assertEqual(gross(lines(*["1.03"] * 10)), Decimal("12.26"))

    def test_each_rate_is_rounded_by_itself(self) -> None:
        mixed = [*lines("0.13", "0.13"), *lines("0.15", "0.15", rate="0.07")]
        self.assertEqual(tax(mixed), Decimal("0.07"))


if __name__ == "__main__":
    unittest.main()
