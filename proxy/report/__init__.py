"""Receipts: tokens and money of every request, beside those of the untouched run, and their sums.

prefix_cache.py  what a provider's prompt cache would have read
receipts.py      what one request cost, as a value      accounts.py  how it is computed: read this first
totals.py        many receipts added up, as rows or a table
"""

from proxy.report.accounts import Account, Accountant, response_headers
from proxy.report.prefix_cache import CacheKey, CacheUse, Chain, Piece, PrefixCache
from proxy.report.receipts import Decision, Outcome, Receipt, usd
from proxy.report.totals import By, Row, table, total, totals

__all__ = [
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
    "table",
    "total",
    "totals",
    "usd",
]
