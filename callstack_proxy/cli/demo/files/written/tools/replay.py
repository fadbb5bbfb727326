"""Compute every logged invoice again with the code as it is now, and compare with what the ledger expected."""

import re
from decimal import Decimal
from pathlib import Path

from billing.totals import Line, gross

BILLED = re.compile(r"totals: (INV-\d+) \S+ lines=\d+ net=([\d.]+) tax=19% gross=([\d.]+)")
EXPECTED = re.compile(r"WARNING ledger: (INV-\d+) expected gross=([\d.]+)")

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
