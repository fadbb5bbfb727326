"""Receipts added up: what was saved, in tokens and money, by whatever one wants to know it by.

The sums are those of `proxy.report`; this reads the receipts for them, and what the rows are called. A request that is
still being answered has no receipt yet and is counted apart. Days are those of this machine, and the answer says in
which zone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

import msgspec

from proxy.accounting import (
    SUMMARY_STATUS,
    GroupBy,
    Receipt,
    ReceiptTotals,
    group_receipts,
    sum_receipts,
    without_fixed,
)
from proxy.core.ledger import Ledger
from proxy.core.observers import ToolRoles
from proxy.core.recall import RereadCount, count_rereads
from proxy.management.views import lookup
from proxy.management.views.lookup import TenantScope
from proxy.management.views.schemas import Totals, TotalsRow
from proxy.store import RequestRecord, Store

MAX_RECEIPTS = 100_000
"""Receipts added up at most: the newest ones."""


@dataclass(frozen=True, slots=True)
class LoadedReceipts:
    """Receipts, oldest first. `unsettled` requests have none that can be read; `capped`: there are older ones."""

    receipts: list[Receipt]
    unsettled: int
    capped: bool
    entries: dict[str, str]
    """By the id of each request the entry it ended with."""


@dataclass(frozen=True, slots=True)
class ReceiptSums:
    """Rows in the order in which their keys first appear, and all in one."""

    rows: tuple[ReceiptTotals, ...]
    total: ReceiptTotals


@dataclass(frozen=True, slots=True)
class _ConversationDetails:
    """What conversations say of their requests: title and status of each frame and the title of each conversation, by
    id, and what requests read again, by theirs."""

    titles: dict[str, tuple[str, str]] = field(default_factory=dict)
    rereads: dict[str, RereadCount] = field(default_factory=dict)


async def load_receipts(
    store: Store, scope: TenantScope, conversation: str = "", *, fixed: bool = True, limit: int = MAX_RECEIPTS
) -> LoadedReceipts:
    """The newest receipts. Without `fixed`, the client's tools and system text are left out of them."""
    records = await store.requests(scope, conversation, limit)
    return await asyncio.to_thread(_decode_receipts, records, limit, fixed=fixed)  # so many take seconds


def _decode_receipts(records: Sequence[RequestRecord], limit: int, *, fixed: bool) -> LoadedReceipts:
    settled = [(record, receipt) for record in reversed(records) if (receipt := decode_receipt(record)) is not None]
    found = [receipt for _, receipt in settled]
    told = found if fixed else [without_fixed(receipt) for receipt in found]
    entries = {receipt.id: record.entry for record, receipt in settled}
    return LoadedReceipts(told, len(records) - len(found), len(records) == limit, entries)


def decode_receipt(record: RequestRecord) -> Receipt | None:
    """None while the request is being answered."""
    try:
        return msgspec.json.decode(record.receipt, type=Receipt)
    except msgspec.MsgspecError:
        return None


async def totals_view(  # noqa: PLR0913  whose receipts, which of them, and how they are told
    store: Store, scope: TenantScope, by: GroupBy, conversation: str = "", *, names: ToolRoles, fixed: bool = True
) -> Totals:
    """What `/stack/totals` answers. `names` say which tools read files."""
    read = await load_receipts(store, scope, conversation, fixed=fixed)
    added = await sum_receipts_by(store, scope, by, read, names)
    return {
        "by": by,
        "fixed": fixed,
        "zone": local_zone(),
        "rows": [_row(row) for row in added.rows],
        "total": _row(added.total),
        "unsettled": read.unsettled,
        "capped": read.capped,
    }


async def sum_receipts_by(
    store: Store, scope: TenantScope, by: GroupBy, read: LoadedReceipts, names: ToolRoles
) -> ReceiptSums:
    """The sums with their titles, how frames stand, and what was read again. Forgotten conversations tell nothing."""
    told = await _conversation_details(store, scope, read, names) if by in ("conversation", "frame") else None
    return await asyncio.to_thread(_sum_rows, by, read, told)


def _sum_rows(by: GroupBy, read: LoadedReceipts, told: _ConversationDetails | None) -> ReceiptSums:
    """`told` where rows are conversations or frames."""
    if told is None:
        rows = group_receipts(read.receipts, by, zone=None)
        if by == "request":
            for row, receipt in zip(rows, read.receipts, strict=True):
                row.title, row.status = local_time(receipt.created), receipt.status
        return ReceiptSums(rows, sum_receipts(read.receipts))
    rows = group_receipts(read.receipts, by, again=told.rereads)
    for row in rows:
        row.title, row.status = told.titles.get(row.key, ("", ""))
    return ReceiptSums(rows, sum_receipts(read.receipts, again=told.rereads))


async def _conversation_details(
    store: Store, scope: TenantScope, read: LoadedReceipts, names: ToolRoles
) -> _ConversationDetails:
    """Looked up in every conversation that has one of the receipts."""
    wanted: dict[str, list[Receipt]] = {}
    for receipt in read.receipts:
        wanted.setdefault(receipt.conversation, []).append(receipt)
    told = _ConversationDetails()
    async for known in lookup.all_conversations(store, scope):
        if known.id not in wanted:
            continue
        try:
            with lookup.translate_read_errors(known.id):
                ledger = await store.load(known.tenant, known.id)
                if ledger is not None:
                    # A fifth of a second for a thousand reads: requests that are being answered do not wait for it.
                    told.titles.update(await asyncio.to_thread(_titles, ledger))
                    receipts = wanted[known.id]
                    told.rereads.update(
                        await asyncio.to_thread(_rereads_by_request, ledger, receipts, read.entries, names)
                    )
        except lookup.ConversationUnreadable:  # what it cost is told all the same
            told.titles[known.id] = (lookup.UNREADABLE_TITLE, "")
    return told


def _titles(ledger: Ledger) -> dict[str, tuple[str, str]]:
    tree = lookup.newest_path_state(ledger).tree
    root = lookup.root_of(tree)
    frames = {frame.id: (frame.title, frame.status.value) for frame in tree.frames.values()}
    return {**frames, ledger.conversation.id: (root.title if root else "", "")}


def _rereads_by_request(
    ledger: Ledger, receipts: Iterable[Receipt], entries: Mapping[str, str], names: ToolRoles
) -> dict[str, RereadCount]:
    """By the ids of requests. Of several that ended with the same entry, the newest was asked again for the others."""
    newest = {entries[receipt.id]: receipt for receipt in receipts if receipt.status != SUMMARY_STATUS}
    ours = {entry for entry, receipt in newest.items() if receipt.status == "full"}
    found = count_rereads(ledger, ours, names)
    return {receipt.id: found[entry] for entry, receipt in newest.items() if entry in found}


def local_time(at_ms: int) -> str:
    """A time on this machine's clock."""
    return datetime.fromtimestamp(at_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def local_zone() -> str:
    """The zone of this machine's clock, as it is now: `CET (UTC+01:00)`."""
    now = datetime.now().astimezone()
    offset = now.strftime("%z")
    return f"{now.tzname()} (UTC{offset[:3]}:{offset[3:5]})" if now.utcoffset() else "UTC"


def _row(row: ReceiptTotals) -> TotalsRow:
    return cast(TotalsRow, msgspec.to_builtins(row))
