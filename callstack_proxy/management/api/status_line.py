"""What `callstack statusline` tells of a session: its context, its working frame, and what was saved today. A client
asks several times a second, so everything is kept until another request is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from typing_extensions import TypedDict

from callstack_proxy.management import find_by_id
from callstack_proxy.management.find_by_id import ConversationUnreadable, newest_path_state
from callstack_proxy.management.reports import ReadAgain, read_period
from callstack_proxy.management.views import decode_receipt
from proxy.accounting import OWN_REQUEST_STATUSES, Receipt
from proxy.core.frames import CONVERSATION
from proxy.core.ledger import Conversation, Ledger
from proxy.store import Store, TenantScope

PAGE = 200
"""Receipts that are read at once; a day of more is read page by page, once."""
MAX_PAGES = 100
MAX_CONVERSATIONS = 50
"""The most recently active ones, among which a session is looked for."""
MAX_SESSIONS = 256
"""Answers that are kept."""
REQUESTS_READ = 10
"""The newest of a conversation: one of them is of its work and has a receipt, the others are under way or beside it."""
NEWEST_READ = 20
"""While none of so many requests has changed, an answer holds."""
UNDER_WAY_MS = 3_600_000
"""A request without a receipt that is so much older than the newest one never gets one."""
STORED_LATE_MS = 60_000
"""A request is stored within so long after it came."""
NOT_OF_A_SESSION = OWN_REQUEST_STATUSES | {"side"}
"""What says nothing of the context of a session: our own requests, and small questions beside the work."""


class StatusLineView(TypedDict):
    """`tokens_sent` of `tokens_in` is the context of the newest request: what was sent in its last round, and what the
    client sent; both 0 where the session has none yet. `frame` is the title of the frame that is worked on, or empty.
    `saved` and `untouched` are USD of today's requests of all sessions, in the time zone of the proxy, that were paid
    by the token; `plan_saved` and `plan_untouched` are of those that a plan paid for, in USD of fresh input that weigh
    as much there. The last four are the same of this session alone, and of what it delegated."""

    tokens_sent: int
    tokens_in: int
    frame: str
    saved: float
    untouched: float
    plan_saved: float
    plan_untouched: float
    session_saved: float
    session_untouched: float
    session_plan_saved: float
    session_plan_untouched: float


_Amounts = tuple[float, float, float, float]
"""Saved and untouched in USD, and both of plans."""


class _Told(NamedTuple):
    """What a receipt says."""

    conversation: str
    amounts: _Amounts
    reads: tuple[str, int, int, float]
    """Of files that were read again."""


_Newest = tuple[tuple[str, int], ...]
"""The ids of the newest requests, and how long their receipts are."""


@dataclass
class _Today:
    """Receipts of one day that were added up, by the id of their request. All of what came before `read_to` (ms) was
    read."""

    day: str = ""
    receipts: dict[str, _Told] = field(default_factory=dict)
    read_to: int = 0


@dataclass
class StatusLines:
    """The answers given last, of one process: of each scope today's sums, of each session the newest requests that
    were looked at with what they led to."""

    today: dict[TenantScope, _Today] = field(default_factory=dict)
    answers: dict[tuple[TenantScope, str], tuple[_Newest, StatusLineView]] = field(default_factory=dict)
    titles: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By conversation: the newest receipt when it was read, and the title of its active frame."""

    async def view(self, store: Store, scope: TenantScope, session: str) -> StatusLineView:
        """`session` is what the client calls its session; empty for the newest conversation."""
        newest = tuple((each.id, len(each.receipt)) for each in await store.requests(scope, "", NEWEST_READ))
        known = self.answers.get((scope, session))
        if known is not None and known[0] == newest and self._is_today(scope):
            return known[1]
        await self._read_today(store, scope)
        recent = await store.recently_active(scope, MAX_CONVERSATIONS)
        own = [each for each in recent if (each.hint == session if session else not each.parent)]
        receipt, title = await self._context(store, own)
        named = {each.id for each in (own if session else own[:1])}
        named |= {each.id for each in recent if each.parent in named}
        receipts = self.today[scope].receipts.values()
        saved, untouched, plan_saved, plan_untouched = _sums(receipts)
        of_session = _sums(each for each in receipts if each.conversation in named)
        view: StatusLineView = {
            "tokens_sent": receipt.tokens_last if receipt else 0,
            "tokens_in": receipt.tokens_in if receipt else 0,
            "frame": title,
            "saved": saved,
            "untouched": untouched,
            "plan_saved": plan_saved,
            "plan_untouched": plan_untouched,
            "session_saved": of_session[0],
            "session_untouched": of_session[1],
            "session_plan_saved": of_session[2],
            "session_plan_untouched": of_session[3],
        }
        if len(self.answers) >= MAX_SESSIONS:
            self.answers.clear()
        self.answers[scope, session] = (newest, view)
        return view

    def _is_today(self, scope: TenantScope) -> bool:
        return scope in self.today and self.today[scope].day == _day()

    async def _read_today(self, store: Store, scope: TenantScope) -> None:
        """Read what today's receipts say."""
        if not self._is_today(scope):
            self.today[scope] = _Today(_day())
        today, since = self.today[scope], read_period("today").starts_ms
        newest, under_way = 0, []
        for page in range(MAX_PAGES):
            records = await store.requests(scope, "", PAGE, page * PAGE)
            newest = max(newest, records[0].created if records else 0)
            for record in records:
                if record.created < since or record.id in today.receipts:
                    continue
                if (receipt := decode_receipt(record)) is not None:
                    today.receipts[record.id] = _told(record.conversation, receipt)
                else:
                    under_way.append(record.created)
            if len(records) < PAGE or records[-1].created < max(since, today.read_to):
                break
        today.read_to = min([newest - STORED_LATE_MS, *(each for each in under_way if each > newest - UNDER_WAY_MS)])

    async def _context(self, store: Store, own: Sequence[Conversation]) -> tuple[Receipt | None, str]:
        """The newest receipt of the session's own thread, and the title of the frame that is worked on. What the
        session delegated has conversations of its own."""
        for conversation in own:
            records = await store.requests(conversation.tenant, conversation.id, REQUESTS_READ)
            decoded = [receipt for record in records if (receipt := decode_receipt(record)) is not None]
            if receipts := [receipt for receipt in decoded if receipt.status not in NOT_OF_A_SESSION]:
                return receipts[0], await self._title(store, conversation, receipts)
        return None, ""

    async def _title(self, store: Store, conversation: Conversation, receipts: Sequence[Receipt]) -> str:
        """`receipts` are the newest, the newest first. Where nothing has happened to a frame since the conversation was
        read, it is not read again."""
        known, title = self.titles.get(conversation.id, ("", ""))
        since = list(takewhile(lambda receipt: receipt.id != known, receipts))
        if len(since) == len(receipts) or any(receipt.events for receipt in since):
            try:
                ledger = await find_by_id.load_ledger(store, conversation)
            except ConversationUnreadable:
                return ""
            title = await asyncio.to_thread(_working_frame, ledger) if ledger is not None else ""
        if len(self.titles) >= MAX_SESSIONS:
            self.titles.clear()
        self.titles[conversation.id] = (receipts[0].id, title)
        return title


