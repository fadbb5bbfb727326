"""Stored texts of a conversation: cutting them into pieces and pages, searching them, and detecting and serving
re-reads."""

from proxy.core.recall.as_text import context_parts, parts_as_text
from proxy.core.recall.changed_files import changes_on_path, mark_changed_files
from proxy.core.recall.pages import MIN_PAGE_TEXT_TOKENS, PagePart, PageSize, fit_page_size, pages_of
from proxy.core.recall.recalled_texts import (
    REF_ARGUMENTS,
    is_recall,
    recall_queries,
    recall_refs,
    recalled_frame_ids,
    recently_recalled_entries,
)
from proxy.core.recall.reread_stats import (
    NO_REREADS,
    NewRereads,
    RereadCount,
    count_rereads,
    new_rereads,
    requesting_call,
)
from proxy.core.recall.stored_texts import (
    ENTRY_ID_CHARACTERS,
    StoredPiece,
    all_path_entries,
    pieces_of,
    split_by_visibility,
    wrap_in_markers,
)
from proxy.core.recall.text_search import (
    SearchHits,
    pieces_with_all_words,
    pieces_with_word_alone,
    search,
    search_closest,
)
from proxy.core.recall.unchanged_notes import (
    WHOLE_FILE_ARGUMENTS,
    RestoreOptions,
    is_unchanged_note,
    requested_part,
    restore_file_contents,
    uncached_entries,
)
