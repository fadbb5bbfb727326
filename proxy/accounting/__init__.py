"""Receipts: tokens and money of every request, beside those of the untouched run, and their sums.

prefix_cache.py  what a provider's prompt cache would have read
receipts.py      what one request cost, as a value      accounts.py  how it is computed: read this first
totals.py        many receipts added up                printed.py   the sums as text, in columns (tables.py) that fit
"""

from proxy.accounting.prompt_cache import CacheKey, CacheUse, Chain, Piece, PrefixCache
from proxy.accounting.receipts import SUMMARY, Decision, Outcome, Receipt, usd
from proxy.accounting.request_costs import Account, Accountant, response_headers
from proxy.accounting.text_tables import statement, table
from proxy.accounting.totals import By, Row, total, totals, without_fixed

__all__ = [
    "SUMMARY",
    "Account",
    "Accountant",
    "By",
    "CacheKey",
    "CacheUse",
    "Chain",
    "Decision",
    "Outcome",
    "Piece",
    "PrefixCache",
    "Receipt",
    "Row",
    "response_headers",
    "statement",
    "table",
    "total",
    "totals",
    "usd",
    "without_fixed",
]
