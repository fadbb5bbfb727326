"""The shelf: which conversations may be recalled from beside the one at hand, and what of one is on disk when."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.core.frames.events import FrameEvent, FrameFolded, RootStarted, as_ledger_event
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, LedgerItem, Round
from proxy.core.ledger.messages import ModelResponse
from proxy.errors import StoreError
from proxy.store.conversation_cache import MAX_LOCKS, MAX_WRITE_DELAY_S, CachedConversation, ConversationCache
from proxy.store.database.sqlite import SqliteFile
from proxy.store.interface import SentRecord, Store
from proxy.store.memory import MemoryStore
from proxy.store.sql import SqlStore
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


def begun(
    conversations: ConversationCache, ident: str, tenant: str = "ours", parent: str = "", frame: str = ""
) -> CachedConversation:
    """A conversation with one message, in which a frame was opened and a part of it folded."""
    cached = conversations.create(Conversation(ident, tenant, parent=parent, created=1))
    entry = Entry(f"entry of {ident}", "", 0, EntryKind.MESSAGE, "thread", None)
    events: list[FrameEvent] = [
        RootStarted(frame or f"f{ident}", "Task", ""),
        *([FrameFolded(FOLDED, (), "")] if frame else []),
    ]
    told = [as_ledger_event(event, entry.id, 0, at, 1) for at, event in enumerate(events, 1)]
    conversations.record(cached, [entry, *told], [cached.ledger.conversation])
    return cached


async def beside(conversations: ConversationCache, cached: CachedConversation, *frames: str) -> list[str]:
    return [ledger.conversation.id for ledger in await conversations.related_ledgers(cached, frames)]


async def test_a_scope_has_one_lock_as_long_as_somebody_holds_it_however_many_others_come(store: Store) -> None:
    conversations = ConversationCache(store)
    held = conversations.lock("ours", "session")
    for other in range(MAX_LOCKS + 1):
        conversations.lock("ours", f"other {other}")
    assert conversations.lock("ours", "session") is held
    assert conversations.lock("theirs", "session") is not held


@pytest.mark.rows("S0-09")
@pytest.mark.parametrize("frame", [OPENED, FOLDED])
async def test_a_conversation_is_found_by_the_id_of_a_frame_in_it(store: Store, frame: str) -> None:
    """S0-09: what a client compacted away under no name of a session; also after a restart."""
    begun(ConversationCache(store), "before", frame=OPENED)
    conversations = ConversationCache(store)
    now = begun(conversations, "now")

    assert await beside(conversations, now, frame) == ["before"]
    assert await beside(conversations, now, "fnowhere") == []
    assert await beside(conversations, now) == []


@pytest.mark.rows("X-25")
async def test_nothing_of_another_tenant_is_beside(store: Store) -> None:
    """X-25: not by the id of a frame, not by the id of a parent."""
    conversations = ConversationCache(store)
    begun(conversations, "theirs", tenant="theirs", frame=OPENED, parent="now")

    assert await beside(conversations, begun(conversations, "now", parent="theirs"), OPENED, FOLDED) == []


async def test_parents_and_children_are_beside_each_other(store: Store) -> None:
    """A subagent or a fork, and the conversation it came from."""
    conversations = ConversationCache(store)
    parent, child = begun(conversations, "parent"), begun(conversations, "child", parent="parent")

    assert await beside(conversations, parent) == ["child"]
    assert await beside(conversations, child) == ["parent"]


async def test_a_conversation_is_not_beside_itself(store: Store) -> None:
    conversations = ConversationCache(store)

    assert await beside(conversations, begun(conversations, "now", frame=OPENED), OPENED) == []


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

    shelf: ConversationCache
    shelved: CachedConversation
    file: Path
    clock: Clock
    store: Store

    def writes(self, *values: LedgerItem) -> None:
        self.shelf.record(self.shelved, values)

    async def settled(self) -> None:
        """All that is queued is on disk or lost; reads come behind it."""
        await self.store.conversations("ours")

    async def may_leave(self, *left_out: str) -> bool:
        """Whether a line without these entries leaves, while nothing gets to disk."""
        try:
            await self.shelf.wait_until_durable(self.shelved, frozenset(left_out))
        except StoreError:
            return False
        return True


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[Kept]:
    file = tmp_path / "callstack.db"
    store = SqlStore(SqliteFile(file))
    await store.start()
    clock = Clock()
    conversations = ConversationCache(store, clock=clock)
    cached = begun(conversations, "kept")
    await conversations.wait_until_durable(cached)
    yield Kept(conversations, cached, file, clock, store)
    await store.close()


def message(name: str, kind: EntryKind = EntryKind.MESSAGE) -> Entry:
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
    turn = Entry("turn", "entry of kept", 9, EntryKind.TURN, "thread")
    kept.writes(turn)
    await kept.shelf.wait_until_durable(kept.shelved)
    with locked(kept.file):
        kept.writes(Round("turn", 0, ModelResponse(said("an answer", "assistant"))))

        assert await kept.may_leave()
        assert not await kept.may_leave("turn")


@pytest.mark.parametrize("kind", ["event", "overlay"])
async def test_a_line_waits_for_what_made_it_what_it_is(kept: Kept, kind: str) -> None:
    """DESIGN 10: durable before the request built on it leaves, also where that request leaves nothing out."""
    event = as_ledger_event(FrameFolded(FOLDED, (), ""), "entry of kept", 0, 9, 1)
    with locked(kept.file):
        kept.writes(event if kind == "event" else message("a text of ours", EntryKind.OVERLAY))

        assert not await kept.may_leave()


async def test_a_line_waits_for_what_had_its_time_however_fast_the_agent_is(kept: Kept) -> None:
    """DESIGN 10: 250 ms, counted for each write by itself; a newer one is no reason to wait longer for an older."""
    with locked(kept.file):
        kept.writes(message("first"))
        for step in range(3):
            kept.clock.now += MAX_WRITE_DELAY_S / 4
            kept.writes(message(f"step {step}"))
            assert await kept.may_leave()
        kept.clock.now += MAX_WRITE_DELAY_S / 4

        assert not await kept.may_leave()


async def test_what_is_on_disk_is_not_waited_for(kept: Kept) -> None:
    """A store that fails later costs no request that builds on nothing new."""
    kept.writes(message("late"))
    await kept.shelf.wait_until_durable(kept.shelved)
    kept.clock.now += MAX_WRITE_DELAY_S
    with locked(kept.file):
        assert await kept.may_leave("late", "entry of kept")


async def test_what_was_sent_is_no_word_for_what_was_lost_before_it(kept: Kept) -> None:
    """Receipts belong to no conversation, so they are written for one that lost a message too."""
    with locked(kept.file):
        kept.writes(replace(message("lost"), created=LOST))
        kept.shelf.record(kept.shelved, [], [SENT])
    await kept.settled()
    kept.clock.now += MAX_WRITE_DELAY_S

    assert not await kept.may_leave("lost")
    with pytest.raises(StoreError):
        await kept.shelf.wait_until_durable(kept.shelved)


async def test_a_line_does_not_wait_for_what_was_sent(kept: Kept) -> None:
    """It depends on no receipt."""
    with locked(kept.file):
        kept.shelf.record(kept.shelved, [], [SENT])
        kept.clock.now += MAX_WRITE_DELAY_S

        assert await kept.may_leave()


# ----------------------------------------------------------------------------------------------- one object for all
async def on_disk(kept: Kept) -> list[str]:
    ledger = await kept.store.load("ours", "kept")
    return list(ledger.entries) if ledger else []


@pytest.mark.parametrize("looked_at", [False, True], ids=["", "somebody looked at it meanwhile"])
async def test_nothing_is_recorded_behind_what_was_lost(kept: Kept, looked_at: bool) -> None:
    """L3: reading is no word for the one who knows more than was read."""
    kept.writes(replace(message("lost"), created=LOST))
    await kept.settled()
    if looked_at:
        await kept.store.load("ours", "kept")

    with pytest.raises(StoreError):
        kept.writes(replace(message("behind it"), parent="lost"))
    again = await kept.shelf.get("ours", "kept")
    assert again is not None
    kept.shelf.record(again, [message("anew")])
    await kept.shelf.wait_until_durable(again)

    assert await on_disk(kept) == list(again.ledger.entries) == ["entry of kept", "anew"]


async def test_a_loss_costs_the_next_request_nothing(kept: Kept) -> None:
    """It goes on from what is stored, and who stood in the lost one records nothing past it."""
    kept.writes(replace(message("lost"), created=LOST))
    await kept.settled()
    again = await kept.shelf.get("ours", "kept")

    assert again is not None
    assert again is not kept.shelved
    kept.shelf.record(again, [message("anew")])
    with pytest.raises(StoreError):
        kept.writes(message("past it"))
    with pytest.raises(StoreError):
        await kept.shelf.wait_until_durable(kept.shelved, frozenset())
    assert await kept.shelf.get("ours", "kept") is again


async def test_a_store_that_is_waited_for_in_vain_is_no_reason_for_another_object(kept: Kept) -> None:
    """Another request was told that the file is locked; the answer under way goes on, and the next request goes on from
    it."""
    with locked(kept.file):
        kept.writes(message("first"))
        assert not await kept.may_leave("first")
        assert await kept.shelf.get("ours", "kept") is kept.shelved
    while kept.store.write_error():  # noqa: ASYNC110 - the writer tries by itself
        await asyncio.sleep(0.01)
    kept.writes(message("second"))
    await kept.shelf.wait_until_durable(kept.shelved)

    assert await kept.shelf.get("ours", "kept") is kept.shelved
    assert await on_disk(kept) == list(kept.shelved.ledger.entries) == ["entry of kept", "first", "second"]


async def test_a_deletion_takes_what_it_deleted_from_whoever_stands_in_it_and_leaves_the_others(store: Store) -> None:
    conversations = ConversationCache(store)
    gone, stays, theirs = (
        begun(conversations, "gone"),
        begun(conversations, "stays"),
        begun(conversations, "gone", "theirs"),
    )
    await store.delete_conversations("ours", "gone")
    conversations.drop_deleted("ours")

    assert conversations.recent_conversations("ours") == [stays]
    with pytest.raises(StoreError):
        conversations.record(gone, [replace(message("late"), parent="")])
    for kept in (stays, theirs):
        conversations.record(kept, [replace(message("late"), parent="")])
        await conversations.wait_until_durable(kept)
    assert await conversations.get("ours", "gone") is None


async def test_a_conversation_that_was_never_stored_is_not_at_hand(kept: Kept) -> None:
    """Nobody would find it again, and what is said of it later would belong to nothing."""
    await kept.store.close()
    with pytest.raises(StoreError):
        begun(kept.shelf, "never")

    assert kept.shelf.recent_conversations("ours") == [kept.shelved]


async def test_what_is_deleted_while_it_is_waited_for_is_not_acknowledged(store: Store) -> None:
    """A deletion is known to the store before anybody is told of it."""
    conversations = ConversationCache(store)
    cached = begun(conversations, "gone")
    await store.delete_conversations("ours", "gone")

    with pytest.raises(StoreError):
        await conversations.wait_until_durable(cached)


class Slow(MemoryStore):
    """What was read is handed out when `may` says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.may.set()

    async def load(self, tenant: str, conversation: str) -> Ledger | None:
        found = await super().load(tenant, conversation)
        await self.may.wait()
        return found


async def test_two_who_read_a_conversation_at_once_stand_in_the_same_one() -> None:
    """Also where it had to leave for want of room before the second was done."""
    store = Slow()
    begun(ConversationCache(store), "kept")
    conversations = ConversationCache(store, most_bytes=0)
    store.may.clear()
    reading = asyncio.create_task(conversations.get("ours", "kept"))
    await asyncio.sleep(0)
    store.may.set()
    first = await conversations.get("ours", "kept")
    begun(conversations, "takes the room")

    assert first is not None
    assert first not in conversations.recent_conversations("ours")
    assert await reading is first


async def test_a_mode_is_set_for_whoever_stands_in_the_conversation(store: Store) -> None:
    conversations = ConversationCache(store)
    cached = begun(conversations, "kept")
    conversations.set_mode("ours", "kept", "off")
    conversations.set_mode("ours", "elsewhere", "off")

    assert await conversations.get("ours", "kept") is cached
    assert cached.ledger.conversation.mode == "off"
