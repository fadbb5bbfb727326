"""Searches finished frames across conversations, for `/stack/search` and `callstack search`. People may search their
own frames even where the model may not (`recall_across`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from typing_extensions import TypedDict

from proxy.core.text import cut_at_word
from proxy.management.views.lookup import TenantScope
from proxy.store import FinishedFrame, Store, query_words, words_in

MAX_RESULTS = 100
"""Frames in one answer."""
EXCERPT_LENGTH = 240
CHARACTERS_BEFORE_MATCH = 60
"""Characters of a long line before the first match."""


class SearchResultRow(TypedDict):
    """A finished frame. `ended` is ms since the epoch; `excerpt` is the line that says most of what was looked for."""

    frame: str
    conversation: str
    title: str
    status: Literal["completed", "failed"]
    ended: int
    excerpt: str


class SearchResults(TypedDict):
    """`all_words`: each of them has all that was looked for; else none has, and these come close."""

    frames: list[SearchResultRow]
    all_words: bool


async def search_frames(store: Store, scope: TenantScope, query: str, limit: int) -> SearchResults:
    """Best match first."""
    matches = await store.search_finished_frames(scope, query, limit)
    words = query_words(query)
    return {"frames": [_row(frame, words) for frame in matches.frames], "all_words": matches.whole}


def _row(frame: FinishedFrame, words: Sequence[str]) -> SearchResultRow:
    return {
        "frame": frame.frame,
        "conversation": frame.conversation,
        "title": frame.title,
        "status": "failed" if frame.status == "failed" else "completed",
        "ended": frame.ended,
        "excerpt": _excerpt(_best_line(frame, words), words),
    }


def _best_line(frame: FinishedFrame, words: Sequence[str]) -> str:
    """The first line with most of the words; lines of results before those of the criteria."""
    texts = (frame.results, frame.criteria, frame.noted)
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return max(lines, key=lambda line: _count_matches(line, words), default="")


def _excerpt(line: str, words: Sequence[str]) -> str:
    folded = line.casefold()
    hits = [index for word in words if (index := folded.find(word)) >= 0]
    first = max(0, min(hits, default=0) - CHARACTERS_BEFORE_MATCH) if len(line) > EXCERPT_LENGTH else 0
    return cut_at_word(f"{'…' if first else ''}{line[first:]}", EXCERPT_LENGTH)


def _count_matches(line: str, words: Iterable[str]) -> int:
    line_words = words_in(line)
    return sum(any(line_word.startswith(word) for line_word in line_words) for word in words)
