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

from proxy.core.frames.path_state import Story, follow
from proxy.core.frames.tree import Frame, Tree, find
from proxy.core.ledger.ledger import Conversation, Entry, Ledger
from proxy.errors import ProxyError, StoreError, UnknownFrame
from proxy.store import Store

# Asked of this module by the others of its folder, beside what it says itself.
from proxy.store.lookup import Scope as Scope
from proxy.store.lookup import everything as everything
from proxy.store.lookup import named as named
from proxy.store.lookup import shown as shown

log = logging.getLogger(__name__)

BORN = ("rooted", "pushed", "planned", "entered", "delegated", "parted")
"""Kinds of events that make a frame."""
UNREADABLE = "(cannot be read)"
"""Stands for the title of a conversation of which that is so."""


class Unreadable(ProxyError):
    """A stored conversation that cannot be read or folded."""

    code = "conversation_unreadable"


@contextmanager
def reading(conversation: str) -> Iterator[None]:
    """What is stored of a conversation is made sense of in this block. Raises Unreadable where that fails, StoreError
    where the store as a whole does."""
    try:
        yield
    except Exception as caught:  # the edge of what is stored: it may be damaged, or written by others
        if isinstance(caught, ProxyError) and caught.code != StoreError.code:
            raise
        log.warning("conversation not read", extra={"conversation": conversation, "cause": type(caught).__name__})
        raise Unreadable(
            f"The conversation {shown(conversation)} cannot be read: it is damaged, or was written by a newer "
            f"callstack. `callstack forget {conversation}` would delete it."
        ) from caught


async def loaded(store: Store, known: Conversation) -> Ledger | None:
    """None where it was forgotten meanwhile. Raises Unreadable, StoreError."""
    with reading(known.id):
        return await store.load(known.tenant, known.id)


async def ledger_of(store: Store, scope: Scope, conversation: str) -> Ledger:
    """A conversation by its whole id. Raises UnknownFrame, Unreadable."""
    tenant = await tenant_of(store, scope, conversation)
    with reading(conversation):
        ledger = await store.load(tenant, conversation)
    if ledger is None:
        raise unknown(conversation)
    return ledger


async def tenant_of(store: Store, scope: Scope, conversation: str) -> str:
    """Whose a conversation is, or would be: who asks, or for an operator whoever has one of this whole id. Raises
    UnknownFrame."""
    tenant = scope if scope is not None else await _tenant_of(store, conversation)
    if tenant is None:
        raise unknown(conversation)
    return tenant


def unknown(conversation: str) -> UnknownFrame:
    """The error for a conversation that is not there, to be raised."""
    return UnknownFrame(f"There is no conversation {shown(conversation)}. GET /stack/conversations lists yours.")


async def _tenant_of(store: Store, conversation: str) -> str | None:
    """An operator names a conversation without saying whose it is; the store is only asked with a tenant."""
    async for known in everything(store, None):
        if known.id == conversation:
            return known.tenant
    return None


async def ledger_named(store: Store, scope: Scope, reference: str) -> Ledger:
    """A conversation by its id, a unique beginning of it, or where `reference` is empty the one worked in last.

    Raises UnknownFrame, Unreadable.
    """
    known = await named(store, scope, reference)
    return await ledger_of(store, known.tenant, known.id)


async def frame_of(store: Store, scope: Scope, frame: str) -> tuple[Ledger, Story]:
    """The conversation of a frame, by its whole id, and the newest path that knows it. Raises UnknownFrame,
    Unreadable."""
    for kind in BORN:
        held = await store.holding(scope, kind, frame)
        ledger = await loaded(store, held) if held else None
        # A path of thousands of messages takes a while to fold, and requests that are being answered do not wait.
        if ledger is not None and (story := await asyncio.to_thread(story_with, ledger, frame)) is not None:
            return ledger, story
    raise UnknownFrame(
        f"There is no frame {shown(frame)}. GET /stack/conversations/{{id}}/frames lists those of a conversation."
    )


async def frame_named(store: Store, scope: Scope, reference: str) -> tuple[Ledger, Story, Frame]:
    """A frame by id, a unique beginning of one, or a title that is unique in its conversation; the newest conversation
    that has it. Those that cannot be read are passed over. Raises UnknownFrame."""
    try:
        ledger, story = await frame_of(store, scope, reference)
        return ledger, story, story.tree.frames[reference]
    except UnknownFrame:
        pass
    async for known in everything(store, scope):
        with suppress(Unreadable):
            found = await loaded(store, known)
            for story in stories(found) if found else ():
                if found is not None and (frame := find(story.tree, reference)) is not None:
                    return found, story, frame
    raise UnknownFrame(f"There is no frame {shown(reference)}. `callstack tree` shows the frames with their ids.")


# -------------------------------------------------------------------------------------------------------------- paths
def newest_story(ledger: Ledger) -> Story:
    """The path that grew last. Raises Unreadable."""
    tip = ledger.newest_tip()
    return folded(ledger, tip) if tip else Story()


def folded(ledger: Ledger, tip: Entry) -> Story:
    """The path to this entry. Raises Unreadable."""
    with reading(ledger.conversation.id):
        return follow(ledger, ledger.path(tip.id), {})


def stories(ledger: Ledger) -> Iterator[Story]:
    """Every path to its end, the newest first; where the work on one was branched, the line it ends on and then the
    others. Raises Unreadable."""
    for entry in reversed(tuple(ledger.entries.values())):
        if not entry.is_beside and entry.id not in ledger.has_child:
            story = folded(ledger, entry)
            yield story
            yield from reversed(tuple(story.aside.values()))


def story_with(ledger: Ledger, frame: str) -> Story | None:
    """The newest path that knows `frame`."""
    return next((story for story in stories(ledger) if frame in story.tree.frames), None)


def thread_tips(ledger: Ledger) -> dict[str, Entry]:
    """The newest entry of each thread."""
    return {entry.thread: entry for entry in ledger.entries.values() if not entry.is_beside}


def root_of(tree: Tree) -> Frame | None:
    """The frame without a parent, where the path has begun one."""
    return next((f for f in tree.frames.values() if not f.parent), None)
