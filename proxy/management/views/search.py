"""Finished frames with certain words, across conversations: what `/stack/search` answers and `callstack search` prints.

The law: **people may always search what is theirs**, whether or not the model may (`recall_across`). An excerpt is a
line or two of what is stored, as it stands there; the whole of it is in the frame's log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from typing_extensions import TypedDict

from proxy.core.text import cut_for_display
from proxy.management.views.lookup import TenantScope
from proxy.store import FinishedFrame, Store, query_words, words_in

MAX_RESULTS = 100
"""Frames of one answer."""
EXCERPT_LENGTH = 240
"""Characters."""
CHARACTERS_BEFORE_MATCH = 60
"""Characters of a long line that are shown before the first of the words."""


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
    """The best first."""
    found = await store.search_finished_frames(scope, query, limit)
    words = query_words(query)
    return {"frames": [_row(frame, words) for frame in found.frames], "all_words": found.whole}


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
    """The line with most of the words, the first of several; one of the results before one of what was asked for."""
    texts = (frame.results, frame.criteria, frame.noted)
    lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
    return max(lines, key=lambda line: _count_matches(line, words), default="")


def _excerpt(line: str, words: Sequence[str]) -> str:
    plain = line.casefold()
    hits = [at for word in words if (at := plain.find(word)) >= 0]
    first = max(0, min(hits, default=0) - CHARACTERS_BEFORE_MATCH) if len(line) > EXCERPT_LENGTH else 0
    return cut_for_display(f"{'…' if first else ''}{line[first:]}", EXCERPT_LENGTH)


def _count_matches(line: str, words: Iterable[str]) -> int:
    """How many of the words it has, as they are or as the beginning of a longer one."""
    there = words_in(line)
    return sum(any(own.startswith(word) for own in there) for word in words)
