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
    writer = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    writer.writeheader()
    chosen = [
        invoice
        for invoice in invoices
        if invoice.state in EXPORTED_STATES and invoice.due and (since is None or invoice.opened >= since)
    ]
    for invoice in sorted(chosen, key=lambda invoice: (invoice.due, invoice.number)):
        writer.writerow(
            {
                "number": invoice.number,
                "account": accounts[invoice.number],
                "gross": f"{invoice.gross:.2f}",
                "due": invoice.due.isoformat(),
                "days_late": str((today - invoice.due).days),
            }
        )
    return written.getvalue()
