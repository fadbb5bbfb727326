"""Receipts added up: what was saved, in tokens and money, by whatever one wants to know it by.

The sums are those of `proxy.report`; this reads the receipts for them. A request that is still being answered has no
receipt yet and is counted apart.
"""

from __future__ import annotations

from typing import cast

import msgspec

from proxy.report import By, Receipt, Row, total, totals
from proxy.store import RequestRecord, Store
from proxy.views.lookup import Scope
from proxy.views.shapes import Totals, TotalsRow

MOST = 100_000
"""Receipts added up at most: the newest ones."""


async def read_receipts(
    store: Store, scope: Scope, conversation: str = "", limit: int = MOST
) -> tuple[list[Receipt], int]:
    """The receipts, oldest first, and how many requests have none that can be read."""
    records = await store.requests(scope, conversation, limit)
    found = [receipt for record in reversed(records) if (receipt := receipt_in(record)) is not None]
    return found, len(records) - len(found)


def receipt_in(record: RequestRecord) -> Receipt | None:
    """None while the request is being answered."""
    try:
        return msgspec.json.decode(record.receipt, type=Receipt)
    except msgspec.MsgspecError:
        return None


async def sums(store: Store, scope: Scope, by: By, conversation: str = "") -> Totals:
    """Rows in the order in which their keys first appear, and all in one."""
    receipts, unsettled = await read_receipts(store, scope, conversation)
    return {
        "by": by,
        "rows": [_row(row) for row in totals(receipts, by)],
        "total": _row(total(receipts)),
        "unsettled": unsettled,
    }


def _row(row: Row) -> TotalsRow:
    return cast(TotalsRow, msgspec.to_builtins(row))
