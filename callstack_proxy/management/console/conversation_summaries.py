"""What lists say of conversations: titles, and sums over their requests.

A conversation may have thousands of messages and requests, and a page shows many conversations. So the title is read
from the first messages alone, and what was read is remembered: a title for good, sums until a request is added or
answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from callstack_proxy.management import find_by_id
from callstack_proxy.management.find_by_id import ConversationUnreadable
from callstack_proxy.management.reports import Balance, plan_part_words, plan_words, sum_balances
from callstack_proxy.management.views import conversations, decode_receipt, newest_telling
from proxy.accounting import Receipt
from proxy.core.ledger import Conversation
from proxy.store import RequestRecord, Store

NEWEST_REQUESTS = 20
"""Of a conversation: by these it is seen whether anything has changed, and how the conversation stands."""
MAX_KNOWN = 2_000
"""Conversations that are remembered, about 3 kB each."""

NewestRequests = tuple[tuple[str, int], ...]
"""Ids of the newest requests and the sizes of their receipts, newest first."""


@dataclass(frozen=True, slots=True)
class ConversationSums:
    """`newest` is the request that tells how the conversation stands, None while there is none. `plan` and `plan_part`
    are as in `ConversationRow`; `last_active` is in ms since the epoch."""

    requests: int
    balance: Balance
    plan: str
    plan_part: str
    last_active: int
    newest: Receipt | None


@dataclass(slots=True)
class ConversationSummaries:
    """What one process has read so far, by tenant and id."""

    titles: dict[tuple[str, str], str] = field(default_factory=dict)
    sums: dict[tuple[str, str], tuple[NewestRequests, ConversationSums]] = field(default_factory=dict)

    async def title(self, store: Store, tenant: str, conversation: str) -> str:
        """Empty where the user has said nothing yet. Raises ConversationUnreadable."""
        key = (tenant, conversation)
        if not (title := self.titles.get(key, "")):
            with find_by_id.translate_read_errors(conversation):
                opening = await store.first_messages(*key, conversations.MAX_OPENING_ENTRIES)
            if title := await asyncio.to_thread(conversations.task_title_of, opening):
                _forget_if_full(self.titles)
                self.titles[key] = title
        return title

    async def title_or_id(self, store: Store, tenant: str, conversation: str) -> str:
        """The beginning of its id where it has no title, or cannot be read."""
        try:
            title = await self.title(store, tenant, conversation)
        except ConversationUnreadable:
            title = ""
        return title or conversation[:12]

    async def sums_of(self, store: Store, conversation: Conversation) -> ConversationSums:
        key = (conversation.tenant, conversation.id)
        records = await store.requests(*key, NEWEST_REQUESTS)
        newest = newest_of(records)
        known = self.sums.get(key)
        if known is not None and known[0] == newest:
            return known[1]
        if len(records) == NEWEST_REQUESTS:
            records = await store.requests(*key, conversations.MAX_REQUESTS_COUNTED)
        sums = await asyncio.to_thread(_sum, conversation, records)
        # One that is answered later shows itself only among the newest.
        if not any(decode_receipt(record) is None for record in records[NEWEST_REQUESTS:]):
            _forget_if_full(self.sums)
            self.sums[key] = (newest, sums)
        return sums


def _sum(conversation: Conversation, records: Sequence[RequestRecord]) -> ConversationSums:
    """`records` are the newest first."""
    receipts = [receipt for record in records[:NEWEST_REQUESTS] if (receipt := decode_receipt(record)) is not None]
    paid = conversations.paid_requests(record.receipt for record in records)
    return ConversationSums(
        len(records),
        sum_balances(record.receipt for record in records),
        plan_words(paid),
        plan_part_words(paid),
        max(
            (
                conversation.created,
                *(each.created for each in records[:1]),
                *(each.created + round(each.duration_ms) for each in receipts[:1]),
            )
        ),
        newest_telling(receipts) or next(iter(receipts), None),
    )


def _forget_if_full(known: dict[tuple[str, str], Any]) -> None:
    if len(known) >= MAX_KNOWN:
        known.clear()


def newest_of(records: Sequence[RequestRecord]) -> NewestRequests:
    """By this it is seen whether a conversation was continued. `records` are its newest first."""
    return tuple((record.id, len(record.receipt)) for record in records[:NEWEST_REQUESTS])
