"""Receipts: tokens and money of every request, beside those of the untouched run, and their sums.

prefix_cache.py  what a provider's prompt cache would have read
receipts.py      what one request cost, as a value      accounts.py  how it is computed: read this first
totals.py        many receipts added up                printed.py   the sums as text, in columns (tables.py) that fit
"""

from proxy.report.accounts import Account, Accountant, response_headers
from proxy.report.prefix_cache import CacheKey, CacheUse, Chain, Piece, PrefixCache
from proxy.report.printed import statement, table
from proxy.report.receipts import SUMMARY, Decision, Outcome, Receipt, usd
from proxy.report.totals import By, Row, total, totals, without_fixed

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
