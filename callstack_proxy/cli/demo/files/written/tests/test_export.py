"""The export of open items, column by column."""

import unittest
from datetime import date
from decimal import Decimal

from billing.export import export_open_items
from billing.invoices import Invoice

TODAY = date(2026, 11, 20)
HEADER = "number,account,gross,due,days_late"


def invoice(number: int, **changes: object) -> Invoice:
    fields: dict[str, object] = {
        "id": f"INV-{number:05d}",
        "number": f"INV-{number:05d}",
        "gross": Decimal("119.00"),
        "opened": date(2026, 10, 1),
        "state": "open",
        "due": date(2026, 10, 31),
    }
    return Invoice(**{**fields, **changes})


def exported(*invoices: Invoice, since: date | None = None) -> list[str]:
    accounts = {one.number: "CU-00001" for one in invoices}
    return export_open_items(invoices, accounts, TODAY, since).splitlines()


class Export(unittest.TestCase):
    def test_an_empty_export_has_its_header(self) -> None:
        self.assertEqual(exported(), [HEADER])

    def test_days_late_are_whole_days(self) -> None:
        self.assertEqual(exported(invoice(1))[1], "INV-00001,CU-00001,119.00,2026-10-31,20")

    def test_what_is_not_due_yet_is_zero_days_late(self) -> None:
        self.assertTrue(exported(invoice(1, due=date(2026, 12, 1)))[1].endswith(",0"))

    def test_settled_and_draft_are_left_out(self) -> None:
        self.assertEqual(exported(invoice(1, state="settled"), invoice(2, state="draft")), [HEADER])

    def test_since_leaves_out_what_was_opened_before(self) -> None:
        rows = exported(invoice(1), invoice(2, opened=date(2026, 10, 15)), since=date(2026, 10, 10))
        self.assertEqual([row.split(",")[0] for row in rows[1:]], ["INV-00002"])


if __name__ == "__main__":
    unittest.main()