def _sums(receipts: Iterable[_Told]) -> _Amounts:
    """What was saved and what it would have cost: in USD, and of plans."""
    again, sums = ReadAgain(), [0.0] * 4
    for _, amounts, reads in receipts:
        again.add(*reads)
        sums = [so_far + more for so_far, more in zip(sums, amounts, strict=True)]
    return sums[0] - again.cost_caused, sums[1], sums[2], sums[3]


def _told(conversation: str, receipt: Receipt) -> _Told:
    """What a plan paid for has list prices too, which nobody pays."""
    if (plan := receipt.plan) is not None:
        return _Told(conversation, (0.0, 0.0, plan.cost_untouched - plan.cost, plan.cost_untouched), ("", 0, 0, 0.0))
    reads = (receipt.status, receipt.rereads, receipt.rereads_gone, receipt.cost_rereads)
    return _Told(conversation, (receipt.saved, receipt.cost_untouched, 0.0, 0.0), reads)


def _working_frame(ledger: Ledger) -> str:
    """The title of the active frame of the path that grew last; empty for the conversation as a whole."""
    tree = newest_path_state(ledger).tree
    frame = tree.as_shown.frames.get(tree.active)
    return "" if frame is None or frame.title == CONVERSATION else frame.title


def _day() -> str:
    return datetime.now().astimezone().date().isoformat()
