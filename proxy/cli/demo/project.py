"""The project the demo's agent works on: a small billing system with a rounding bug, as files in a folder.

`write_project` lays it out. What the agent writes later stands in `session.py`; both are real Python that runs.
"""

from __future__ import annotations

from pathlib import Path

from proxy.cli.demo import project_data as records
from proxy.cli.demo import project_modules as entities

NIGHTS = (17, 18, 19)
INVOICES_A_NIGHT = 46
BANK_ROWS = 120

README = """\
# ledgerline

Billing for a wholesaler: customers, invoices, payments and what goes wrong with them.

- `billing/` one module per kind of record, plus `money.py`, `totals.py` and `matching.py`
- `tests/` unittest, no dependency: `python -m unittest -v`
- `logs/` what the nightly run wrote
- `data/` bank statements as the bank sends them
- `docs/` formats other departments rely on

The nightly run renews subscriptions, writes invoices, posts them to the ledger and matches payments. The ledger
computes the expected gross by itself and warns where ours differs.
"""

MONEY = '''\
"""Amounts: parsing, rounding, formatting. Everything is Decimal; floats never enter."""

from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

CENT = Decimal("0.01")


def cents(amount: Decimal) -> Decimal:
    """Rounded to whole cents, half a cent goes up, as the tax office wants it."""
    return amount.quantize(CENT, ROUND_HALF_UP)


def parse_amount(text: str) -> Decimal:
    """`1,234.50` or `1.234,50` as a Decimal. Raises ValueError."""
    plain = text.strip().replace(" ", "")
    if plain.rfind(",") > plain.rfind("."):
        plain = plain.replace(".", "").replace(",", ".")
    try:
        return Decimal(plain.replace(",", ""))
    except InvalidOperation:
        raise ValueError(f"not an amount: {text!r}") from None
'''

TOTALS = '''\
"""Totals of an invoice: net, tax per rate, gross."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from billing.money import cents


@dataclass(frozen=True, slots=True)
class Line:
    """One position: net amount and tax rate, 0.19 for 19 %."""

    text: str
    net: Decimal
    rate: Decimal = Decimal("0.19")


def tax(lines: Iterable[Line]) -> Decimal:
    return sum((cents(line.net * line.rate) for line in lines), Decimal("0.00"))


def gross(lines: Iterable[Line]) -> Decimal:
    positions = list(lines)
    return sum((line.net for line in positions), Decimal("0.00")) + tax(positions)
'''

MATCHING = '''\
"""Which invoice a bank transfer pays, by the reference the customer typed."""

import re

INVOICE = re.compile(r"INV-\\d{5}")


def invoice_in(reference: str) -> str | None:
    """The invoice number in a reference, or None where there is none."""
    found = INVOICE.search(reference)
    return found.group(0) if found else None
'''

TEST_TOTALS = '''\
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
'''

TEST_MATCHING = '''\
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
'''

EXPORT_FORMAT = """\
# Open items, as accounting imports them

One CSV per run, UTF-8, comma, header line, sorted by due date and then by number.

| column | content |
|---|---|
| number | invoice number |
| account | customer id |
| gross | two decimals, point |
| due | ISO date |
| days_late | whole days, 0 where not late |

Only invoices in state open or overdue. `--since DATE` leaves out what was opened before. An empty export still has its
header line.
"""


def project_files() -> dict[str, str]:
    """Path -> text of the whole project."""
    written = {
        "README.md": README,
        "billing/__init__.py": "",
        "billing/money.py": MONEY,
        "billing/totals.py": TOTALS,
        "billing/matching.py": MATCHING,
        "tests/__init__.py": "",
        "tests/test_totals.py": TEST_TOTALS,
        "tests/test_matching.py": TEST_MATCHING,
        "docs/export-format.md": EXPORT_FORMAT,
        "data/bank-2026-11.csv": records.bank_statement(BANK_ROWS),
        **entities.module_files(),
    }
    for night in NIGHTS:
        written[f"logs/nightly-2026-11-{night}.log"] = records.nightly_log(night, INVOICES_A_NIGHT)
    return written


def write_project(folder: Path) -> None:
    """Lay the project out in a folder that exists."""
    for path, text in project_files().items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
