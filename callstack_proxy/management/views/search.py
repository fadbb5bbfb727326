"""Searches finished frames across conversations, for `/stack/search` and `callstack search`. People may search their
own frames even where the model may not (`recall_across`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from callstack_proxy.management.find_by_id import ConversationUnreadable, ledger_with_frame
from callstack_proxy.management.views.project_memory import FrameEvidence, ProjectConversations, frame_evidence
from proxy.core.observers import ToolRoles
from proxy.core.text import cut_at_word, query_words, words_in
from proxy.errors import NotFound
from proxy.store import FinishedFrame, FrameSearchResult, QueryVector, Store, TenantScope

MAX_RESULTS = 100
"""Frames in one answer."""
MATCHES_READ = 200
"""Frames that are looked at a time for those of a project."""
MAX_RESULTS_LENGTH = 600
"""Characters of what a frame came to, where evidence is asked for."""
EXCERPT_LENGTH = 240
CHARACTERS_BEFORE_MATCH = 60
"""Characters of a long line before the first match."""


class SearchResultRow(TypedDict):
    """A finished frame. `ended` is ms since the epoch; `excerpt` is the line that says most of what was looked for.
    `results` and `evidence` are there where they were asked for, and can be read. `by`: what it was found by."""

    frame: str
    conversation: str
    title: str
    status: Literal["completed", "failed"]
    ended: int
    excerpt: str
    by: Literal["words", "meaning"]
    results: NotRequired[str]
    evidence: NotRequired[FrameEvidence]


class SearchResults(TypedDict):
    """`all_words`: each that was found by words has all of them; else none has, and these come close. `meaning` is
    `unavailable` where the embedding model does not answer: then words were looked for alone."""

    frames: list[SearchResultRow]
    all_words: bool
    meaning: Literal["off", "on", "unavailable"]


MeaningOf = Callable[[str], Awaitable[QueryVector | None]]
"""The vector of a query; None where the embedding model does not answer."""


async def search_frames(  # noqa: PLR0913  whose frames, which of them, and how they are told
    store: Store,
    scope: TenantScope,
    query: str,
    limit: int,
    *,
    project: Collection[str] = (),
    folders: ProjectConversations | None = None,
    evidence: ToolRoles | None = None,
    meaning_of: MeaningOf | None = None,
) -> SearchResults:
    """Best match first. `project`: only of agents that worked in the folder with one of these names, or below it;
    `folders` remembers where they worked. `evidence`: the names of tools by which to tell what each frame did.
    `meaning_of`: None where it is off."""
    near = await meaning_of(query) if meaning_of else None
    matches = await _matches(store, scope, query, limit, project, folders or ProjectConversations(), near)
    words, frames, by_words = query_words(query), matches.best(limit), set(matches.frames)
    rows = [_row(frame, words, "words" if frame in by_words else "meaning") for frame in frames]
    if evidence is not None:
        for row, frame in zip(rows, frames, strict=True):
            await _add_evidence(store, row, frame, evidence)
    meaning: Literal["off", "on", "unavailable"] = "on" if near else "unavailable" if meaning_of else "off"
    return {"frames": rows, "all_words": matches.whole, "meaning": meaning}


async def _matches(  # noqa: PLR0913  as above
    store: Store,
    scope: TenantScope,
    query: str,
    limit: int,
    project: Collection[str],
    folders: ProjectConversations,
    near: QueryVector | None,
) -> FrameSearchResult:
    """Conversations that turn out to be of other projects are left out, and it is searched again: so what has all the
    words is looked for in the project's own before what has some. What is near in meaning is looked for once: where all
    is near a little, every frame would be read."""
    outside: set[str] = set()
    near_inside: tuple[FinishedFrame, ...] = ()
    while True:
        matches = await store.search_finished_frames(
            scope, query, max(limit, MATCHES_READ) if project else limit, outside, near
        )
        found = {(frame.tenant, frame.conversation) for frame in (*matches.frames, *matches.near)}
        others = {
            conversation
            for tenant, conversation in found
            if not await folders.is_inside(store, tenant, conversation, project)
        }
        inside = tuple(frame for frame in matches.frames if frame.conversation not in others)
        near_inside += tuple(frame for frame in matches.near if frame.conversation not in others)
        if len(inside) == len(matches.frames) or len(inside) >= limit:
            return FrameSearchResult(inside[:limit], matches.whole, near_inside)
        outside, near = outside | others, None


async def _add_evidence(store: Store, row: SearchResultRow, frame: FinishedFrame, names: ToolRoles) -> None:
    row["results"] = cut_at_word(frame.results, MAX_RESULTS_LENGTH)
    try:
        _, path_state = await ledger_with_frame(store, frame.tenant, frame.frame)
    except (NotFound, ConversationUnreadable):  # forgotten meanwhile, or damaged: it was found all the same
        return
    row["evidence"] = await asyncio.to_thread(frame_evidence, path_state, frame.frame, names)


def _row(frame: FinishedFrame, words: Sequence[str], by: Literal["words", "meaning"]) -> SearchResultRow:
    return {
        "frame": frame.frame,
        "conversation": frame.conversation,
        "title": frame.title,
        "status": "failed" if frame.status == "failed" else "completed",
        "ended": frame.ended,
        "excerpt": _excerpt(_best_line(frame, words), words),
        "by": by,
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
