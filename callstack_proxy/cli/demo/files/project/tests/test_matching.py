"""References as customers really type them."""

import unittest

from billing.matching import invoice_in


class References(unittest.TestCase):
    def test_a_plain_number(self) -> None:
        self.assertEqual(invoice_in("INV-17004"), "INV-17004")

    def test_a_number_inside_words(self) -> None:
        self.assertEqual(invoice_in("Re. INV-17004 thanks"), "INV-17004")

    def test_no_number(self) -> None:
        self.assertIsNone(invoice_in("for the chairs"))


if __name__ == "__main__":
    unittest.main()
