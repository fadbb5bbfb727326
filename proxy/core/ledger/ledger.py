"""The ledger: an append-only, content-addressed tree of entries, one per conversation.

An entry is a client message, a turn, or an overlay of ours. A turn answers one client request: its rounds as the
provider produced them, and the part of them that the client sees and echoes in its next request.

Nothing is mutated. A different continuation is a branch, and so is a history that the client rewrote or shortened: its
entries name the ones they are another form of (`alias`) and the entry whose state they continue (`adopts`). Frame
events are opaque bytes here; `proxy.core.matching` finds a client's history in a ledger.
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
"""Joins the texts of two rounds of one turn, as the client sees them."""

INVALID_TOOL_NAME = "invalid"
"""opencode renames a call to an unknown tool to this and replaces its arguments."""

MAX_FORMS_PER_ENTRY = 2
"""Other forms of entries that are remembered, on average."""
LEDGER_BYTES = 4_000
ENTRY_BYTES = 240
INDEX_BYTES = 440
FORM_BYTES = 25
ROUND_BYTES = 120
EVENT_BYTES = 1_200
DECODED_EVENT_FACTOR = 3
"""Estimated memory of each value beside its message and data, measured with tracemalloc:
`tests/accounting/test_weights.py` checks these figures. An event counts its data times `DECODED_EVENT_FACTOR`."""


# ------------------------------------------------------------------------------------------------------------- values
class EntryKind(StrEnum):
    MESSAGE = "message"
    TURN = "turn"
    OVERLAY = "overlay"
    USER_OVERLAY = "said"
    """An overlay with a message that a person queued; counts as the user's own message."""


_OVERLAY_KINDS = (EntryKind.OVERLAY, EntryKind.USER_OVERLAY)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One node of the tree: a client message, a turn (its rounds are in `Ledger.rounds`), or an overlay of ours.

    `seq` is the order of creation. `adopts` names the entry whose state this one continues, `alias` the stored entry
    that this is another form of. `created` is in ms since the epoch.
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
        """Overlays hang beside the path, and clients never echo them."""
        return self.kind in _OVERLAY_KINDS


class Round(msgspec.Struct, frozen=True, gc=False):
    """One upstream request of a turn: the assistant message and the results of the calls that we answered, in call
    order. `last`: the client's request ended with this round."""

    turn: str
    number: int
    spoken: ModelResponse
    results: tuple[Message, ...] = ()
    last: bool = False
    created: int = 0


class LedgerEvent(msgspec.Struct, frozen=True, gc=False):
    """A decision made at an entry (for a turn: after round `round`). Each (entry, kind, subject) has at most one event:
    the first writer wins."""

    entry: str
    round: int
    seq: int
    kind: str
    subject: str
    data: bytes
    created: int = 0


class Thread(msgspec.Struct, frozen=True, gc=False):
    """One path continued by one client loop, with the head of its newest request. `model` is the upstream's name."""

    id: str
    system_hash: str = ""
    tool_names: tuple[str, ...] = ()
    tools_hash: str = ""
    model: str = ""


STOPPED = "stopped"
"""In `Conversation.mode`, in front of the mode: a person has stopped the agent."""


class Conversation(msgspec.Struct, frozen=True):
    """One client chat. `hint` is the session that the client names, or empty; `parent` the conversation that this one
    was forked or delegated from; `mode` the mode that a person set, or empty, behind the word `stopped` while a person
    has stopped the agent. The newest record wins."""

    id: str
    tenant: str
    hint: str = ""
    parent: str = ""
    parent_entry: str = ""
    created: int = 0
    mode: str = ""
    dialect: str = ""

    @property
    def is_stopped(self) -> bool:
        """Whether requests are refused until a person resumes the conversation."""
        return self.mode.split(" ", 1)[0] == STOPPED

    @property
    def chosen_mode(self) -> str:
        """The mode that a person set, or empty; also while the conversation is stopped."""
        return self.mode.removeprefix(STOPPED).lstrip() if self.is_stopped else self.mode

    def with_mode(self, mode: str, *, stopped: bool) -> Conversation:
        return replace(self, mode=f"{STOPPED} {mode}".rstrip() if stopped else mode)


