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
