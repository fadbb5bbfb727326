"""What pages have read, and need not read again at the next look: ledgers, and receipts of answered requests.

A page is asked for anew whenever something happens, and to read a conversation of 4,000 messages from the store takes
a third of a second. Where other processes write to the same store, nothing is remembered.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api import ApiContext, now_ms
from callstack_proxy.management.console.conversation_summaries import (
    NEWEST_REQUESTS,
    ConversationSummaries,
    NewestRequests,
    newest_of,
)
from callstack_proxy.management.reports import ALL_TIME, Period
from callstack_proxy.management.views import LoadedReceipts, decode_receipt, load_receipts, totals
from proxy.accounting import Receipt
from proxy.core.frames import PathState
from proxy.core.ledger import Ledger
from proxy.store import RequestRecord, Store, TenantScope

MAX_LEDGER_BYTES = 32 << 20
"""Of all ledgers that are remembered; the one that was read last is."""
MAX_RECEIPTS = 40_000
"""Of all scopes together, those asked for last; of a scope with more, none are remembered. They take about 60 MB."""
MAX_LONG_CONVERSATIONS = 2
"""Of which the requests are remembered: 2,000 of them take about 6 MB."""
NEW_REQUESTS = 200
"""Newest requests, among which those are looked for that are not remembered."""
NO_RECEIPT = b"{}"
GIVEN_UP_MS = 60 * 60_000
"""A request that has no receipt after so long gets none."""


class KnownRequest(NamedTuple):
    """`receipt` is None for one that has none; `entry` is its last."""

    id: str
    created: int
    entry: str
    receipt: Receipt | None


class KnownReceipts(NamedTuple):
    """`requests` are the oldest of a scope, oldest first, without a gap; none of them changes any more."""

    requests: tuple[KnownRequest, ...] = ()

    def with_requests(
        self, newest_first: Sequence[RequestRecord], given_up_before: int
    ) -> tuple[KnownReceipts, Sequence[KnownRequest]]:
        """With those up to the first that is under way; and the rest."""
        requests = [
            KnownRequest(each.id, each.created, each.entry, decode_receipt(each)) for each in reversed(newest_first)
        ]
        settled = [each.receipt is not None or each.created < given_up_before for each in requests]
        count = settled.index(False) if False in settled else len(requests)
        return KnownReceipts((*self.requests, *requests[:count])), requests[count:]


@dataclass(slots=True)
class PageMemory:
    """Of one process. `summaries` has what lists say of conversations."""

    summaries: ConversationSummaries = field(default_factory=ConversationSummaries)
    ledgers: OrderedDict[tuple[str, str], tuple[NewestRequests, Ledger]] = field(default_factory=OrderedDict)
    """By tenant and id, with what the newest requests were; the one used last is the last."""
    receipts: dict[TenantScope, KnownReceipts] = field(default_factory=dict)
    requests: OrderedDict[tuple[TenantScope, str], tuple[RequestRecord, ...]] = field(default_factory=OrderedDict)
    """Of long conversations, by scope and id, newest first; the one used last is the last."""
    changes: int = 0
    """How often a person changed a conversation in this process."""

    def forget_ledger(self, tenant: str, conversation: str) -> None:
        """After a change that is no request of the conversation."""
        self.changes += 1
        self.ledgers.pop((tenant, conversation), None)

    def forget_all(self) -> None:
        """After a deletion."""
        self.changes += 1
        self.ledgers.clear()
        self.receipts.clear()
        self.requests.clear()
        self.summaries = ConversationSummaries()

    async def ledger_of(self, context: ApiContext, scope: TenantScope, conversation: str) -> Ledger:
        """As `find_by_id.ledger_of`. Nothing is added to it later. Raises NotFound, ConversationUnreadable."""
        store = context.store
        if store.is_shared:
            return await find_by_id.ledger_of(store, scope, conversation)
        tenant = await find_by_id.tenant_of_conversation(store, scope, conversation)
        key = (tenant, conversation)
        newest = newest_of(await store.requests(*key, NEWEST_REQUESTS))
        for cached in context.inbox.conversation_cache.recently_used(tenant, MAX_RECEIPTS):
            if cached.ledger.conversation.id == conversation and newest:
                return _copy(cached.ledger)
        known = self.ledgers.pop(key, None)
        if known is None or known[0] != newest or not newest:
            changes = self.changes
            known = (newest, await find_by_id.ledger_of(store, tenant, conversation))
            if changes != self.changes:  # it was read before the change, or after it
                return known[1]
        self.ledgers[key] = known
        while len(self.ledgers) > 1 and sum(each.memory_bytes for _, each in self.ledgers.values()) > MAX_LEDGER_BYTES:
            self.ledgers.popitem(last=False)
        return known[1]

    async def ledger_with_frame(self, context: ApiContext, scope: TenantScope, frame: str) -> tuple[Ledger, PathState]:
        """As `find_by_id.ledger_with_frame`. Raises NotFound, ConversationUnreadable."""
        for kind in find_by_id.FRAME_CREATING_EVENTS:
            if (owner := await context.store.conversation_with_event(scope, kind, frame)) is not None:
                ledger = await self.ledger_of(context, owner.tenant, owner.id)
                found = await asyncio.to_thread(find_by_id.path_state_with_frame, ledger, frame)
                if found is not None:
                    return ledger, found
        return await find_by_id.ledger_with_frame(context.store, scope, frame)

    async def requests_of(
        self, store: Store, scope: TenantScope, conversation: str, limit: int
    ) -> tuple[RequestRecord, ...]:
        """As `store.requests`. Of a long conversation only the newest are read again: older ones change no more."""
        newest = await store.requests(scope, conversation, limit if store.is_shared else NEW_REQUESTS)
        if store.is_shared or len(newest) < NEW_REQUESTS:
            return newest
        known = self.requests.pop((scope, conversation), ())
        at = next((at for at, record in enumerate(known) if record.id == newest[-1].id), None)
        if at is None:
            found = await store.requests(scope, conversation, limit)
        else:
            found = (*newest, *known[at + 1 :])[:limit]
        given_up_before = now_ms() - GIVEN_UP_MS
        if all(each.receipt != NO_RECEIPT or each.created < given_up_before for each in found[NEW_REQUESTS:]):
            self.requests[scope, conversation] = found
        while len(self.requests) > MAX_LONG_CONVERSATIONS:
            self.requests.popitem(last=False)
        return found

    async def load_receipts(self, store: Store, scope: TenantScope, period: Period = ALL_TIME) -> LoadedReceipts:
        """As `views.load_receipts`, of all conversations."""
        if store.is_shared:
            return await load_receipts(store, scope, period=period)
        newest = await store.requests(scope, "", NEW_REQUESTS)
        known = self.receipts.get(scope, KnownReceipts())
        count = await _count_new(store, scope, known, newest)
        if count is None:
            known, newest = KnownReceipts(), await store.requests(scope, "", totals.MAX_RECEIPTS)
            count = len(newest)
        known, under_way = await asyncio.to_thread(known.with_requests, newest[:count], now_ms() - GIVEN_UP_MS)
        self.receipts.pop(scope, None)
        if len(known.requests) <= MAX_RECEIPTS:
            self.receipts[scope] = known
        while sum(len(each.requests) for each in self.receipts.values()) > MAX_RECEIPTS:
            del self.receipts[next(iter(self.receipts))]
        is_capped = len(newest) == totals.MAX_RECEIPTS
        return await asyncio.to_thread(_loaded, (*known.requests, *under_way), period, is_capped=is_capped)


async def _count_new(
    store: Store, scope: TenantScope, known: KnownReceipts, newest: Sequence[RequestRecord]
) -> int | None:
    """How many of `newest` (newest first) came after the known ones; None where the known ones are not all that is
    behind these, because some were deleted, or too many came."""
    if not known.requests:
        return len(newest) if len(newest) < NEW_REQUESTS else None
    count = next((at for at, record in enumerate(newest) if record.id == known.requests[-1].id), None)
    if count is None:
        return None
    oldest = await store.requests(scope, "", 2, count + len(known.requests) - 1)
    return count if [record.id for record in oldest] == [known.requests[0].id] else None


def _loaded(requests: Sequence[KnownRequest], period: Period, *, is_capped: bool) -> LoadedReceipts:
    since, until = period.starts_ms, period.ends_ms
    chosen = [each for each in requests if since <= each.created < until]
    receipts = [each.receipt for each in chosen if each.receipt is not None]
    entries = {each.id: each.entry for each in chosen if each.receipt is not None}
    are_older_left_out = is_capped and bool(requests) and requests[0].created >= since
    return LoadedReceipts(receipts, len(chosen) - len(receipts), are_older_left_out, entries)


def _copy(ledger: Ledger) -> Ledger:
    """As it is now: its own dictionaries, while the values of an append-only ledger stay what they are."""
    return replace(
        ledger,
        entries=dict(ledger.entries),
        rounds=dict(ledger.rounds),
        events=dict(ledger.events),
        threads=dict(ledger.threads),
        turns_by_parent=dict(ledger.turns_by_parent),
        parent_ids=set(ledger.parent_ids),
        original_ids=dict(ledger.original_ids),
        overlays=dict(ledger.overlays),
        queue=dict(ledger.queue),
        _children=None,
    )