LedgerItem = Entry | Round | LedgerEvent | Thread | QueuedMessage
"""The records of a ledger, beside the conversation itself."""


# ------------------------------------------------------------------------------------------------------------- ledger
@dataclass
class Ledger:
    """Everything known of one conversation. It only grows. Overlays hang behind their parent."""

    conversation: Conversation
    entries: dict[str, Entry] = field(default_factory=dict)
    rounds: dict[str, tuple[Round, ...]] = field(default_factory=dict)
    events: dict[str, tuple[LedgerEvent, ...]] = field(default_factory=dict)
    threads: dict[str, Thread] = field(default_factory=dict)
    by_identity: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    turns_by_parent: dict[str, list[str]] = field(default_factory=dict)
    turns_by_echo: dict[str, list[str]] = field(default_factory=dict)
    """Turns by the forms in which a client may echo them: an identity, or the ids and names of their calls."""
    parent_ids: set[str] = field(default_factory=set)
    original_ids: dict[str, str] = field(default_factory=dict)
    """The first form of each rewritten entry: clients rewrite what they have rewritten before."""
    overlays: dict[str, list[Entry]] = field(default_factory=dict)
    last_walked_path: tuple[Entry, ...] = field(default=(), compare=False)
    """The path of the newest request: the next request mostly repeats and extends it."""
    _children: dict[str, list[str]] | None = field(default=None, compare=False)
    _form_count: int = field(default=0, compare=False)
    queue: dict[str, QueuedMessage] = field(default_factory=dict)
    """Messages that people queued, in order, delivered or not."""
    next_seq: int = 0
    read_upto: int = field(default=0, compare=False)
    """Number of the newest row of the store that is in here; 0 for a conversation that was made here."""
    memory_bytes: int = LEDGER_BYTES
    """Estimated bytes in memory. A message that another cache holds too is counted in both places."""

    def add(self, value: LedgerItem) -> None:
        match value:
            case Entry():
                self.add_entry(value)
            case Round():
                self.add_round(value)
            case LedgerEvent():
                self.add_event(value)
            case Thread():
                self.threads[value.id] = value
            case QueuedMessage():
                self.queue[value.id] = value

    def add_entry(self, entry: Entry) -> None:
        """Ignores an entry whose parent is unknown, because the parent's record was lost."""
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
        if self._children is not None:
            self._children.setdefault(entry.parent, []).append(entry.id)
        if entry.kind is EntryKind.TURN:
            self.turns_by_parent.setdefault(entry.parent, []).append(entry.id)
        elif entry.message:
            self.by_identity.setdefault((entry.parent, entry.message.identity), []).append(entry.id)

    def add_round(self, done: Round) -> None:
        """Stores a round. A finished round replaces its drafts, and nothing replaces it."""
        turn, stored = self.entries.get(done.turn), self.rounds.get(done.turn, ())
        drafts = [r for r in stored if r.number == done.number] if stored else []
        if turn is None or any(draft.spoken.complete for draft in drafts):
            return
        rounds = with_round(stored, done)
        visible = visible_turn(rounds)
        if (equal := self._find_equal_response(done.spoken, turn.parent, visible.echo_identities)) is not None:
            rounds = with_round(stored, replace(done, spoken=equal))
        self.rounds[done.turn] = rounds
        self.memory_bytes += _round_bytes(done, is_shared=equal is not None)
        for draft in drafts:
            self.memory_bytes -= _round_bytes(draft)
        for identity in visible.echo_identities:
            _append_newest(self.by_identity.setdefault((turn.parent, identity), []), done.turn)
            _append_newest(self.turns_by_echo.setdefault(identity, []), done.turn)
        if visible.calls:
            _append_newest(self.turns_by_echo.setdefault(calls_key(visible.calls), []), done.turn)

    def _find_equal_response(
        self, spoken: ModelResponse, parent: str, identities: Iterable[str]
    ) -> ModelResponse | None:
        """An equal earlier answer to the same request, whose memory the new one can share (saves 1.5 of 2 KB). Drafts
        share nothing."""
        for identity in identities if spoken.complete else ():
            for turn in self.by_identity.get((parent, identity), ())[-1:]:
                for earlier in self.rounds.get(turn, ()):
                    if earlier.spoken == spoken:
                        return earlier.spoken
        return None

    def add_event(self, event: LedgerEvent) -> bool:
        """Returns False if an event of this kind and subject exists already."""
        stored = self.events.get(event.entry, ())
        if any((e.kind, e.subject) == (event.kind, event.subject) for e in stored):
            return False
        self.memory_bytes += EVENT_BYTES + DECODED_EVENT_FACTOR * len(event.data)
        self.events[event.entry] = tuple(sorted((*stored, event), key=lambda e: (e.round, e.seq)))
        self.next_seq = max(self.next_seq, event.seq + 1)
        return True

    def settle_event(self, event: LedgerEvent) -> None:
        """Add an event as the store has it. It replaces another one of this kind and subject, which came later."""
        stored = self.events.get(event.entry, ())
        others = tuple(e for e in stored if (e.kind, e.subject) != (event.kind, event.subject))
        if event not in stored:
            self.events[event.entry] = others
            self.add_event(event)

    def original_of(self, entry: Entry) -> Entry:
        """The first form of an entry that the client rewrote, once or more."""
        return self.entries[self.original_ids.get(entry.id, entry.id)]

    def children_of(self, parent: str) -> Sequence[str]:
        """Ids of the entries behind `parent`, oldest first, without overlays. Indexed when first asked: most
        histories are found by their identities."""
        if self._children is None:
            self._children = {}
            for entry in self.entries.values():
                if not entry.is_overlay:
                    self._children.setdefault(entry.parent, []).append(entry.id)
        return self._children.get(parent, ())

    def remember_form(self, parent: str, identity: str, entry: str) -> None:
        """Let `identity` behind `parent` find this entry too, of which it is another form. Not stored, and bounded:
        clients may send new forms without end."""
        if self._form_count < MAX_FORMS_PER_ENTRY * len(self.entries) and (parent, identity) not in self.by_identity:
            self.by_identity[parent, identity] = [entry]
            self._form_count += 1
            self.memory_bytes += INDEX_BYTES

    def path(self, tip: str) -> tuple[Entry, ...]:
        """The entries from the first one to `tip`, both included."""
        entries = []
        while tip:
            entry = self.entries[tip]
            entries.append(entry)
            tip = entry.parent
        return tuple(reversed(entries))

    def newest_round_number(self, entry: str) -> int:
        """The number of the newest round of a turn; 0 for any other entry and a turn without rounds."""
        return max((done.number for done in self.rounds.get(entry, ())), default=0)

    def newest_tip(self) -> Entry | None:
        """The newest entry that is no overlay, or None."""
        return next((e for e in reversed(self.entries.values()) if not e.is_overlay), None)


