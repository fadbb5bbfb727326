"""What every store keeps: the same suite on the file, in memory and on a PostgreSQL server (D14, A6, S0-08, S3-30,
S1-13)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.frames.tree import Status
from proxy.core.ledger.ledger import Conversation, EntryKind, LedgerEvent, Round, Thread
from proxy.core.ledger.messages import Message, ModelResponse
from proxy.core.matching.lookup_keys import response_anchor
from proxy.errors import InvalidConfiguration, StoreError
from proxy.store.conversation_cache import ConversationCache
from proxy.store.interface import (
    AnchorRecord,
    DeletionResult,
    EmbeddableFrame,
    FinishedFrame,
    FrameSearchResult,
    FrameVector,
    LedgerRecord,
    QueryVector,
    Record,
    RequestRecord,
    SentRecord,
    SettingRecord,
    Settlement,
    Store,
    UsageRecord,
)
from proxy.store.memory import MemoryStore
from proxy.store.search_index import words_in
from proxy.store.sql import DATABASE_BY_SCHEME, open_store
from tests.postgresql_server import PostgresServer
from tests.store.values import conversations, entry, grown_to, opened, said, worked

numbers = count()


STORES = ["sqlite", "memory:", pytest.param("postgresql", marks=pytest.mark.long)]


def url_of(request: pytest.FixtureRequest) -> str:
    if request.param != "postgresql":
        return str(request.param)
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened_store = open_store(url_of(request), tmp_path / "data")
    await opened_store.start()
    yield opened_store
    await opened_store.close()


@pytest.fixture(params=STORES, scope="module")
def kept(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[asyncio.Runner, Store]]:
    """One store for many random examples, and the loop it lives on."""
    with asyncio.Runner() as runner:
        made = open_store(url_of(request), tmp_path_factory.mktemp("store"))
        runner.run(made.start())
        yield runner, made
        runner.run(made.close())


# ---------------------------------------------------------------------------------------------------- what is read back
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_a_conversation_is_loaded_exactly_as_it_was_written(
    kept: tuple[asyncio.Runner, Store], data: st.DataObject
) -> None:
    """D14: whatever characters and bytes are in it, however it was cut into batches."""
    runner, store = kept
    written = data.draw(conversations(tenant=f"tenant {next(numbers)}"))
    cut = data.draw(st.integers(0, len(written.values)))
    owned = [LedgerRecord(written.conversation.id, value) for value in written.values]

    async def write_and_load() -> tuple[object, object]:
        key = written.conversation.tenant, written.conversation.id
        store.write(written.conversation.tenant, [written.conversation, *owned[:cut]])
        store.write(written.conversation.tenant, owned[cut:])
        return await store.load(*key), await store.first_messages(*key, 3)

    expected = grown_to(written.conversation, written.values)
    first = [each.message for each in list(expected.entries.values())[:3] if each.message is not None]
    assert runner.run(write_and_load()) == (expected, tuple(first))


AWKWARD = {
    "nothing": "",
    "nul": "a\0b",
    "lone surrogate": "\ud800",
    "two lone surrogates that would make a character": "\ud83d" + "\ude00",
    "our escape": "\x10",
    "what our escape makes of nul": "\x100000",
    "beyond the basic plane": "\U0001f600",
    "5 MB": "x" * 5_000_000,
}


@pytest.mark.parametrize("text", AWKWARD.values(), ids=AWKWARD.keys())
async def test_any_text_and_its_wire_come_back_byte_equal(store: Store, text: str) -> None:
    """D14: NUL, lone surrogates, pairs of them, what looks like our escape, 5 MB."""
    wire = text.encode("utf-8", "surrogatepass")
    held = replace(entry("m1"), message=Message("user", wire, "i", text))

    store.write("a", opened("c1", held))
    ledger = await store.load("a", "c1")

    assert ledger is not None
    assert ledger.entries["m1"] == held


async def test_what_is_queued_is_read_before_it_is_durable(store: Store) -> None:
    for number in range(50):
        store.write("a", opened(f"c{number}", entry("m1")))

    assert await store.load("a", "c49") is not None


async def test_records_of_one_conversation_in_many_batches_keep_their_order(store: Store) -> None:
    store.write("a", opened("c1"))
    made = [entry(f"m{n}", f"m{n - 1}" if n else "", seq=n) for n in range(40)]
    for value in made:
        store.write("a", [LedgerRecord("c1", value)])

    ledger = await store.load("a", "c1")

    assert ledger is not None
    assert [e.id for e in ledger.path("m39")] == [e.id for e in made]
    assert ledger.newest_tip() == made[-1]


async def test_of_two_rounds_that_look_alike_the_newest_is_found_first_after_loading(store: Store) -> None:
    """DESIGN 10: where two answers look alike the newest delivered one wins, though its turn may have begun first."""
    first = replace(entry("turn 1", seq=1), kind=EntryKind.TURN, message=None)
    second = replace(entry("turn 2", seq=2), kind=EntryKind.TURN, message=None)
    answer = ModelResponse(said("done", "assistant"), "stop")
    values = (first, second, Round("turn 2", 0, answer, last=True), Round("turn 1", 0, answer, last=True))

    store.write("a", opened("c1", *values))
    ledger = await store.load("a", "c1")

    assert ledger is not None
    assert ledger.by_identity["", answer.message.identity] == ["turn 2", "turn 1"]
    assert list(ledger.rounds) == ["turn 2", "turn 1"]


async def test_the_first_writer_of_an_event_wins(store: Store) -> None:
    """DESIGN 10: events are unique per entry, kind and subject, also when the second comes in another batch."""
    event = LedgerEvent("m1", 0, 1, "wake", "f1", b"first")
    store.write("a", opened("c1", entry("m1"), event))
    store.write("a", [LedgerRecord("c1", replace(event, seq=2, data=b"second"))])
    store.write("a", [LedgerRecord("c1", replace(event, seq=3, subject="f2", data=b"another"))])

    ledger = await store.load("a", "c1")

    assert ledger is not None
    assert [e.data for e in ledger.events["m1"]] == [b"first", b"another"]


async def test_an_entry_keeps_the_bytes_it_was_first_sent_as(store: Store) -> None:
    store.write("a", opened("c1", entry("m1", text="first")))
    store.write("a", [LedgerRecord("c1", entry("m1", text="later tidied"))])

    ledger = await store.load("a", "c1")

    assert ledger is not None
    assert ledger.entries["m1"].message == said("first")


@pytest.mark.rows("S4-06")
async def test_a_draft_of_a_round_is_replaced_until_it_is_finished(store: Store) -> None:
    """S4-06: what streamed so far is on disk, and takes no more room than the newest of it."""
    turn = replace(entry("turn 1"), kind=EntryKind.TURN, message=None)
    store.write("a", opened("c1", turn))
    results = (said("one", "tool"), said("two", "tool"))

    async def written(text: str, *, complete: bool, results: tuple[Message, ...] = ()) -> Round:
        spoken = ModelResponse(said(text, "assistant"), "stop" if complete else "", complete=complete)
        store.write("a", [LedgerRecord("c1", Round("turn 1", 0, spoken, results))])
        ledger = await store.load("a", "c1")
        assert ledger is not None
        return ledger.rounds["turn 1"][0]

    assert (await written("hel", complete=False, results=results)).results == results
    assert (await written("hello", complete=False)).spoken.message == said("hello", "assistant")
    finished = await written("hello you", complete=True, results=results[:1])
    assert finished.spoken.message == said("hello you", "assistant")
    assert finished.results == results[:1]
    assert await written("late", complete=False, results=results) == finished
    assert await written("later", complete=True) == finished


async def test_all_drafts_of_a_round_and_its_end_may_be_written_at_once(store: Store) -> None:
    """Many rows of a table in one step, with the same key among them."""
    turn = replace(entry("turn 1"), kind=EntryKind.TURN, message=None)
    results = (said("one", "tool"), said("two", "tool"), said("three", "tool"))
    drafts = [ModelResponse(said(text, "assistant"), complete=False) for text in ("h", "hel", "hello")]
    rounds = [*drafts, ModelResponse(said("hello you", "assistant"), "stop")]
    drafted = (Round("turn 1", 0, spoken, results) for spoken in rounds)
    await store.wait_until_durable(store.write("a", opened("c1", turn, *drafted)))

    ledger = await store.load("a", "c1")
    assert ledger is not None
    assert ledger.rounds["turn 1"] == (Round("turn 1", 0, rounds[-1], results),)


async def test_the_newest_record_of_a_conversation_wins(store: Store) -> None:
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1", created=50), hint="h")))
    changed = Conversation("c1", "a", "h", created=1, mode="off")
    await store.wait_until_durable(store.write("a", [changed]))

    ledger = await store.load("a", "c1")

    assert ledger is not None
    assert ledger.conversation == changed
    assert store.health().conversations == 1
    assert await store.delete_conversations("a", before=40) == DeletionResult()


async def test_the_newest_state_of_a_thread_wins(store: Store) -> None:
    store.write("a", opened("c1", Thread("t1", "old", ("read",))))
    store.write("a", [LedgerRecord("c1", Thread("t1", "new", ("read", "write")))])

    ledger = await store.load("a", "c1")

    assert ledger is not None
    assert ledger.threads == {"t1": Thread("t1", "new", ("read", "write"))}


async def test_an_entry_whose_parent_was_never_written_is_left_out_with_all_below_it(store: Store) -> None:
    store.write(
        "a", opened("c1", entry("m1"), entry("m3", "m2"), entry("m4", "m3"), LedgerEvent("m4", 0, 1, "k", "s", b""))
    )

    ledger = await store.load("a", "c1")

    assert ledger is not None
    assert list(ledger.entries) == ["m1"]
    assert ledger.events == {}


async def test_a_conversation_nobody_wrote_is_none(store: Store) -> None:
    assert await store.load("a", "c1") is None


async def test_nothing_is_kept_for_a_conversation_that_is_not_in_the_store(store: Store) -> None:
    ticket = store.write("a", [LedgerRecord("c1", entry("m1"))])

    with pytest.raises(StoreError, match="not in the store"):
        await store.wait_until_durable(ticket)
    assert await store.load("a", "c1") is None
    await store.wait_until_durable(store.write("a", opened("c1", entry("m1"))))


async def test_a_batch_of_nothing_is_durable(store: Store) -> None:
    await store.wait_until_durable(store.write("a", []))


async def test_many_wait_for_one_ticket(store: Store) -> None:
    ticket = store.write("a", opened("c1"))

    await asyncio.gather(*(store.wait_until_durable(ticket) for _ in range(20)))


# ---------------------------------------------------------------------------------------------------------------- find
async def test_conversations_are_found_by_the_first_key_they_hold_then_the_newest_first(store: Store) -> None:
    for name in ("c1", "c2", "c3", "c4"):
        store.write("a", opened(name, hint="h"))
    store.write("a", [AnchorRecord("c1", "h", ("x", "y"), 10), AnchorRecord("c2", "h", ("y",), 20)])
    store.write("a", [AnchorRecord("c3", "h", ("y",), 30), AnchorRecord("c4", "other", ("x",), 40)])

    assert await store.find_by_anchors("a", "h", ["x", "y"]) == ("c1", "c3", "c2")
    assert await store.find_by_anchors("a", "h", ["y", "x"], limit=2) == ("c3", "c2")
    assert await store.find_by_anchors("a", "h", ["z"]) == ()
    assert await store.find_by_anchors("a", "h", []) == ()


async def test_of_a_key_that_very_many_have_the_newest_are_found(store: Store) -> None:
    for number in range(300):
        store.write("a", [*opened(f"c{number:03}"), AnchorRecord(f"c{number:03}", "", ("x", f"y{number}"), number)])

    assert await store.find_by_anchors("a", "", ["x"], limit=3) == ("c299", "c298", "c297")
    assert await store.find_by_anchors("a", "", ["y7", "z", "x"], limit=3) == ("c007", "c299", "c298")


async def test_an_anchor_written_again_is_as_new_as_its_newest_writing(store: Store) -> None:
    store.write(
        "a", [*opened("c1"), *opened("c2"), AnchorRecord("c1", "", ("x",), 10), AnchorRecord("c2", "", ("x",), 20)]
    )
    store.write("a", [AnchorRecord("c2", "", ("x",), 5), AnchorRecord("c1", "", (), 99)])
    assert await store.find_by_anchors("a", "", ["x"]) == ("c2", "c1")

    store.write("a", [AnchorRecord("c1", "", ("x",), 30)])
    assert await store.find_by_anchors("a", "", ["x"]) == ("c1", "c2")


async def test_sessions_are_those_under_the_hint_the_newest_first(store: Store) -> None:
    store.write("a", opened("c1", hint="h", created=1))
    store.write("a", opened("c2", hint="h", created=3))
    store.write("a", opened("c3", hint="h", created=2))
    store.write("a", opened("c4", hint="g", created=9))

    assert await store.conversations_in_session("a", "h") == ("c2", "c3", "c1")
    assert await store.conversations_in_session("a", "h", limit=1) == ("c2",)


async def test_whether_others_have_a_key_is_told_however_many_have_it(store: Store) -> None:
    key, cache = response_anchor("resp_1"), ConversationCache(store)  # which a server counts anew at each start
    for number in range(12):
        store.write(f"t{number}", [*opened("c1", tenant=f"t{number}"), AnchorRecord("c1", "", ("x", key), 1)])
    store.write("t5", [AnchorRecord("c1", "", ("y",), 1), AnchorRecord("c1", "named", ("z",), 1)])

    assert all([await store.is_anchor_of_others(tenant, "x") for tenant in ("t0", "t11", "unseen")])
    assert not any([await cache.is_anothers_answer(f"t{number}", "resp_1") for number in range(12)])
    assert await cache.is_anothers_answer("unseen", "resp_1")
    assert [await store.is_anchor_of_others(tenant, "y") for tenant in ("t5", "t4", "t6")] == [False, True, True]
    assert not await store.is_anchor_of_others("t4", "z")
    await store.delete_conversations("t5", "c1")
    assert not await store.is_anchor_of_others("t4", "y")


async def test_conversations_are_listed_the_newest_first_in_pages(store: Store) -> None:
    for number in range(5):
        store.write("a", opened(f"c{number}", created=number))

    assert [c.id for c in await store.conversations("a", limit=2, offset=1)] == ["c3", "c2"]
    assert len(await store.conversations(None)) == 5


async def test_the_conversation_worked_in_last_is_that_with_the_newest_record(store: Store) -> None:
    """And the pages do not move: who turns them while work goes on misses none."""
    for number in range(3):
        store.write("a", opened(f"c{number}", created=number))
    store.write("b", opened("of another", tenant="b", created=90))
    store.write("a", [LedgerRecord("c0", entry("m1", created=50))])
    store.write("a", [AnchorRecord("c1", "", ("x",), 50)])

    assert [c.id for c in await store.recently_active("a", limit=2)] == ["c1", "c0"]
    assert [c.id for c in await store.recently_active(None)] == ["of another"]
    assert await store.recently_active("nobody") == ()
    assert [c.id for c in await store.conversations("a")] == ["c2", "c1", "c0"]


async def test_the_conversation_that_holds_an_event_is_found_by_its_subject(store: Store) -> None:
    store.write("a", opened("c1", entry("m1"), LedgerEvent("m1", 0, 1, "pushed", "f1", b"{}")))

    found = await store.conversation_with_event("a", "pushed", "f1")

    assert found is not None
    assert found.id == "c1"
    assert await store.conversation_with_event("a", "popped", "f1") is None
    assert await store.conversation_with_event("a", "pushed", "f2") is None


async def test_the_conversation_that_holds_an_entry_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    store.write("a", opened("c1", entry("3fa85f64aabbcc")))
    store.write("b", opened("c2", entry("3fa85f64aabbcc"), tenant="b"))

    found = await store.conversation_with_entry("a", "3fa85f64aabb")

    assert found is not None
    assert found.id == "c1"
    assert await store.conversation_with_entry("a", "3fa85f64aabc") is None
    assert await store.conversation_with_entry("c", "3fa85f64aabb") is None


# ------------------------------------------------------------------------------------------------------------ requests
def asked(name: str, conversation: str = "c1", created: int = 1, body: tuple[bytes, ...] = ()) -> RequestRecord:
    return RequestRecord(name, conversation, "t1", "f1", "m1", created, "full", b'{"saved":1}', body)


async def test_a_request_comes_back_with_every_body_in_its_pieces(store: Store) -> None:
    long = tuple(f'{{"role":"user","content":"{n} {"x" * 200}"}}'.encode() for n in range(100))
    body = (b'{"messages":[', *long, b"", b"]}", b"\x00\xff")
    sent = [SentRecord("r1", number, (*body[: 40 + number], b"]}"), 5) for number in range(3)]

    store.write("a", [*opened("c1"), asked("r1", body=body), *sent])
    found = await store.request("a", "r1")

    assert found is not None
    assert found.record == asked("r1", body=body)
    assert found.sent == tuple(sent)


async def test_the_newer_record_of_a_request_replaces_the_older_but_not_its_body_with_none(store: Store) -> None:
    store.write("a", [*opened("c1"), asked("r1", body=(b"first",))])
    answered = replace(asked("r1"), status="asleep", receipt=b"\xff\x00{}")
    store.write("a", [answered])

    found = await store.request("a", "r1")

    assert found is not None
    assert found.record == replace(answered, body=(b"first",))


async def test_a_request_is_found_by_the_beginning_of_its_id_when_only_one_begins_so(store: Store) -> None:
    store.write("a", [asked("ab1"), asked("ab2"), asked("ab"), asked("b_1"), asked("B_1")])

    async def found(beginning: str) -> str | None:
        stored = await store.request("a", beginning)
        return stored.record.id if stored else None

    assert await found("ab1") == "ab1"
    assert await found("ab") == "ab"
    assert await found("a") is None
    assert await found("b") == "b_1"
    assert await found("%") is None
    assert await found("") is None


async def test_requests_are_listed_the_newest_first_without_bodies(store: Store) -> None:
    store.write("a", [asked("r1", created=1, body=(b"x",)), asked("r2", "c2", created=2), asked("r3", created=3)])

    assert [r.id for r in await store.requests("a")] == ["r3", "r2", "r1"]
    assert await store.requests("a", "c1") == (asked("r3", created=3), asked("r1", created=1))
    assert len(await store.requests(None, limit=1)) == 1
    assert [r.id for r in await store.requests("a", limit=1, offset=1)] == ["r2"]
    assert [r.id for r in await store.requests("a", "c1", limit=5, offset=1)] == ["r1"]


# ------------------------------------------------------------------------------------------------------------- tenants
@pytest.mark.rows("X-25")
async def test_no_method_shows_a_tenant_anything_of_another(store: Store) -> None:
    """A6, T1: the same words, hints, keys and ids, and still nothing is found."""
    everything = opened("c1", entry("m1"), LedgerEvent("m1", 0, 1, "pushed", "f1", b"{}"), hint="h")
    store.write("a", [*everything, AnchorRecord("c1", "h", ("x",), 1), asked("r1"), SentRecord("r1", 0, (b"body",))])

    assert await store.load("b", "c1") is None
    assert await store.find_by_anchors("b", "h", ["x"]) == ()
    assert await store.conversations_in_session("b", "h") == ()
    assert await store.conversations("b") == ()
    assert await store.conversation_with_event("b", "pushed", "f1") is None
    assert await store.requests("b") == ()
    assert await store.requests("b", "c1") == ()
    assert await store.request("b", "r1") is None
    assert await store.request("b", "r") is None
    assert await store.delete_conversations("b", "c1") == DeletionResult()
    assert await store.delete_conversations("b", before=10**15) == DeletionResult()
    with pytest.raises(StoreError):
        await store.wait_until_durable(store.write("b", [LedgerRecord("c1", entry("m2"))]))
    assert await store.load("a", "c1") is not None


async def test_the_newest_word_about_a_setting_counts_for_its_tenant_alone(store: Store) -> None:
    """S1-118."""
    store.write("", [SettingRecord("a", b"1", 5), SettingRecord("b", b'"\xc3\xa9"', 5)])
    store.write("x", [SettingRecord("a", b"9", 7)])
    await store.wait_until_durable(store.write("", [SettingRecord("a", b"null", 6)]))

    assert await store.settings("") == (SettingRecord("a", b"null", 6), SettingRecord("b", b'"\xc3\xa9"', 5))
    assert await store.settings("x") == (SettingRecord("a", b"9", 7),)
    assert await store.settings("nobody") == ()


async def test_what_a_tenant_used_in_a_day_is_added_up_and_stays_when_it_deletes_its_conversations(
    store: Store,
) -> None:
    store.write("a", opened("c1"))
    store.write("a", [UsageRecord(7, 1, 100, 0.5, 0.75), UsageRecord(7, 2, 10, 0.25, 0.25), UsageRecord(9, 1, 1)])
    store.write("b", [UsageRecord(7, 1, 5, 1.0, 1.0)])
    await store.wait_until_durable(store.write("a", [UsageRecord(7, 1)]))
    await store.delete_conversations("a", "c1")

    assert await store.usage_days("a") == (("a", UsageRecord(7, 4, 110, 0.75, 1.0)), ("a", UsageRecord(9, 1, 1)))
    assert await store.usage_days("a", 8) == (("a", UsageRecord(9, 1, 1)),)
    assert [owner for owner, _ in await store.usage_days(None)] == ["a", "a", "b"]
    assert await store.usage_days("nobody") == ()


async def test_a_setting_is_settled_once(store: Store) -> None:
    store.write("a", [SettingRecord("charge", b"1", 5), SettingRecord("other", b"2", 5), UsageRecord(7, 0, 100, 1.0)])
    store.write("b", [SettingRecord("charge", b"3", 5)])
    settled = Settlement("charge", UsageRecord(7, 1, -90, -0.5))
    store.write("a", [settled, settled])
    await store.wait_until_durable(store.write("a", [settled, Settlement("none", UsageRecord(7, 1, 1))]))

    assert await store.settings("a") == (SettingRecord("other", b"2", 5),)
    assert await store.settings("b") == (SettingRecord("charge", b"3", 5),)
    assert await store.usage_days("a") == (("a", UsageRecord(7, 1, 10, 0.5)),)


async def test_amounts_of_many_days_may_be_whole_numbers(store: Store) -> None:
    used = [UsageRecord(day, 1, 5, cost, 0) for day, cost in enumerate((0, 0.5, 1, 2.5, 0))]
    await store.wait_until_durable(store.write("a", used))

    assert [day for _, day in await store.usage_days("a")] == used


async def test_two_tenants_may_use_the_same_ids(store: Store) -> None:
    store.write("a", [*opened("c1", entry("m1", text="of a")), asked("r1", body=(b"a" * 200,))])
    store.write("b", [*opened("c1", entry("m1", text="of b"), tenant="b"), asked("r1", body=(b"b" * 200,))])

    for tenant in ("a", "b"):
        ledger = await store.load(tenant, "c1")
        request = await store.request(tenant, "r1")
        assert ledger is not None
        assert ledger.entries["m1"].message == said(f"of {tenant}")
        assert request is not None
        assert request.record.body == (tenant.encode() * 200,)
    assert await store.request(None, "r1") is None
    assert (await store.delete_conversations("a", "c1")).conversations == 1
    assert await store.load("b", "c1") is not None


async def test_an_operator_sees_all_tenants(store: Store) -> None:
    store.write("a", [*opened("c1"), asked("r1")])
    store.write("b", opened("c2", entry("m1"), LedgerEvent("m1", 0, 1, "pushed", "f1", b"{}"), tenant="b", created=2))

    found = await store.conversation_with_event(None, "pushed", "f1")

    assert [(c.tenant, c.id) for c in await store.conversations(None)] == [("b", "c2"), ("a", "c1")]
    assert found is not None
    assert found.tenant == "b"
    assert await store.request(None, "r1") is not None


# -------------------------------------------------------------------------------------------------------------- forget
async def test_a_forgotten_conversation_is_gone_with_everything_of_it_and_nothing_else(store: Store) -> None:
    shared = b"s" * 300
    for name in ("c1", "c2"):
        store.write(
            "a", [*opened(name, entry("m1", text="shared words"), hint="h"), AnchorRecord(name, "h", ("x",), 1)]
        )
        store.write("a", [asked(f"r {name}", name, body=(shared, name.encode() * 100))])
        store.write("a", [SentRecord(f"r {name}", 0, (shared,))])

    gone = await store.delete_conversations("a", "c1")

    assert gone.conversations == 1
    assert gone.bytes > 0
    assert await store.load("a", "c1") is None
    assert await store.find_by_anchors("a", "h", ["x"]) == ("c2",)
    assert await store.request("a", "r c1") is None
    kept_request = await store.request("a", "r c2")
    assert kept_request is not None
    assert kept_request.record.body == (shared, b"c2" * 100)
    assert kept_request.sent[0].body == (shared,)
    assert (await store.load("a", "c2")) is not None


async def test_a_forgotten_conversation_does_not_come_back_in_pieces(store: Store) -> None:
    store.write("a", opened("c1", entry("m1")))
    await store.delete_conversations("a", "c1")

    with pytest.raises(StoreError):
        await store.wait_until_durable(store.write("a", [LedgerRecord("c1", entry("m2", "m1"))]))
    assert await store.load("a", "c1") is None


async def test_what_went_of_a_conversation_is_told_to_whoever_held_it_before(store: Store) -> None:
    """A record that was taken and is not kept, and a deletion: of that conversation alone, and that somebody else has
    read it since changes nothing for its holder."""
    for name in ("c1", "old", "lives"):
        store.write("a", opened(name, entry("m1", created=10 if name == "old" else 90)))
    store.write("a", [LedgerRecord("nowhere", entry("m1"))])
    store.write("b", [LedgerRecord("lives", entry("m1"))])
    await store.load("a", "nowhere")
    await store.delete_conversations("a", "c1")
    await store.delete_conversations(None, before=50)
    before = [store.loss_count("a", name) for name in ("nowhere", "c1", "old", "lives")]
    store.write("a", [LedgerRecord("c1", entry("m2", "m1")), AnchorRecord("c1", "", ("x",), 1)])
    await store.load("a", "c1")

    assert before == [1, 1, 1, 0]
    assert store.loss_count("a", "c1") == 2
    assert store.loss_count("b", "lives") == 1


@pytest.mark.parametrize("asked_by", ["a", None], ids=["its tenant", "an operator"])
async def test_a_request_that_is_answered_after_its_conversation_was_forgotten_leaves_its_receipt_alone(
    store: Store, asked_by: str | None
) -> None:
    """T10: what the client said and what was sent for it hold the whole history once more."""
    said_again = (b"the history " * 30, b"and more")
    store.write("a", opened("c1", entry("m1")))
    await store.delete_conversations("a", "c1")
    sent = (SentRecord("r1", number, said_again) for number in range(2))
    answered: list[Record] = [asked("r1", body=said_again), *sent]
    await store.wait_until_durable(store.write("a", [*answered, *opened("c2"), asked("r2", "c2", body=said_again)]))

    left = await store.request("a", "r1")
    kept = await store.request("a", "r2")

    assert left is not None
    assert (left.record, left.sent) == (asked("r1"), ())
    assert kept is not None
    assert kept.record.body == said_again
    assert await store.delete_conversations("b", "c1") == DeletionResult()
    assert await store.request("a", "r1") is not None
    await store.delete_conversations(asked_by, "c1")
    assert await store.request("a", "r1") is None
    assert await store.request("a", "r2") is not None


async def test_a_request_keeps_its_body_with_the_conversation_it_opens_and_without_any(store: Store) -> None:
    body = (b"what was said " * 30,)
    store.write("a", opened("c1"))
    tickets = [
        store.write("a", [asked("r1", body=body), SentRecord("r1", 0, body)]),
        store.write("a", [asked("r2", "c2", body=body), SentRecord("r2", 0, body), *opened("c2")]),
        store.write("a", [asked("r3", "", body=body), SentRecord("r3", 0, body)]),
    ]
    for ticket in tickets:
        await store.wait_until_durable(ticket)

    for name in ("r1", "r2", "r3"):
        found = await store.request("a", name)
        assert found is not None
        assert (found.record.body, [sent.body for sent in found.sent]) == (body, [body])


async def test_retention_deletes_what_was_last_written_before_a_time(store: Store) -> None:
    store.write("a", opened("old", entry("m1", created=10), created=1))
    store.write("a", opened("lives", entry("m1", created=10), created=1))
    store.write("a", [asked("r1", "lives", created=90), asked("r2", "", created=5), asked("r3", "", created=95)])

    gone = await store.delete_conversations(None, before=50)

    assert gone.conversations == 1
    assert [c.id for c in await store.conversations("a")] == ["lives"]
    assert [r.id for r in await store.requests("a")] == ["r3", "r1"]
    assert await store.delete_conversations("a", "lives", before=50) == DeletionResult()


async def test_forgetting_nothing_in_particular_deletes_nothing(store: Store) -> None:
    store.write("a", opened("c1"))

    assert await store.delete_conversations("a") == DeletionResult()
    assert await store.load("a", "c1") is not None


# ------------------------------------------------------------------------------------------------------------ the rest
async def test_the_secret_is_32_random_bytes_that_stay(store: Store) -> None:
    secret = await store.secret()

    assert len(secret) == 32
    assert await store.secret() == secret
    assert len(set(secret)) > 8


async def test_health_counts_conversations(store: Store) -> None:
    await store.wait_until_durable(store.write("a", [*opened("c1"), *opened("c2")]))
    await store.wait_until_durable(store.write("a", opened("c1")))

    assert store.health().ok
    assert store.health().conversations == 2
    await store.delete_conversations("a", "c1")
    assert store.health().conversations == 1


def test_an_unknown_store_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"allowed: sqlite, .*postgresql://.*, memory:") as refused:
        open_store("mysql://user:password@host/db", tmp_path)

    assert "password" not in str(refused.value)
    assert set(DATABASE_BY_SCHEME) == {"sqlite", "postgresql"}


# ------------------------------------------------------------------------------------------------------ finished frames
@pytest.mark.rows("S2-38")
async def test_finished_frames_are_found_across_conversations_by_who_has_them(store: Store) -> None:
    """S2-38: by what they were to do and came to; nobody else finds them, and an operator finds all."""
    store.write("a", worked("c1", "Rate limiter", "A token bucket in src/limit.py", criteria="for the public API"))
    store.write("a", worked("c2", "Handbook", "The title is right now", noted=("docs/handbook.md (changed)",)))
    store.write("b", worked("c3", "Token refresh", "limits are read anew", tenant="b"))

    async def found(tenant: str | None, query: str) -> list[str]:
        return [frame.title for frame in (await store.search_finished_frames(tenant, query)).frames]

    assert await found("a", "token") == ["Rate limiter"]
    assert await found("a", "public api LIMITERS") == ["Rate limiter"]
    assert await found("a", "handbook.md") == ["Handbook"]
    assert await found("b", "token bucket") == ["Token refresh"]
    assert await found("c", "token") == []
    assert await found(None, "token") == ["Token refresh", "Rate limiter"]


@pytest.mark.rows("S2-38")
async def test_a_found_frame_says_whose_it_is_and_what_it_came_to(store: Store) -> None:
    store.write("a", worked("c1", "Limiter", "no", criteria="it works", noted=("a.py", "b.py"), status=Status.FAILED))

    found = await store.search_finished_frames("a", "limiter")

    told = FinishedFrame("a", "c1", "c1-frame", "Limiter", "failed", 5, "it works", "no", "a.py\nb.py")
    assert found == FrameSearchResult((told,), whole=True)


@pytest.mark.rows("S2-38")
async def test_frames_with_all_the_words_come_alone_and_close_ones_where_there_are_none(store: Store) -> None:
    for name, title in (("c1", "Parser for dates"), ("c2", "Parser for prices"), ("c3", "Lexer")):
        store.write("a", worked(name, title))

    exact, close = (
        await store.search_finished_frames("a", "prices parser"),
        await store.search_finished_frames("a", "parser prices unheard"),
    )

    assert ([frame.conversation for frame in exact.frames], exact.whole) == (["c2"], True)
    assert ([frame.conversation for frame in close.frames], close.whole) == (["c2", "c1"], False)
    assert [f.conversation for f in (await store.search_finished_frames("a", "parser", without={"c2"})).frames] == [
        "c1"
    ]
    assert len((await store.search_finished_frames("a", "parser", limit=1)).frames) == 1


@pytest.mark.rows("S2-38")
async def test_work_under_way_and_what_was_forgotten_is_found_no_more(store: Store) -> None:
    """S2-38: neither by a search that knew it before."""
    store.write("a", worked("c1", "Limiter"))
    store.write("a", worked("c2", "Limiter", status=None))
    store.write("a", worked("c3", "Limiter", status=Status.BLOCKED))
    known = [frame.conversation for frame in (await store.search_finished_frames("a", "limiter")).frames]
    await store.delete_conversations("a", "c1")

    assert known == ["c1"]
    assert (await store.search_finished_frames("a", "limiter")).frames == ()


def vector(of: EmbeddableFrame, *numbers: float) -> FrameVector:
    return FrameVector(of, "m", b"digest", struct.pack(f"<{len(numbers)}f", *numbers))


@pytest.mark.rows("S2-45")
async def test_frames_are_found_by_their_vectors_and_these_go_with_them(store: Store) -> None:
    """S2-45: by who has them, with vectors of the same model and length."""
    if isinstance(store, MemoryStore):
        assert await store.frames_to_embed(0, 9) == ()  # it keeps none
        return
    for name, tenant in (("c1", "a"), ("c2", "a"), ("c3", "b"), ("c4", "a")):
        store.write(tenant, worked(name, f"Frame of {name}", tenant=tenant))
    first, second = await store.frames_to_embed(0, 2)
    third, fourth = await store.frames_to_embed(second.number, 9)
    await store.delete_conversations("a", "c4")

    await store.keep_vectors([vector(first, 1, 0), vector(second, 1, 0), vector(third, 0.8, 0.6), vector(fourth, 1, 0)])
    await store.keep_vectors([vector(second, 0.6, 0.8)])  # in place of the older one

    async def near(tenant: str | None, *numbers: float, model: str = "m", least: float = 0.5) -> list[str]:
        found = await store.search_finished_frames(tenant, "word", near=QueryVector(model, numbers, least))
        return [frame.conversation for frame in found.near]

    assert [frame.made_of for frame in await store.frames_to_embed(0, 9)] == [b"digest"] * 3
    assert await near("a", 1, 0) == ["c1", "c2"]
    assert await near(None, 1, 0) == ["c1", "c3", "c2"]
    assert await near("a", 1, 0, least=0.7) == ["c1"]
    assert await near("a", 1, 0, model="other") == await near("a", 1, 0, 0) == []
    await store.delete_conversations("a", "c1")
    assert await near(None, 1, 0) == ["c3", "c2"]
    for name in ("c1", "c4"):  # what was forgotten left nothing to the same name
        store.write("a", worked(name, "Frame"))
    assert [frame.made_of for frame in await store.frames_to_embed(0, 9)] == [b"digest", b"digest", b"", b""]


HOSTILE = {
    "nothing": "",
    "blanks": " \t\n",
    "quotes": '"\'`""',
    "operators": "limiter NEAR( AND OR NOT",
    "star": "* limi*",
    "column": "title: limiter",
    "parentheses": ")(((",
    "nul": "limiter\0",
    "half a pair": "limiter \ud800",
    "escape": "\x100000",
    "ten thousand words": " ".join(f"w{n}" for n in range(10_000)),
    "one long word": "w" * 1_000_000,
    "sql": "'; DROP TABLE task_rows; --",
}


@pytest.mark.rows("S2-38")
@pytest.mark.parametrize("query", HOSTILE.values(), ids=HOSTILE.keys())
async def test_any_text_is_a_query(store: Store, query: str) -> None:
    """S2-38: no query is a language."""
    store.write("a", worked("c1", "Limiter", "*"))

    found = await store.search_finished_frames("a", query)

    assert [frame.title for frame in found.frames] == (["Limiter"] if "limiter" in query else [])


@given(query=st.text(st.characters(codec="utf-8"), max_size=20))
@example(query="\x000")
@example(query="left\x10right")
@settings(max_examples=60, deadline=None)
def test_what_a_frame_says_finds_it_in_every_script(kept: tuple[asyncio.Runner, Store], query: str) -> None:
    """S2-38: whatever characters a title is made of; what is no letter and no digit is no word."""
    runner, store = kept
    tenant = f"tenant {next(numbers)}"

    async def written_and_found() -> FrameSearchResult:
        store.write(tenant, worked(tenant, query, tenant=tenant))
        return await store.search_finished_frames(tenant, query)

    assert bool(runner.run(written_and_found()).frames) is bool(words_in(query))
