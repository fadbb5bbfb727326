"""What requests took of a plan's windows, added up and in words: `4.1 % of your week, without us 6.0 %`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from callstack_proxy.management.reports.totals import percent_saved
from proxy.accounting import OWN_REQUEST_STATUSES, PlanCost, Receipt, window_minutes

WINDOW_NAMES = {"5h": "your 5 hours", "7d": "your week"}
WINDOWS_NAMES = {"5h": "times your 5 hours", "7d": "weeks"}
SMALL_PERCENT = 0.1
"""Smaller shares are told with two decimals."""
SAME_PERCENT = 0.05
"""A difference below this is none."""
LITTLE_READ = 1 / 50
"""Where a cached token weighs less of a fresh one, folds seldom pay."""


class PaidRequest(msgspec.Struct, frozen=True):
    """What is asked of a receipt here, to read one of which only a part is at hand."""

    rounds: int = 0
    status: str = ""
    created: int = 0
    plan: PlanCost | None = None


class PlanTotals(msgspec.Struct, frozen=True):
    """`shares` has what was taken of each window whose size is known, with us and untouched; 1 is a whole one."""

    cost: float
    cost_untouched: float
    shares: dict[str, tuple[float, float]]


def sum_plans(plans: Iterable[PlanCost | None]) -> PlanTotals | None:
    """The requests that plans paid for, oldest first; None if there is none. How large the windows of an account are is
    told by what is known of them last; an account of whose window nobody knows that is left out of its share."""
    paid = [plan for plan in plans if plan is not None]
    if not paid:
        return None
    costs: dict[str, tuple[float, float]] = {}
    scales: dict[tuple[str, str], float] = {}
    for plan in paid:
        with_us, untouched = costs.get(plan.account, (0.0, 0.0))
        costs[plan.account] = with_us + plan.cost, untouched + plan.cost_untouched
        scales.update({(window.name, plan.account): window.scale for window in plan.windows if window.scale})
    shares: dict[str, tuple[float, float]] = {}
    for (window, account), scale in scales.items():
        with_us, untouched = shares.get(window, (0.0, 0.0))
        shares[window] = with_us + scale * costs[account][0], untouched + scale * costs[account][1]
    return PlanTotals(sum(plan.cost for plan in paid), sum(plan.cost_untouched for plan in paid), shares)


def plan_requests(receipts: Iterable[Receipt | PaidRequest]) -> tuple[int, int]:
    """How many requests of clients a plan paid for, and how many anybody paid for."""
    paid = [receipt for receipt in receipts if receipt.rounds and receipt.status not in OWN_REQUEST_STATUSES]
    return sum(receipt.plan is not None for receipt in paid), len(paid)


def is_paid_by_plan(receipts: Iterable[Receipt | PaidRequest]) -> bool:
    """Whether a plan paid for all requests of clients that anybody paid for."""
    by_plan, paid = plan_requests(receipts)
    return 0 < by_plan == paid


def plan_words(receipts: Iterable[Receipt | PaidRequest]) -> str:
    """What was taken of the plan that paid for all of it; empty where anything was paid by the token."""
    oldest_first = sorted(receipts, key=lambda receipt: receipt.created)
    if not is_paid_by_plan(oldest_first):
        return ""
    total = sum_plans(receipt.plan for receipt in oldest_first)
    return format_plan(total) if total else ""


def plan_part_words(receipts: Iterable[Receipt | PaidRequest]) -> str:
    """For how many of the requests a plan paid, and what these took of it; empty where it paid for all or for none."""
    oldest_first = sorted(receipts, key=lambda receipt: receipt.created)
    by_plan, paid = plan_requests(oldest_first)
    total = sum_plans(receipt.plan for receipt in oldest_first)
    if total is None or not 0 < by_plan < paid:
        return ""
    return f"a plan paid for {by_plan:,} of {paid:,} requests ({format_plan(total)})"


def format_plan(total: PlanTotals) -> str:
    """By the longest window whose size is known; without any, how the two compare."""
    if not total.shares:
        return _compared(total)
    return _taken(total, max(total.shares, key=window_minutes))


def _taken(total: PlanTotals, window: str) -> str:
    """`4.1 % of your week, without us 6.0 %`, and `4.1 weeks, without us 6.0` where that is more than one."""
    taken, untouched = total.shares[window]
    if max(taken, untouched) <= 1 + SAME_PERCENT / 100:
        return f"{_percent(100 * taken)} of {window_words(window)}, without us {_percent(100 * untouched)}"
    return f"{taken:.1f} {WINDOWS_NAMES.get(window, f'times your {window}')}, without us {untouched:.1f}"


def _compared(total: PlanTotals) -> str:
    percent = percent_saved(total.cost_untouched - total.cost, total.cost_untouched)
    if percent is None or abs(percent) < SAME_PERCENT:
        return "as much of your plan as untouched"
    return f"{abs(percent):.1f} % {'less' if percent > 0 else 'more'} of your plan than without us"


def window_words(name: str) -> str:
    """`your week`; other lengths by their number, as `your 30d`."""
    return WINDOW_NAMES.get(name, f"your {name}")


def _percent(share: float) -> str:
    return f"{share:.2f} %" if 0 < share < SMALL_PERCENT else f"{share:.1f} %"


def plan_lines(plan: PlanCost) -> list[str]:
    """A request that a plan paid for, in sentences: what it took, and by which weights that was decided."""
    scales = {window.name: window.scale for window in plan.windows if window.scale}
    shares = {name: (scale * plan.cost, scale * plan.cost_untouched) for name, scale in scales.items()}
    total = PlanTotals(plan.cost, plan.cost_untouched, shares)
    taken = [f"it took {_taken(total, name)}" for name in sorted(shares, key=window_minutes)]
    read = f"{100 * plan.read:.1f} %"
    known = f"as measured over {plan.rounds:,} answers" if plan.rounds else "as is expected of plans; not measured yet"
    rests = ""
    if plan.read_for_gate < LITTLE_READ:
        why = "so little is gained by what leaves the context that"
        if plan.read >= LITTLE_READ:
            why = "too little was measured to build on it, so"
        rests = f"; {why} nothing is folded for that alone"
    return [
        *(taken or [f"a plan pays for it, not the token: it took {_compared(total)}"]),
        f"a cached token weighs {read} of a fresh one, {known}{rests}",
    ]
