"""What is kept on disk, and the one interface to it.

Records go in by `write`, which never waits: one writer commits them in order, in groups. `durable` waits until a
ticket is on disk; callers ask for it where a law says so (a finished hidden round before the next one starts, a
message before a request omits it), everything else is on disk within 250 ms. Reading gives back whole ledgers:
everything hot is a bounded cache of the caller.

The law: **the tenant is in every key and every query**. Nothing here can be called without one, except what an
operator asks of the whole store (`tenant` None). Every failure is a `StoreError` whose `code` is the word told in
`x-stack-status`: store_locked, store_full, store_readonly, store_corrupt, store_unreachable, store_busy (the queue is
full), store_failed.

What it does not do: it decides nothing. Ids, order and content are made by the core and stored as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from proxy.core.ledger import Conversation, Ledger, LedgerItem
from proxy.errors import StoreError

Body = tuple[bytes, ...]
"""A request body in pieces: joined they are its bytes. Long pieces (messages) are stored once, however often they are
sent."""


class AnchorRecord(msgspec.Struct, frozen=True):
    """Keys under which a conversation is found again, within its tenant and session hint."""

    conversation: str
    hint: str
    keys: tuple[str, ...]
    created: int


class RequestRecord(msgspec.Struct, frozen=True):
    """One client request: where it stands, what the client sent, and what came of it. `receipt` is a JSON object.

    Written when the request is accepted and again, with its receipt, when it is answered: the newer one replaces the
    older. Where its conversation is not there any more, neither `body` is kept nor what was sent with it.
    """

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
    """What somebody set while the proxy runs, by its key. `value` is JSON; `null` takes it back. The newer one replaces
    the older."""

    name: str
    value: bytes
    created: int


class LedgerRecord(msgspec.Struct, frozen=True):
    """A record of one conversation that is a plain value of the ledger."""

    conversation: str
    value: LedgerItem


Record = Conversation | LedgerRecord | AnchorRecord | RequestRecord | SentRecord | SettingRecord


class StoredRequest(msgspec.Struct, frozen=True):
    """A request read back, with the bodies sent for it in order of rounds."""

    record: RequestRecord
    sent: tuple[SentRecord, ...] = ()


class DeletionResult(msgspec.Struct, frozen=True):
    """How much a deletion removed."""

    conversations: int = 0
    bytes: int = 0


class Health(msgspec.Struct, frozen=True):
    """What `doctor` and `/health` tell of the store."""

    ok: bool
    where: str
    reason: str = ""
    size_bytes: int = 0
    conversations: int = 0
    notes: tuple[str, ...] = msgspec.field(default=())
    queued: int = 0
    """Records that wait to be written."""
    dropped: int = 0
    """Records that were given up since the start."""


class FinishedFrame(msgspec.Struct, frozen=True):
    """A frame that ended with a result, whoever's it is. `status` is completed or failed, `ended` is when (ms);
    `criteria` begin as it was asked for, `noted` are files and decisions, one a line."""

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
    """What a search found, the best first. `whole`: each has all the words; else they come close."""

    frames: tuple[FinishedFrame, ...] = ()
    whole: bool = False


class Store(Protocol):
    """Times are ms since the epoch. All reads are coroutines that never block the event loop."""

    async def start(self) -> None:
        """Open, migrate, and make the writer ready. A corrupt file is set aside with a timestamp, never deleted."""

    async def close(self) -> None:
        """Write what is queued, then stop."""

    def write(self, tenant: str, records: Sequence[Record]) -> int:
        """Queue `records` as one transaction, in order; a ticket for `durable`. Raises StoreError when it cannot take
        them."""

    async def wait_until_durable(self, ticket: int) -> None:
        """Return when what `ticket` stands for is on disk, and all that was handed over before of what its conversation
        consists of. Raises StoreError when it is not going to be."""

    def loss_count(self, tenant: str, conversation: str) -> int:
        """How often something of this conversation went: records that were given up after they were taken, or all of
        it when it was forgotten. Whoever holds it since before the last time knows more than is stored, and must not go
        on from that: what it writes would hang on nothing. Asked with every record, so it looks at memory alone."""

    async def find_by_anchors(self, tenant: str, hint: str, keys: Sequence[str], limit: int = 8) -> tuple[str, ...]:
        """Conversations that hold one of `keys`, by the first of the keys that they hold, then the newest first."""

    async def conversations_in_session(self, tenant: str, hint: str, limit: int = 8) -> tuple[str, ...]:
        """Conversations under a session hint, the newest first."""

    async def load(self, tenant: str, conversation: str) -> Ledger | None:
        """A whole conversation as it was written, or None when this tenant has no such. After a loss it is what may be
        gone on from: records are taken again."""

    async def conversations(self, tenant: str | None, limit: int = 100, offset: int = 0) -> tuple[Conversation, ...]:
        """The one begun last first, which no work changes: who turns the pages misses none."""

    async def recently_active(self, tenant: str | None, limit: int = 1) -> tuple[Conversation, ...]:
        """Those with the newest records, the newest first."""

    async def conversation_with_event(self, tenant: str | None, kind: str, subject: str) -> Conversation | None:
        """The conversation with an event of this kind about this subject (a frame id, say)."""

    async def search_finished_frames(
        self, tenant: str | None, query: str, limit: int = 10, without: Collection[str] = ()
    ) -> FrameSearchResult:
        """Finished frames with the words of `query`, the best first, of all conversations but these. Any text is a
        query; one without a letter or a digit finds nothing."""

    async def requests(
        self, tenant: str | None, conversation: str = "", limit: int = 100, offset: int = 0
    ) -> tuple[RequestRecord, ...]:
        """The newest first, without bodies."""

    async def request(self, tenant: str | None, request: str) -> StoredRequest | None:
        """One request with all its bodies; `request` may be a unique beginning of an id."""

    async def settings(self, tenant: str) -> tuple[SettingRecord, ...]:
        """What was set for this tenant, by name; an empty one is everybody."""

    async def delete_conversations(self, tenant: str | None, conversation: str = "", before: int = 0) -> DeletionResult:
        """Really delete: one conversation, or all that were last written before a time; the file shrinks, no copy
        stays."""

    async def secret(self) -> bytes:
        """32 random bytes made when the store was, for nonces and keyed hashes. Never leaves the process."""

    def write_error(self) -> StoreError | None:
        """Why nothing can be written at this moment; asked with every request, so it looks at nothing."""

    def health(self) -> Health:
        """As of now; touches no table."""
