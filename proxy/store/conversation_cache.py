"""Conversations in memory: a bounded cache over the store, which also finds the conversation of a request.

Records go to the store first and then into the ledger. If the store loses records of a conversation, or it is deleted,
its object is dropped, refuses records, and is read again; otherwise all requests share one object.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, islice
from time import monotonic
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from proxy.core.frames import PathState, replay
from proxy.core.ledger import (
    Conversation,
    Entry,
    Ledger,
    LedgerEvent,
    LedgerItem,
    Request,
    Round,
    response_id_of,
    turn_id,
)
from proxy.core.matching import (
    Match,
    MatchKind,
    answered_summary_request,
    guess_subagent_parent,
    is_beginning,
    lookup_keys,
    match_history,
    match_quoted,
    match_restarted,
    match_retry,
)
from proxy.core.policy import FrameActivity
from proxy.errors import StoreError
from proxy.store.interface import AnchorRecord, Changes, LedgerRecord, Record, Store

MAX_WRITE_DELAY_S = 0.25
"""The store writes within this time. Until then a context that omits none of the new entries need not wait."""
MAX_PATH_STATES = 6
"""Cached path states per conversation, one for each parallel branch."""
MAX_ANCHORS = 16_384
"""Anchors kept in memory, about 300 bytes each; older ones are looked up in the store."""
FRAME_ID_EVENT_KINDS = ("folded", "pushed", "planned", "entered", "delegated", "rooted")
"""Kinds of events whose subject is a frame id."""
MAX_LOCKS = 256
"""Locks kept, by most recently used scope."""
MAX_CANDIDATES = 64
"""Cached conversations examined for one that a request restarts or is a subagent of."""
MAX_RECENT_LOADED = 16
"""Newest conversations that other processes may have begun, read when a request matches none in memory."""
MAX_CACHE_BYTES = 32 << 20
"""Room for twenty conversations of 160k tokens."""
SIZE_CHECK_DIVISOR = 16
"""The cache is measured after each sixteenth of its size that was added."""


class NewEntries(msgspec.Struct, frozen=True, gc=False):
    """A write that may not be on disk yet: its time (s, monotonic) and its entries."""

    written_at: float
    ticket: int
    entries: tuple[str, ...]


@dataclass
class CachedConversation:
    """A conversation in memory. `ticket` is its newest write, `decision_ticket` the newest that changes contexts,
    `settled_ticket` the newest old enough to be on disk, `recent_writes` the later ones, oldest first; receipts count
    for none of these."""

    ledger: Ledger
    tenant: str
    path_states: OrderedDict[str, PathState] = field(default_factory=OrderedDict)
    ticket: int = 0
    decision_ticket: int = 0
    settled_ticket: int = 0
    recent_writes: deque[NewEntries] = field(default_factory=deque)
    pending_entries: dict[str, int] = field(default_factory=dict)
    """Entries of fresh writes, each with the newest ticket."""
    attempts: dict[str, int] = field(default_factory=dict)
    readings: OrderedDict[tuple[str, str], FrameActivity] = field(default_factory=OrderedDict)
    """What observers found so far, by thread and segment."""
    loss_count: int = 0
    """`Store.loss_count` when the conversation was read."""
    is_dropped: bool = False
    elsewhere_at: int = 0
    """When another process continued it last (ms), if it did since this one."""
    writer: str = ""
    """What the turns of this process are named by, where others write to the same store."""

    def take_elsewhere_time(self) -> int:
        """`elsewhere_at`, once: from now on this process has continued it."""
        at, self.elsewhere_at = self.elsewhere_at, 0
        return at

    def record_write(self, ticket: int, values: Sequence[LedgerItem], now: float) -> None:
        """Note that `values` were handed to the store at `now` (s, monotonic)."""
        self._expire_recent_writes(now)
        self.ticket = ticket
        written: dict[str, int] = {}
        for value in values:
            if isinstance(value, Round):
                written[value.turn] = ticket
            elif isinstance(value, Entry):
                written[value.id] = ticket
                if value.is_overlay:  # a text of ours that stands in contexts
                    self.decision_ticket = ticket
            elif isinstance(value, LedgerEvent):
                self.decision_ticket = ticket
        self.recent_writes.append(NewEntries(now, ticket, tuple(written)))
        self.pending_entries |= written

    def required_ticket(self, left_out: Set[str], now: float) -> int:
        """The newest write that must be on disk before a context without these entries is sent."""
        self._expire_recent_writes(now)
        omitted = (self.pending_entries[entry] for entry in left_out & self.pending_entries.keys())
        return max(self.settled_ticket, self.decision_ticket, *omitted)

    def _expire_recent_writes(self, now: float) -> None:
        while self.recent_writes and now - self.recent_writes[0].written_at >= MAX_WRITE_DELAY_S:
            write = self.recent_writes.popleft()
            self.settled_ticket = write.ticket
            for entry in write.entries:
                if self.pending_entries.get(entry) == write.ticket:
                    del self.pending_entries[entry]

    def next_turn_id(self, node: str) -> str:
        """Id of the next turn. Turns in progress count, and failed ones may have left gaps."""
        number = max(self.attempts.get(node, 0), len(self.ledger.turns_by_parent.get(node, ())))
        while (turn := turn_id(node, number, self.writer)) in self.ledger.entries:
            number += 1
        self.attempts[node] = number + 1
        return turn

    def path_state(self, tip: str) -> PathState:
        """State of the path to `tip`, extended from the longest cached one."""
        if (known := self.path_states.get(tip)) is not None:
            self.path_states.move_to_end(tip)
            return known
        path_state = replay(self.ledger, self.ledger.path(tip), self.path_states)
        self.cache_path_state(tip, path_state)
        return path_state

    def cache_path_state(self, tip: str, path_state: PathState) -> None:
        self.path_states[tip] = path_state
        self.path_states.move_to_end(tip)
        while len(self.path_states) > MAX_PATH_STATES:
            self.path_states.popitem(last=False)

    def forget_path_state(self, tip: str) -> None:
        self.path_states.pop(tip, None)


class ConversationQuery(NamedTuple):
    """A request whose conversation is looked for, at `now` (ms), among those of one tenant, session hint and
    dialect."""

    tenant: str
    hint: str
    request: Request
    now: int
    dialect: str

    @property
    def opens(self) -> bool:
        return not any(m.role == "assistant" for m in self.request.messages)


@dataclass
class StoredCandidates:
    """What the store knew of a request when it was read. `before` were known in memory then, `anchored` have one of its
    `keys`, `in_session` its session hint, `delegating` a call with a text that it begins with. `loaded` keeps them in
    memory."""

    keys: tuple[str, ...] = ()
    before: Set[str] = frozenset()
    anchored: tuple[str, ...] = ()
    in_session: tuple[str, ...] = ()
    delegating: tuple[str, ...] = ()
    unread: list[StoreError] = field(default_factory=list)
    loaded: list[CachedConversation] = field(default_factory=list)


@dataclass
class _RecentRefresh:
    """When the newest conversations of one tenant were last read. `began`: when the last reading that is complete began
    (s, monotonic)."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    began: float = -math.inf


