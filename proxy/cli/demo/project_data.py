"""Records of the project the demo works on: logs of three nightly runs and a bank statement.

Numbers come from one counter, so that every run of the demo reads the same bytes. The law: **what is wrong in the data
is wrong for the reason the code gives**: an invoice is off by the cents that rounding tax line by line costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

CENT = Decimal("0.01")
TAX = Decimal("0.19")
_STEP, _MODULUS = 1103515245, 2**31


def pseudo_random_numbers(seed: int) -> Iterator[int]:
    """A fixed sequence that looks like chance."""
    state = seed
    while True:
        state = (state * _STEP + 12345) % _MODULUS
        yield state >> 8


@dataclass(frozen=True, slots=True)
class BilledInvoice:
    """An invoice of the nightly run: its lines are net amounts."""

    number: str
    customer: str
    lines: tuple[Decimal, ...]

    @property
    def gross_rounded_by_line(self) -> Decimal:
        """The total as the code computes it before it is repaired: tax rounded on every line."""
        return sum((net + _rounded(net * TAX) for net in self.lines), Decimal(0))

    @property
    def gross_rounded_once(self) -> Decimal:
        """The total as the ledger expects it: tax rounded once."""
        net = sum(self.lines, Decimal(0))
        return net + _rounded(net * TAX)


def _rounded(amount: Decimal) -> Decimal:
    return amount.quantize(CENT, ROUND_HALF_UP)


def billed_invoices(day: int, count: int) -> list[BilledInvoice]:
    """The invoices of one night."""
    chance = pseudo_random_numbers(day * 7919)
    made = []
    for index in range(count):
        lines = tuple(Decimal(next(chance) % 9000 + 101) / 100 for _ in range(next(chance) % 6 + 2))
        made.append(BilledInvoice(f"INV-{day:02d}{index:03d}", f"CU-{next(chance) % 40 + 1:05d}", lines))
    return made


def nightly_log(day: int, count: int) -> str:
    """The log of a nightly run, two to three lines an invoice."""
    rows = [f"2026-11-{day:02d} 02:00:00 INFO nightly: run started, {count} invoices due, ledger revision {day * 37}"]
    off = 0
    for index, invoice in enumerate(billed_invoices(day, count)):
        clock = f"2026-11-{day:02d} 02:{index // 60:02d}:{index % 60:02d}"
        rows.append(
            f"{clock} INFO totals: {invoice.number} {invoice.customer} lines={len(invoice.lines)} "
            f"net={sum(invoice.lines)} tax=19% gross={invoice.gross_rounded_by_line}"
        )
        if invoice.gross_rounded_by_line != invoice.gross_rounded_once:
            off += 1
            rows.append(
                f"{clock} WARNING ledger: {invoice.number} expected gross={invoice.gross_rounded_once}, "
                f"posted {invoice.gross_rounded_by_line}, off by "
                f"{invoice.gross_rounded_by_line - invoice.gross_rounded_once}"
            )
        else:
            rows.append(f"{clock} DEBUG ledger: {invoice.number} posted, balance of {invoice.customer} updated")
    rows.append(f"2026-11-{day:02d} 02:59:59 INFO nightly: run finished, {count} posted, {off} off by some cents")
    return "\n".join(rows) + "\n"


def invoices_off_by_cents(day: int, count: int) -> list[str]:
    """Numbers of the invoices of a night whose posted total is wrong."""
    return [
        invoice.number
        for invoice in billed_invoices(day, count)
        if invoice.gross_rounded_by_line != invoice.gross_rounded_once
    ]


def bank_statement(rows: int) -> str:
    """A CSV as banks write it: half of the references are garbled in one of four ways."""
    chance = pseudo_random_numbers(4711)
    lines = ["booked;value;payer;iban;reference;amount;currency"]
    for index in range(rows):
        number = f"INV-{next(chance) % 3 + 17:02d}{next(chance) % 60:03d}"
        forms = (
            number,
            number.lower(),
            number.replace("-", " "),
            number.replace("-", ""),
            f"Re. {number} thanks",
            number,
        )
        amount = Decimal(next(chance) % 90_000 + 500) / 100
        lines.append(
            f"2026-11-{index % 19 + 1:02d};2026-11-{index % 19 + 1:02d};Customer {next(chance) % 40 + 1};"
            f"DE{next(chance) % 90 + 10}5001051754{next(chance) % 90_000_000 + 10_000_000};"
            f"{forms[next(chance) % len(forms)]};{amount:.2f};EUR"
        )
    return "\n".join(lines) + "\n"
