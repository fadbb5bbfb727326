"""What a plan paid for, in words: shares of windows, and no dollars."""

import msgspec
import pytest

from callstack_proxy.cli.inspect import receipt_text
from callstack_proxy.cli.wrap.command import outcome_text
from callstack_proxy.management.reports import ReceiptTotals, format_plan, plan_lines, sum_plans
from proxy.accounting import UNKNOWN_TARIFF, PlanCost, PlanWindowUse, Receipt

pytestmark = pytest.mark.rows("X-63")


def paid(
    cost: float, untouched: float, *windows: PlanWindowUse, read: float = 0.007, rounds: int = 0, account: str = ""
) -> PlanCost:
    return PlanCost(cost, untouched, read, 0.0 if read < 0.02 else read, 1.0, 1.0, rounds, windows, account)


FORECAST = ReceiptTotals(key="", cost=1.0, cost_untouched=2.0, saved=1.0, saved_after=1.0)
FIVE, WEEK = PlanWindowUse("5h", scale=0.5), PlanWindowUse("7d", scale=0.05)


def test_given_both_windows_when_told_then_the_week_with_and_without_us() -> None:
    total = sum_plans([None, paid(0.5, 0.7, FIVE, WEEK), paid(0.32, 0.5, FIVE, WEEK)])
    assert total
    assert format_plan(total) == "4.1 % of your week, without us 6.0 %"
    assert sum_plans([None]) is None


def test_given_a_window_whose_size_is_known_later_when_told_then_earlier_requests_count_by_it() -> None:
    total = sum_plans([paid(0.5, 0.5), paid(0.5, 0.5, PlanWindowUse("5h", scale=0.1)), paid(1.0, 1.0, FIVE)])
    assert total
    assert format_plan(total) == "100.0 % of your 5 hours, without us 100.0 %"


def test_given_two_accounts_when_told_then_each_counts_by_the_size_of_its_own_window() -> None:
    small, large = PlanWindowUse("7d", scale=0.05), PlanWindowUse("7d", scale=0.001)
    claude = [paid(10.0, 20.0, account="claude"), *[paid(10.0, 20.0, large, account="claude")] * 9]
    total = sum_plans([*claude, paid(0.1, 0.1, small, account="codex")])
    assert total
    assert format_plan(total) == "10.5 % of your week, without us 20.5 %"


@pytest.mark.parametrize(("window", "words"), [("7d", "weeks"), ("5h", "times your 5 hours")])
def test_given_more_than_a_window_when_told_then_in_windows_and_not_in_percent(window: str, words: str) -> None:
    total = sum_plans([paid(41.0, 60.0, PlanWindowUse(window, scale=0.1))])
    assert total
    assert format_plan(total) == f"4.1 {words}, without us 6.0"


@pytest.mark.parametrize(
    ("cost", "untouched", "words"),
    [
        (0.8, 1.0, "20.0 % less of your plan than without us"),
        (1.1, 1.0, "10.0 % more of your plan than without us"),
        (1.0, 1.0, "as much of your plan as untouched"),
        (0.0, 0.0, "as much of your plan as untouched"),
    ],
)
def test_given_no_size_of_a_window_when_told_then_the_two_are_compared(
    cost: float, untouched: float, words: str
) -> None:
    total = sum_plans([paid(cost, untouched, PlanWindowUse("7d"))])
    assert total
    assert format_plan(total) == words


def receipt(plan: PlanCost | None, **more: object) -> dict[str, object]:
    sent = {"cached": 0, "written": 0, "uncached": 10}
    usage = {"input": 10, "output": 1, "cached": 0, "written": 0}
    told = {"rounds": 1, "status": "full", "saved": 0.3, "cost": 0.4, "cost_untouched": 0.7, "tokens_in": 10}
    told |= {"tokens_sent": 10, "basis": "reported", "priced": True, "model": "m", "upstream": "u", "usage": usage}
    return {**told, "sent": sent, "plan": msgspec.to_builtins(plan), "client_status": 200, **more}


def test_given_a_session_on_a_plan_when_it_ends_then_the_last_line_speaks_of_the_week_alone() -> None:
    session = [receipt(paid(0.82, 1.2, FIVE, WEEK), created=2), receipt(None, status="keep_alive", created=3)]
    told = outcome_text(session, "")
    assert told == "2 requests, 4.1 % of your week, without us 6.0 %; look: callstack console"
    assert len(told) <= 80


def test_given_a_session_partly_on_a_plan_when_it_ends_then_the_dollars_are_those_of_the_others() -> None:
    session = [receipt(paid(0.82, 1.2, FIVE, WEEK), created=1), receipt(None, saved=0.1), receipt(None, saved=0.1)]
    told = outcome_text(session, "")
    assert told == "3 requests, 1 by a plan; the others: saved $0.2000 (14.3 %); look: callstack console"
    assert len(told) <= 85


def test_given_mode_shadow_on_a_plan_when_it_ends_then_no_dollars_are_foretold() -> None:
    shadowed = [receipt(paid(0.5, 0.5), status="shadow")]
    assert "mode active would save $" in outcome_text([receipt(None, status="shadow")], "", FORECAST)
    assert "mode active not measured" in outcome_text(shadowed, "", FORECAST)


def test_given_a_request_on_a_plan_when_it_is_told_then_it_says_why_nothing_is_folded_for_money() -> None:
    counts = ("tokens_last", "tokens_saved", "fixed_in", "fixed_sent", "own_tools", "own_texts", "own_rounds")
    more = {"id": "r1", "untouched": {}, "usage_by_round": [], "output_priced": True, **dict.fromkeys(counts, 0)}
    whole = msgspec.convert(receipt(paid(0.82, 1.2, FIVE, WEEK), **more), Receipt)
    told = "\n".join(receipt_text(whole, UNKNOWN_TARIFF))
    assert "it took 41.0 % of your 5 hours, without us 60.0 %" in told
    assert "it took 4.1 % of your week, without us 6.0 %" in told
    assert "a cached token weighs 0.7 % of a fresh one, as is expected of plans" in told
    assert "nothing is folded for that alone" in told
    assert "$" not in told


def test_given_a_plan_that_charges_cached_reads_when_told_then_folds_do_not_rest() -> None:
    told = "\n".join(plan_lines(paid(0.8, 1.0, read=0.1, rounds=40)))
    assert "20.0 % less of your plan than without us" in told
    assert "a cached token weighs 10.0 % of a fresh one, as measured over 40 answers" in told
    assert "folded" not in told


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (PlanCost(0.8, 1.0, 0.1, 0.0, 1.0, 1.0, 12), "too little was measured to build on it"),
        (PlanCost(0.8, 1.0, 0.007, 0.0, 1.0, 1.0, 40), "so little is gained"),
    ],
)
def test_given_folds_that_rest_when_told_then_it_says_whether_little_is_gained_or_little_known(
    plan: PlanCost, why: str
) -> None:
    told = plan_lines(plan)[-1]
    assert why in told
    assert told.endswith("nothing is folded for that alone")
    assert ("gained" in told) is ("gained" in why)
