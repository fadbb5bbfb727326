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

from proxy.core.frames.tree import Tree, descendants, find
from proxy.core.ledger.ledger import Ledger
from proxy.core.ledger.messages import Call, Spoken
from proxy.core.recall.recalled_texts import frames_named, is_recall, queries_named, refs_named
from proxy.core.recall.stored_texts import ENTRY_SHOWN, Piece
from proxy.core.tools.base import Elsewhere
from proxy.errors import StoreError
from proxy.exchange.rounds import Parts
from proxy.exchange.turn import NOWHERE, Turn
from proxy.store import Finished

log = logging.getLogger(__name__)

MOST = 8
"""Finished frames that one query finds."""
MOST_QUERIES = 3
"""Queries of one round that are looked for."""
PATIENCE_S = 2.0
"""How long a round waits for what they find. The first search of a process takes the time of reading all there is."""
MOST_DELEGATED = 16
"""Conversations delegated to, the newest ones, that a query without a ref is looked for in; each may have to be read
from the store."""
ROLE = "finished frame"


async def beside(parts: Parts, turn: Turn, spoken: Spoken) -> tuple[Ledger, ...]:
    """Conversations that the recalls of a round may look into."""
    calls = [call for call in spoken.own_calls if is_recall(call)]
    if not calls:
        return ()
    tree = turn.story.tree
    unknown = [frame for frame in frames_named(calls) if frame not in tree.frames]
    return await parts.shelf.beside(turn.standing.shelved, unknown, _delegated(tree, calls))


def _delegated(tree: Tree, calls: Sequence[Call]) -> Iterator[str]:
    """Conversations in which frames worked that these calls mean, by id or by title, or that a query may be about."""
    refs = (*frames_named(calls), *refs_named(calls))
    for frame in dict.fromkeys(found.id for ref in refs if (found := find(tree, ref))):
        yield from (f.conversation for f in (tree.frames[frame], *descendants(tree, frame)) if f.conversation)
    if queries_named(calls):
        yield from [f.conversation for f in tree.frames.values() if f.conversation][-MOST_DELEGATED:]


async def elsewhere(parts: Parts, turn: Turn, spoken: Spoken, ledgers: tuple[Ledger, ...]) -> Mapping[str, Elsewhere]:
    """What the queries of a round find in conversations other than this one and `ledgers`, by query."""
    if not parts.config.recall_across:
        return NOWHERE
    here = {turn.standing.conversation, *(ledger.conversation.id for ledger in ledgers)}
    tenant = turn.standing.ledger.conversation.tenant
    found: dict[str, Elsewhere] = {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            for query in queries_named(spoken.own_calls)[:MOST_QUERIES]:
                frames = await parts.keeper.store.finished(tenant, query, MOST, here)
                found[query] = Elsewhere(tuple(map(_piece, frames.frames)), frames.whole)
    except (StoreError, TimeoutError) as error:
        log.warning("other conversations not searched", extra={"cause": type(error).__name__})
    return found


def _piece(frame: Finished) -> Piece:
    day = datetime.fromtimestamp(frame.ended / 1000, UTC).strftime("%Y-%m-%d")
    told = {
        "Title": frame.title,
        "Ended": f"{frame.status}, {day}",
        "Asked for": frame.criteria,
        "Results": frame.results,
        "Files and decisions": frame.noted,
    }
    text = "\n".join(f"{name}: {words.strip()}" for name, words in told.items() if words.strip())
    source = f"conversation {frame.conversation[:ENTRY_SHOWN]}"
    return Piece(frame.frame, "", "", frame.frame, ROLE, source, text)