def rebuild_ledger(conversation: Conversation, values: Iterable[LedgerItem]) -> Ledger:
    """`values` in writing order. One that comes before the value it depends on is added after it."""
    ledger = Ledger(conversation)
    waiting = list(values)
    while waiting:
        left = [value for value in waiting if not _try_add(ledger, value)]
        if len(left) == len(waiting):
            break
        waiting = left
    return ledger


def _try_add(ledger: Ledger, value: LedgerItem) -> bool:
    """False if something that `value` depends on is missing."""
    match value:
        case Entry(parent=entry) | Round(turn=entry) | LedgerEvent(entry=entry):
            pass
        case _:
            entry = ""
    if entry and entry not in ledger.entries:
        return False
    ledger.add(value)
    return True


def _round_bytes(done: Round, *, is_shared: bool = False) -> int:
    """Estimated memory of a round; `is_shared`: another round holds its response."""
    size = ROUND_BYTES if is_shared else ROUND_BYTES + done.spoken.memory_bytes
    return size + sum(result.memory_bytes for result in done.results) if done.results else size


def with_round(rounds: tuple[Round, ...], done: Round) -> tuple[Round, ...]:
    """The rounds of a turn with `done` in order, which replaces a draft of the same number."""
    if not rounds:
        return (done,)
    return tuple(sorted((*(r for r in rounds if r.number != done.number), done), key=lambda r: r.number))


