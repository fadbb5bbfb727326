"""What the recalls of a round may look into beside their own conversation.

Those it was delegated to, those it came from, and those whose frames it names are ledgers at hand. Where people allow
it (`recall_across`), a query without a ref also finds finished frames of the tenant's other conversations: what they
were to do and came to, as texts whose source says which conversation and frame that was. The model reads them between
markers like any stored text, within the same bounds, and asks for the rest by their ref.

The law: **the tenant's own, or nothing**; a search that fails or takes long costs the recall what it would have found,
and nothing else.

What this module does not do: it answers no recall (`stack.tools.recall`), and where this is off it asks nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

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
"""Finished frames that one query finds."""
MAX_QUERIES = 3
"""Queries of one round that are looked for."""
SEARCH_TIMEOUT_S = 2.0
"""How long a round waits for what they find. The first search of a process takes the time of reading all there is."""
MAX_DELEGATED_CONVERSATIONS = 16
"""Conversations delegated to, the newest ones, that a query without a ref is looked for in; each may have to be read
from the store."""
FINISHED_FRAME_ROLE = "finished frame"


async def find_related_ledgers(parts: Services, turn: Turn, spoken: ModelResponse) -> tuple[Ledger, ...]:
    """Conversations that the recalls of a round may look into."""
    calls = [call for call in spoken.own_calls if is_recall(call)]
    if not calls:
        return ()
    tree = turn.path_state.tree
    unknown = [frame for frame in recalled_frame_ids(calls) if frame not in tree.frames]
    return await parts.conversation_cache.related_ledgers(
        turn.placement.cached_conversation, unknown, _delegated_conversations(tree, calls)
    )


def _delegated_conversations(tree: Tree, calls: Sequence[Call]) -> Iterator[str]:
    """Conversations in which frames worked that these calls mean, by id or by title, or that a query may be about."""
    refs = (*recalled_frame_ids(calls), *recall_refs(calls))
    for frame in dict.fromkeys(found.id for ref in refs if (found := find_frame(tree, ref))):
        yield from (f.conversation for f in (tree.frames[frame], *descendants(tree, frame)) if f.conversation)
    if recall_queries(calls):
        yield from [f.conversation for f in tree.frames.values() if f.conversation][-MAX_DELEGATED_CONVERSATIONS:]


async def search_other_conversations(
    parts: Services, turn: Turn, spoken: ModelResponse, ledgers: tuple[Ledger, ...]
) -> Mapping[str, CrossConversationHits]:
    """What the queries of a round find in conversations other than this one and `ledgers`, by query."""
    if not parts.config.recall_across:
        return NO_OTHER_HITS
    here = {turn.placement.conversation, *(ledger.conversation.id for ledger in ledgers)}
    tenant = turn.placement.ledger.conversation.tenant
    found: dict[str, CrossConversationHits] = {}
    try:
        async with asyncio.timeout(SEARCH_TIMEOUT_S):
            for query in recall_queries(spoken.own_calls)[:MAX_QUERIES]:
                frames = await parts.recorder.store.search_finished_frames(tenant, query, MAX_FRAMES_PER_QUERY, here)
                found[query] = CrossConversationHits(tuple(map(_piece_of_frame, frames.frames)), frames.whole)
    except (StoreError, TimeoutError) as error:
        log.warning("other conversations not searched", extra={"cause": type(error).__name__})
    return found


def _piece_of_frame(frame: FinishedFrame) -> StoredPiece:
    day = datetime.fromtimestamp(frame.ended / 1000, UTC).strftime("%Y-%m-%d")
    told = {
        "Title": frame.title,
        "Ended": f"{frame.status}, {day}",
        "Asked for": frame.criteria,
        "Results": frame.results,
        "Files and decisions": frame.noted,
    }
    text = "\n".join(f"{name}: {words.strip()}" for name, words in told.items() if words.strip())
    source = f"conversation {frame.conversation[:ENTRY_ID_CHARACTERS]}"
    return StoredPiece(frame.frame, "", "", frame.frame, FINISHED_FRAME_ROLE, source, text)
