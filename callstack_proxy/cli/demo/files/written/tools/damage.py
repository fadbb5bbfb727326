"""How many invoices of each logged night the ledger complains about, and by how much in sum."""

import re
from decimal import Decimal
from pathlib import Path

OFF = re.compile(r"WARNING ledger: (INV-\d+) expected gross=([\d.]+), posted ([\d.]+), off by (-?[\d.]+)")

for log in sorted(Path("logs").glob("nightly-*.log")):
    rows = OFF.findall(log.read_text())
    print(f"{log.name}: {len(rows)} invoices off, {sum(Decimal(row[3]) for row in rows)} in sum")
    for number, expected, posted, difference in rows:
        print(f"  {number}  expected {expected:>8}  posted {posted:>8}  {difference:>6}")
