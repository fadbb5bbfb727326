"""Finding a conversation or a frame, and the path of the ledger it lives on.

Nothing found is `UnknownFrame`, whose message says where to look. Ids are compared and asked for; they never become
part of a file name.
"""

from __future__ import annotations

from collections.abc import Iterator

# Asked of this module by the others of its folder, beside what it says itself.
from proxy.addressing import Scope as Scope
from proxy.addressing import everything as everything
from proxy.addressing import named
from proxy.addressing import shown as shown
from proxy.errors import UnknownFrame
from proxy.stack.frames import Frame, Tree, find
from proxy.stack.ledger import Entry, Ledger
from proxy.stack.story import Story, follow
from proxy.store import Store

BORN = ("rooted", "pushed", "planned", "entered", "delegated", "parted")
"""Kinds of events that make a frame."""


async def ledger_of(store: Store, scope: Scope, conversation: str) -> Ledger:
    """A conversation by its whole id. Raises UnknownFrame."""
    ledger = await store.load(await tenant_of(store, scope, conversation), conversation)
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

    Raises UnknownFrame.
    """
    known = await named(store, scope, reference)
    return await ledger_of(store, known.tenant, known.id)


async def frame_of(store: Store, scope: Scope, frame: str) -> tuple[Ledger, Story]:
    """The conversation of a frame, by its whole id, and the newest path that knows it. Raises UnknownFrame."""
    for kind in BORN:
        held = await store.holding(scope, kind, frame)
        ledger = await store.load(held.tenant, held.id) if held else None
        if ledger is not None and (story := story_with(ledger, frame)) is not None:
            return ledger, story
    raise UnknownFrame(
        f"There is no frame {shown(frame)}. GET /stack/conversations/{{id}}/frames lists those of a conversation."
    )


async def frame_named(store: Store, scope: Scope, reference: str) -> tuple[Ledger, Story, Frame]:
    """A frame by id, a unique beginning of one, or a title that is unique in its conversation; the newest conversation
    that has it. Raises UnknownFrame."""
    try:
        ledger, story = await frame_of(store, scope, reference)
        return ledger, story, story.tree.frames[reference]
    except UnknownFrame:
        pass
    async for known in everything(store, scope):
        found = await store.load(known.tenant, known.id)
        for story in stories(found) if found else ():
            if found is not None and (frame := find(story.tree, reference)) is not None:
                return found, story, frame
    raise UnknownFrame(f"There is no frame {shown(reference)}. `callstack tree` shows the frames with their ids.")


# -------------------------------------------------------------------------------------------------------------- paths
def newest_story(ledger: Ledger) -> Story:
    """The path that grew last."""
    tip = ledger.newest_tip()
    return follow(ledger, ledger.path(tip.id), {}) if tip else Story()


def stories(ledger: Ledger) -> Iterator[Story]:
    """Every path to its end, the newest first; where the work on one was branched, the line it ends on and then the
    others."""
    for entry in reversed(tuple(ledger.entries.values())):
        if not entry.is_beside and entry.id not in ledger.has_child:
            story = follow(ledger, ledger.path(entry.id), {})
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
