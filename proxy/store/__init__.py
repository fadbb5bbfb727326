"""Append-only storage of conversations and requests, and the cache of conversations over it. `Store` is the interface;
`open_store` opens the configured one."""

from proxy.store import lookup
from proxy.store.conversation_cache import CachedConversation, ConversationCache, ConversationQuery, StoredCandidates
from proxy.store.failures import as_store_error
from proxy.store.interface import (
    AnchorRecord,
    Body,
    DeletionResult,
    FinishedFrame,
    FrameSearchResult,
    Health,
    LedgerRecord,
    Record,
    RequestRecord,
    SentRecord,
    SettingRecord,
    Store,
    StoredRequest,
    TenantScope,
    UsageRecord,
    all_conversations,
    find_conversation,
    quote_reference,
)
from proxy.store.lookup import (
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
from proxy.store.memory import MemoryStore
from proxy.store.read import rebuild_ledger
from proxy.store.search_index import query_words, words_in
from proxy.store.sql import copy_store, open_store

__all__ = [
    "AnchorRecord",
    "Body",
    "CachedConversation",
    "ConversationCache",
    "ConversationQuery",
    "ConversationUnreadable",
    "DeletionResult",
    "FinishedFrame",
    "FrameSearchResult",
    "Health",
    "LedgerRecord",
    "MemoryStore",
    "Record",
    "RequestRecord",
    "SentRecord",
    "SettingRecord",
    "Store",
    "StoredCandidates",
    "StoredRequest",
    "TenantScope",
    "UsageRecord",
    "all_conversations",
    "all_path_states",
    "as_store_error",
    "copy_store",
    "find_conversation",
    "find_ledger",
    "ledger_with_entry",
    "ledger_with_frame",
    "load_ledger",
    "lookup",
    "newest_path_state",
    "open_store",
    "path_state_of_tip",
    "query_words",
    "quote_reference",
    "rebuild_ledger",
    "root_of",
    "thread_tips",
    "translate_read_errors",
    "words_in",
]
