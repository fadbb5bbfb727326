"""Plans that are paid by window: what answers tell of them, what tokens weigh there, who pays, what was taken."""

from proxy.accounting.plans.plan_accounts import (
    ORGANIZATION,
    PAYER_HEADERS,
    AnsweredRound,
    KeptPlan,
    PlanAccounts,
    PlanState,
)
from proxy.accounting.plans.plan_totals import (
    PaidRequest,
    PlanTotals,
    format_plan,
    is_paid_by_plan,
    plan_lines,
    plan_part_words,
    plan_requests,
    plan_words,
    sum_plans,
)
from proxy.accounting.plans.plan_weights import ListUse, list_use, plan_tariff
from proxy.accounting.plans.plan_window import WindowReading, read_windows
