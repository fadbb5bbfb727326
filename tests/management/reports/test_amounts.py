"""Amounts of a table have the same decimals in all its columns."""

import re

import pytest

from callstack_proxy.management.reports import ReceiptTotals, format_table


@pytest.mark.parametrize(("cost", "decimals"), [(0.0069, 6), (0.69, 4)])
def test_all_columns_of_money_have_the_decimals_of_the_largest_amount(cost: float, decimals: int) -> None:
    row = ReceiptTotals(key="2026-11-28", requests=2, cost=cost, cost_untouched=cost, saved=0.0)

    assert {len(found) for found in re.findall(r"\d\.(\d+)", format_table([row]))} == {decimals}
