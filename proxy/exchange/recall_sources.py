"""Finds what the recalls of a round may read outside their own conversation: related conversations (subagents, origins,
named frames) and, with `recall_across`, finished frames of the tenant's other conversations. Never another tenant's. A
failed or slow search only costs the recall its hits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from proxy.core.frames import Tree, descendants, find_frame
from proxy.core.ledger import Call, Ledger, ModelResponse
from proxy.core.recall import (
    ENTRY_ID_CHARACTERS,
    StoredPiece,
    is_recall,
    recall_queries,
    recall_refs,
    recalled_frame_ids,
)
from proxy.core.tools import CrossConversationHits
from proxy.errors import StoreError
from proxy.exchange.rounds import Services
from proxy.exchange.turn import NO_OTHER_HITS, Turn
from proxy.store import FinishedFrame

log = logging.getLogger(__name__)

MAX_FRAMES_PER_QUERY = 8
MAX_QUERIES = 3
"""Queries of one round that are searched for."""
SEARCH_TIMEOUT_S = 2.0
"""Longest wait for all searches of a round, behind that for vectors of their queries; the first one of a process has to
read everything stored."""
MAX_DELEGATED_CONVERSATIONS = 16
"""Newest delegated conversations that a query without a ref searches; each may need a read from the store."""
FINISHED_FRAME_ROLE = "finished frame"


async def find_related_ledgers(services: Services, turn: Turn, spoken: ModelResponse) -> tuple[Ledger, ...]:
    """Ledgers of the conversations that the recalls of a round may read."""
    calls = [call for call in spoken.proxy_calls if is_recall(call)]
    if not calls:
        return ()
    tree = turn.path_state.tree
    unknown = [frame for frame in recalled_frame_ids(calls) if frame not in tree.frames]
    return await services.conversation_cache.related_ledgers(
        turn.placement.cached_conversation, unknown, _delegated_conversations(tree, calls)
    )


def _delegated_conversations(tree: Tree, calls: Sequence[Call]) -> Iterator[str]:
    """Conversations of the frames that these calls name, by id or title, or that a query may be about."""
    refs = (*recalled_frame_ids(calls), *recall_refs(calls))
    for frame in dict.fromkeys(found.id for ref in refs if (found := find_frame(tree, ref))):
        yield from (f.conversation for f in (tree.frames[frame], *descendants(tree, frame)) if f.conversation)
    if recall_queries(calls):
        yield from [f.conversation for f in tree.frames.values() if f.conversation][-MAX_DELEGATED_CONVERSATIONS:]


async def search_other_conversations(
    services: Services, turn: Turn, spoken: ModelResponse, ledgers: tuple[Ledger, ...]
) -> Mapping[str, CrossConversationHits]:
    """Hits by query, in conversations other than this one and `ledgers`."""
    if not services.config.recall_across:
        return NO_OTHER_HITS
    here = {turn.placement.conversation, *(ledger.conversation.id for ledger in ledgers)}
    tenant, store = turn.placement.ledger.conversation.tenant, services.recorder.store
    queries, embedder = recall_queries(spoken.proxy_calls)[:MAX_QUERIES], services.frame_embedder
    # Beside each other, and before the time of the searches begins: a slow model takes no words from them.
    vectors = await asyncio.gather(*map(embedder.query_vector, queries)) if embedder else [None] * len(queries)
    found: dict[str, CrossConversationHits] = {}
    try:
        async with asyncio.timeout(SEARCH_TIMEOUT_S):
            for query, near in zip(queries, vectors, strict=True):
                hits = await store.search_finished_frames(tenant, query, MAX_FRAMES_PER_QUERY, here, near)
                if hits.near and not hits.whole:
                    hits = replace(hits, frames=())  # those near in meaning are worth more than some of the words
                pieces = tuple(map(_piece_of_frame, hits.best(MAX_FRAMES_PER_QUERY)))
                found[query] = CrossConversationHits(pieces, hits.whole or bool(hits.near))
    except (StoreError, TimeoutError) as error:
        log.warning("other conversations not searched", extra={"cause": type(error).__name__})
    return found


def _piece_of_frame(frame: FinishedFrame) -> StoredPiece:
    day = datetime.fromtimestamp(frame.ended / 1000, UTC).strftime("%Y-%m-%d")
    fields = {
        "Title": frame.title,
        "Ended": f"{frame.status}, {day}",
        "Asked for": frame.criteria,
        "Results": frame.results,
        "Files and decisions": frame.noted,
    }
    text = "\n".join(f"{name}: {words.strip()}" for name, words in fields.items() if words.strip())
    source = f"conversation {frame.conversation[:ENTRY_ID_CHARACTERS]}"
    return StoredPiece(frame.frame, "", "", frame.frame, FINISHED_FRAME_ROLE, source, text)
