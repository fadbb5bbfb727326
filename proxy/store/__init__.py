"""Append-only storage of conversations and requests, and the cache of conversations over it. `Store` is the interface;
`sql.open_store` opens the configured one. Import `sql`, `memory` and `database_errors` by their names: they need
SQLAlchemy, and a command that asks a running proxy does not."""

from proxy.store import find_by_id
from proxy.store.conversation_cache import CachedConversation, ConversationCache, ConversationQuery, StoredCandidates
from proxy.store.find_by_id import (
    ConversationUnreadable,
    all_path_states,
    find_ledger,
    ledger_with_entry,
    ledger_with_frame,
    load_ledger,
    newest_path_state,
    path_state_of_tip,
    root_of,
    thread_tips,
    translate_read_errors,
)
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
    all_conversations,
    find_conversation,
    quote_reference,
)
