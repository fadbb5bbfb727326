"""Which invoice a bank transfer pays, by the reference the customer typed."""

import re

INVOICE = re.compile(r"INV-\d{5}")


def invoice_in(reference: str) -> str | None:
    """The invoice number in a reference, or None where there is none."""
    found = INVOICE.search(reference)
    return found.group(0) if found else None
