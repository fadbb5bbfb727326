"""What the demo's agent writes into the project: scripts, a module, tests, and the pieces of its edits.

All of it runs. Kept apart from the session so that what is said can be read without what is written.
"""

from __future__ import annotations

HALF_UP = "return amount.quantize(CENT, ROUND_HALF_UP)"
HALF_EVEN = 'return amount.quantize(CENT, "ROUND_HALF_EVEN")'

TAX_BY_LINE = """\
def tax(lines: Iterable[Line]) -> Decimal:
    return sum((cents(line.net * line.rate) for line in lines), Decimal("0.00"))
"""
TAX_PER_RATE = """\
def tax(lines: Iterable[Line]) -> Decimal:
    \"\"\"Tax of all lines, rounded once per rate: that is how the ledger does it.\"\"\"
    net: dict[Decimal, Decimal] = {}
    for line in lines:
        net[line.rate] = net.get(line.rate, Decimal("0.00")) + line.net
    return sum((cents(amount * rate) for rate, amount in net.items()), Decimal("0.00"))
"""

DAMAGE_SCRIPT = '''\
"""How many invoices of each logged night the ledger complains about, and by how much in sum."""

import re
from decimal import Decimal
from pathlib import Path

OFF = re.compile(r"WARNING ledger: (INV-\\d+) expected gross=([\\d.]+), posted ([\\d.]+), off by (-?[\\d.]+)")

for log in sorted(Path("logs").glob("nightly-*.log")):
    rows = OFF.findall(log.read_text())
    print(f"{log.name}: {len(rows)} invoices off, {sum(Decimal(row[3]) for row in rows)} in sum")
    for number, expected, posted, difference in rows:
        print(f"  {number}  expected {expected:>8}  posted {posted:>8}  {difference:>6}")
'''

REPLAY_SCRIPT = '''\
"""Compute every logged invoice again with the code as it is now, and compare with what the ledger expected."""

import re
from decimal import Decimal
from pathlib import Path

from billing.totals import Line, gross

BILLED = re.compile(r"totals: (INV-\\d+) \\S+ lines=\\d+ net=([\\d.]+) tax=19% gross=([\\d.]+)")
EXPECTED = re.compile(r"WARNING ledger: (INV-\\d+) expected gross=([\\d.]+)")

agree = disagree = 0
for log in sorted(Path("logs").glob("nightly-*.log")):
    text = log.read_text()
    expected = dict(EXPECTED.findall(text))
    for number, net, posted in BILLED.findall(text):
        now = gross([Line(number, Decimal(net))])
        if now == Decimal(expected.get(number, posted)):
            agree += 1
        else:
            disagree += 1
            print(f"{number}: now {now}, ledger {expected.get(number, posted)}")
print(f"{agree} agree, {disagree} disagree")
'''

DAYS_LATE_PLAIN = '"days_late": str((today - invoice.due).days),'
DAYS_LATE_CLAMPED = '"days_late": str(max(0, (today - invoice.due).days)),'

EXPORT = f'''\
"""Open items as accounting imports them; the format is docs/export-format.md."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import date

from billing.invoices import Invoice

COLUMNS = ("number", "account", "gross", "due", "days_late")
EXPORTED_STATES = ("open", "overdue")


def export_open_items(
    invoices: Iterable[Invoice], accounts: dict[str, str], today: date, since: date | None = None
) -> str:
    """The export as text. `accounts` maps an invoice number to its customer id.

    Sorted by due date, then by number. `since` leaves out what was opened before that day. An empty export still has
    its header line.
    """
    written = io.StringIO()
    writer = csv.DictWriter(written, COLUMNS, lineterminator="\\n")
    writer.writeheader()
    chosen = [
        invoice
        for invoice in invoices
        if invoice.state in EXPORTED_STATES and invoice.due and (since is None or invoice.opened >= since)
    ]
    for invoice in sorted(chosen, key=lambda invoice: (invoice.due, invoice.number)):
        writer.writerow(
            {{
                "number": invoice.number,
                "account": accounts[invoice.number],
                "gross": f"{{invoice.gross:.2f}}",
                "due": invoice.due.isoformat(),
                {DAYS_LATE_PLAIN}
            }}
        )
    return written.getvalue()
'''

TEST_EXPORT = '''\
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
'''

MATCHED_SCRIPT = '''\
"""How many rows of the bank statement name an invoice that we recognise."""

import csv
from collections import Counter
from pathlib import Path

from billing.matching import invoice_in

with Path("data/bank-2026-11.csv").open() as statement:
    rows = list(csv.DictReader(statement, delimiter=";"))
found = [invoice_in(row["reference"]) for row in rows]
print(f"{sum(number is not None for number in found)} of {len(rows)} rows matched")
for row, number in zip(rows, found):
    if number is None:
        print(f"  not matched: {row['booked']} {row['payer']:<12} {row['reference']!r} {row['amount']}")
twice = [number for number, times in Counter(number for number in found if number).items() if times > 1]
print(f"paid more than once: {', '.join(sorted(twice)) or 'none'}")
'''

MATCHING_PATTERN = (
    'INVOICE = re.compile(r"INV-\\d{5}")',
    'INVOICE = re.compile(r"\\bINV[- ]?(\\d{5})\\b", re.IGNORECASE)',
)
MATCHING_RETURN = (
    "return found.group(0) if found else None",
    'return f"INV-{found.group(1)}" if found else None',
)
ONE_REFERENCE = """\
    def test_no_number(self) -> None:
"""
MORE_REFERENCES = """\
    def test_the_three_ways_customers_garble_it(self) -> None:
        for typed in ("inv-17004", "INV 17004", "INV17004", "Re. inv 17004 thanks"):
            self.assertEqual(invoice_in(typed), "INV-17004")

    def test_a_longer_number_is_somebody_elses(self) -> None:
        self.assertIsNone(invoice_in("INV-170045"))

    def test_no_number(self) -> None:
"""

LETTER = """\
Dear colleagues,

for some time our invoices and your ledger disagreed by a cent or two. The cause was ours: tax was rounded on every line
of an invoice, where the ledger rounds once per rate. In the nights of 17 to 19 November this concerned 49 of 138
invoices, 18 of them in the night of the 19th. One of them, as the log has it:

    EXAMPLE

Invoices written from today on agree with the ledger. Those already sent are not changed; please book the difference as
you did before.
"""

CHANGELOG = """\
# Changelog

## 2026-11-20

- Tax is rounded once per rate, as the ledger does it (`billing/totals.py`). Invoices with several lines used to be
  off by one to three cents.
- Export of open items for accounting, with `since` (`billing/export.py`, format in `docs/export-format.md`).
- References on bank statements are recognised in lower case, with a space and without a hyphen (`billing/matching.py`).
"""
