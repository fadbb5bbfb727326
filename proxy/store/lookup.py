"""Which conversation is meant by its id, or by the beginning of it.

The law: **who asks for one finds none but those in scope**; what is not there, or is somebody else's, is the same
`UnknownFrame`, whose message says where to look.

What this module does not do: it reads no ledger.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from proxy.core.ledger.ledger import Conversation
from proxy.errors import UnknownFrame
from proxy.store import Store

Scope = str | None
"""A tenant, or None: all of them."""

PAGE = 200
"""Conversations asked of the store at a time."""
SHORTEST = 4
"""Characters of an id from which its beginning stands for it."""


async def everything(store: Store, scope: Scope) -> AsyncIterator[Conversation]:
    """All conversations, the one begun last first."""
    offset = 0
    while found := await store.conversations(scope, PAGE, offset):
        for conversation in found:
            yield conversation
        offset += len(found)


async def named(store: Store, scope: Scope, reference: str) -> Conversation:
    """A conversation by its id, a unique beginning of it, or where `reference` is empty the one worked in last.

    Raises UnknownFrame.
    """
    if not reference:
        return await _worked_in_last(store, scope)
    found: list[Conversation] = []
    async for known in everything(store, scope):
        if known.id == reference:
            return known
        if len(reference) >= SHORTEST and known.id.startswith(reference):
            found.append(known)
    if len(found) == 1:
        return found[0]
    if len(reference) < SHORTEST:
        raise UnknownFrame(f"{shown(reference)} is too short for an id: write {SHORTEST} characters or more.")
    what = f"{len(found)} conversations begin with" if found else "There is no conversation"
    raise UnknownFrame(f"{what} {shown(reference)}. `callstack tree` without an argument shows the newest ones.")


async def _worked_in_last(store: Store, scope: Scope) -> Conversation:
    for known in await store.worked_in_last(scope):
        return known
    raise UnknownFrame("There is no conversation yet. Point a client at the proxy and send a request.")


def shown(reference: str) -> str:
    """What was asked for, as it may stand in a message: short, and without a control character."""
    return repr(reference if len(reference) <= 64 else f"{reference[:63]}…")
