"""Finds a stored conversation, frame or entry that somebody named by its id, and the path on which it is.

For the management API, the console and commands; the conversation of a request is found by `ConversationCache`. Raises
NotFound with a hint where to look, or ConversationUnreadable if the stored data is damaged or of a newer version; lists
skip such a conversation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress

from proxy.core.frames import Frame, PathState, Tree, find_frame, replay
from proxy.core.ledger import Conversation, Entry, Ledger
from proxy.errors import NotFound, ProxyError, StoreError
from proxy.store import Store, TenantScope

log = logging.getLogger(__name__)

FRAME_CREATING_EVENTS = ("rooted", "pushed", "planned", "entered", "delegated", "parted")
"""Kinds of events that create a frame."""
UNREADABLE_TITLE = "(cannot be read)"
CONVERSATIONS_PER_QUERY = 200
MIN_ID_PREFIX_CHARS = 4
"""Least length of an id prefix."""


class ConversationUnreadable(ProxyError):
    """A stored conversation that cannot be read or replayed."""

    code = "conversation_unreadable"


@contextmanager
def translate_read_errors(conversation: str) -> Iterator[None]:
    """Raises ConversationUnreadable if reading in this block fails, StoreError if the whole store fails."""
    try:
        yield
    except Exception as caught:  # the edge of what is stored: it may be damaged, or written by others
        if isinstance(caught, ProxyError) and caught.code != StoreError.code:
            raise
        log.warning("conversation not read", extra={"conversation": conversation, "cause": type(caught).__name__})
        raise ConversationUnreadable(
            f"The conversation {quote_reference(conversation)} cannot be read: it is damaged, or was "
            f"written by a newer "
            f"callstack. `callstack forget {conversation}` would delete it."
        ) from caught


async def all_conversations(store: Store, scope: TenantScope) -> AsyncIterator[Conversation]:
    """All conversations, newest start first."""
    offset = 0
    while page := await store.conversations(scope, CONVERSATIONS_PER_QUERY, offset):
        for conversation in page:
            yield conversation
        offset += len(page)


async def find_conversation(store: Store, scope: TenantScope, reference: str) -> Conversation:
    """A conversation by its id or a unique prefix; the most recently active one if `reference` is empty. Raises
    NotFound."""
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


async def load_ledger(store: Store, conversation: Conversation) -> Ledger | None:
    """None if the conversation was deleted meanwhile. Raises ConversationUnreadable, StoreError."""
    with translate_read_errors(conversation.id):
        return await store.load(conversation.tenant, conversation.id)


async def ledger_of(store: Store, scope: TenantScope, conversation: str) -> Ledger:
    """A conversation by its full id. Raises NotFound, ConversationUnreadable."""
    tenant = await tenant_of_conversation(store, scope, conversation)
    with translate_read_errors(conversation):
        ledger = await store.load(tenant, conversation)
    if ledger is None:
        raise unknown_conversation(conversation)
    return ledger


async def tenant_of_conversation(store: Store, scope: TenantScope, conversation: str) -> str:
    """The caller's, or for an operator that of the conversation with this id. Raises NotFound."""
    tenant = scope if scope is not None else await _find_tenant(store, conversation)
    if tenant is None:
        raise unknown_conversation(conversation)
    return tenant


def unknown_conversation(conversation: str) -> NotFound:
    return NotFound(f"There is no conversation {quote_reference(conversation)}. GET /stack/conversations lists yours.")


async def _find_tenant(store: Store, conversation: str) -> str | None:
    """Operators name a conversation without its tenant, which the store needs."""
    async for candidate in all_conversations(store, None):
        if candidate.id == conversation:
            return candidate.tenant
    return None


async def find_ledger(store: Store, scope: TenantScope, reference: str) -> Ledger:
    """By id, a unique start of it, or, if empty, the most recently active. Raises NotFound, ConversationUnreadable."""
    conversation = await find_conversation(store, scope, reference)
    return await ledger_of(store, conversation.tenant, conversation.id)


