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

from proxy.core.ledger.ledger import Entry, Kind, Ledger, Round, calls_key, echoes, forms, seen_calls, seen_text
from proxy.core.ledger.messages import Message, Request
from proxy.core.matching.lookup_keys import TELLING
from proxy.core.matching.walk_history import ATTEMPTS

NOTE = 300
"""Characters of the note that a client leaves where it pruned an output."""
PRUNING = re.compile(
    r"cleared|removed|truncated|omitted|pruned|elided|compacted|no longer|unchanged since", re.IGNORECASE
)
"""How such notes are worded (opencode: "[Old tool result content cleared]")."""
BRACKETED = re.compile(r"\s*(\[[^\[\]]*\]|<[^<>]*>)\s*")
"""How a note stands where no words are its own. One in plain words may be what a tool said."""
LIKENESS = 2
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
    cut_off = _cut_off(ledger) if answers else ()
    turns = ((t, m) for m in answers if (t := _produced(ledger, m, cut_off)))
    if (newest := next(turns, None)) is None or not _same_kind(ledger, newest[0], request):
        return None
    anchor, echo = newest
    there = ledger.path(anchor.id)
    path = _of_the_same(ledger, path, there)
    walked = {p.id for p in path}
    stored = [e for e in there if e.id not in walked]
    places = _Places(ledger, stored)
    aliases: list[str] = []
    at = 0
    for message in request.messages[len(path) :]:
        found = next((i for i in places.of(message, at) if _alike(ledger, stored[i], message)), None)
        aliases.append(stored[found].id if found is not None else "")
        at = at if found is None else found + 1
    known = len(path) + sum(map(bool, aliases))
    if known == 1 and not echo.calls and likeness(ledger, anchor, request) < LIKENESS:
        return None
    return Alignment(path, tuple(aliases), anchor.id)


def _of_the_same(ledger: Ledger, path: tuple[Entry, ...], there: Sequence[Entry]) -> tuple[Entry, ...]:
    """The walked path, up to where it is a form of something else than what stands on the path `there`: a note may be
    in the same place for the output of an earlier attempt."""
    known = {ledger.original(entry).id for entry in there}
    others = (at for at, form in enumerate(path) if form.alias and ledger.original(form).id not in known)
    parts = next(others, len(path))
    message = path[parts].message if parts < len(path) else None
    same_words = message is not None and any(_alike(ledger, stored, message) for stored in there)
    return path[:parts] if same_words else path


class _Places:
    """Where in a stored path a message may stand in any form, so that not every message is held against every entry: a
    history of a thousand messages that went another way would take seconds, with every request."""

    def __init__(self, ledger: Ledger, stored: Sequence[Entry]) -> None:
        self._alike: defaultdict[str, list[int]] = defaultdict(list)
        self._calls: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        self._results: defaultdict[str, list[int]] = defaultdict(list)
        self._partial: list[int] = []
        for at, entry in enumerate(stored):
            if (produced := ledger.original(entry)).kind is Kind.TURN:
                self._turn(at, ledger.rounds.get(produced.id, ()))
            if entry.message is not None:
                self._alike[entry.message.identity].append(at)
                if entry.message.answers:
                    self._results[entry.message.answers].append(at)

    def _turn(self, at: int, rounds: Sequence[Round]) -> None:
        for identity in forms(rounds):
            self._alike[identity].append(at)
        if calls := seen_calls(rounds):
            self._calls[tuple(call.id for call in calls)].append(at)
        if rounds and not (rounds[-1].last and rounds[-1].spoken.complete):
            self._partial.append(at)

    def of(self, message: Message, at: int) -> list[int]:
        """Places from `at` on, in order. Of those that only a call id speaks for, which many turns may share, the
        next ones."""
        found = self._alike.get(message.identity, ())
        places = set(found[bisect_left(found, at) :][:1])
        if message.answers:
            places.update(_next(self._results.get(message.answers, ()), at))
        if message.calls:
            places.update(_next(self._calls.get(tuple(call.id for call in message.calls), ()), at))
        elif message.role == "assistant":
            places.update(_next(self._partial, at))
        return sorted(places)


def _next(places: Sequence[int], at: int) -> Sequence[int]:
    start = bisect_left(places, at)
    return places[start : start + ATTEMPTS]


def _same_kind(ledger: Ledger, anchor: Entry, request: Request) -> bool:
    thread = ledger.threads.get(anchor.thread)
    return thread is None or bool(thread.tool_names) == bool(request.tool_names)


def likeness(ledger: Ledger, tip: Entry, request: Request) -> int:
    """How much of the thread of `tip` a request has: from 0 to `LIKENESS`."""
    thread = ledger.threads.get(tip.thread)
    if thread is None:
        return 0
    return (thread.system_hash == request.system_hash) + (thread.tool_names == request.tool_names)


def _produced(ledger: Ledger, message: Message, cut_off: Sequence[str]) -> Entry | None:
    """The newest turn of ours that `message` echoes, wherever it stands, `cut_off` among them. Short answers without
    calls identify nothing."""
    if not message.calls and len(message.text.strip()) < TELLING:
        return None
    exact = ledger.produced.get(message.identity, [])[-1:]
    alike = ledger.produced.get(calls_key(message.calls), [])[-ATTEMPTS:] if message.calls else cut_off
    for turn in (*exact, *reversed(alike)):
        if turn in exact or echoes(ledger.rounds[turn], message):
            return ledger.entries[turn]
    return None


def _cut_off(ledger: Ledger) -> Sequence[str]:
    """The newest turns that broke off behind enough words to know them by, oldest first."""
    broken = (
        t for t, rounds in reversed(ledger.rounds.items()) if not rounds[-1].last or not rounds[-1].spoken.complete
    )
    told = (turn for turn in broken if len(seen_text(ledger.rounds[turn]).strip()) >= TELLING)
    return tuple(islice(told, ATTEMPTS))[::-1]


def _alike(ledger: Ledger, stored: Entry, message: Message) -> bool:
    """Loose identity: an entry, or what it is a form of, and another form of it."""
    if stored.message is not None and stored.message.identity == message.identity:
        return True
    original = ledger.original(stored)
    if original.kind is Kind.TURN:
        rounds = ledger.rounds.get(original.id, ())
        return message.identity in forms(rounds) or echoes(rounds, message)
    if original.message is None or original.message.role != message.role:
        return False
    if original.message.identity == message.identity:
        return True
    same_call = bool(message.answers) and original.message.answers == message.answers
    return same_call and pruned(original.message.text, message.text)


def pruned(original: str, text: str) -> bool:
    """Whether `text` is a known tidying or pruning of a tool output: other white space, its beginning, or a short
    note that stands where it was. Anything else is new content."""
    if original.split() == text.split():
        return True
    is_note = len(text) <= NOTE and PRUNING.search(text) is not None
    if len(text) >= len(original):  # clients clear outputs of a few words too
        return is_note and BRACKETED.fullmatch(text) is not None
    head = text[: max(len(text) - NOTE, 0)].strip()
    return is_note or (len(head) >= NOTE and original.startswith(head))
