"""The ledger: an append-only, content-addressed tree of entries, one per conversation.

An entry is a client message, a turn, or an overlay of ours. A turn is what one client request was answered with: its
rounds as produced (`sent`), and what the client was shown of them (`seen`), which is what comes back in its next
request.

The law: **nothing is mutated**. A different continuation is a branch; a history that the client rewrote or shortened
is a branch too, whose entries point at the ones they are another form of (`alias`) and at the state they go on from
(`adopts`).

What this module does not do: it knows nothing of frames (events hang on entries as opaque bytes), finds no
conversation (that is `matching`), and reads no store.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from proxy.core.ledger.messages import Call, Message, ModelResponse, identity_of
from proxy.core.ledger.queued_messages import QueuedMessage

ROUND_SEPARATOR = "\n\n"
"""Between the texts of two rounds of one turn, as the client sees them."""

INVALID_TOOL_NAME = "invalid"
"""What opencode makes of a call to a tool it never offered; the arguments it keeps then are its own."""

LEDGER_BYTES = 4_000
ENTRY_BYTES = 240
INDEX_BYTES = 440
FORM_BYTES = 25
ROUND_BYTES = 120
EVENT_BYTES = 1_200
DECODED_EVENT_FACTOR = 3
"""What each takes in memory beside its messages and its data: objects, ids, and its places in the indexes of a ledger
and in the stories that are folded of it. Measured with tracemalloc; `tests/accounting/test_weights.py` checks them."""


# ------------------------------------------------------------------------------------------------------------- values
class EntryKind(StrEnum):
    MESSAGE = "message"
    TURN = "turn"
    OVERLAY = "overlay"
    USER_OVERLAY = "said"
    """Words of a person that came from beside the client: an overlay that counts as the user's own message."""


_OVERLAY_KINDS = (EntryKind.OVERLAY, EntryKind.USER_OVERLAY)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One node of the tree: a client message, a turn (its rounds stand in `Ledger.rounds`), or an overlay of ours.

    `seq` is the order of creation in the conversation. `adopts`: the state before this entry is the state at that
    one. `alias`: the stored entry this one is another form of. `created` is in ms since the epoch.
    """

    id: str
    parent: str
    seq: int
    kind: EntryKind
    thread: str
    message: Message | None = None
    adopts: str = ""
    alias: str = ""
    created: int = 0

    @property
    def is_overlay(self) -> bool:
        """It hangs beside the path, and no client gives it back."""
        return self.kind in _OVERLAY_KINDS


class Round(msgspec.Struct, frozen=True, gc=False):
    """One upstream round of a turn: the assistant message as produced and the results of the calls we answered, in
    call order.

    `last` says that the client's request ended with it.
    """

    turn: str
    number: int
    spoken: ModelResponse
    results: tuple[Message, ...] = ()
    last: bool = False
    created: int = 0


class LedgerEvent(msgspec.Struct, frozen=True, gc=False):
    """Something decided at an entry (for a turn: after round `round`). At most one per (entry, kind, subject): first
    writer wins."""

    entry: str
    round: int
    seq: int
    kind: str
    subject: str
    data: bytes
    created: int = 0


class Thread(msgspec.Struct, frozen=True, gc=False):
    """One path continued by one client loop: what its newest request looked like. `model` is the upstream's name."""

    id: str
    system_hash: str = ""
    tool_names: tuple[str, ...] = ()
    tools_hash: str = ""
    model: str = ""


class Conversation(msgspec.Struct, frozen=True):
    """One client chat. `hint` is the session the client names, or empty; `parent` the conversation it was forked or
    delegated from; `mode` what a person set for it, or empty; `dialect` the wire format its messages are in. The
    newest record wins."""

    id: str
    tenant: str
    hint: str = ""
    parent: str = ""
    parent_entry: str = ""
    created: int = 0
    mode: str = ""
    dialect: str = ""


LedgerItem = Entry | Round | LedgerEvent | Thread | QueuedMessage
"""What a ledger is made of, beside the conversation itself."""