async def ledger_with_frame(store: Store, scope: TenantScope, frame: str) -> tuple[Ledger, PathState]:
    """The conversation of a frame (full id) and its newest path. Raises NotFound, ConversationUnreadable."""
    for kind in FRAME_CREATING_EVENTS:
        owner = await store.conversation_with_event(scope, kind, frame)
        ledger = await load_ledger(store, owner) if owner else None
        # A path of thousands of messages takes a while to replay, and requests that are being answered do not wait.
        if (
            ledger is not None
            and (path_state := await asyncio.to_thread(path_state_with_frame, ledger, frame)) is not None
        ):
            return ledger, path_state
    raise NotFound(
        f"There is no frame {quote_reference(frame)}. GET /stack/conversations/{{id}}/frames lists "
        f"those of a conversation."
    )


async def ledger_with_entry(store: Store, scope: TenantScope, beginning: str) -> tuple[Ledger, PathState]:
    """The conversation of an entry (the beginning of its id) and the path to it. Raises NotFound,
    ConversationUnreadable."""
    owner = await store.conversation_with_entry(scope, beginning)
    ledger = await load_ledger(store, owner) if owner else None
    entry = next((e for e in ledger.entries.values() if e.id.startswith(beginning)), None) if ledger else None
    if ledger is None or entry is None:
        raise NotFound(f"There is no entry {quote_reference(beginning)}. `callstack log` shows those of a frame.")
    return ledger, await asyncio.to_thread(path_state_of_tip, ledger, entry)


async def find_frame_in_store(store: Store, reference: str) -> tuple[Ledger, PathState, Frame]:
    """A frame of any tenant by id, a unique start of one, or a title unique in its conversation; the newest
    conversation wins. Skips unreadable conversations. Raises NotFound."""
    try:
        ledger, path_state = await ledger_with_frame(store, None, reference)
        return ledger, path_state, path_state.tree.frames[reference]
    except NotFound:
        pass
    async for conversation in all_conversations(store, None):
        with suppress(ConversationUnreadable):
            candidate = await load_ledger(store, conversation)
            for path_state in all_path_states(candidate) if candidate else ():
                if candidate is not None and (frame := find_frame(path_state.tree, reference)) is not None:
                    return candidate, path_state, frame
    raise NotFound(f"There is no frame {quote_reference(reference)}. `callstack tree` shows the frames with their ids.")


# -------------------------------------------------------------------------------------------------------------- paths
def newest_path_state(ledger: Ledger) -> PathState:
    """The path that grew last. Raises ConversationUnreadable."""
    tip = ledger.newest_tip()
    return path_state_of_tip(ledger, tip) if tip else PathState()


def path_state_of_tip(ledger: Ledger, tip: Entry) -> PathState:
    """The path to this entry. Raises ConversationUnreadable."""
    with translate_read_errors(ledger.conversation.id):
        return replay(ledger, ledger.path(tip.id), {})


def all_path_states(ledger: Ledger) -> Iterator[PathState]:
    """Every path to its end, newest first, each followed by its other branches. Raises ConversationUnreadable."""
    for entry in reversed(tuple(ledger.entries.values())):
        if not entry.is_overlay and entry.id not in ledger.parent_ids:
            path_state = path_state_of_tip(ledger, entry)
            yield path_state
            yield from reversed(tuple(path_state.other_branches.values()))


def path_state_with_frame(ledger: Ledger, frame: str) -> PathState | None:
    """The newest path that has `frame`."""
    return next((path_state for path_state in all_path_states(ledger) if frame in path_state.tree.frames), None)


def thread_tips(ledger: Ledger) -> dict[str, Entry]:
    """The newest entry of each thread."""
    return {entry.thread: entry for entry in ledger.entries.values() if not entry.is_overlay}


def root_of(tree: Tree) -> Frame | None:
    return next((f for f in tree.frames.values() if not f.parent), None)