class ConversationCache:
    """`most_bytes` bounds the cached ledgers. Up to `ask_until` (ms) openings are also looked up in the store, because
    a retry may follow a request that another process took. `clock` is monotonic, in seconds. `told` receives new
    events."""

    def __init__(
        self,
        store: Store,
        *,
        ask_until: int = 0,
        most_bytes: int = MAX_CACHE_BYTES,
        clock: Callable[[], float] = monotonic,
        told: Callable[[Ledger, Sequence[LedgerEvent]], None] = lambda *_: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_events = told
        self._query_store_until = ask_until
        self._writer = secrets.token_hex(8) if store.is_shared else ""
        self._max_bytes = most_bytes
        self._conversations: OrderedDict[tuple[str, str], CachedConversation] = OrderedDict()
        self._anchors: OrderedDict[tuple[str, str, str], tuple[str, ...]] = OrderedDict()
        self._added_bytes = 0
        """Bytes added since the cache was measured."""
        self._in_use: WeakValueDictionary[tuple[str, str], CachedConversation] = WeakValueDictionary()
        self._refreshes = lru_cache(MAX_LOCKS)(lambda _tenant: _RecentRefresh())
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self.lock = lru_cache(MAX_LOCKS)(self._lock)
        """Lock of a tenant and session hint: one request at a time changes the state of a scope."""

    def _lock(self, tenant: str, hint: str) -> asyncio.Lock:
        """A lock in use stays the same object, however many others are asked for."""
        key = (tenant, hint)
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock

    @property
    def is_shared(self) -> bool:
        """Whether other processes write to the same conversations."""
        return self._store.is_shared

    # ---------------------------------------------------------------------------------------------------------- find
    async def look_up(self, asked: ConversationQuery, prompts: Callable[[], Sequence[str]] = tuple) -> StoredCandidates:
        """Read what other processes wrote that the request may belong to; nothing where the store is not shared. Call
        it before the lock of the scope is taken, so that nobody waits while the store answers. `prompts` are texts that
        a call may have delegated to a new conversation. Raises StoreError."""
        if not self._store.is_shared:
            return StoredCandidates()
        keys = tuple(chain.from_iterable(lookup_keys.anchors_of(asked.request)))
        before = frozenset(self._anchored(asked, keys))
        named = await self._store.find_by_anchors(asked.tenant, asked.hint, keys)
        unread: list[StoreError] = []
        came = await self._load_candidates(asked, named, unread)
        known = StoredCandidates(keys, before, named, unread=unread, loaded=came)
        if _match_stored(came, asked) is not None:
            return known
        texts = [lookup_keys.prompt_anchor(text) for text in prompts()]
        known.delegating, known.in_session, _ = await asyncio.gather(
            self._read_delegating(asked.tenant, texts), self._read_session(asked), self._refresh_recent(asked.tenant)
        )
        for some in await asyncio.gather(
            self._load_candidates(asked, known.in_session), self._load_readable(asked.tenant, known.delegating)
        ):
            known.loaded += some
        return known

    async def _read_delegating(self, tenant: str, keys: Sequence[str]) -> tuple[str, ...]:
        return await self._store.find_by_anchors(tenant, "", keys) if keys else ()

    async def _read_session(self, asked: ConversationQuery) -> tuple[str, ...]:
        return await self._store.conversations_in_session(asked.tenant, asked.hint) if asked.hint else ()

    async def locate(
        self, asked: ConversationQuery, known: StoredCandidates | None = None
    ) -> tuple[CachedConversation | None, Match]:
        """The conversation of a request and the match in it; (None, NEW) if there is none. `known` is what `look_up`
        returned. Raises StoreError, also if the only candidate cannot be read."""
        if self._store.is_shared:
            match_found = await self._match_looked_up(asked, known or await self.look_up(asked))
        else:
            match_found = await self._match_own(asked)
            if match_found is None and asked.hint:
                match_found = _match_compacted(
                    await self._load_candidates(asked, await self._read_session(asked)), asked.request
                )
        if match_found is None and not asked.hint and is_beginning(asked.request.messages, ()):
            match_found = self._match_restarted(asked)
        return match_found or (None, Match(MatchKind.NEW))

    async def _match_own(self, asked: ConversationQuery) -> tuple[CachedConversation, Match] | None:
        """The best match where this process alone writes to the store: mostly in memory."""
        unread: list[StoreError] = []
        keys: list[str] = []
        held: list[str] = []
        match_found = None
        for group in lookup_keys.anchors_of(asked.request):
            keys += group
            held += self._anchored(asked, group)
            match_found = _best_match(await self._load_candidates(asked, held, unread), asked)
            if match_found and (asked.opens or match_history.covers(match_found[1], asked.request)):
                return match_found
        if match_found is None and (not asked.opens or asked.now < self._query_store_until):
            stored = await self._store.find_by_anchors(asked.tenant, asked.hint, keys)
            match_found = _match_stored(await self._load_candidates(asked, stored, unread), asked)
        if match_found is None and unread:
            raise unread[0]
        return match_found

    async def _match_looked_up(
        self, asked: ConversationQuery, known: StoredCandidates
    ) -> tuple[CachedConversation, Match] | None:
        """The best match among what was looked up, and what this process recorded since."""
        since = [c for c in self._anchored(asked, known.keys) if c not in known.before]
        unread = list(known.unread)
        came = await self._load_candidates(asked, (*since, *known.anchored), unread, takes_over=False)
        match_found = _match_stored(came, asked)
        if match_found is None and unread:
            raise unread[0]
        if match_found is None and known.in_session:
            named = await self._load_candidates(asked, known.in_session, takes_over=False)
            match_found = _match_compacted(named, asked.request)
        return match_found

    def _anchored(self, asked: ConversationQuery, keys: Iterable[str]) -> list[str]:
        """Conversations under these keys in memory."""
        return [c for key in keys for c in self._anchors.get((asked.tenant, asked.hint, key), ())]

    async def _load_candidates(
        self,
        asked: ConversationQuery,
        conversations: Iterable[str],
        unread: list[StoreError] | None = None,
        *,
        takes_over: bool = True,
    ) -> list[CachedConversation]:
        """Those in the dialect of the request. Errors go to `unread` while other candidates remain. `takes_over`: with
        what other processes wrote to those in memory. Raises StoreError."""
        tenant, named = asked.tenant, tuple(dict.fromkeys(conversations))
        if takes_over:
            await self._take_over_changes(tenant, named)
        held = {c: self._cached(tenant, c) for c in named}
        missing = [c for c, cached in held.items() if cached is None]
        read = await asyncio.gather(*(self._read_candidate(tenant, c, unread) for c in missing)) if missing else ()
        held |= zip(missing, read, strict=True)
        return [cached for cached in held.values() if cached and cached.ledger.conversation.dialect == asked.dialect]

    async def _read_candidate(
        self, tenant: str, conversation: str, unread: list[StoreError] | None
    ) -> CachedConversation | None:
        try:
            return await self.get(tenant, conversation)
        except StoreError as error:
            if unread is None or error.code != StoreError.code:  # or it is the store that fails
                raise
            unread.append(error)
            return None

    def _match_restarted(self, asked: ConversationQuery) -> tuple[CachedConversation, Match] | None:
        """The newest cached conversation that the request opens with a summary of. Where another agent made the
        summary, and it may be of two, it is of none."""
        ours = (s for (owner, _), s in self._conversations.items() if owner == asked.tenant)
        held = [s for s in ours if not (about := s.ledger.conversation).hint and about.dialect == asked.dialect]
        recent = held[: -MAX_CANDIDATES - 1 : -1]
        summarized = [text for s in recent if (text := answered_summary_request(s.ledger, asked.request))]
        pairs = ((s, match_quoted(s.ledger, asked.request, text)) for s in recent for text in summarized)
        quoted = {id(s): (s, match) for s, match in pairs if match}
        if quoted:
            return next(iter(quoted.values())) if len(quoted) == 1 else None
        matches = ((s, match_restarted(s.ledger, asked.request)) for s in recent)
        return next(((s, match) for s, match in matches if match), None)

    async def knows_anchor(self, tenant: str, hint: str, keys: Sequence[str]) -> bool:
        """Whether any of `keys` is kept for this tenant and session hint. Raises StoreError."""
        if not keys or any((tenant, hint, key) in self._anchors for key in keys):
            return bool(keys)
        return bool(await self._store.find_by_anchors(tenant, hint, keys))

    def recent_conversations(self, tenant: str) -> list[CachedConversation]:
        """Cached conversations of this tenant, most recently used last."""
        return [cached for (owner, _), cached in self._conversations.items() if owner == tenant][-MAX_CANDIDATES:]

    def recently_used(self, tenant: str | None, limit: int = 50) -> list[CachedConversation]:
        """Those in memory, the most recently used first; of everybody for None."""
        found = (cached for (owner, _), cached in reversed(self._conversations.items()) if tenant in (None, owner))
        return list(islice(found, limit))

    async def _take_over_changes(self, tenant: str, conversations: Iterable[str]) -> None:
        """Add what other processes wrote to those that are in memory. All their requests go on sharing one object."""
        if not self._store.is_shared:
            return
        cached = {c: held for c in conversations if (held := self._cached(tenant, c)) is not None}
        known = {c: held.ledger.read_upto for c, held in cached.items()}
        for conversation, changes in (await self._store.changes(tenant, known)).items():
            held = cached[conversation]
            if changes is not None:
                _add_changes(held, changes)
            elif held.ledger.read_upto:
                self.drop(held)  # another process deleted it

    async def _refresh_recent(self, tenant: str) -> None:
        """Bring conversations to memory that other processes began, and those there up to date: what a request without
        a match may belong to is looked for among them. Requests that come together share one refresh."""
        asked, refresh = self._clock(), self._refreshes(tenant)
        async with refresh.lock:
            if refresh.began >= asked:
                return
            began = self._clock()
            newest = await self._store.conversations(tenant, MAX_RECENT_LOADED, awaits_writes=False)
            recent = [*(c.id for c in newest), *(s.ledger.conversation.id for s in self.recent_conversations(tenant))]
            await self._take_over_changes(tenant, dict.fromkeys(recent))
            missing = [c.id for c in newest if self._cached(tenant, c.id) is None]
            await asyncio.gather(*(self._read_if_possible(tenant, c) for c in missing))
            refresh.began = began

    async def _read_if_possible(self, tenant: str, conversation: str) -> None:
        with suppress(StoreError):
            await self.get(tenant, conversation)

    async def get(self, tenant: str, conversation: str) -> CachedConversation | None:
        """A conversation of this tenant, from memory or the store."""
        await self._take_over_changes(tenant, (conversation,))
        if (cached := self._cached(tenant, conversation)) is not None:
            return cached
        losses = self._store.loss_count(tenant, conversation)  # before it is read: what is lost meanwhile may be in it
        ledger = await self._store.load(tenant, conversation)
        if ledger is None:
            return None
        if (cached := self._cached(tenant, conversation)) is not None:  # somebody else read it meanwhile
            return cached
        return self._insert(CachedConversation(ledger, tenant, loss_count=losses, writer=self._writer))

    def _cached(self, tenant: str, conversation: str) -> CachedConversation | None:
        key = (tenant, conversation)
        cached = self._conversations.get(key) or self._in_use.get(key)
        if cached is None or self._drop_if_lost(cached):
            return None
        self._conversations[key] = cached
        self._conversations.move_to_end(key)
        return cached

    def _insert(self, cached: CachedConversation) -> CachedConversation:
        key = (cached.tenant, cached.ledger.conversation.id)
        self._conversations[key] = self._in_use[key] = cached
        self._count_added_bytes(cached.ledger.memory_bytes)
        return cached

    def prompt_records(self, cached: CachedConversation, prompts: Sequence[str]) -> list[AnchorRecord]:
        """What other processes need to see that a subagent begins with one of these texts."""
        shared = self._store.is_shared and bool(prompts)
        return [AnchorRecord(cached.ledger.conversation.id, "", tuple(prompts), 0)] if shared else []

    def expect_prompts(self, cached: CachedConversation, prompts: Sequence[str]) -> None:
        """Remember texts that a subagent may soon begin with. Not stored, because subagents begin at once."""
        self._keep_anchors(cached.tenant, AnchorRecord(cached.ledger.conversation.id, "", tuple(prompts), 0))

    async def find_delegating(
        self, tenant: str, text: str, known: StoredCandidates
    ) -> tuple[CachedConversation, str] | None:
        """The conversation and turn with a pending call that gave `text` to a subagent; without the turn where the call
        was answered before. Looks in memory, and among what `look_up` found."""
        begun = None
        for conversation in self._anchors.get((tenant, "", lookup_keys.prompt_anchor(text)), ()) or known.delegating:
            cached = self._cached(tenant, conversation) or await self.get(tenant, conversation)
            if cached and (turn := lookup_keys.delegating_turn(cached.ledger, text)):
                return cached, turn
            if cached and begun is None and guess_subagent_parent.has_begun_agent(cached.ledger, text):
                begun = cached, ""
        return begun

    async def find_by_answer_id(self, tenant: str, name: str) -> tuple[CachedConversation, str] | None:
        """The conversation with an answer that the client knows by this id, and its turn (empty for a part of one)."""
        key = lookup_keys.response_anchor(name)
        conversations = self._anchors.get((tenant, "", key)) or await self._store.find_by_anchors(tenant, "", [key])
        for conversation in conversations:
            if (cached := await self.get(tenant, conversation)) is not None:
                turns = cached.ledger.rounds.items()
                return cached, next((turn for turn, rounds in turns if response_id_of(rounds) == name), "")
        return None

    async def is_anothers_answer(self, tenant: str, name: str) -> bool:
        """Whether the answer that has this id was given to another tenant, and not to this one. Raises StoreError."""
        key = lookup_keys.response_anchor(name)
        if await self.knows_anchor(tenant, "", [key]):
            return False
        return await self._store.is_anchor_of_others(tenant, key)

    async def related_ledgers(
        self, cached: CachedConversation, frames: Iterable[str], delegated: Iterable[str] = ()
    ) -> tuple[Ledger, ...]:
        """Conversations of the same tenant that can be recalled from this one: parent, cached children, `delegated`,
        and those that folded or opened one of `frames` (full ids). Unreadable ones are left out."""
        conversation = cached.ledger.conversation
        of_tenant = {c: s for (tenant, c), s in self._conversations.items() if tenant == cached.tenant}
        related = [c for c, s in of_tenant.items() if s.ledger.conversation.parent == conversation.id]
        related += [*delegated, *([conversation.parent] if conversation.parent else [])]
        with suppress(StoreError):
            held = [
                await self._store.conversation_with_event(cached.tenant, kind, f)
                for f in frames
                for kind in FRAME_ID_EVENT_KINDS
            ]
            related += [c.id for c in held if c is not None]
        others = await self._load_readable(cached.tenant, (c for c in dict.fromkeys(related) if c != conversation.id))
        return tuple(s.ledger for s in others)

    async def _load_readable(self, tenant: str, conversations: Iterable[str]) -> list[CachedConversation]:
        """Those that can be read; after a failure of the store, those in memory."""
        got, fails = [], False
        for conversation in conversations:
            try:
                cached = self._cached(tenant, conversation) if fails else await self.get(tenant, conversation)
            except StoreError as error:
                cached, fails = None, error.code != StoreError.code
            got += [cached] if cached else []
        return got

    async def conversations_in_session(self, tenant: str, hint: str) -> tuple[str, ...]:
        return await self._store.conversations_in_session(tenant, hint)

    # --------------------------------------------------------------------------------------------------------- record
    def create(self, conversation: Conversation) -> CachedConversation:
        """A new conversation; `record` stores it."""
        losses = self._store.loss_count(conversation.tenant, conversation.id)
        ledger = Ledger(conversation)
        return self._insert(CachedConversation(ledger, conversation.tenant, loss_count=losses, writer=self._writer))

    def record(self, cached: CachedConversation, values: Sequence[LedgerItem], others: Sequence[Record] = ()) -> int:
        """Hand all records to the store as one transaction, then add the values to the ledger. Returns the ticket.
        Raises StoreError before anything changed, and for a dropped conversation."""
        self._refuse_if_dropped(cached)
        ledger = cached.ledger
        try:
            ticket = self._store.write(cached.tenant, _ordered_records(ledger.conversation.id, values, others))
        except StoreError:
            if not ledger.entries:  # nothing of it was ever stored
                self.drop(cached)
            raise
        if values or any(isinstance(record, Conversation | AnchorRecord) for record in others):
            cached.record_write(ticket, values, self._clock())
        before = ledger.memory_bytes
        decided: list[LedgerEvent] = []
        for value in values:
            ledger.add(value)
            if isinstance(value, LedgerEvent):
                decided.append(value)
        self._count_added_bytes(ledger.memory_bytes - before)
        for record in others:
            if isinstance(record, AnchorRecord):
                self._keep_anchors(cached.tenant, record)
        if decided:
            self._on_events(ledger, decided)
        return ticket

    def _keep_anchors(self, tenant: str, anchored: AnchorRecord) -> None:
        newest = anchored.conversation
        for key in anchored.keys:
            anchor = (tenant, anchored.hint, key)
            conversations = self._anchors.pop(anchor, (newest,))
            self._anchors[anchor] = (
                conversations
                if conversations[0] == newest
                else (newest, *(c for c in conversations if c != newest))[:8]
            )
        while len(self._anchors) > MAX_ANCHORS:
            self._anchors.popitem(last=False)

    async def wait_until_durable(self, cached: CachedConversation, left_out: Set[str] | None = None) -> None:
        """Wait until all records of this conversation are on disk; with `left_out`, only those that a context without
        these entries depends on. Raises StoreError if they will not be, or not soon, and for a dropped conversation."""
        ticket = cached.ticket if left_out is None else cached.required_ticket(left_out, self._clock())
        try:
            await self._store.wait_until_durable(ticket)
        except StoreError:
            self._drop_if_lost(cached)
            raise
        self._refuse_if_dropped(cached)

    def _refuse_if_dropped(self, cached: CachedConversation) -> None:
        if cached.is_dropped or self._drop_if_lost(cached):
            raise StoreError("the conversation was deleted, or records of it were lost: it has to be read again")

    def _drop_if_lost(self, cached: CachedConversation) -> bool:
        if self._store.loss_count(cached.tenant, cached.ledger.conversation.id) == cached.loss_count:
            return False
        self.drop(cached)
        return True

    def parent_of(self, tenant: str, conversation: str) -> str:
        cached = self._conversations.get((tenant, conversation)) or self._in_use.get((tenant, conversation))
        return cached.ledger.conversation.parent if cached else ""

    @property
    def conversation_count(self) -> int:
        return len(self._conversations)

    def drop(self, cached: CachedConversation) -> None:
        """Drop a conversation for good; it is read from the store when needed again."""
        cached.is_dropped = True
        key = (cached.tenant, cached.ledger.conversation.id)
        for cache in (self._conversations, self._in_use):
            if cache.get(key) is cached:
                del cache[key]

    def drop_deleted(self, tenant: str | None = None, conversation: str = "") -> None:
        """Drop deleted conversations, of `tenant` or with id `conversation` if given."""
        for cached in {id(held): held for held in (*self._conversations.values(), *self._in_use.values())}.values():
            if tenant in (None, cached.tenant) and conversation in ("", cached.ledger.conversation.id):
                self._drop_if_lost(cached)

    def set_mode(self, tenant: str, conversation: str, mode: str) -> None:
        """Set the mode of a cached conversation, after it was stored. It counts from the next request."""
        key = (tenant, conversation)
        if (cached := self._conversations.get(key) or self._in_use.get(key)) is not None:
            cached.ledger.conversation = replace(cached.ledger.conversation, mode=mode)

    def apply_events(self, tenant: str, conversation: str, events: Sequence[LedgerEvent]) -> None:
        """Add events that were stored beside the requests of a conversation, and drop its path states."""
        key = (tenant, conversation)
        for cached in (self._conversations.get(key), self._in_use.get(key)):
            if cached is not None:
                for event in events:
                    cached.ledger.add_event(event)
                cached.path_states.clear()
        at_hand = self._conversations.get(key) or self._in_use.get(key)
        self._on_events(at_hand.ledger if at_hand else Ledger(Conversation(conversation, tenant)), events)

    def _count_added_bytes(self, size: int) -> None:
        self._added_bytes += size
        if self._added_bytes * SIZE_CHECK_DIVISOR > self._max_bytes:
            self._added_bytes = 0
            self._shrink()

    def _shrink(self) -> None:
        """Drop the least recently used conversations until the rest fits. The most recent one stays."""
        cached_bytes = sum(s.ledger.memory_bytes for s in self._conversations.values())
        while cached_bytes > self._max_bytes and len(self._conversations) > 1:
            _, gone = self._conversations.popitem(last=False)
            cached_bytes -= gone.ledger.memory_bytes


def _best_match(
    cached: Sequence[CachedConversation], asked: ConversationQuery
) -> tuple[CachedConversation, Match] | None:
    if asked.opens:
        for candidate in cached:
            if (retry := match_retry(candidate.ledger, asked.request, asked.now)) is not None:
                return candidate, retry
        return None
    if (best := match_history.best_match((s.ledger for s in cached), asked.request)) is None:
        return None
    return next(s for s in cached if s.ledger is best[0]), best[1]


def _match_stored(
    cached: Sequence[CachedConversation], asked: ConversationQuery
) -> tuple[CachedConversation, Match] | None:
    """The best match among conversations that the store named."""
    return _best_match(cached, asked) or _match_unanswered(cached, asked.request)


def _match_compacted(named: Sequence[CachedConversation], request: Request) -> tuple[CachedConversation, Match] | None:
    matches = ((s, match_history.match_compacted(s.ledger, request)) for s in named)
    return next(((s, match) for s, match in matches if match), None)


def _match_unanswered(
    cached: Sequence[CachedConversation], request: Request
) -> tuple[CachedConversation, Match] | None:
    """The newest of these that opens as `request` does and has no answer."""
    matches = ((s, m) for s in cached if (m := match_history.match_unanswered_opening(s.ledger, request)) is not None)
    return next(matches, None)


def _add_changes(cached: CachedConversation, changes: Changes) -> None:
    """Add what another process wrote. What is known already stays, but for decisions: the first writer's holds."""
    ledger = cached.ledger
    for value in changes.values:
        if isinstance(value, LedgerEvent):
            if value.entry in ledger.entries:
                ledger.settle_event(value)
        else:
            ledger.add(value)
    ledger.read_upto = max(ledger.read_upto, changes.upto)
    if ledger.conversation.mode != changes.mode:
        ledger.conversation = replace(ledger.conversation, mode=changes.mode)
    if changes.values:
        cached.path_states.clear()
        cached.elsewhere_at = max(getattr(value, "created", 0) for value in changes.values)


def _ordered_records(conversation: str, values: Sequence[LedgerItem], others: Sequence[Record]) -> list[Record]:
    """All records in writing order: a conversation first, because all others belong to one."""
    records: list[Record] = [LedgerRecord(conversation, value) for value in values]
    for record in others:
        if isinstance(record, Conversation):
            records.insert(0, record)
        else:
            records.append(record)
    return records
