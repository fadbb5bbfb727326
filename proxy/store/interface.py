"""The values that are stored, and the interface to a store.

`write` queues records without waiting; one writer commits them in order, in groups, within 250 ms. `wait_until_durable`
waits until a ticket is on disk. The tenant is part of every key and every query; only an operator may pass `tenant`
None for the whole store. Every failure is a `StoreError` whose `code` appears in `x-stack-status`: store_locked,
store_full, store_readonly, store_corrupt, store_unreachable, store_busy (the queue is full), store_failed. A missing
conversation and one of another tenant raise the same `NotFound`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from proxy.core.ledger import Conversation, Ledger, LedgerItem, Message
from proxy.errors import StoreError

Body = tuple[bytes, ...]
"""A request body in pieces; joined they are its bytes. A long piece (a message) is stored once, however often it is
sent."""
RESERVATION_LEASE_S = 30.0
"""How long a reservation outlives a proxy that was killed."""


class AnchorRecord(msgspec.Struct, frozen=True):
    """Keys by which a conversation is found again, within its tenant and session hint."""

    conversation: str
    hint: str
    keys: tuple[str, ...]
    created: int


class RequestRecord(msgspec.Struct, frozen=True):
    """One client request, its place in a conversation and its outcome. `receipt` is a JSON object. Written when the
    request is accepted, and replaced when it is answered. If its conversation no longer exists, no bodies are
    stored."""

    id: str
    conversation: str
    thread: str
    frame: str
    entry: str
    created: int
    status: str
    receipt: bytes = b"{}"
    body: Body = ()


class SentRecord(msgspec.Struct, frozen=True):
    """One body as it left for the upstream, in round `round` of a request."""

    request: str
    round: int
    body: Body
    created: int = 0


class SettingRecord(msgspec.Struct, frozen=True):
    """A setting changed while the proxy runs. `value` is JSON; null removes the setting. A newer record replaces an
    older one."""

    name: str
    value: bytes
    created: int


class UsageRecord(msgspec.Struct, frozen=True):
    """What a tenant used on a day, which is added to what is there. `day` counts from 1970 in UTC, money is USD."""

    day: int
    requests: int = 0
    tokens: int = 0
    cost: float = 0.0
    cost_untouched: float = 0.0

    def plus(self, more: UsageRecord) -> UsageRecord:
        return UsageRecord(
            self.day,
            self.requests + more.requests,
            self.tokens + more.tokens,
            self.cost + more.cost,
            self.cost_untouched + more.cost_untouched,
        )


class ReservationRecord(msgspec.Struct, frozen=True):
    """What a request that is under way may cost, of the budget of its tenant (tokens, USD)."""

    id: str
    tokens: int
    usd: float


class ReservationEnd(msgspec.Struct, frozen=True):
    """The request is over. Written behind what it used, so that one of the two always counts."""

    id: str


class Settlement(msgspec.Struct, frozen=True):
    """Removes a setting, and adds `used`; neither where the setting is gone, because another process settled it."""

    setting: str
    used: UsageRecord


class BudgetState(NamedTuple):
    """What a tenant used since a day, and what its requests that are under way have reserved, on all proxies."""

    used: UsageRecord
    tokens: int = 0
    usd: float = 0.0


class LedgerRecord(msgspec.Struct, frozen=True):
    conversation: str
    value: LedgerItem


Record = (
    Conversation
    | LedgerRecord
    | AnchorRecord
    | RequestRecord
    | SentRecord
    | SettingRecord
    | UsageRecord
    | ReservationEnd
    | Settlement
)


class StoredRequest(msgspec.Struct, frozen=True):
    """A request read back, with the bodies sent for it in order of rounds."""

    record: RequestRecord
    sent: tuple[SentRecord, ...] = ()


class WrittenRows(NamedTuple):
    """Ledger rows of one conversation that one process wrote with nobody between: those behind row number `after`, up
    to `upto`."""

    after: int
    upto: int


class Changes(NamedTuple):
    """What other processes wrote to a conversation, in writing order, up to row number `upto`; and its mode."""

    values: tuple[LedgerItem, ...]
    upto: int
    mode: str


MAX_NEAR = 5
"""Frames of an answer that are found by their meaning alone."""


class DeletionResult(msgspec.Struct, frozen=True):
    conversations: int = 0
    bytes: int = 0


class Health(msgspec.Struct, frozen=True):
    """State of the store for `doctor` and `/health`."""

    ok: bool
    where: str
    reason: str = ""
    size_bytes: int = 0
    conversations: int = 0
    notes: tuple[str, ...] = msgspec.field(default=())
    queued: int = 0
    """Records waiting to be written."""
    dropped: int = 0
    """Records lost since the start."""
    damaged: int = 0
    """How often a damaged record was read since the start."""


class FinishedFrame(msgspec.Struct, frozen=True):
    """A frame that ended with a result, in any conversation of the tenant. `status` is completed or failed, `ended` is
    in ms, `criteria` is the beginning of the criteria, `noted` lists files and decisions, one a line."""

    tenant: str
    conversation: str
    frame: str
    title: str
    status: str
    ended: int
    criteria: str = ""
    results: str = ""
    noted: str = ""


class FrameSearchResult(msgspec.Struct, frozen=True):
    """Search results, best first. `whole`: each of `frames` has all the words of the query; otherwise only some. `near`
    is what was found by meaning, the nearest first."""

    frames: tuple[FinishedFrame, ...] = ()
    whole: bool = False
    near: tuple[FinishedFrame, ...] = ()

    def best(self, limit: int) -> tuple[FinishedFrame, ...]:
        """Those with all words, then those near in meaning, then those with some words."""
        near = self.near[:MAX_NEAR]
        return tuple(dict.fromkeys((*self.frames, *near) if self.whole else (*near, *self.frames)))[:limit]


class QueryVector(NamedTuple):
    """A query as the embedding model has it, of length 1. What is less similar than `least` (a cosine) is not found."""

    model: str
    numbers: tuple[float, ...]
    least: float


class EmbeddableFrame(NamedTuple):
    """A finished frame, the number of its row, and the digest of what its vector was made of; empty without one."""

    number: int
    frame: FinishedFrame
    made_of: bytes


class FrameVector(NamedTuple):
    """A finished frame as a model has it: float32 of length 1, little-endian. `made_of` is the digest of the model's
    name and of what it was sent."""

    of: EmbeddableFrame
    model: str
    made_of: bytes
    numbers: bytes


class SharedReservations(Protocol):
    """What requests that are under way on all proxies of a shared store may cost, by tenants."""

    async def state(self, tenant: str, since: int, without: str) -> BudgetState:
        """What counts against a budget from day `since` on, beside the reservation of this id."""

    async def reserve(
        self, tenant: str, since: int, wanted: ReservationRecord, most_tokens: int | None, most_usd: float | None
    ) -> tuple[bool, BudgetState]:
        """Reserve, in place of what this id reserved before, if that fits into these budgets beside all that counts at
        this moment. Returns whether it did, and the state. It ends with a `ReservationEnd`, or with its lease."""

    async def renew(self, reservations: Collection[tuple[str, str]]) -> None:
        """Let these (tenant, id) last for another lease. What has ended stays so."""


class Store(Protocol):
    """Times are ms since the epoch. All reads are coroutines that never block the event loop."""

    @property
    def is_shared(self) -> bool:
        """Whether other proxies may write to this store at the same time."""

    @property
    def shared_reservations(self) -> SharedReservations | None:
        """None where the store is not shared: then the process knows all of them."""

    async def start(self) -> None:
        """Open, migrate, and make the writer ready. A corrupt file is set aside with a timestamp, never deleted."""

    async def close(self) -> None:
        """Write what is queued, then stop."""

    def write(self, tenant: str, records: Sequence[Record]) -> int:
        """Queue `records` as one transaction, in order. Returns a ticket for `wait_until_durable`. Raises StoreError if
        the records cannot be taken."""

    async def wait_until_durable(self, ticket: int) -> None:
        """Return when `ticket`, and every earlier record that its conversation depends on, is on disk. Raises
        StoreError if it will not be."""

    def loss_count(self, tenant: str, conversation: str) -> int:
        """How often records of this conversation were lost after `write` took them, or the conversation was deleted. A
        cached copy from before the last loss must not be written on. Looks at memory only, because every write asks."""

    async def find_by_anchors(self, tenant: str, hint: str, keys: Sequence[str], limit: int = 8) -> tuple[str, ...]:
        """Ids of conversations that have one of `keys`: by the first of the keys that they have, then newest first."""

    async def is_anchor_of_others(self, tenant: str, key: str) -> bool:
        """Whether any other tenant has a conversation under this key, without a session hint."""

    async def conversations_in_session(self, tenant: str, hint: str, limit: int = 8) -> tuple[str, ...]:
        """Ids of conversations with this session hint, newest first."""

    async def load(self, tenant: str, conversation: str) -> Ledger | None:
        """A whole conversation as it was written, or None if this tenant has none with this id. After a loss, loading
        allows writing again."""

    async def first_messages(self, tenant: str, conversation: str, entries: int) -> tuple[Message, ...]:
        """Those of its first so many entries, oldest first. Quick for a conversation of any length."""

    async def changes(self, tenant: str, known: Mapping[str, int]) -> dict[str, Changes | None]:
        """What other processes wrote to these conversations behind the row numbers `known` (`Ledger.read_upto`); None
        for one that is not in the store. Left out are those without anything new; all, if the store is not shared."""

    def announce(self, news: str) -> None:
        """Tell the other processes on a shared store, with the next commit, without a promise. At most 7,000 bytes."""

    def announcements(self) -> AsyncIterator[str]:
        """What other processes announce from now on; ends at once if the store is not shared."""

    async def conversations(
        self, tenant: str | None, limit: int = 100, offset: int = 0, *, awaits_writes: bool = True
    ) -> tuple[Conversation, ...]:
        """Newest start first. Activity does not change this order, so paging misses none. `awaits_writes`: with those
        that this process began a moment ago."""

    async def recently_active(self, tenant: str | None, limit: int = 1) -> tuple[Conversation, ...]:
        """Newest record first."""

    async def newest_record_time(self) -> int:
        """When the newest record of any conversation was made; 0 without one."""

    async def conversation_with_event(self, tenant: str | None, kind: str, subject: str) -> Conversation | None:
        """The conversation that has an event of this kind about this subject (for example a frame id)."""

    async def conversation_with_entry(self, tenant: str | None, beginning: str) -> Conversation | None:
        """The newest conversation that has an entry whose id (hex digits) begins so. Looks through the ids of all
        entries of the tenant."""

    async def search_finished_frames(
        self,
        tenant: str | None,
        query: str,
        limit: int = 10,
        without: Collection[str] = (),
        near: QueryVector | None = None,
    ) -> FrameSearchResult:
        """Finished frames that match `query`, best first, in all conversations except those excluded. A query without a
        letter or digit finds nothing by its words. With `near` also those of the newest vectors that are similar to it;
        none where the store is in memory, which has no vectors."""

    async def frames_to_embed(self, after: int, limit: int) -> tuple[EmbeddableFrame, ...]:
        """Finished frames in the order of their rows, behind the row of this number; behind 0 only the newest ones."""

    async def keep_vectors(self, vectors: Sequence[FrameVector]) -> None:
        """Write these in place of older ones. A frame whose conversation was deleted meanwhile gets none."""

    async def requests(
        self, tenant: str | None, conversation: str = "", limit: int = 100, offset: int = 0
    ) -> tuple[RequestRecord, ...]:
        """Newest first, without bodies."""

    async def request(self, tenant: str | None, request: str) -> StoredRequest | None:
        """One request with all its bodies; `request` may be a unique prefix of an id."""

    async def usage_days(self, tenant: str | None, since: int = 0) -> tuple[tuple[str, UsageRecord], ...]:
        """What each tenant used on each day from day `since` on, by tenant and day."""

    async def settings(self, tenant: str) -> tuple[SettingRecord, ...]:
        """Settings of this tenant by name; the empty tenant stands for all."""

    async def delete_conversations(self, tenant: str | None, conversation: str = "", before: int = 0) -> DeletionResult:
        """Delete one conversation, or all that were last written before a time (ms). The file shrinks and no copy
        stays."""

    async def secret(self) -> bytes:
        """32 random bytes made with the store, for nonces and keyed hashes. They never leave the process."""

    def write_error(self) -> StoreError | None:
        """Why nothing can be written now. Looks at memory only, because every request asks."""

    def health(self) -> Health:
        """Current state; reads no table."""


TenantScope = str | None
"""A tenant, or None for all of them."""
