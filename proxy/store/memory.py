"""The store in memory, for tests, trials and users who want nothing on disk. It follows the contract of `Store`
exactly: the first writer of a fact wins, the newest of a state, and nothing is written for a missing conversation."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from itertools import islice

from msgspec.structs import replace

from proxy.core.ledger import (
    Conversation,
    Entry,
    Ledger,
    LedgerEvent,
    LedgerItem,
    Message,
    QueuedMessage,
    Round,
    rebuild_ledger,
)
from proxy.errors import StoreError
from proxy.store.commit import ConversationKey, memory_size_of, without_bodies
from proxy.store.interface import (
    AnchorRecord,
    Changes,
    DeletionResult,
    EmbeddableFrame,
    FrameSearchResult,
    FrameVector,
    Health,
    LedgerRecord,
    QueryVector,
    Record,
    RequestRecord,
    ReservationEnd,
    SentRecord,
    SettingRecord,
    Settlement,
    StoredRequest,
    UsageRecord,
)
from proxy.store.search_index import frame_key_of, search_rows
from proxy.store.tasks_view import task_rows_of


class MemoryStore:
    """`proxy.store.Store` in dictionaries, with the tenant first in every key."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._ticket = 0
        self._refused: dict[int, str] = {}
        self._losses: Counter[ConversationKey] = Counter()
        self._conversations: dict[ConversationKey, Conversation] = {}
        self._newest: dict[ConversationKey, int] = {}
        self._values: dict[ConversationKey, list[LedgerItem]] = {}
        self._anchors: dict[tuple[str, str, str], dict[str, int]] = {}
        self._anchor_owners: dict[str, set[str]] = {}
        """Tenants that ever had a key without a session hint."""
        self._requests: dict[tuple[str, str], RequestRecord] = {}
        self._sent: dict[tuple[str, str], dict[int, SentRecord]] = {}
        self._settings: dict[tuple[str, str], SettingRecord] = {}
        self._usage_days: dict[tuple[str, int], UsageRecord] = {}

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    # --------------------------------------------------------------------------------------------------------- writing
    def write(self, tenant: str, records: Sequence[Record]) -> int:
        self._ticket += 1
        made = {record.id for record in records if isinstance(record, Conversation)}
        needed = {record.conversation for record in records if isinstance(record, LedgerRecord | AnchorRecord)} - made
        if missing := [conversation for conversation in needed if (tenant, conversation) not in self._conversations]:
            self._refused[self._ticket] = missing[0]
            self._losses.update((tenant, conversation) for conversation in needed | made)
            return self._ticket
        asked = {record.conversation for record in records if isinstance(record, RequestRecord)} - made - {""}
        forgotten = {conversation for conversation in asked if (tenant, conversation) not in self._conversations}
        for record in without_bodies(records, forgotten):
            self._apply_record(tenant, record)
        return self._ticket

    async def wait_until_durable(self, ticket: int) -> None:
        if (conversation := self._refused.get(ticket)) is not None:
            raise StoreError(f"conversation {conversation} is not in the store any more")

    def loss_count(self, tenant: str, conversation: str) -> int:
        return self._losses[tenant, conversation]

    def _apply_record(self, tenant: str, record: Record) -> None:
        match record:
            case Conversation():
                self._conversations[tenant, record.id] = replace(record, tenant=tenant)
                self._update_newest((tenant, record.id), record.created)
            case LedgerRecord():
                owner = (tenant, record.conversation)
                self._append_value(self._values.setdefault(owner, []), record.value)
                if isinstance(record.value, Entry | Round | LedgerEvent | QueuedMessage):
                    self._update_newest(owner, record.value.created)
            case AnchorRecord():
                for key in record.keys:
                    held = self._anchors.setdefault((tenant, record.hint, key), {})
                    held[record.conversation] = max(record.created, held.get(record.conversation, record.created))
                    if not record.hint:
                        self._anchor_owners.setdefault(key, set()).add(tenant)
                self._update_newest((tenant, record.conversation), record.created)
            case RequestRecord():
                known = self._requests.get((tenant, record.id), record)
                self._requests[tenant, record.id] = record if record.body else replace(record, body=known.body)
                self._update_newest((tenant, record.conversation), record.created)
            case SentRecord():
                self._sent.setdefault((tenant, record.request), {})[record.round] = record
            case SettingRecord() | UsageRecord() | Settlement() | ReservationEnd():
                self._apply_account(tenant, record)

    def _apply_account(self, tenant: str, record: SettingRecord | UsageRecord | Settlement | ReservationEnd) -> None:
        match record:
            case SettingRecord():
                self._settings[tenant, record.name] = record
            case UsageRecord():
                self._add_usage(tenant, record)
            case Settlement():
                if self._settings.pop((tenant, record.setting), None) is not None:
                    self._add_usage(tenant, record.used)
            case ReservationEnd():
                pass  # nothing is reserved here

    def _add_usage(self, tenant: str, used: UsageRecord) -> None:
        there = self._usage_days.get((tenant, used.day), UsageRecord(used.day))
        self._usage_days[tenant, used.day] = there.plus(used)

    @staticmethod
    def _append_value(values: list[LedgerItem], value: LedgerItem) -> None:
        """A newer draft replaces the draft of a round, a finished round stays. Positions do not change."""
        if isinstance(value, QueuedMessage):
            positions = (
                position for position, v in enumerate(values) if isinstance(v, QueuedMessage) and v.id == value.id
            )
            if (position := next(positions, None)) is not None:
                values[position] = value
                return
        if isinstance(value, Round):
            same = [v for v in values if isinstance(v, Round) and (v.turn, v.number) == (value.turn, value.number)]
            if any(known.spoken.complete for known in same):
                return
            for draft in same:
                values.remove(draft)
        values.append(value)

    def _update_newest(self, owner: ConversationKey, created: int) -> None:
        if owner in self._conversations:
            self._newest[owner] = max(created, self._newest.get(owner, created))

    # --------------------------------------------------------------------------------------------------------- reading
    async def find_by_anchors(self, tenant: str, hint: str, keys: Sequence[str], limit: int = 8) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for key in keys:
            held = self._anchors.get((tenant, hint, key), {})
            newest_first = sorted(held.items(), key=lambda item: (item[1], item[0]), reverse=True)
            found.update(dict.fromkeys(conversation for conversation, _ in newest_first))
        return tuple(found)[:limit]

    async def is_anchor_of_others(self, tenant: str, key: str) -> bool:
        return any(owner != tenant and self._anchors[owner, "", key] for owner in self._anchor_owners.get(key, ()))

    async def conversations_in_session(self, tenant: str, hint: str, limit: int = 8) -> tuple[str, ...]:
        return tuple(c.id for c in self._newest_first(tenant) if c.hint == hint)[:limit]

    @property
    def is_shared(self) -> bool:
        return False

    @property
    def shared_reservations(self) -> None:
        return None

    async def changes(self, tenant: str, known: Mapping[str, int]) -> dict[str, Changes | None]:
        return {}

    def announce(self, news: str) -> None:
        """Nobody else is there."""

    async def announcements(self) -> AsyncIterator[str]:
        return
        yield ""

    async def load(self, tenant: str, conversation: str) -> Ledger | None:
        found = self._conversations.get((tenant, conversation))
        return rebuild_ledger(found, self._values.get((tenant, conversation), ())) if found else None

    async def first_messages(self, tenant: str, conversation: str, entries: int) -> tuple[Message, ...]:
        values = (value for value in self._values.get((tenant, conversation), ()) if isinstance(value, Entry))
        return tuple(entry.message for entry in islice(values, entries) if entry.message is not None)

    async def conversations(
        self, tenant: str | None, limit: int = 100, offset: int = 0, *, awaits_writes: bool = True
    ) -> tuple[Conversation, ...]:
        del awaits_writes  # nothing waits to be written
        return tuple(self._newest_first(tenant)[offset : offset + limit])

    async def recently_active(self, tenant: str | None, limit: int = 1) -> tuple[Conversation, ...]:
        found = self._newest_first(tenant)
        return tuple(sorted(found, key=lambda c: (self._newest[c.tenant, c.id], c.id), reverse=True)[:limit])

    async def newest_record_time(self) -> int:
        return max(self._newest.values(), default=0)

    async def conversation_with_event(self, tenant: str | None, kind: str, subject: str) -> Conversation | None:
        for conversation in self._newest_first(tenant):
            for value in self._values.get((conversation.tenant, conversation.id), ()):
                if isinstance(value, LedgerEvent) and (value.kind, value.subject) == (kind, subject):
                    return conversation
        return None

    async def conversation_with_entry(self, tenant: str | None, beginning: str) -> Conversation | None:
        for conversation in self._newest_first(tenant):
            for value in self._values.get((conversation.tenant, conversation.id), ()):
                if isinstance(value, Entry) and value.id.startswith(beginning):
                    return conversation
        return None

    async def search_finished_frames(
        self,
        tenant: str | None,
        query: str,
        limit: int = 10,
        without: Collection[str] = (),
        near: QueryVector | None = None,
    ) -> FrameSearchResult:
        del near  # no vectors are kept here
        owners = [owner for owner in self._conversations if tenant in (None, owner[0])]
        ledgers = {o: rebuild_ledger(self._conversations[o], self._values.get(o, ())) for o in owners}
        row_by_key = {
            frame_key_of(row): row for owner, ledger in ledgers.items() for row in task_rows_of(owner, ledger)
        }
        return search_rows(row_by_key, query, limit, without)

    async def frames_to_embed(self, after: int, limit: int) -> tuple[EmbeddableFrame, ...]:
        return ()

    async def keep_vectors(self, vectors: Sequence[FrameVector]) -> None:
        """They are not kept."""

    async def requests(
        self, tenant: str | None, conversation: str = "", limit: int = 100, offset: int = 0
    ) -> tuple[RequestRecord, ...]:
        found = [
            replace(record, body=())
            for (owner, _), record in self._requests.items()
            if tenant in (None, owner) and conversation in ("", record.conversation)
        ]
        return tuple(sorted(found, key=lambda r: (r.created, r.id), reverse=True)[offset : offset + limit])

    async def request(self, tenant: str | None, request: str) -> StoredRequest | None:
        begun = [key for key in self._requests if request and tenant in (None, key[0]) and key[1].startswith(request)]
        found = [key for key in begun if key[1] == request] or begun
        if len(found) != 1:
            return None
        sent = self._sent.get(found[0], {})
        return StoredRequest(self._requests[found[0]], tuple(sent[number] for number in sorted(sent)))

    async def usage_days(self, tenant: str | None, since: int = 0) -> tuple[tuple[str, UsageRecord], ...]:
        days = sorted(self._usage_days.items())
        return tuple((owner, used) for (owner, day), used in days if tenant in (None, owner) and day >= since)

    async def settings(self, tenant: str) -> tuple[SettingRecord, ...]:
        return tuple(self._settings[key] for key in sorted(self._settings) if key[0] == tenant)

    def _newest_first(self, tenant: str | None) -> list[Conversation]:
        found = [c for (owner, _), c in self._conversations.items() if tenant in (None, owner)]
        return sorted(found, key=lambda c: (c.created, c.id), reverse=True)

    # -------------------------------------------------------------------------------------------------------- deleting
    async def delete_conversations(self, tenant: str | None, conversation: str = "", before: int = 0) -> DeletionResult:
        owners = [
            owner
            for owner in self._conversations
            if tenant in (None, owner[0])
            and conversation in ("", owner[1])
            and ((conversation and not before) or self._newest[owner] < before)
        ]
        freed = sum(map(self._delete, owners))
        if before or conversation:
            freed += self._delete_orphan_requests(tenant, conversation, before)
        return DeletionResult(len(owners), freed)

    def _delete(self, owner: ConversationKey) -> int:
        tenant, conversation = owner
        freed = sum(memory_size_of(LedgerRecord(conversation, value)) for value in self._values.pop(owner, ()))
        del self._conversations[owner], self._newest[owner]
        self._losses[owner] += 1
        for (holder, _, _), held in self._anchors.items():
            if holder == tenant:
                held.pop(conversation, None)
        gone = [k for k, record in self._requests.items() if k[0] == tenant and record.conversation == conversation]
        return freed + sum(map(self._delete_request, gone))

    def _delete_orphan_requests(self, tenant: str | None, conversation: str, before: int) -> int:
        gone = [
            key
            for key, record in self._requests.items()
            if tenant in (None, key[0])
            and conversation in ("", record.conversation)
            and (not before or record.created < before)
            and (key[0], record.conversation) not in self._conversations
        ]
        return sum(map(self._delete_request, gone))

    def _delete_request(self, key: tuple[str, str]) -> int:
        sent = self._sent.pop(key, {})
        return memory_size_of(self._requests.pop(key)) + sum(map(memory_size_of, sent.values()))

    async def secret(self) -> bytes:
        return self._secret

    def write_error(self) -> StoreError | None:
        return None

    def health(self) -> Health:
        return Health(ok=True, where="memory", conversations=len(self._conversations))
