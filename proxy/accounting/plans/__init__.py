"""Plans that are paid by window: what answers tell of them, what tokens weigh there, and who pays."""

from proxy.accounting.plans.plan_accounts import (
    ORGANIZATION,
    PAYER_HEADERS,
    AnsweredRound,
    KeptPlan,
    PlanAccounts,
    PlanState,
)
from proxy.accounting.plans.plan_weights import ListUse, list_use, plan_tariff
from proxy.accounting.plans.plan_window import WindowReading, read_windows, window_minutes
