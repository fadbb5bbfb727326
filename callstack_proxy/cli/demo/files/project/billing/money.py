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
