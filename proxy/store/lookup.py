"""Which conversation is meant by its id, or by the beginning of it.

The law: **who asks for one finds none but those in scope**; what is not there, or is somebody else's, is the same
`UnknownFrame`, whose message says where to look.

What this module does not do: it reads no ledger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from proxy.core.ledger import Conversation
from proxy.errors import NotFound
from proxy.store.interface import Store

TenantScope = str | None
"""A tenant, or None: all of them."""

CONVERSATIONS_PER_QUERY = 200
"""Conversations asked of the store at a time."""
MIN_ID_PREFIX_CHARS = 4
"""Characters of an id from which its beginning stands for it."""


async def all_conversations(store: Store, scope: TenantScope) -> AsyncIterator[Conversation]:
    """All conversations, the one begun last first."""
    offset = 0
    while found := await store.conversations(scope, CONVERSATIONS_PER_QUERY, offset):
        for conversation in found:
            yield conversation
        offset += len(found)


async def find_conversation(store: Store, scope: TenantScope, reference: str) -> Conversation:
    """A conversation by its id, a unique beginning of it, or where `reference` is empty the one worked in last.

    Raises UnknownFrame.
    """
    if not reference:
        return await _newest_conversation(store, scope)
    found: list[Conversation] = []
    async for known in all_conversations(store, scope):
        if known.id == reference:
            return known
        if len(reference) >= MIN_ID_PREFIX_CHARS and known.id.startswith(reference):
            found.append(known)
    if len(found) == 1:
        return found[0]
    if len(reference) < MIN_ID_PREFIX_CHARS:
        raise NotFound(
            f"{quote_reference(reference)} is too short for an id: write {MIN_ID_PREFIX_CHARS} characters or more."
        )
    what = f"{len(found)} conversations begin with" if found else "There is no conversation"
    raise NotFound(f"{what} {quote_reference(reference)}. `callstack tree` without an argument shows the newest ones.")


async def _newest_conversation(store: Store, scope: TenantScope) -> Conversation:
    for known in await store.recently_active(scope):
        return known
    raise NotFound("There is no conversation yet. Point a client at the proxy and send a request.")


def quote_reference(reference: str) -> str:
    """What was asked for, as it may stand in a message: short, and without a control character."""
    return repr(reference if len(reference) <= 64 else f"{reference[:63]}…")
