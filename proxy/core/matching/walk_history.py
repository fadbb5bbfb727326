"""A client's history walked down the tree of what is known, message by message.

A turn is recognised by what was *seen* of it, in any form the client may echo: as it was, in pieces, joined with the
turn it went on from, or not at all where it said nothing. Where two answers look alike the one under which more of what
follows is known wins, then the newest.

What this module does not do: it finds nothing behind the first message that is not known where it stands; what a client
rewrote is `aligning`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat, takewhile
from operator import attrgetter, eq

from proxy.core.ledger import (
    PAUSE_FINISH_REASON,
    ROUND_SEPARATOR,
    Entry,
    Ledger,
    Message,
    echo_identities_of,
    identity_of,
    is_echoed_by,
    is_silent,
    provider_compactions_in,
)

MAX_CANDIDATES = 16
"""How many of the newest answers to one request are looked at: clients retry, they do not go back to the hundredth
answer."""
MIN_MESSAGES_TO_REUSE = 8
"""Messages from which a history is held against the one that was walked last; fewer are walked sooner."""


def walk(ledger: Ledger, messages: Sequence[Message], behind: str = "") -> tuple[Entry, ...]:
    """The longest known prefix of `messages`, as entries: of a whole history, or `behind` an entry. Overlays hang
    beside and are never walked. A turn that said nothing, and that the client does not give back, stands in the place
    of the message it answered."""
    is_long = len(messages) >= MIN_MESSAGES_TO_REUSE and not behind
    path = _unchanged_prefix(ledger, messages) if is_long else []
    parent = path[-1].id if path else behind
    entries, by_identity = ledger.entries, ledger.by_identity
    for at, message in enumerate(messages[len(path) :], len(path)):
        if at < len(path):
            continue  # another piece of the turn that is known by now
        ids = by_identity.get((parent, message.identity), ())
        if len(ids) == 1:  # nearly always; a whole history is walked with every request
            parent = ids[0]
            path.append(entries[parent])
            continue
        found = _matching_children(ledger, parent, message)
        unsaid = _newest_silent_turn(ledger, parent) if path and not found and message.role != "assistant" else None
        if unsaid is not None:
            path[-1], parent = unsaid, unsaid.id
            found = _matching_children(ledger, parent, message)
        if not found:
            turn, pieces = _turn_after_pauses(ledger, parent, message), 1
            if turn is None:
                turn, pieces = _turn_in_pieces(ledger, parent, messages[at:])
            if turn is None:
                break
            path += [turn] * pieces
            parent = turn.id
            continue
        entry = found[0] if len(found) == 1 else _deepest_match(ledger, found, messages[at + 1 :])
        path.append(entry)
        parent = entry.id
    if is_long:
        ledger.last_walked_path = tuple(path)
    return tuple(path)


def _unchanged_prefix(ledger: Ledger, messages: Sequence[Message]) -> list[Entry]:
    """The beginning of the path that was walked last, as far as each message still leads to that one entry and to no
    other: a whole history comes again with every request, and this sees at once that it is the same."""
    walked = ledger.last_walked_path[: len(messages)]
    ids = list(map(attrgetter("id"), walked))
    steps = zip(["", *ids], map(attrgetter("identity"), messages), strict=False)
    found = map(tuple, map(ledger.by_identity.get, steps, repeat(())))
    same = [*map(eq, found, zip(ids, strict=True)), False]
    return list(walked[: same.index(False)])


def _matching_children(ledger: Ledger, parent: str, message: Message) -> list[Entry]:
    """Entries under `parent` that `message` may be, the newest first."""
    ids = ledger.by_identity.get((parent, message.identity), [])
    if len(ids) == 1:
        return [ledger.entries[ids[0]]]
    ids = ids[-MAX_CANDIDATES:]
    if not ids and message.role == "assistant":
        tried = ledger.turns_by_parent.get(parent, [])[-MAX_CANDIDATES:]
        ids = [t for t in tried if is_echoed_by(ledger.rounds.get(t, ()), message)]
    return [ledger.entries[i] for i in reversed(ids)]


def _newest_silent_turn(ledger: Ledger, parent: str) -> Entry | None:
    """The newest answer to the request that ended with `parent`, where there was nothing in it for the client."""
    turns = ledger.turns_by_parent.get(parent, ())
    return ledger.entries[turns[-1]] if turns and is_silent(ledger.rounds.get(turns[-1], ())) else None


def _turn_after_pauses(ledger: Ledger, parent: str, message: Message) -> Entry | None:
    """The turn that `message` ends with, where it begins with one or more under `parent` that paused: what these said
    and what they went on with may come back as one message."""
    waiting = [(turn, ledger.rounds.get(turn, ())) for turn in ledger.turns_by_parent.get(parent, [])[-MAX_CANDIDATES:]]
    while waiting and message.role == "assistant":
        turn, rounds = waiting.pop()
        if len({r.turn for r in rounds}) > 1 and (
            message.identity in echo_identities_of(rounds) or is_echoed_by(rounds, message)
        ):
            return ledger.entries[turn]
        if rounds and rounds[-1].spoken.finish == PAUSE_FINISH_REASON:
            behind = ledger.turns_by_parent.get(turn, [])[-MAX_CANDIDATES:]
            waiting += [(later, (*rounds, *ledger.rounds.get(later, ()))) for later in behind]
    return None


def _turn_in_pieces(ledger: Ledger, parent: str, messages: Sequence[Message]) -> tuple[Entry | None, int]:
    """The turn under `parent` that `messages` begin with in several pieces, and how many: a client gives a compaction
    back as a message of its own, between what was said before and behind it. None and 0 where there is none."""
    run = list(takewhile(lambda m: m.role == "assistant", messages))
    for turn in reversed(ledger.turns_by_parent.get(parent, [])[-MAX_CANDIDATES:] if len(run) > 1 else []):
        rounds = ledger.rounds.get(turn, ())
        if not (sealed := provider_compactions_in(rounds)):
            continue
        for pieces in range(len(run), 1, -1):
            text = ROUND_SEPARATOR.join(m.text for m in run[:pieces] if m.text.strip())
            calls = tuple(call for m in run[:pieces] for call in m.calls)
            whole = Message("assistant", b"", identity_of("assistant", text, calls), text, calls)
            held = sealed <= {m.identity for m in run[:pieces]}
            if held and (whole.identity in echo_identities_of(rounds) or is_echoed_by(rounds, whole)):
                return ledger.entries[turn], pieces
    return None, 0


def _deepest_match(ledger: Ledger, candidates: list[Entry], rest: Sequence[Message]) -> Entry:
    """Of entries that look alike, the one under which most of what follows is known; among equals the newest."""
    alive = [(entry, [entry.id]) for entry in candidates]
    for message in rest:
        further = (
            (entry, [c.id for tip in tips for c in _matching_children(ledger, tip, message)]) for entry, tips in alive
        )
        held = [(entry, tips) for entry, tips in further if tips]
        alive = held or alive
        if len(held) < 2:
            break
    return alive[0][0]
