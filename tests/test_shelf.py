"""The shelf: which conversations may be recalled from beside the one at hand, and what of one is on disk when."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.errors import StoreError
from proxy.shelf import SETTLES_S, Shelf, Shelved
from proxy.stack.events import Folded, FrameEvent, Rooted, recorded
from proxy.stack.ledger import Conversation, Entry, Kind, Round, Value
from proxy.stack.transcript import Spoken
from proxy.store import SentRecord, Store
from proxy.store.memory import MemoryStore
from proxy.store.sql import SqlStore
from proxy.store.sqlite import SqliteFile
from tests.store.conftest import locked
from tests.store.values import said

OPENED = "fopened2"
FOLDED = "ffolded2"
LOST = 1 << 70
"""A time (ms) that fits no file: what was made then is lost, and nothing else."""
SENT = SentRecord("q1", 0, (b"{}",))


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


@pytest.mark.rows("S0-09")
@pytest.mark.parametrize("frame", [OPENED, FOLDED])
async def test_a_conversation_is_found_by_the_id_of_a_frame_in_it(store: Store, frame: str) -> None:
    """S0-09: what a client compacted away under no name of a session; also after a restart."""
    begun(Shelf(store), "before", frame=OPENED)
    shelf = Shelf(store)
    now = begun(shelf, "now")

    assert await beside(shelf, now, frame) == ["before"]
    assert await beside(shelf, now, "fnowhere") == []
    assert await beside(shelf, now) == []


@pytest.mark.rows("X-25")
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


# --------------------------------------------------------------------------------------------------------- durable when
@dataclass
class Clock:
    """Seconds that pass when a test says so."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Kept:
    """A conversation whose beginning is on disk, in a file whose lock another process can hold."""

    shelf: Shelf
    shelved: Shelved
    file: Path
    clock: Clock
    store: Store

    def writes(self, *values: Value) -> None:
        self.shelf.record(self.shelved, values)

    async def settled(self) -> None:
        """All that is queued is on disk or lost; reads come behind it."""
        await self.store.conversations("ours")

    async def may_leave(self, *left_out: str) -> bool:
        """Whether a line without these entries leaves, while nothing gets to disk."""
        try:
            await self.shelf.durable(self.shelved, frozenset(left_out))
        except StoreError:
            return False
        return True


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    file = tmp_path / "callstack.db"
    store = SqlStore(SqliteFile(file))
    await store.start()
    clock = Clock()
    shelf = Shelf(store, clock=clock)
    shelved = begun(shelf, "kept")
    await shelf.durable(shelved)
    yield Kept(shelf, shelved, file, clock, store)
    await store.close()


def message(name: str, kind: Kind = Kind.MESSAGE) -> Entry:
    return Entry(name, "entry of kept", 9, kind, "thread", said(name))


async def test_a_line_waits_for_what_it_leaves_out_however_new_that_is(kept: Kept) -> None:
    """L3: a result for a frame that is off the line, another form of what was folded: nothing is decided about them."""
    with locked(kept.file):
        kept.writes(message("on the line"))
        kept.writes(message("late"))

        assert await kept.may_leave("entry of kept")
        assert not await kept.may_leave("entry of kept", "late")


async def test_a_line_waits_for_the_answer_it_leaves_out(kept: Kept) -> None:
    """L3: a turn is known by its id, also where only a round of it is new."""
    turn = Entry("turn", "entry of kept", 9, Kind.TURN, "thread")
    kept.writes(turn)
    await kept.shelf.durable(kept.shelved)
    with locked(kept.file):
        kept.writes(Round("turn", 0, Spoken(said("an answer", "assistant"))))

        assert await kept.may_leave()
        assert not await kept.may_leave("turn")


@pytest.mark.parametrize("kind", ["event", "overlay"])
async def test_a_line_waits_for_what_made_it_what_it_is(kept: Kept, kind: str) -> None:
    """DESIGN 10: durable before the request built on it leaves, also where that request leaves nothing out."""
    event = recorded(Folded(FOLDED, (), ""), "entry of kept", 0, 9, 1)
    with locked(kept.file):
        kept.writes(event if kind == "event" else message("a text of ours", Kind.OVERLAY))

        assert not await kept.may_leave()


async def test_a_line_waits_for_what_had_its_time_however_fast_the_agent_is(kept: Kept) -> None:
    """DESIGN 10: 250 ms, counted for each write by itself; a newer one is no reason to wait longer for an older."""
    with locked(kept.file):
        kept.writes(message("first"))
        for step in range(3):
            kept.clock.now += SETTLES_S / 4
            kept.writes(message(f"step {step}"))
            assert await kept.may_leave()
        kept.clock.now += SETTLES_S / 4

        assert not await kept.may_leave()


async def test_what_is_on_disk_is_not_waited_for(kept: Kept) -> None:
    """A store that fails later costs no request that builds on nothing new."""
    kept.writes(message("late"))
    await kept.shelf.durable(kept.shelved)
    kept.clock.now += SETTLES_S
    with locked(kept.file):
        assert await kept.may_leave("late", "entry of kept")


async def test_what_was_sent_is_no_word_for_what_was_lost_before_it(kept: Kept) -> None:
    """Receipts belong to no conversation, so they are written for one that lost a message too."""
    with locked(kept.file):
        kept.writes(replace(message("lost"), created=LOST))
        kept.shelf.record(kept.shelved, [], [SENT])
    await kept.settled()
    kept.clock.now += SETTLES_S

    assert not await kept.may_leave("lost")
    with pytest.raises(StoreError):
        await kept.shelf.durable(kept.shelved)


async def test_a_line_does_not_wait_for_what_was_sent(kept: Kept) -> None:
    """It depends on no receipt."""
    with locked(kept.file):
        kept.shelf.record(kept.shelved, [], [SENT])
        kept.clock.now += SETTLES_S

        assert await kept.may_leave()
