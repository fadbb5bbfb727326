"""What requests cost and saved, for people: receipts added up, plans in words, comparisons, and tables of text.

A request passes none of it: the engine makes the receipts (`proxy.accounting`), and this reads them.
"""

from callstack_proxy.management.reports.period import ALL_TIME, Period, PeriodName, read_period
from callstack_proxy.management.reports.plan_totals import (
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
from callstack_proxy.management.reports.proof import ComparedMeasure, Proof, SessionCounts, compare_groups, format_proof
from callstack_proxy.management.reports.read_again import ReadAgain
from callstack_proxy.management.reports.reasons import (
    STATUS_MEANINGS,
    decision_meaning,
    outcome_meaning,
    reason_meaning,
)
from callstack_proxy.management.reports.text_tables import (
    TableColumn,
    dearer_sentence,
    format_amounts,
    format_balance,
    format_columns,
    format_statement,
    format_table,
)
from callstack_proxy.management.reports.totals import (
    NO_CLIENT,
    NO_PROJECT,
    Balance,
    GroupBy,
    ReceiptTotals,
    client_of,
    dearer_conversations,
    group_receipts,
    is_dearer,
    is_in_project,
    percent_saved,
    shown_key,
    sum_balances,
    sum_receipts,
    without_fixed,
    without_plan_prices,
)
from callstack_proxy.management.reports.work_stats import WorkCounts, count_work
