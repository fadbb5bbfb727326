"""What folds cause beside their bill: files that are read again above the rate at which that happens anyway."""

import msgspec
import pytest

from callstack_proxy.management.reports import ReadAgain, format_balance, format_statement, sum_balances, sum_receipts
from callstack_proxy.management.reports.read_again import MIN_REQUESTS, USUAL_RATE
from proxy.accounting import CacheUse, Receipt
from proxy.core.ledger import Usage

pytestmark = pytest.mark.rows("X-64")


def receipt(status: str = "full", rereads: int = 0, gone: int = 0, cost: float = 0.0) -> Receipt:
    """A request that cost 1 in place of 3; `cost` of the 3 came of what had left."""
    return Receipt(
        id="r", status=status, rereads=rereads, rereads_gone=gone, cost_rereads=cost,
        rounds=1, tokens_in=10, tokens_sent=5, tokens_last=5, tokens_saved=5, fixed_in=0, fixed_sent=0, own_tools=0,
        own_texts=0, own_rounds=0, sent=CacheUse(), untouched=CacheUse(), usage=Usage(), usage_by_round=(None,),
        cost=1.0, cost_untouched=3.0, saved=2.0, basis="estimated", priced=True, output_priced=True,
    )  # fmt: skip


def test_what_is_read_again_at_the_usual_rate_is_no_fold_s_cost() -> None:
    again = ReadAgain(requests=1000, rereads=round(1000 * USUAL_RATE), gone=20, cost=8.0)

    assert again.caused < 0.5
    assert again.cost_caused < 0.2


def test_what_is_above_it_is_told_by_number_and_price_and_never_more_than_had_left() -> None:
    above = ReadAgain(requests=100, rereads=10, gone=8, cost=4.0)
    in_sight = ReadAgain(requests=100, rereads=50, gone=2, cost=1.0)

    assert above.caused == pytest.approx(10 - 100 * USUAL_RATE)
    assert above.cost_caused == pytest.approx(4.0 * above.caused / 8)
    assert (in_sight.caused, in_sight.cost_caused) == (2, 1.0)


def test_sessions_that_passed_untouched_tell_the_rate_once_they_are_enough() -> None:
    few, enough = (ReadAgain(passed=count, passed_rereads=count // 10) for count in (MIN_REQUESTS - 1, MIN_REQUESTS))

    assert (few.usual_rate, enough.usual_rate) == (USUAL_RATE, 0.1)


def test_the_untouched_bill_stays_and_saved_is_after_what_was_caused() -> None:
    told = [receipt(), receipt(rereads=2, gone=2, cost=1.5), receipt("shadow", rereads=9)]

    row, balance = sum_receipts(told), sum_balances(map(msgspec.json.encode, told))

    caused = 1.5 * (2 - 2 * USUAL_RATE) / 2
    assert (row.cost, row.cost_untouched, row.saved) == (3.0, 9.0, 6.0)
    assert row.cost_caused == balance.cost_caused == pytest.approx(caused)
    assert row.saved_after == balance.saved == pytest.approx(6.0 - caused)
    assert "read again" in format_statement(row)
    assert "2 reads more than where nothing is put away: $" in format_statement(row)
    assert format_balance(row.saved_after, 9.0, caused=row.cost_caused).endswith(
        f", after ${caused:.4f} for reading again what was put away"
    )
    assert "caused" not in format_statement(sum_receipts(told[:1]))


def test_on_a_narrow_terminal_the_sums_leave_columns_out() -> None:
    [heading, *rows] = format_statement(sum_receipts([]), width=44).splitlines()

    assert heading.split() == ["tokens", "cached", "USD"]
    assert all(len(each) <= 44 for each in rows[:3])
