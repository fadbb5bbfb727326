"""Receipts: tokens and money of every request, beside those of the untouched run, and their sums.

prefix_cache.py  what a provider's prompt cache would have read
receipts.py      what one request cost, as a value      accounts.py  how it is computed: read this first
totals.py        many receipts added up                printed.py   the sums as text, in columns (tables.py) that fit
"""

from proxy.accounting.prompt_cache import CacheKey, CacheUse, PromptCacheModel, PromptChain, PromptPiece
from proxy.accounting.receipts import SUMMARY_STATUS, GateDecision, Receipt, RequestOutcome, format_usd
from proxy.accounting.request_costs import Accountant, RequestAccount, response_headers
from proxy.accounting.text_tables import format_statement, format_table
from proxy.accounting.totals import GroupBy, ReceiptTotals, group_receipts, sum_receipts, without_fixed

__all__ = [
    "SUMMARY_STATUS",
    "Accountant",
    "CacheKey",
    "CacheUse",
    "GateDecision",
    "GroupBy",
    "PromptCacheModel",
    "PromptChain",
    "PromptPiece",
    "Receipt",
    "ReceiptTotals",
    "RequestAccount",
    "RequestOutcome",
    "format_statement",
    "format_table",
    "format_usd",
    "group_receipts",
    "response_headers",
    "sum_receipts",
    "without_fixed",
]