# ------------------------------------------------------------------------------------------------------------- ledger
@dataclass
class Ledger:
    """All that is known of one conversation. It only grows. Overlays hang beside the path, behind their parent."""

    conversation: Conversation
    entries: dict[str, Entry] = field(default_factory=dict)
    rounds: dict[str, tuple[Round, ...]] = field(default_factory=dict)
    events: dict[str, tuple[LedgerEvent, ...]] = field(default_factory=dict)
    threads: dict[str, Thread] = field(default_factory=dict)
    by_identity: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    turns_by_parent: dict[str, list[str]] = field(default_factory=dict)
    turns_by_echo: dict[str, list[str]] = field(default_factory=dict)
    """Turns by what they may come back as: an identity, or the ids and names of their calls."""
    parent_ids: set[str] = field(default_factory=set)
    original_ids: dict[str, str] = field(default_factory=dict)
    """Of entries that are another form of one, which it was first: clients rewrite what they have rewritten."""
    overlays: dict[str, list[Entry]] = field(default_factory=dict)
    last_walked_path: tuple[Entry, ...] = field(default=(), compare=False)
    """The path that a request was found on last (`walking`): the next one is mostly the same and some more."""
    queue: dict[str, QueuedMessage] = field(default_factory=dict)
    """What people said into it, in that order, told or not."""
    next_seq: int = 0
    memory_bytes: int = LEDGER_BYTES
    """Bytes it takes in memory, about: messages, what was decided, and what each entry costs. Messages that are known
    elsewhere too (`proxy.dialects.known`) are counted in both places."""

    def add_entry(self, entry: Entry) -> None:
        """What hangs on an entry that is not known (its record was lost) is lost with it."""
        if entry.id in self.entries or (entry.parent and entry.parent not in self.entries):
            return
        self.entries[entry.id] = entry
        self.memory_bytes += ENTRY_BYTES + (INDEX_BYTES + entry.message.memory_bytes if entry.message else 0)
        self.next_seq = max(self.next_seq, entry.seq + 1)
        if entry.alias in self.entries:
            self.original_ids[entry.id] = self.original_ids.get(entry.alias, entry.alias)
            self.memory_bytes += FORM_BYTES
        if entry.is_overlay:
            self.overlays.setdefault(entry.parent, []).append(entry)
            return
        self.parent_ids.add(entry.parent)
        if entry.kind is EntryKind.TURN:
            self.turns_by_parent.setdefault(entry.parent, []).append(entry.id)
        elif entry.message:
            self.by_identity.setdefault((entry.parent, entry.message.identity), []).append(entry.id)

    def add_round(self, done: Round) -> None:
        """A finished round is written once; a draft of it, written while it streamed, is replaced."""
        turn, known = self.entries.get(done.turn), self.rounds.get(done.turn, ())
        drafts = [r for r in known if r.number == done.number] if known else []
        if turn is None or any(draft.spoken.complete for draft in drafts):
            return
        rounds = with_round(known, done)
        shown = visible_turn(rounds)
        if (again := self._find_equal_response(done.spoken, turn.parent, shown.echo_identities)) is not None:
            rounds = with_round(known, replace(done, spoken=again))
        self.rounds[done.turn] = rounds
        self.memory_bytes += _round_bytes(done, is_shared=again is not None)
        for draft in drafts:
            self.memory_bytes -= _round_bytes(draft)
        for identity in shown.echo_identities:
            _append_newest(self.by_identity.setdefault((turn.parent, identity), []), done.turn)
            _append_newest(self.turns_by_echo.setdefault(identity, []), done.turn)
        if shown.calls:
            _append_newest(self.turns_by_echo.setdefault(calls_key(shown.calls), []), done.turn)

    def _find_equal_response(
        self, spoken: ModelResponse, parent: str, identities: Iterable[str]
    ) -> ModelResponse | None:
        """The same words, as an answer before it to the same request: who asks again and again may be told the same,
        and it is held once (of 2 KB for an answer 0.5 are left). A draft stands for itself."""
        for identity in identities if spoken.complete else ():
            for turn in self.by_identity.get((parent, identity), ())[-1:]:
                for before in self.rounds.get(turn, ()):
                    if before.spoken == spoken:
                        return before.spoken
        return None

    def add_event(self, event: LedgerEvent) -> bool:
        """False when one like it stands there already: the first writer wins."""
        known = self.events.get(event.entry, ())
        if any((e.kind, e.subject) == (event.kind, event.subject) for e in known):
            return False
        self.memory_bytes += EVENT_BYTES + DECODED_EVENT_FACTOR * len(event.data)
        self.events[event.entry] = tuple(sorted((*known, event), key=lambda e: (e.round, e.seq)))
        self.next_seq = max(self.next_seq, event.seq + 1)
        return True

    def original_of(self, entry: Entry) -> Entry:
        """What the client rewrote, once or again and again, until it was `entry`."""
        return self.entries[self.original_ids.get(entry.id, entry.id)]

    def path(self, tip: str) -> tuple[Entry, ...]:
        """The entries from the first one to `tip`, both included."""
        found = []
        while tip:
            entry = self.entries[tip]
            found.append(entry)
            tip = entry.parent
        return tuple(reversed(found))

    def newest_round_number(self, entry: str) -> int:
        """The number of the newest round of a turn; 0 for whatever else, and for one that has none."""
        return max((done.number for done in self.rounds.get(entry, ())), default=0)

    def newest_tip(self) -> Entry | None:
        """The entry of a path created last, or None in an empty conversation."""
        return next((e for e in reversed(self.entries.values()) if not e.is_overlay), None)


