"""Aligns a history that the client rewrote, pruned or shortened with the stored path.

The newest turn of ours in the history says where it continues. The rest is aligned with the path to that turn by loose
identity: another form of the same answer, or a result replaced by a note. New content never counts as a form of known
content.
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
"""Longest note that a client leaves in place of a pruned output."""
PRUNING_NOTE = re.compile(
    r"cleared|removed|truncated|omitted|pruned|elided|compacted|no longer|unchanged since", re.IGNORECASE
)
"""Words in such notes (opencode: "[Old tool result content cleared]")."""
BRACKETED_NOTE = re.compile(r"\s*(\[[^\[\]]*\]|<[^<>]*>)\s*")
"""Form of a note that replaces a short output. A note in plain words may be a tool's own output."""
MAX_THREAD_SIMILARITY = 2
"""Full similarity: the same system text and the same tools."""


class Alignment(msgspec.Struct, frozen=True):
    """`path` is the part of the walked path that holds; `aliases` are the stored entries that the messages behind it
    are another form of, one for each message, empty if it is new; `adopts` is the turn whose state continues."""

    path: tuple[Entry, ...]
    aliases: tuple[str, ...]
    adopts: str


def align(ledger: Ledger, request: Request, path: tuple[Entry, ...]) -> Alignment | None:
    """The rest of a rewritten history, aligned with the path to the newest turn of ours that it still holds, or None.

    A thread with tools does not continue from an answer to a request without tools: that was a summary or a title. If
    only one message without calls is known, system text and tools must be the same, because many agents greet alike.
    """
    answers = [m for m in reversed(request.messages[len(path) :]) if m.role == "assistant"]
    cut_off = _interrupted_turns(ledger) if answers else ()
    echoes = ((t, m) for m in answers if (t := _newest_echoed_turn(ledger, m, cut_off)))
    if (newest_echo := next(echoes, None)) is None or not _same_tool_use(ledger, newest_echo[0], request):
        return None
    anchor, echo = newest_echo
    anchor_path = ledger.path(anchor.id)
    path = _same_prefix(ledger, path, anchor_path)
    walked_ids = {p.id for p in path}
    stored = [e for e in anchor_path if e.id not in walked_ids]
    index = _EntryIndex(ledger, stored)
    aliases: list[str] = []
    position = 0
    for message in request.messages[len(path) :]:
        found = next(
            (i for i in index.candidates(message, position) if _is_same_message(ledger, stored[i], message)), None
        )
        aliases.append(stored[found].id if found is not None else "")
        position = position if found is None else found + 1
    known = len(path) + sum(map(bool, aliases))
    if known == 1 and not echo.calls and thread_similarity(ledger, anchor, request) < MAX_THREAD_SIMILARITY:
        return None
    return Alignment(path, tuple(aliases), anchor.id)


def _same_prefix(ledger: Ledger, path: tuple[Entry, ...], there: Sequence[Entry]) -> tuple[Entry, ...]:
    """The walked path up to the first form of an entry that is not on the path `there`: the same note may replace the
    output of an earlier attempt."""
    original_ids = {ledger.original_of(entry).id for entry in there}
    foreign = (
        index for index, form in enumerate(path) if form.alias and ledger.original_of(form).id not in original_ids
    )
    end = next(foreign, len(path))
    message = path[end].message if end < len(path) else None
    same_words = message is not None and any(_is_same_message(ledger, stored, message) for stored in there)
    return path[:end] if same_words else path


class _EntryIndex:
    """Finds candidate positions of a message in a stored path. Comparing every message with every entry would take
    seconds for each request of a history of a thousand messages that diverged."""

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
        """Positions from `at` on, in order; at most `MAX_CANDIDATES` of those that only share a call id."""
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
    """Similarity of a request and the thread of `tip`: 0 to `MAX_THREAD_SIMILARITY`."""
    thread = ledger.threads.get(tip.thread)
    if thread is None:
        return 0
    return (thread.system_hash == request.system_hash) + (thread.tool_names == request.tool_names)


def _newest_echoed_turn(ledger: Ledger, message: Message, cut_off: Sequence[str]) -> Entry | None:
    """The newest turn that `message` echoes, anywhere, also one of `cut_off`. Short answers without calls identify
    nothing."""
    if not message.calls and len(message.text.strip()) < MIN_IDENTIFYING_CHARACTERS:
        return None
    exact = ledger.turns_by_echo.get(message.identity, [])[-1:]
    similar = ledger.turns_by_echo.get(calls_key(message.calls), [])[-MAX_CANDIDATES:] if message.calls else cut_off
    for turn in (*exact, *reversed(similar)):
        if turn in exact or is_echoed_by(ledger.rounds[turn], message):
            return ledger.entries[turn]
    return None


def _interrupted_turns(ledger: Ledger) -> Sequence[str]:
    """The newest interrupted turns with enough text to identify them, oldest first."""
    broken = (
        t for t, rounds in reversed(ledger.rounds.items()) if not rounds[-1].last or not rounds[-1].spoken.complete
    )
    identifiable = (
        turn for turn in broken if len(visible_text(ledger.rounds[turn]).strip()) >= MIN_IDENTIFYING_CHARACTERS
    )
    return tuple(islice(identifiable, MAX_CANDIDATES))[::-1]


def _is_same_message(ledger: Ledger, stored: Entry, message: Message) -> bool:
    """Loose identity: whether `message` is a form of the entry or of its original."""
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
    return same_call and is_pruned_result(original.message, message)


def is_pruned_result(original: Message, result: Message) -> bool:
    """Whether `result` is a pruned form of another one. A client that takes references to tools out of a result offers
    these tools no more, and a provider refuses a reference to a tool that is not offered."""
    return original.loaded_tools == result.loaded_tools and is_pruned_form(original.text, result.text)


def is_pruned_form(original: str, text: str) -> bool:
    """Whether `text` is a pruned tool output: other white space, its start, or a short note in its place."""
    if original.split() == text.split():
        return True
    is_note = len(text) <= MAX_NOTE_CHARACTERS and PRUNING_NOTE.search(text) is not None
    if len(text) >= len(original):  # clients clear outputs of a few words too
        return is_note and BRACKETED_NOTE.fullmatch(text) is not None
    head = text[: max(len(text) - MAX_NOTE_CHARACTERS, 0)].strip()
    return is_note or (len(head) >= MAX_NOTE_CHARACTERS and original.startswith(head))
