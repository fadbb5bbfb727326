"""Tokens and money: token counts, prices, the model of prompt caches, the receipt of each request, and totals."""

from proxy.accounting.o200k import load_o200k
from proxy.accounting.pricing import (
    HOUR,
    UNKNOWN_TARIFF,
    AfterTool,
    Appendable,
    ConfiguredTariff,
    ReasoningBinding,
    RoleOrder,
    Tariff,
    Tariffs,
    ThinkingInLoop,
    family_of,
    tariff_for,
)
from proxy.accounting.prompt_cache import CacheKey, CacheUse, PromptCacheModel, PromptChain, PromptPiece
from proxy.accounting.receipts import ANSWERED_STATUS, SUMMARY_STATUS, GateDecision, Receipt, RequestOutcome, format_usd
from proxy.accounting.request_costs import Accountant, RequestAccount, response_headers
from proxy.accounting.text_tables import TableColumn, format_balance, format_columns, format_statement, format_table
from proxy.accounting.token_counter import TokenCounter, TokenCounterProtocol, estimate_tokens
from proxy.accounting.totals import (
    Balance,
    GroupBy,
    ReceiptTotals,
    group_receipts,
    percent_saved,
    sum_balances,
    sum_receipts,
    without_fixed,
)

__all__ = [
    "ANSWERED_STATUS",
    "HOUR",
    "SUMMARY_STATUS",
    "UNKNOWN_TARIFF",
    "Accountant",
    "AfterTool",
    "Appendable",
    "Balance",
    "CacheKey",
    "CacheUse",
    "ConfiguredTariff",
    "GateDecision",
    "GroupBy",
    "PromptCacheModel",
    "PromptChain",
    "PromptPiece",
    "ReasoningBinding",
    "Receipt",
    "ReceiptTotals",
    "RequestAccount",
    "RequestOutcome",
    "RoleOrder",
    "TableColumn",
    "Tariff",
    "Tariffs",
    "ThinkingInLoop",
    "TokenCounter",
    "TokenCounterProtocol",
    "estimate_tokens",
    "family_of",
    "format_balance",
    "format_columns",
    "format_statement",
    "format_table",
    "format_usd",
    "group_receipts",
    "load_o200k",
    "percent_saved",
    "response_headers",
    "sum_balances",
    "sum_receipts",
    "tariff_for",
    "without_fixed",
]
