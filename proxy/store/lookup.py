"""Finds a conversation in scope by its id or a prefix. A missing conversation and one of another tenant raise the same
`UnknownFrame`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from proxy.core.ledger import Conversation
from proxy.errors import NotFound
from proxy.store.interface import Store

TenantScope = str | None
"""A tenant, or None for all of them."""

CONVERSATIONS_PER_QUERY = 200
MIN_ID_PREFIX_CHARS = 4


async def all_conversations(store: Store, scope: TenantScope) -> AsyncIterator[Conversation]:
    offset = 0
    while page := await store.conversations(scope, CONVERSATIONS_PER_QUERY, offset):
        for conversation in page:
            yield conversation
        offset += len(page)


async def find_conversation(store: Store, scope: TenantScope, reference: str) -> Conversation:
    """By id, a unique prefix, or, if `reference` is empty, the most recently active. Raises UnknownFrame."""
    if not reference:
        return await _newest_conversation(store, scope)
    found: list[Conversation] = []
    async for conversation in all_conversations(store, scope):
        if conversation.id == reference:
            return conversation
        if len(reference) >= MIN_ID_PREFIX_CHARS and conversation.id.startswith(reference):
            found.append(conversation)
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
    """`reference` for a message: short, without control characters."""
    return repr(reference if len(reference) <= 64 else f"{reference[:63]}…")