def _round_bytes(done: Round, *, is_shared: bool = False) -> int:
    """Bytes a round takes in memory, about; `is_shared`: what was spoken in it is held elsewhere."""
    said = ROUND_BYTES if is_shared else ROUND_BYTES + done.spoken.memory_bytes
    return said + sum(result.memory_bytes for result in done.results) if done.results else said


def with_round(rounds: tuple[Round, ...], done: Round) -> tuple[Round, ...]:
    """`rounds` of a turn and `done`, in order; it takes the place of a draft of it."""
    if not rounds:
        return (done,)
    return tuple(sorted((*(r for r in rounds if r.number != done.number), done), key=lambda r: r.number))


def _append_newest(turns: list[str], turn: str) -> None:
    """The newest stands last."""
    if turn not in turns[-1:]:
        turns.append(turn)


def calls_key(calls: Sequence[Call]) -> str:
    """The ids and names of calls, in order: what survives when a client re-serialises arguments."""
    return "calls " + "\n".join(f"{c.id} {c.name}" for c in calls)


def message_id(parent: str, identity: str, conversation: str, adopts: str = "") -> str:
    """Content-addressed: hash of the parent's id (the conversation's, for the first message), the canonical content,
    and the entry whose state goes on with it: clients begin every compacted history with the same words."""
    content = f"{identity}\n{adopts}" if adopts else identity
    return sha256(f"{parent or conversation}\n{content}".encode()).hexdigest()[:32]


def turn_id(request_node: str, attempt: int) -> str:
    """Fixed when the first round starts, so that what is decided in the turn has a name before the answer is known."""
    return sha256(f"{request_node}\nattempt {attempt}".encode()).hexdigest()[:32]


RESPONSE_ID_KEY = "response_id"
"""The member of `Spoken.extra` with the id that the provider gave its answer, a JSON string, where clients may name it.
"""
THINKING_TAGS = ("think", "thinking")
"""Tags in which a model thinks aloud where its provider takes its thoughts for words."""
PAUSE_FINISH_REASON = "pause_turn"
"""The word of a round that goes on with the next request, which ends with it."""
CONTEXT_EDITS_KEY = "applied_edits"
"""The member of `Spoken.extra` with what the provider edited out of the request, a JSON array."""
PROVIDER_COMPACTIONS_KEY = "sealed"
"""The member of `Spoken.extra` with the identities of the compactions in an answer that clients give back as messages
of their own, a JSON array. Where it is there, the provider compacted what it was sent."""


# --------------------------------------------------------------------------------------------------------------- seen
def response_id_of(rounds: Sequence[Round]) -> str:
    """The id by which the client knows a turn: that of its first round. Empty where it has none."""
    told = rounds[0].spoken.extra.get(RESPONSE_ID_KEY) if rounds else None
    return msgspec.json.decode(told, type=str) if told else ""


def provider_compactions_in(rounds: Sequence[Round]) -> frozenset[str]:
    """The identities of the compactions in a turn that come back as messages of their own."""
    told = (r.spoken.extra.get(PROVIDER_COMPACTIONS_KEY) for r in rounds)
    return frozenset(identity for raw in told if raw for identity in msgspec.json.decode(raw, type=list[str]))


def is_edited_by_provider(done: Round) -> bool:
    """Whether the provider edited or compacted by itself what it was sent."""
    return CONTEXT_EDITS_KEY in done.spoken.extra or PROVIDER_COMPACTIONS_KEY in done.spoken.extra


class VisibleTurn(msgspec.Struct, frozen=True, gc=False):
    """What the client was shown of a turn: the words it read, the calls it was given, the identity of both as one
    message. `forms` are the identities under which a finished turn may come back."""

    text: str
    calls: tuple[Call, ...]
    identity: str
    echo_identities: frozenset[str]


def visible_turn(rounds: Sequence[Round]) -> VisibleTurn:
    """All of it at once, for whoever asks for more than one thing."""
    if len(rounds) == 1 and (plain := _text_only_turn(rounds[0].spoken.message)):
        return plain
    text, calls = visible_text(rounds), visible_calls(rounds)
    identity = _visible_identity(rounds, text, calls)
    return VisibleTurn(text, calls, identity, _echo_identities(rounds, text, calls, identity))


def _text_only_turn(message: Message) -> VisibleTurn | None:
    """What is seen of the only round of a turn that just says something, as most do; None of any other."""
    text, identity = message.text, message.identity
    if message.calls or message.answers or message.role != "assistant" or not text.strip() or _has_thinking_tags(text):
        return None
    return VisibleTurn(text, (), identity, frozenset((identity,)))


