"""Walks a client's history down the tree of a ledger, message by message.

A turn is recognised by its visible part in any form that clients echo: as it was, in pieces, joined with the turn that
it continued, or left out if it was silent. Of equal answers the one wins under which more of the following messages are
known, then the newest. The walk ends at the first unknown message; `rewritten_history` handles the rest.
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
"""The newest answers to one request that are compared: clients do not return to older ones."""
MIN_MESSAGES_TO_REUSE = 8
"""Shorter histories are walked faster than compared with the last walk."""


def walk(ledger: Ledger, messages: Sequence[Message], behind: str = "") -> tuple[Entry, ...]:
    """The longest known prefix of `messages`, as entries: of a whole history, or `behind` an entry. Overlays are never
    part of it. A silent turn that the client leaves out replaces the message that it answered."""
    is_long = len(messages) >= MIN_MESSAGES_TO_REUSE and not behind
    path = _unchanged_prefix(ledger, messages) if is_long else []
    parent = path[-1].id if path else behind
    entries, by_identity = ledger.entries, ledger.by_identity
    for index, message in enumerate(messages[len(path) :], len(path)):
        if index < len(path):
            continue  # another piece of the turn that is known by now
        ids = by_identity.get((parent, message.identity), ())
        if len(ids) == 1:  # nearly always; a whole history is walked with every request
            parent = ids[0]
            path.append(entries[parent])
            continue
        children = _matching_children(ledger, parent, message)
        silent = newest_silent_turn(ledger, parent) if path and not children and message.role != "assistant" else None
        if silent is not None:
            path[-1], parent = silent, silent.id
            children = _matching_children(ledger, parent, message)
        if not children:
            turn, pieces = _turn_after_pauses(ledger, parent, message), 1
            if turn is None:
                turn, pieces = _turn_in_pieces(ledger, parent, messages[index:])
            if turn is None:
                break
            path += [turn] * pieces
            parent = turn.id
            continue
        entry = children[0] if len(children) == 1 else _deepest_match(ledger, children, messages[index + 1 :])
        path.append(entry)
        parent = entry.id
    if is_long:
        ledger.last_walked_path = tuple(path)
    return tuple(path)


def _unchanged_prefix(ledger: Ledger, messages: Sequence[Message]) -> list[Entry]:
    """The start of the last walked path, as far as each message still leads to that entry alone: most requests repeat
    the whole history, and this compares it in one pass."""
    walked = ledger.last_walked_path[: len(messages)]
    ids = list(map(attrgetter("id"), walked))
    steps = zip(["", *ids], map(attrgetter("identity"), messages), strict=False)
    found = map(tuple, map(ledger.by_identity.get, steps, repeat(())))
    same = [*map(eq, found, zip(ids, strict=True)), False]
    return list(walked[: same.index(False)])


def _matching_children(ledger: Ledger, parent: str, message: Message) -> list[Entry]:
    """Entries under `parent` that `message` may be, newest first."""
    ids = ledger.by_identity.get((parent, message.identity), [])
    if len(ids) == 1:
        return [ledger.entries[ids[0]]]
    ids = ids[-MAX_CANDIDATES:]
    if not ids and message.role == "assistant":
        turns = ledger.turns_by_parent.get(parent, [])[-MAX_CANDIDATES:]
        ids = [t for t in turns if is_echoed_by(ledger.rounds.get(t, ()), message)]
    return [ledger.entries[i] for i in reversed(ids)]


def newest_silent_turn(ledger: Ledger, parent: str) -> Entry | None:
    """The newest answer to the request that ended with `parent`, if it is silent."""
    turns = ledger.turns_by_parent.get(parent, ())
    return ledger.entries[turns[-1]] if turns and is_silent(ledger.rounds.get(turns[-1], ())) else None


def _turn_after_pauses(ledger: Ledger, parent: str, message: Message) -> Entry | None:
    """The turn that `message` ends with, if it joins one or more paused turns under `parent` with the turn that
    continued them."""
    pending = [(turn, ledger.rounds.get(turn, ())) for turn in ledger.turns_by_parent.get(parent, [])[-MAX_CANDIDATES:]]
    while pending and message.role == "assistant":
        turn, rounds = pending.pop()
        if len({r.turn for r in rounds}) > 1 and (
            message.identity in echo_identities_of(rounds) or is_echoed_by(rounds, message)
        ):
            return ledger.entries[turn]
        if rounds and rounds[-1].spoken.finish == PAUSE_FINISH_REASON:
            later_turns = ledger.turns_by_parent.get(turn, [])[-MAX_CANDIDATES:]
            pending += [(later, (*rounds, *ledger.rounds.get(later, ()))) for later in later_turns]
    return None


def _turn_in_pieces(ledger: Ledger, parent: str, messages: Sequence[Message]) -> tuple[Entry | None, int]:
    """The turn under `parent` that `messages` begin with in several pieces, and their number, else None and 0: clients
    echo a compaction as a message of its own, between the text before and behind it."""
    run = list(takewhile(lambda m: m.role == "assistant", messages))
    for turn in reversed(ledger.turns_by_parent.get(parent, [])[-MAX_CANDIDATES:] if len(run) > 1 else []):
        rounds = ledger.rounds.get(turn, ())
        if not (sealed := provider_compactions_in(rounds)):
            continue
        for pieces in range(len(run), 1, -1):
            text = ROUND_SEPARATOR.join(m.text for m in run[:pieces] if m.text.strip())
            calls = tuple(call for m in run[:pieces] for call in m.calls)
            whole = Message("assistant", b"", identity_of("assistant", text, calls), text, calls)
            has_all = sealed <= {m.identity for m in run[:pieces]}
            if has_all and (whole.identity in echo_identities_of(rounds) or is_echoed_by(rounds, whole)):
                return ledger.entries[turn], pieces
    return None, 0


def _deepest_match(ledger: Ledger, candidates: list[Entry], rest: Sequence[Message]) -> Entry:
    """Of equal entries the one under which most of `rest` is known; among equals the newest."""
    remaining = [(entry, [entry.id]) for entry in candidates]
    for message in rest:
        further = (
            (entry, [c.id for tip in tips for c in _matching_children(ledger, tip, message)])
            for entry, tips in remaining
        )
        matching = [(entry, tips) for entry, tips in further if tips]
        remaining = matching or remaining
        if len(matching) < 2:
            break
    return remaining[0][0]