def _append_newest(turns: list[str], turn: str) -> None:
    if turn not in turns[-1:]:
        turns.append(turn)


def calls_key(calls: Sequence[Call]) -> str:
    """The ids and names of calls, in order: these survive when a client serialises arguments anew."""
    return "calls " + "\n".join(f"{c.id} {c.name}" for c in calls)


def message_id(parent: str, identity: str, conversation: str, adopts: str = "") -> str:
    """Hash of the parent's id (the conversation's for the first message), the canonical content, and `adopts`: clients
    begin every compacted history with the same words."""
    content = f"{identity}\n{adopts}" if adopts else identity
    return sha256(f"{parent or conversation}\n{content}".encode()).hexdigest()[:32]


def turn_id(request_node: str, attempt: int, writer: str = "") -> str:
    """Known before the first round starts, so that events of the turn can refer to it. `writer` keeps processes apart
    that answer the same request without knowing of each other: else the rounds of two answers would be one turn."""
    by = f" of {writer}" if writer else ""
    return sha256(f"{request_node}\nattempt {attempt}{by}".encode()).hexdigest()[:32]


RESPONSE_ID_KEY = "response_id"
"""Key of `ModelResponse.extra`: the provider's id of its answer (JSON string), if clients may refer to it."""
THINKING_TAGS = ("think", "thinking")
"""Tags around a model's thinking, where the provider delivers thinking as text."""
PAUSE_FINISH_REASON = "pause_turn"
"""Finish reason of a round that the next request continues."""
CONTEXT_EDITS_KEY = "applied_edits"
"""Key of `ModelResponse.extra`: the provider's edits of the request (JSON array)."""
PROVIDER_COMPACTIONS_KEY = "sealed"
"""Key of `ModelResponse.extra`: identities of compactions in the answer that clients echo as separate messages (JSON
array). If present, the provider compacted its input."""


# --------------------------------------------------------------------------------------------------------------- seen
def response_id_of(rounds: Sequence[Round]) -> str:
    """The id by which the client refers to a turn, which is its first round's. Empty if there is none."""
    raw = rounds[0].spoken.extra.get(RESPONSE_ID_KEY) if rounds else None
    return msgspec.json.decode(raw, type=str) if raw else ""


def provider_compactions_in(rounds: Sequence[Round]) -> frozenset[str]:
    """Identities of the compactions in a turn that clients echo as separate messages."""
    lists = (r.spoken.extra.get(PROVIDER_COMPACTIONS_KEY) for r in rounds)
    return frozenset(identity for raw in lists if raw for identity in msgspec.json.decode(raw, type=list[str]))


def is_edited_by_provider(done: Round) -> bool:
    """Whether the provider itself edited or compacted its input."""
    return CONTEXT_EDITS_KEY in done.spoken.extra or PROVIDER_COMPACTIONS_KEY in done.spoken.extra


class VisibleTurn(msgspec.Struct, frozen=True, gc=False):
    """The part of a turn that the client sees: text, calls, and the identity of both as one message. `echo_identities`
    are the identities under which a client may echo the finished turn."""

    text: str
    calls: tuple[Call, ...]
    identity: str
    echo_identities: frozenset[str]


def visible_turn(rounds: Sequence[Round]) -> VisibleTurn:
    if len(rounds) == 1 and (plain := _text_only_turn(rounds[0].spoken.message)):
        return plain
    text, calls = visible_text(rounds), visible_calls(rounds)
    identity = _visible_identity(rounds, text, calls)
    return VisibleTurn(text, calls, identity, _echo_identities(rounds, text, calls, identity))


