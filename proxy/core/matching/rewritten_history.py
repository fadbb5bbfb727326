"""What a client rewrote, pruned or shortened of its history, held against what is known of it.

The newest turn of ours that the history still holds says where it goes on; the rest is aligned with the path to that
turn by loose identity: another form of the same answer, a result cleared to a note. The law: **what is new content is
never taken for another form of what is known** (`pruned`), and words alone are not enough where nothing else is known.

What this module does not do: it walks no exact prefix (`walking`) and adds no entry (`matching.grown`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

import msgspec

from proxy.core.ledger import (
    Entry,
    EntryKind,
    Ledger,
    Message,
    Request,
    Round,
    calls_key,
    echo_identities_of,
    is_echoed_by,
    visible_calls,
    visible_text,
)
from proxy.core.matching.lookup_keys import MIN_IDENTIFYING_CHARACTERS
from proxy.core.matching.walk_history import MAX_CANDIDATES

MAX_NOTE_CHARACTERS = 300
"""Characters of the note that a client leaves where it pruned an output."""
PRUNING_NOTE = re.compile(
    r"cleared|removed|truncated|omitted|pruned|elided|compacted|no longer|unchanged since", re.IGNORECASE
)
"""How such notes are worded (opencode: "[Old tool result content cleared]")."""
BRACKETED_NOTE = re.compile(r"\s*(\[[^\[\]]*\]|<[^<>]*>)\s*")
"""How a note stands where no words are its own. One in plain words may be what a tool said."""
MAX_THREAD_SIMILARITY = 2
"""What a request has of a thread at most: its system text, and its tools."""


class Alignment(msgspec.Struct, frozen=True):
    """`path` is what holds of the walked one; `aliases` are the stored entries that the messages behind it are another
    form of, one place for each message, empty where it is new; `adopts` is the turn whose state goes on."""

    path: tuple[Entry, ...]
    aliases: tuple[str, ...]
    adopts: str


def align(ledger: Ledger, request: Request, path: tuple[Entry, ...]) -> Alignment | None:
    """The rest of a rewritten history, matched loosely against the path of the newest produced turn that it still
    holds.

    A thread with tools does not go on from an answer that was given without any: that was a summary, or a title. And
    words alone say little, many agents greet alike: where nothing else is known, the loop must be the same.
    """
    answers = [m for m in reversed(request.messages[len(path) :]) if m.role == "assistant"]
    cut_off = _interrupted_turns(ledger) if answers else ()
    turns = ((t, m) for m in answers if (t := _newest_echoed_turn(ledger, m, cut_off)))
    if (newest := next(turns, None)) is None or not _same_tool_use(ledger, newest[0], request):
        return None
    anchor, echo = newest
    there = ledger.path(anchor.id)
    path = _same_prefix(ledger, path, there)
    walked = {p.id for p in path}
    stored = [e for e in there if e.id not in walked]
    places = _EntryIndex(ledger, stored)
    aliases: list[str] = []
    at = 0
    for message in request.messages[len(path) :]:
        found = next((i for i in places.candidates(message, at) if _is_same_message(ledger, stored[i], message)), None)
        aliases.append(stored[found].id if found is not None else "")
        at = at if found is None else found + 1
    known = len(path) + sum(map(bool, aliases))
    if known == 1 and not echo.calls and thread_similarity(ledger, anchor, request) < MAX_THREAD_SIMILARITY:
        return None
    return Alignment(path, tuple(aliases), anchor.id)


def _same_prefix(ledger: Ledger, path: tuple[Entry, ...], there: Sequence[Entry]) -> tuple[Entry, ...]:
    """The walked path, up to where it is a form of something else than what stands on the path `there`: a note may be
    in the same place for the output of an earlier attempt."""
    known = {ledger.original_of(entry).id for entry in there}
    others = (at for at, form in enumerate(path) if form.alias and ledger.original_of(form).id not in known)
    parts = next(others, len(path))
    message = path[parts].message if parts < len(path) else None
    same_words = message is not None and any(_is_same_message(ledger, stored, message) for stored in there)
    return path[:parts] if same_words else path


class _EntryIndex:
    """Where in a stored path a message may stand in any form, so that not every message is held against every entry: a
    history of a thousand messages that went another way would take seconds, with every request."""

    def __init__(self, ledger: Ledger, stored: Sequence[Entry]) -> None:
        self._by_identity: defaultdict[str, list[int]] = defaultdict(list)
        self._by_call_ids: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        self._by_answered_call: defaultdict[str, list[int]] = defaultdict(list)
        self._interrupted_turns: list[int] = []
        for at, entry in enumerate(stored):
            if (produced := ledger.original_of(entry)).kind is EntryKind.TURN:
                self._add_turn(at, ledger.rounds.get(produced.id, ()))
            if entry.message is not None:
                self._by_identity[entry.message.identity].append(at)
                if entry.message.answers:
                    self._by_answered_call[entry.message.answers].append(at)

    def _add_turn(self, at: int, rounds: Sequence[Round]) -> None:
        for identity in echo_identities_of(rounds):
            self._by_identity[identity].append(at)
        if calls := visible_calls(rounds):
            self._by_call_ids[tuple(call.id for call in calls)].append(at)
        if rounds and not (rounds[-1].last and rounds[-1].spoken.complete):
            self._interrupted_turns.append(at)

    def candidates(self, message: Message, at: int) -> list[int]:
        """Places from `at` on, in order. Of those that only a call id speaks for, which many turns may share, the
        next ones."""
        found = self._by_identity.get(message.identity, ())
        places = set(found[bisect_left(found, at) :][:1])
        if message.answers:
            places.update(_next_positions(self._by_answered_call.get(message.answers, ()), at))
        if message.calls:
            places.update(_next_positions(self._by_call_ids.get(tuple(call.id for call in message.calls), ()), at))
        elif message.role == "assistant":
            places.update(_next_positions(self._interrupted_turns, at))
        return sorted(places)


def _next_positions(places: Sequence[int], at: int) -> Sequence[int]:
    start = bisect_left(places, at)
    return places[start : start + MAX_CANDIDATES]


def _same_tool_use(ledger: Ledger, anchor: Entry, request: Request) -> bool:
    thread = ledger.threads.get(anchor.thread)
    return thread is None or bool(thread.tool_names) == bool(request.tool_names)


def thread_similarity(ledger: Ledger, tip: Entry, request: Request) -> int:
    """How much of the thread of `tip` a request has: from 0 to `LIKENESS`."""
    thread = ledger.threads.get(tip.thread)
    if thread is None:
        return 0
    return (thread.system_hash == request.system_hash) + (thread.tool_names == request.tool_names)


def _newest_echoed_turn(ledger: Ledger, message: Message, cut_off: Sequence[str]) -> Entry | None:
    """The newest turn of ours that `message` echoes, wherever it stands, `cut_off` among them. Short answers without
    calls identify nothing."""
    if not message.calls and len(message.text.strip()) < MIN_IDENTIFYING_CHARACTERS:
        return None
    exact = ledger.turns_by_echo.get(message.identity, [])[-1:]
    alike = ledger.turns_by_echo.get(calls_key(message.calls), [])[-MAX_CANDIDATES:] if message.calls else cut_off
    for turn in (*exact, *reversed(alike)):
        if turn in exact or is_echoed_by(ledger.rounds[turn], message):
            return ledger.entries[turn]
    return None


def _interrupted_turns(ledger: Ledger) -> Sequence[str]:
    """The newest turns that broke off behind enough words to know them by, oldest first."""
    broken = (
        t for t, rounds in reversed(ledger.rounds.items()) if not rounds[-1].last or not rounds[-1].spoken.complete
    )
    told = (turn for turn in broken if len(visible_text(ledger.rounds[turn]).strip()) >= MIN_IDENTIFYING_CHARACTERS)
    return tuple(islice(told, MAX_CANDIDATES))[::-1]


def _is_same_message(ledger: Ledger, stored: Entry, message: Message) -> bool:
    """Loose identity: an entry, or what it is a form of, and another form of it."""
    if stored.message is not None and stored.message.identity == message.identity:
        return True
    original = ledger.original_of(stored)
    if original.kind is EntryKind.TURN:
        rounds = ledger.rounds.get(original.id, ())
        return message.identity in echo_identities_of(rounds) or is_echoed_by(rounds, message)
    if original.message is None or original.message.role != message.role:
        return False
    if original.message.identity == message.identity:
        return True
    same_call = bool(message.answers) and original.message.answers == message.answers
    return same_call and is_pruned_form(original.message.text, message.text)


def is_pruned_form(original: str, text: str) -> bool:
    """Whether `text` is a known tidying or pruning of a tool output: other white space, its beginning, or a short
    note that stands where it was. Anything else is new content."""
    if original.split() == text.split():
        return True
    is_note = len(text) <= MAX_NOTE_CHARACTERS and PRUNING_NOTE.search(text) is not None
    if len(text) >= len(original):  # clients clear outputs of a few words too
        return is_note and BRACKETED_NOTE.fullmatch(text) is not None
    head = text[: max(len(text) - MAX_NOTE_CHARACTERS, 0)].strip()
    return is_note or (len(head) >= MAX_NOTE_CHARACTERS and original.startswith(head))
