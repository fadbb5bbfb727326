"""Tokens and money: token counts, prices, the model of prompt caches, and the receipt of each request."""

from proxy.accounting.cache_pauses import PING_SHARE, ping_cost, pings_that_pay
from proxy.accounting.make_receipt import NOTHING_SENT, Accountant, KnownHistory, RequestAccount, response_headers
from proxy.accounting.model_facts import STALE_DAYS, age_days, read_facts, updated_rows, write_facts
from proxy.accounting.model_prices import Tariffs, family_of, tariff_for
from proxy.accounting.o200k import load_o200k
from proxy.accounting.plans import (
    ORGANIZATION,
    PAYER_HEADERS,
    AnsweredRound,
    KeptPlan,
    PlanAccounts,
    WindowReading,
    list_use,
    read_windows,
    window_minutes,
)
from proxy.accounting.prompt_cache import CacheUse, HashedChain, PromptCacheModel, PromptChain, hash_chain
from proxy.accounting.receipt_fields import (
    ANSWERED_STATUS,
    FOLDED,
    HELD_OUT,
    KEEP_ALIVE_STATUS,
    OWN_REQUEST_STATUSES,
    SUMMARY_STATUS,
    GateDecision,
    PlanCost,
    PlanWindowUse,
    Receipt,
    RequestAmounts,
    RequestOutcome,
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
from proxy.accounting.token_counter import (
    COUNTED_APART_CHARACTERS,
    LEAST_CHARACTERS,
    SLICE_CHARACTERS,
    TokenCounter,
    TokenCounterProtocol,
    estimate_request_tokens,
    estimate_tokens,
)
