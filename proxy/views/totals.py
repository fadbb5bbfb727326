"""Receipts added up: what was saved, in tokens and money, by whatever one wants to know it by.

The sums are those of `proxy.report`; this reads the receipts for them, and what the rows are called. A request that is
still being answered has no receipt yet and is counted apart. Days are those of this machine, and the answer says in
which zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import msgspec

from proxy.report import By, Receipt, Row, total, totals, without_fixed
from proxy.store import RequestRecord, Store
from proxy.views import lookup
from proxy.views.lookup import Scope
from proxy.views.shapes import Totals, TotalsRow

MOST = 100_000
"""Receipts added up at most: the newest ones."""


@dataclass(frozen=True, slots=True)
class Read:
    """Receipts, oldest first. `unsettled` requests have none that can be read; `capped`: there are older ones."""

    receipts: list[Receipt]
    unsettled: int
    capped: bool


async def read_receipts(
    store: Store, scope: Scope, conversation: str = "", *, fixed: bool = True, limit: int = MOST
) -> Read:
    """The newest receipts. Without `fixed`, the client's tools and system text are left out of them."""
    records = await store.requests(scope, conversation, limit)
    found = [receipt for record in reversed(records) if (receipt := receipt_in(record)) is not None]
    told = found if fixed else [without_fixed(receipt) for receipt in found]
    return Read(told, len(records) - len(found), len(records) == limit)


def receipt_in(record: RequestRecord) -> Receipt | None:
    """None while the request is being answered."""
    try:
        return msgspec.json.decode(record.receipt, type=Receipt)
    except msgspec.MsgspecError:
        return None


async def sums(store: Store, scope: Scope, by: By, conversation: str = "", *, fixed: bool = True) -> Totals:
    """Rows in the order in which their keys first appear, and all in one."""
    read = await read_receipts(store, scope, conversation, fixed=fixed)
    rows = await named(store, scope, by, read.receipts)
    return {
        "by": by,
        "fixed": fixed,
        "zone": local_zone(),
        "rows": [_row(row) for row in rows],
        "total": _row(total(read.receipts)),
        "unsettled": read.unsettled,
        "capped": read.capped,
    }


async def named(store: Store, scope: Scope, by: By, receipts: Sequence[Receipt]) -> tuple[Row, ...]:
    """The sums with their titles, and how frames stand. Forgotten conversations have no name."""
    rows = totals(receipts, by, zone=None)
    if by == "request":
        for row, receipt in zip(rows, receipts, strict=True):
            row.title, row.status = moment(receipt.created), receipt.status
    elif by in ("conversation", "frame"):
        called = await _called(store, scope, receipts)
        for row in rows:
            row.title, row.status = called.get(row.key, ("", ""))
    return rows


async def _called(store: Store, scope: Scope, receipts: Iterable[Receipt]) -> dict[str, tuple[str, str]]:
    """Title and status of each frame, and the title of each conversation, by id."""
    wanted = {receipt.conversation for receipt in receipts}
    called: dict[str, tuple[str, str]] = {}
    async for known in lookup.everything(store, scope):
        ledger = await store.load(known.tenant, known.id) if known.id in wanted else None
        if ledger is not None:
            tree = lookup.newest_story(ledger).tree
            root = lookup.root_of(tree)
            called |= {frame.id: (frame.title, frame.status.value) for frame in tree.frames.values()}
            called[known.id] = (root.title if root else "", "")
    return called


def moment(at_ms: int) -> str:
    """A time on this machine's clock."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def local_zone() -> str:
    """The zone of this machine's clock, as it is now: `CET (UTC+01:00)`."""
    now = datetime.now().astimezone()
    offset = now.strftime("%z")
    return f"{now.tzname()} (UTC{offset[:3]}:{offset[3:5]})" if now.utcoffset() else "UTC"


def _row(row: Row) -> TotalsRow:
    return cast(TotalsRow, msgspec.to_builtins(row))
