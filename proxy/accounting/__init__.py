"""Tokens and money: token counts, prices, the model of prompt caches, the receipt of each request, and totals."""

from proxy.accounting.cache_pauses import PING_SHARE, ping_cost, pings_that_pay
from proxy.accounting.make_receipt import (
    NOTHING_SENT,
    Accountant,
    KnownHistory,
    RequestAccount,
    response_headers,
)
from proxy.accounting.model_facts import (
    STALE_DAYS,
    ModelFacts,
    age_days,
    read_facts,
    rows_of,
    updated_rows,
    write_facts,
)
from proxy.accounting.model_prices import Tariffs, family_of, tariff_for
from proxy.accounting.o200k import load_o200k
from proxy.accounting.period import ALL_TIME, Period, PeriodName, read_period
from proxy.accounting.plans import (
    ORGANIZATION,
    PAYER_HEADERS,
    AnsweredRound,
    KeptPlan,
    ListUse,
    PaidRequest,
    PlanAccounts,
    PlanTotals,
    WindowReading,
    format_plan,
    is_paid_by_plan,
    list_use,
    plan_lines,
    plan_part_words,
    plan_requests,
    plan_words,
    read_windows,
    sum_plans,
)
from proxy.accounting.project import NO_PROJECT, is_in_project
from proxy.accounting.prompt_cache import (
    CacheKey,
    CacheUse,
    HashedChain,
    PromptCacheModel,
    PromptChain,
    PromptPiece,
    hash_chain,
)
from proxy.accounting.proof import (
    FOLDED,
    HELD_OUT,
    ComparedMeasure,
    Proof,
    SessionCounts,
    compare_groups,
    format_proof,
)
from proxy.accounting.read_again import ReadAgain
from proxy.accounting.reasons import STATUS_MEANINGS, decision_meaning, outcome_meaning, reason_meaning
from proxy.accounting.receipt_fields import (
    ANSWERED_STATUS,
    KEEP_ALIVE_STATUS,
    OWN_REQUEST_STATUSES,
    SUMMARY_STATUS,
    GateDecision,
    PlanCost,
    PlanWindowUse,
    Receipt,
    RequestOutcome,
    format_usd,
)
from proxy.accounting.tariff import (
    HOUR,
    UNKNOWN_TARIFF,
    AfterTool,
    Appendable,
    ConfiguredTariff,
    ReasoningBinding,
    RoleOrder,
    Tariff,
    ThinkingInLoop,
)
from proxy.accounting.text_tables import (
    TableColumn,
    dearer_sentence,
    format_amounts,
    format_balance,
    format_columns,
    format_statement,
    format_table,
)
from proxy.accounting.token_counter import (
    RememberedCounts,
    TokenCounter,
    TokenCounterProtocol,
    estimate_request_tokens,
    estimate_tokens,
)
from proxy.accounting.totals import (
    Balance,
    GroupBy,
    ReceiptTotals,
    client_of,
    dearer_conversations,
    group_receipts,
    is_dearer,
    percent_saved,
    shown_key,
    sum_balances,
    sum_receipts,
    without_fixed,
    without_plan_prices,
)
