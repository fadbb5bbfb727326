"""Figures on the pages: amounts that stand together have the same decimals, and columns of tokens are whole numbers."""

import pytest

from callstack_proxy.management.console.rendering import format_short_tokens, format_tokens, format_usd


@pytest.mark.parametrize(
    ("amounts", "shown"),
    [
        ((0.0312, 0.0, 0.5), ["$0.0312", "$0.0000", "$0.5000"]),
        ((0.0312, 12.4, 1234.5), ["$0.03", "$12.40", "$1,234.50"]),
        ((-0.0312, 0.9), ["\u2212$0.0312", "$0.9000"]),
        ((-12.4, 0.004, -0.004), ["\u2212$12.40", "$0.00", "$0.00"]),
    ],
)
def test_amounts_that_stand_together_have_the_same_decimals(amounts: tuple[float, ...], shown: list[str]) -> None:
    assert [format_usd(amount, amounts) for amount in amounts] == shown


def test_an_amount_alone_has_cents_from_a_dollar_on() -> None:
    assert [format_usd(amount) for amount in (0.5, 1, 12.345)] == ["$0.5000", "$1.00", "$12.35"]


def test_tokens_alone_have_one_decimal_and_a_unit() -> None:
    assert [format_short_tokens(tokens) for tokens in (840, 12_449, 310_000, 1_240_000)] == [
        "840", "12.4k", "310.0k", "1.2M",
    ]  # fmt: skip
    assert format_tokens(1_240_000) == "1\u202f240\u202f000"