def visible_text(rounds: Sequence[Round]) -> str:
    """What the client read of a turn."""
    return ROUND_SEPARATOR.join(r.spoken.message.text for r in rounds if r.spoken.message.text.strip())


def visible_calls(rounds: Sequence[Round]) -> tuple[Call, ...]:
    """The calls the client was given: those of the last round that are not ours."""
    return rounds[-1].spoken.client_calls if rounds else ()


def _visible_identity(rounds: Sequence[Round], text: str, calls: tuple[Call, ...]) -> str:
    """Mostly that of the only round, which is known."""
    only = rounds[0].spoken.message if len(rounds) == 1 else None
    if only and only.role == "assistant" and not only.answers and not rounds[0].spoken.own_calls:
        return only.identity
    return identity_of("assistant", text, calls)


def echo_identities_of(rounds: Sequence[Round]) -> frozenset[str]:
    """The identities a finished turn may come back under."""
    return visible_turn(rounds).echo_identities


def _echo_identities(rounds: Sequence[Round], text: str, calls: tuple[Call, ...], identity: str) -> frozenset[str]:
    """Whole, without its text where it has calls (crewai drops it), or without what was thought aloud in it."""
    if not (calls or text or is_silent(rounds)):
        return frozenset()
    found = {identity}
    if calls:
        found.add(identity_of("assistant", "", calls))
    if _has_thinking_tags(text) and (said := without_thinking(text)).strip():
        found.add(identity_of("assistant", said, calls))
    return frozenset(found)


def _has_thinking_tags(text: str) -> bool:
    return "</" in text and any(f"</{tag}>" in text for tag in THINKING_TAGS)


def without_thinking(text: str) -> str:
    """A text without what a model thinks aloud in tags, of which some write the closing one alone. Clients take it out
    of what they keep (the AI SDK), or write it otherwise (pydantic-ai)."""
    for tag in THINKING_TAGS:
        *before, last = text.split(f"</{tag}>")
        said = (part.partition(f"<{tag}>") for part in before)
        text = "".join(words for words, opened, _ in said if opened) + last
    return text


def is_silent(rounds: Sequence[Round]) -> bool:
    """Whether a finished turn was work of ours alone, with nothing for the client to read: it comes back as an empty
    message, or not at all."""
    if (
        not rounds
        or not (rounds[-1].last and rounds[-1].spoken.complete)
        or visible_calls(rounds)
        or visible_text(rounds)
    ):
        return False
    return any(done.spoken.own_calls for done in rounds)


def is_echoed_by(rounds: Sequence[Round], message: Message) -> bool:
    """Whether `message` is this turn as a client gives it back: exactly, with defaulted arguments added, or as a
    partial delivery."""
    if message.role != "assistant":
        return False
    text, calls = visible_text(rounds), visible_calls(rounds)
    if calls and same_calls(calls, message.calls):
        return not message.text.strip() or _same_text(text, message.text)
    if rounds and rounds[-1].last and rounds[-1].spoken.complete:
        return not calls and not message.calls and _has_thinking_tags(text) and _same_text(text, message.text)
    return bool(message.text.strip()) and not message.calls and _is_prefix_of_either(message.text.strip(), text.strip())


def _same_text(ours: str, theirs: str) -> bool:
    """The same text; less what was thought aloud, and the white space around that, where something was."""
    if ours.strip() == theirs.strip() or not _has_thinking_tags(ours):
        return ours.strip() == theirs.strip()
    return without_thinking(ours).split() == without_thinking(theirs).split() != []


def _is_prefix_of_either(told: str, text: str) -> bool:
    """One is the beginning of the other: the client kept less than we stored, or we stored less than it got."""
    return bool(text) and (text.startswith(told) or told.startswith(text))


def same_calls(ours: Sequence[Call], theirs: Sequence[Call]) -> bool:
    """The same calls in the same order; clients may have added defaulted arguments, or renamed a call of a tool they
    do not have."""
    if [c.id for c in ours] != [c.id for c in theirs]:
        return False
    return all(
        t.name == INVALID_TOOL_NAME or (t.name == o.name and _arguments_cover(t.arguments, o.arguments))
        for o, t in zip(ours, theirs, strict=True)
    )


def _arguments_cover(larger: str, smaller: str) -> bool:
    if larger == smaller:
        return True
    try:
        more, less = msgspec.json.decode(larger), msgspec.json.decode(smaller or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return larger.strip() == smaller.strip()
    if isinstance(more, dict) and isinstance(less, dict):
        return all(key in more and more[key] == value for key, value in less.items())
    return bool(more == less)
