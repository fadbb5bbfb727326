"""What requests took of a plan's windows, added up and in words: `4.1 % of your week, untouched 6.0 %`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from proxy.accounting.plans.plan_window import window_minutes
from proxy.accounting.receipt_fields import OWN_REQUEST_STATUSES, PlanCost, Receipt
from proxy.accounting.totals import percent_saved

WINDOW_NAMES = {"5h": "your 5 hours", "7d": "your week"}
SMALL_PERCENT = 0.1
"""Smaller shares are told with two decimals."""
SAME_PERCENT = 0.05
"""A difference below this is none."""
LITTLE_READ = 1 / 50
"""Where a cached token weighs less of a fresh one, folds seldom pay."""


class PlanTotals(msgspec.Struct, frozen=True):
    """`scales` has the share of each window that 1 of `cost` takes, as known last."""

    requests: int
    cost: float
    cost_untouched: float
    scales: dict[str, float]

    def share(self, window: str) -> tuple[float, float]:
        """In percent of a window, with us and untouched."""
        scale = 100 * self.scales[window]
        return scale * self.cost, scale * self.cost_untouched


def sum_plans(plans: Iterable[PlanCost | None]) -> PlanTotals | None:
    """The requests that a plan paid for, oldest first; None if there is none. What was not known of a window when a
    request was answered is told by what is known now."""
    paid = [plan for plan in plans if plan is not None]
    if not paid:
        return None
    scales = {window.name: window.scale for plan in paid for window in plan.windows if window.scale}
    return PlanTotals(len(paid), sum(p.cost for p in paid), sum(p.cost_untouched for p in paid), scales)


def is_paid_by_plan(receipts: Iterable[Receipt]) -> bool:
    """Whether a plan paid for all requests of clients that anybody paid for."""
    paid = [receipt for receipt in receipts if receipt.rounds and receipt.status not in OWN_REQUEST_STATUSES]
    return bool(paid) and all(receipt.plan for receipt in paid)


def plan_words(receipts: Iterable[Receipt]) -> str:
    """What was taken of the plan that paid for all of it; empty where anything was paid by the token."""
    oldest_first = sorted(receipts, key=lambda receipt: receipt.created)
    if not is_paid_by_plan(oldest_first):
        return ""
    total = sum_plans(receipt.plan for receipt in oldest_first)
    return format_plan(total) if total else ""


def format_plan(total: PlanTotals) -> str:
    """By the longest window whose size is known; without any, how the two compare."""
    if not total.scales:
        return _compared(total)
    window = max(total.scales, key=window_minutes)
    taken, untouched = total.share(window)
    return f"{_percent(taken)} of {window_words(window)}, untouched {_percent(untouched)}"


def _compared(total: PlanTotals) -> str:
    percent = percent_saved(total.cost_untouched - total.cost, total.cost_untouched)
    if percent is None or abs(percent) < SAME_PERCENT:
        return "as much of your plan as untouched"
    return f"{abs(percent):.1f} % {'less' if percent > 0 else 'more'} of your plan than untouched"


def window_words(name: str) -> str:
    """`your week`; other lengths by their number, as `your 30d`."""
    return WINDOW_NAMES.get(name, f"your {name}")


def _percent(share: float) -> str:
    return f"{share:.2f} %" if 0 < share < SMALL_PERCENT else f"{share:.1f} %"


def plan_lines(plan: PlanCost) -> list[str]:
    """A request that a plan paid for, in sentences: what it took, and by which weights that was decided."""
    scales = {window.name: window.scale for window in plan.windows if window.scale}
    total = PlanTotals(1, plan.cost, plan.cost_untouched, scales)
    taken = [
        f"it took {_percent(total.share(name)[0])} of {window_words(name)}, untouched {_percent(total.share(name)[1])}"
        for name in sorted(scales, key=window_minutes)
    ]
    read = f"{100 * plan.read:.1f} %"
    known = f"as measured over {plan.rounds:,} answers" if plan.rounds else "as is expected of plans; not measured yet"
    rests = "; so little is gained by what leaves the context that nothing is folded for that alone"
    return [
        *(taken or [f"a plan pays for it, not the token: it took {_compared(total)}"]),
        f"a cached token weighs {read} of a fresh one, {known}{rests if plan.read_for_gate < LITTLE_READ else ''}",
    ]
