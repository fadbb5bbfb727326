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
