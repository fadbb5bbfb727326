"""Finding a conversation or a frame, and the path of the ledger it lives on.

Nothing found is `UnknownFrame`, whose message says where to look. Ids are compared and asked for; they never become
part of a file name.

What is found may be damaged, or of a newer version: that is `Unreadable`, and whoever goes through several of them
tells of that one and goes on with the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from proxy.core.frames import Frame, PathState, Tree, find_frame, replay
from proxy.core.ledger import Conversation, Entry, Ledger
from proxy.errors import NotFound, ProxyError, StoreError
from proxy.store import Store

# Asked of this module by the others of its folder, beside what it says itself.
from proxy.store import TenantScope as TenantScope
from proxy.store import all_conversations as all_conversations
from proxy.store import find_conversation as find_conversation
from proxy.store import quote_reference as quote_reference

log = logging.getLogger(__name__)

FRAME_CREATING_EVENTS = ("rooted", "pushed", "planned", "entered", "delegated", "parted")
"""Kinds of events that make a frame."""
UNREADABLE_TITLE = "(cannot be read)"
"""Stands for the title of a conversation of which that is so."""


class ConversationUnreadable(ProxyError):
    """A stored conversation that cannot be read or folded."""

    code = "conversation_unreadable"


@contextmanager
def translate_read_errors(conversation: str) -> Iterator[None]:
    """What is stored of a conversation is made sense of in this block. Raises Unreadable where that fails, StoreError
    where the store as a whole does."""
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


async def load_ledger(store: Store, known: Conversation) -> Ledger | None:
    """None where it was forgotten meanwhile. Raises Unreadable, StoreError."""
    with translate_read_errors(known.id):
        return await store.load(known.tenant, known.id)


async def ledger_of(store: Store, scope: TenantScope, conversation: str) -> Ledger:
    """A conversation by its whole id. Raises UnknownFrame, Unreadable."""
    tenant = await tenant_of_conversation(store, scope, conversation)
    with translate_read_errors(conversation):
        ledger = await store.load(tenant, conversation)
    if ledger is None:
        raise unknown_conversation(conversation)
    return ledger


async def tenant_of_conversation(store: Store, scope: TenantScope, conversation: str) -> str:
    """Whose a conversation is, or would be: who asks, or for an operator whoever has one of this whole id. Raises
    UnknownFrame."""
    tenant = scope if scope is not None else await _find_tenant(store, conversation)
    if tenant is None:
        raise unknown_conversation(conversation)
    return tenant


def unknown_conversation(conversation: str) -> NotFound:
    """The error for a conversation that is not there, to be raised."""
    return NotFound(f"There is no conversation {quote_reference(conversation)}. GET /stack/conversations lists yours.")


async def _find_tenant(store: Store, conversation: str) -> str | None:
    """An operator names a conversation without saying whose it is; the store is only asked with a tenant."""
    async for known in all_conversations(store, None):
        if known.id == conversation:
            return known.tenant
    return None


async def find_ledger(store: Store, scope: TenantScope, reference: str) -> Ledger:
    """A conversation by its id, a unique beginning of it, or where `reference` is empty the one worked in last.

    Raises UnknownFrame, Unreadable.
    """
    known = await find_conversation(store, scope, reference)
    return await ledger_of(store, known.tenant, known.id)


async def ledger_with_frame(store: Store, scope: TenantScope, frame: str) -> tuple[Ledger, PathState]:
    """The conversation of a frame, by its whole id, and the newest path that knows it. Raises UnknownFrame,
    Unreadable."""
    for kind in FRAME_CREATING_EVENTS:
        held = await store.conversation_with_event(scope, kind, frame)
        ledger = await load_ledger(store, held) if held else None
        # A path of thousands of messages takes a while to fold, and requests that are being answered do not wait.
        if (
            ledger is not None
            and (path_state := await asyncio.to_thread(path_state_with_frame, ledger, frame)) is not None
        ):
            return ledger, path_state
    raise NotFound(
        f"There is no frame {quote_reference(frame)}. GET /stack/conversations/{{id}}/frames lists "
        f"those of a conversation."
    )


async def find_frame_in_store(store: Store, scope: TenantScope, reference: str) -> tuple[Ledger, PathState, Frame]:
    """A frame by id, a unique beginning of one, or a title that is unique in its conversation; the newest conversation
    that has it. Those that cannot be read are passed over. Raises UnknownFrame."""
    try:
        ledger, path_state = await ledger_with_frame(store, scope, reference)
        return ledger, path_state, path_state.tree.frames[reference]
    except NotFound:
        pass
    async for known in all_conversations(store, scope):
        with suppress(ConversationUnreadable):
            found = await load_ledger(store, known)
            for path_state in all_path_states(found) if found else ():
                if found is not None and (frame := find_frame(path_state.tree, reference)) is not None:
                    return found, path_state, frame
    raise NotFound(f"There is no frame {quote_reference(reference)}. `callstack tree` shows the frames with their ids.")


# -------------------------------------------------------------------------------------------------------------- paths
def newest_path_state(ledger: Ledger) -> PathState:
    """The path that grew last. Raises Unreadable."""
    tip = ledger.newest_tip()
    return path_state_of_tip(ledger, tip) if tip else PathState()


def path_state_of_tip(ledger: Ledger, tip: Entry) -> PathState:
    """The path to this entry. Raises Unreadable."""
    with translate_read_errors(ledger.conversation.id):
        return replay(ledger, ledger.path(tip.id), {})


def all_path_states(ledger: Ledger) -> Iterator[PathState]:
    """Every path to its end, the newest first; where the work on one was branched, the line it ends on and then the
    others. Raises Unreadable."""
    for entry in reversed(tuple(ledger.entries.values())):
        if not entry.is_overlay and entry.id not in ledger.parent_ids:
            path_state = path_state_of_tip(ledger, entry)
            yield path_state
            yield from reversed(tuple(path_state.other_branches.values()))


def path_state_with_frame(ledger: Ledger, frame: str) -> PathState | None:
    """The newest path that knows `frame`."""
    return next((path_state for path_state in all_path_states(ledger) if frame in path_state.tree.frames), None)


def thread_tips(ledger: Ledger) -> dict[str, Entry]:
    """The newest entry of each thread."""
    return {entry.thread: entry for entry in ledger.entries.values() if not entry.is_overlay}


def root_of(tree: Tree) -> Frame | None:
    """The frame without a parent, where the path has begun one."""
    return next((f for f in tree.frames.values() if not f.parent), None)
