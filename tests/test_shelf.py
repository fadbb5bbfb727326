"""The shelf: which conversations may be recalled from beside the one at hand."""

from collections.abc import AsyncIterator

import pytest

from proxy.shelf import Shelf, Shelved
from proxy.stack.events import Folded, FrameEvent, Rooted, recorded
from proxy.stack.ledger import Conversation, Entry, Kind
from proxy.store import Store
from proxy.store.memory import MemoryStore

OPENED = "fopened2"
FOLDED = "ffolded2"


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    made = MemoryStore()
    await made.start()
    yield made
    await made.close()


def begun(shelf: Shelf, ident: str, tenant: str = "ours", parent: str = "", frame: str = "") -> Shelved:
    """A conversation with one message, in which a frame was opened and a part of it folded."""
    shelved = shelf.open(Conversation(ident, tenant, parent=parent, created=1))
    entry = Entry(f"entry of {ident}", "", 0, Kind.MESSAGE, "thread", None)
    events: list[FrameEvent] = [Rooted(frame or f"f{ident}", "Task", ""), *([Folded(FOLDED, (), "")] if frame else [])]
    told = [recorded(event, entry.id, 0, at, 1) for at, event in enumerate(events, 1)]
    shelf.record(shelved, [entry, *told], [shelved.ledger.conversation])
    return shelved


async def beside(shelf: Shelf, shelved: Shelved, *frames: str) -> list[str]:
    return [ledger.conversation.id for ledger in await shelf.beside(shelved, frames)]


@pytest.mark.parametrize("frame", [OPENED, FOLDED])
async def test_a_conversation_is_found_by_the_id_of_a_frame_in_it(store: Store, frame: str) -> None:
    """S0-09: what a client compacted away under no name of a session; also after a restart."""
    begun(Shelf(store), "before", frame=OPENED)
    shelf = Shelf(store)
    now = begun(shelf, "now")

    assert await beside(shelf, now, frame) == ["before"]
    assert await beside(shelf, now, "fnowhere") == []
    assert await beside(shelf, now) == []


async def test_nothing_of_another_tenant_is_beside(store: Store) -> None:
    """X-25: not by the id of a frame, not by the id of a parent."""
    shelf = Shelf(store)
    begun(shelf, "theirs", tenant="theirs", frame=OPENED, parent="now")

    assert await beside(shelf, begun(shelf, "now", parent="theirs"), OPENED, FOLDED) == []


async def test_parents_and_children_are_beside_each_other(store: Store) -> None:
    """A subagent or a fork, and the conversation it came from."""
    shelf = Shelf(store)
    parent, child = begun(shelf, "parent"), begun(shelf, "child", parent="parent")

    assert await beside(shelf, parent) == ["child"]
    assert await beside(shelf, child) == ["parent"]


async def test_a_conversation_is_not_beside_itself(store: Store) -> None:
    shelf = Shelf(store)

    assert await beside(shelf, begun(shelf, "now", frame=OPENED), OPENED) == []
