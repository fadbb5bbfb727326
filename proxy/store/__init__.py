"""Append-only storage of conversations and requests, and the cache of conversations over it. `Store` is the interface;
`sql.open_store` opens the configured one. Import `sql`, `memory` and `database_errors` by their names: they need
SQLAlchemy, and a command that asks a running proxy does not."""

from proxy.store.conversation_cache import CachedConversation, ConversationCache, ConversationQuery, StoredCandidates
from proxy.store.interface import (
    RESERVATION_LEASE_S,
    AnchorRecord,
    Body,
    BudgetState,
    DeletionResult,
    FinishedFrame,
    FrameSearchResult,
    FrameVector,
    Health,
    LedgerRecord,
    QueryVector,
    Record,
    RequestRecord,
    ReservationEnd,
    ReservationRecord,
    SentRecord,
    SettingRecord,
    Settlement,
    SharedReservations,
    Store,
    StoredRequest,
    TenantScope,
    UsageRecord,
)
