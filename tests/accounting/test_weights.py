"""What is held in memory says what it weighs, and its bounds are counted in that: so a bound in bytes holds bytes."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import count

import msgspec
import pytest

from proxy.core.frames.events import FrameEvent, FrameFolded, FramePushed, as_ledger_event
from proxy.core.ledger.ledger import Conversation, Entry, EntryKind, Ledger, Round, message_id, turn_id
from proxy.core.ledger.messages import ModelResponse, RequestSlice, Usage
from proxy.dialects.chat.message import read_message
from proxy.dialects.parse_cache import ParseCache, SliceCache, run_steps
from proxy.store.conversation_cache import CachedConversation, ConversationCache
from proxy.store.interface import Store
from tests.store.test_conversation_cache import store as store

OFF = 0.25
"""How far a weight may be from what the memory allocator counts."""
LINES = "def settled(parcel: Parcel) -> Result:\n    return self._book(parcel.weight, limit=40)\n"


def wire(role: str, text: str, **more: object) -> bytes:
    return json.dumps({"role": role, "content": text, **more}, ensure_ascii=False).encode()


def messages(texts: Callable[[int], str], exchanges: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """What a user says, what the agent calls, what the tool answers."""
    for n in range(exchanges):
        call = {"id": f"call_{n:024x}", "function": {"name": "read_file", "arguments": json.dumps({"path": f"{n}.py"})}}
        asked = wire("assistant", f"I look at {n}.", tool_calls=[call])
        yield wire("user", f"Now {n}."), asked, wire("tool", texts(n), tool_call_id=call["id"])


class Conversing:
    """A ledger that a conversation is put into, one entry behind the other."""

    def __init__(self) -> None:
        self.shelved = CachedConversation(Ledger(Conversation("conversation", "tenant")), "tenant")
        self.tip = ""
        self._seq = count(1_000)

    def hears(self, raw: bytes) -> None:
        message = read_message(raw)
        ident = message_id(self.tip, message.identity, "conversation")
        self.shelved.ledger.add_entry(Entry(ident, self.tip, next(self._seq), EntryKind.MESSAGE, "thread", message))
        self.tip = ident

    def says(self, raw: bytes, attempt: int = 0) -> str:
        turn = turn_id(self.tip, attempt)
        self.shelved.ledger.add_entry(Entry(turn, self.tip, next(self._seq), EntryKind.TURN, "thread"))
        told = json.dumps({"prompt_tokens": 100_000, "completion_tokens": 1_000}).encode()
        spoken = ModelResponse(read_message(raw), "".join(["st", "op"]), Usage(100_000, 1_000), extra={"usage": told})
        self.shelved.ledger.add_round(Round(turn, 0, spoken, last=True))
        return turn

    def works(self, texts: Callable[[int], str], exchanges: int) -> None:
        for user, asked, result in messages(texts, exchanges):
            self.hears(user)
            self.tip = self.says(asked)
            self.hears(result)
        self.shelved.path_state(self.tip)

    def decides(self, frames: int) -> None:
        for n in range(frames):
            title, criteria = f"Settle parcel {n}", f"parcel {n} is settled and booked"
            pushed = FramePushed(f"f{n:07}", "", title, criteria, self.tip, f"0/{n}", f"{title}: {criteria}. " * 4)
            folded = FrameFolded(f"f{n:07}", tuple(f"{n:016}{at:016}" for at in range(20)), f"It was settled. {n}" * 10)
            decided: tuple[FrameEvent, ...] = (pushed, folded)
            for seq, event in enumerate(decided):
                self.shelved.ledger.add_event(as_ledger_event(event, self.tip, 0, 10 * n + seq, 1))
        self.shelved.path_states.clear()
        self.shelved.path_state(self.tip)


def works_on_files(talk: Conversing) -> None:
    talk.works(lambda n: f"{n}\n{LINES * 40}", 100)


def chats(talk: Conversing) -> None:
    talk.works(lambda n: f"{n} is done.", 600)


def reads_another_alphabet(talk: Conversing) -> None:
    talk.works(lambda n: f"{n} " + "посылка доставлена, " * 150 + "да", 100)


def is_asked_again_and_again(talk: Conversing) -> None:
    talk.hears(wire("user", "What is a parcel?"))
    for attempt in range(2_000):
        talk.says(wire("assistant", "A thing in a box that somebody wants."), attempt)


def is_answered_in_other_words_each_time(talk: Conversing) -> None:
    talk.hears(wire("user", "What is a parcel?"))
    for attempt in range(1_000):
        talk.says(wire("assistant", f"A thing in {attempt} boxes that somebody wants."), attempt)


def decides_much(talk: Conversing) -> None:
    talk.works(lambda n: f"{n} is done.", 10)
    talk.decides(300)


KINDS = (
    works_on_files,
    chats,
    reads_another_alphabet,
    is_asked_again_and_again,
    is_answered_in_other_words_each_time,
    decides_much,
)


def held(make: Callable[[], object]) -> tuple[object, int]:
    """What `make` made, and the bytes that are held since."""
    tracemalloc.start()
    try:
        made = make()
        return made, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_a_ledger_weighs_what_it_takes(kind: Callable[[Conversing], None]) -> None:
    kind(Conversing())  # what is made once, is made

    def conversation() -> Conversing:
        talk = Conversing()
        kind(talk)
        return talk

    talk, taken = held(conversation)

    assert isinstance(talk, Conversing)
    assert talk.shelved.ledger.memory_bytes == pytest.approx(taken, rel=OFF)


@pytest.mark.parametrize(
    "text", [LINES * 40, "Done.", "посылка доставлена, " * 150 + "да"], ids=["files", "chat", "alphabet"]
)
def test_what_is_known_weighs_what_it_takes(text: str) -> None:
    def told() -> SliceCache:
        slices = SliceCache()
        known = ParseCache(slices, "chat")
        for exchange in messages(lambda n: f"{n} {text}", 100):
            run_steps(known.parse_messages([bytes(raw) for raw in exchange], lambda raw: (read_message(raw),)))
        return slices

    told()
    known, taken = held(told)

    assert isinstance(known, SliceCache)
    assert known.size == pytest.approx(taken, rel=OFF)


def test_what_is_told_again_in_the_same_words_is_held_once() -> None:
    """Also when the entries come first, as they may from the store, and with other answers in between."""
    talk = Conversing()
    talk.hears(wire("user", "What is a parcel?"))
    turns = [talk.says(wire("assistant", words), at) for at, words in enumerate(["A thing.", "A box.", "A thing."])]
    first, other, again = (talk.shelved.ledger.rounds[turn][0] for turn in turns)

    assert again.spoken is first.spoken
    assert again.turn == turns[2]
    assert other.spoken.message.text == "A box."


def test_a_draft_weighs_nothing_once_its_round_is_whole() -> None:
    whole, drafted = Conversing(), Conversing()
    for talk in (whole, drafted):
        talk.hears(wire("user", "What is a parcel?"))
    turn = turn_id(drafted.tip, 0)
    drafted.shelved.ledger.add_entry(Entry(turn, drafted.tip, next(drafted._seq), EntryKind.TURN, "thread"))
    for words in ("A", "A thing", "A thing in a"):
        spoken = ModelResponse(read_message(wire("assistant", words)), complete=False)
        drafted.shelved.ledger.add_round(Round(turn, 0, spoken))
    drafted.says(wire("assistant", "A thing in a box."))
    whole.says(wire("assistant", "A thing in a box."))

    assert drafted.shelved.ledger.memory_bytes == whole.shelved.ledger.memory_bytes


def test_what_is_forgotten_takes_its_weight_along() -> None:
    """A text weighs the same when it was looked at: the interpreter keeps its UTF-8 then."""
    slices, other_slices = SliceCache(messages=1), SliceCache()
    known, alone = ParseCache(slices), ParseCache(other_slices)
    first, second = wire("user", "посылка " * 100), wire("user", "parcel " * 100)
    (source,) = run_steps(known.parse_messages([first], lambda raw: (read_message(raw),)))
    msgspec.json.encode(source.messages[0].text)
    run_steps(known.parse_messages([second], lambda raw: (read_message(raw),)))
    run_steps(alone.parse_messages([second], lambda raw: (read_message(raw),)))

    assert slices.size == other_slices.size


def test_an_order_of_messages_is_forgotten_with_what_it_holds() -> None:
    """What a request consisted of is remembered beside the messages by their bytes, and must not hold them for ever."""
    known = ParseCache(SliceCache(size=100_000))

    def ask(number: int) -> None:
        raws = [wire("user", f"{number} {at} " + "parcel " * 1_000) for at in range(5)]
        for source in run_steps(known.parse_messages(raws, lambda raw: (read_message(raw),))):
            known.store(RequestSlice(source.raw, source.messages, has_token_counts=True))
        run_steps(known.parse_messages(raws, lambda raw: (read_message(raw),)))

    def ask_others() -> None:
        for number in range(1, 20):
            ask(number)

    ask(0)
    _, taken = held(ask_others)

    assert taken < 2 * 100_000


# ------------------------------------------------------------------------------------------------------------- shelf
def filled(conversations: ConversationCache, ident: str, words: int) -> None:
    conversation = Conversation(ident, "ours", created=1)
    entry = Entry(
        f"entry of {ident}", "", 0, EntryKind.MESSAGE, "thread", read_message(wire("user", "parcel " * words))
    )
    conversations.record(conversations.create(conversation), [entry], [conversation])


async def test_a_shelf_holds_as_much_as_it_may(store: Store) -> None:
    conversations = ConversationCache(store, most_bytes=1_000_000)
    for number in range(100):
        filled(conversations, f"c{number}", 5_000)
    weights = [s.ledger.memory_bytes for s in conversations.recent_conversations("ours")]

    assert 500_000 < sum(weights) < 1_100_000
    assert conversations.conversation_count == len(weights)


async def test_many_small_conversations_are_bounded_too(store: Store) -> None:
    conversations = ConversationCache(store, most_bytes=1_000_000)
    for number in range(1_000):
        filled(conversations, f"c{number}", 1)

    assert conversations.conversation_count < 300


async def test_what_comes_back_from_the_store_counts(store: Store) -> None:
    """And all of it comes back, however small the shelf is."""
    filling, conversations = ConversationCache(store), ConversationCache(store, most_bytes=1_000_000)
    for number in range(100):
        filled(filling, f"c{number}", 5_000)
    for number in range(100):
        found = await conversations.get("ours", f"c{number}")
        assert found is not None
        assert len(found.ledger.entries) == 1

    assert conversations.conversation_count < 20


async def test_a_conversation_in_use_is_the_same_one_when_it_left_the_shelf(store: Store) -> None:
    conversations = ConversationCache(store, most_bytes=1_000_000)
    filled(conversations, "in use", 1)
    used = await conversations.get("ours", "in use")
    for number in range(50):
        filled(conversations, f"c{number}", 5_000)

    assert used is not None
    assert used not in conversations.recent_conversations("ours")
    assert await conversations.get("ours", "in use") is used