def _text_only_turn(message: Message) -> VisibleTurn | None:
    """Fast path for the usual turn: one round with text and nothing else. None for any other."""
    text, identity = message.text, message.identity
    if message.calls or message.answers or message.role != "assistant" or not text.strip() or _has_thinking_tags(text):
        return None
    return VisibleTurn(text, (), identity, frozenset((identity,)))


def visible_text(rounds: Sequence[Round]) -> str:
    return ROUND_SEPARATOR.join(text for r in rounds if (text := r.spoken.visible_text).strip())


def visible_calls(rounds: Sequence[Round]) -> tuple[Call, ...]:
    """The calls that the client receives: those of the last round that are not ours."""
    return rounds[-1].spoken.client_calls if rounds else ()


def _visible_identity(rounds: Sequence[Round], text: str, calls: tuple[Call, ...]) -> str:
    """The only round's own identity where nothing is hidden, else a new one."""
    only = rounds[0].spoken.message if len(rounds) == 1 else None
    if only and only.role == "assistant" and not only.answers and not rounds[0].spoken.proxy_calls:
        return only.identity
    return identity_of("assistant", text, calls)


def echo_identities_of(rounds: Sequence[Round]) -> frozenset[str]:
    """The identities under which a client may echo a finished turn."""
    return visible_turn(rounds).echo_identities


def _echo_identities(rounds: Sequence[Round], text: str, calls: tuple[Call, ...], identity: str) -> frozenset[str]:
    """Complete, without text if it has calls (crewai drops it), or without thinking."""
    if not (calls or text or is_silent(rounds)):
        return frozenset()
    identities = {identity}
    if calls:
        identities.add(identity_of("assistant", "", calls))
    if _has_thinking_tags(text) and (spoken := without_thinking(text)).strip():
        identities.add(identity_of("assistant", spoken, calls))
    return frozenset(identities)


def _has_thinking_tags(text: str) -> bool:
    return "</" in text and any(f"</{tag}>" in text for tag in THINKING_TAGS)


def without_thinking(text: str) -> str:
    """Text without tagged thinking, of which some models write only the closing tag. Clients remove it (the AI SDK) or
    rewrite it (pydantic-ai)."""
    for tag in THINKING_TAGS:
        *before, last = text.split(f"</{tag}>")
        parts = (part.partition(f"<{tag}>") for part in before)
        text = "".join(words for words, opened, _ in parts if opened) + last
    return text


def is_silent(rounds: Sequence[Round]) -> bool:
    """Whether a finished turn holds calls of ours and nothing visible: clients echo it empty or not at all."""
    if (
        not rounds
        or not (rounds[-1].last and rounds[-1].spoken.complete)
        or visible_calls(rounds)
        or visible_text(rounds)
    ):
        return False
    return any(done.spoken.proxy_calls for done in rounds)


def is_echoed_by(rounds: Sequence[Round], message: Message) -> bool:
    """Whether `message` echoes this turn: exactly, with default arguments added, or as a partial delivery."""
    if message.role != "assistant":
        return False
    text, calls = visible_text(rounds), visible_calls(rounds)
    if calls and same_calls(calls, message.calls):
        return not message.text.strip() or _same_text(text, message.text)
    if rounds and rounds[-1].last and rounds[-1].spoken.complete:
        return not calls and not message.calls and _has_thinking_tags(text) and _same_text(text, message.text)
    echoed, said = message.text.strip(), text.strip()
    # One starts with the other: the client kept less than we stored, or we stored less than it received.
    return bool(echoed and said) and not message.calls and (said.startswith(echoed) or echoed.startswith(said))


def _same_text(ours: str, theirs: str) -> bool:
    """Whether two texts are equal, apart from thinking and the white space around it."""
    if ours.strip() == theirs.strip() or not _has_thinking_tags(ours):
        return ours.strip() == theirs.strip()
    return without_thinking(ours).split() == without_thinking(theirs).split() != []


def same_calls(ours: Sequence[Call], theirs: Sequence[Call]) -> bool:
    """Whether these are the same calls in the same order. Clients may add default arguments, or rename a call of an
    unknown tool."""
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
