"""Walks on where no identity is known: messages of a history that are the same in other words (`loose_forms`).

Everything that an identity finds is found by it first. The call ids of a client that makes them anew in each request
are told in terms of the stored ones, so that a result stands behind its call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from types import MappingProxyType
from typing import NamedTuple

from proxy.core.ledger import (
    ROUND_SEPARATOR,
    Call,
    Entry,
    EntryKind,
    Ledger,
    Message,
    calls_key,
    is_echoed_by,
    visible_calls,
    visible_text,
)
from proxy.core.matching.loose_forms import count_told_results, have_same_ids, same_answer, same_text, same_told_result
from proxy.core.matching.rewritten_history import is_pruned_result
from proxy.core.matching.walk_history import newest_silent_turn

MAX_CANDIDATES = 16
"""Paths that are followed at once, and children of one entry that are compared."""
MAX_PIECES = 8
"""Messages in a row that may be pieces of one answer."""
MIN_KNOWN_SHARE = 0.8
"""Share of the answers of a history that must be known where the call ids are others: another run of the same agent
begins with the same words and calls."""


NAMELESS = Message("assistant", b"", "")
"""Stands for a piece of an answer, which no identity finds."""
_SAME_IDS: Mapping[str, str] = MappingProxyType({})


class LooseWalk(NamedTuple):
    """`path` are the known entries of a history's first messages, in order; `call_ids` are the stored ids of its calls
    by those of the client, where it made them anew."""

    path: tuple[Entry, ...]
    call_ids: Mapping[str, str]


class _Step(NamedTuple):
    """A way through the ledger that ends at `entry`, or begins where that is None. `call_ids` are those of the newest
    answer (see `LooseWalk`); `is_loose`: no identity found the entry; `has_new_ids`: a call on the way has another
    id."""

    entry: Entry | None
    before: _Step | None
    depth: int
    call_ids: Mapping[str, str] = _SAME_IDS
    is_loose: bool = False
    has_new_ids: bool = False
    identity: str = ""

    @property
    def tip(self) -> str:
        return self.entry.id if self.entry else ""

    def to(self, entry: Entry, message: Message, ids: Mapping[str, str] | None = None, *, loose: bool = True) -> _Step:
        """The next step; `ids` are those of an answer's calls."""
        call_ids = self.call_ids if ids is None else ids
        new = self.has_new_ids or bool(call_ids)
        return _Step(entry, self, self.depth + 1, call_ids, loose, new, message.identity)

    def back(self) -> Iterator[_Step]:
        step: _Step | None = self
        while step is not None:
            yield step
            step = step.before


def walk_loosely(ledger: Ledger, messages: Sequence[Message], path: tuple[Entry, ...]) -> LooseWalk | None:
    """The longest known prefix of `messages` behind `path`, its beginning that is known by identity; None if that is
    all. Of equal ways the newest that goes on furthest wins."""
    start = _Step(path[-1] if path else None, None, len(path))
    steps = [start]
    while steps[0].depth < len(messages):
        at = steps[0].depth
        further = [step for way in steps for step in _steps(ledger, way, messages[at])][:MAX_CANDIDATES]
        if not further:
            joined = (found for way in steps if (found := _step_over_pieces(ledger, way, messages[at:])))
            further = [found for found in [next(joined, None)] if found]
        if not further:
            break
        steps = further
    end = steps[0]
    if end.depth == len(path) or not _is_sure(messages, end):
        return None
    first, *way = reversed(list(end.back()))
    for step in way:  # most clients send the same forms with each request: the walk by identities finds them
        if step.is_loose and not step.has_new_ids and step.entry and step.before and step.identity:
            ledger.remember_form(step.before.tip, step.identity, step.entry.id)
    # a silent turn may stand where the last known message stood
    known = path if first.entry is None else (*path[:-1], first.entry)
    # Steps after an answer share its mapping: to read it again at each of a thousand results takes 35 ms.
    answers = [step for step in way if step.before is None or step.call_ids is not step.before.call_ids]
    call_ids = {theirs: ours for step in answers for theirs, ours in step.call_ids.items()}
    return LooseWalk((*known, *[step.entry for step in way if step.entry]), call_ids)


def _is_sure(messages: Sequence[Message], end: _Step) -> bool:
    if not end.has_new_ids:
        return True
    answers = [at for at, message in enumerate(messages[:-1]) if message.role == "assistant"]
    return sum(at < end.depth for at in answers) >= MIN_KNOWN_SHARE * len(answers)


def _steps(ledger: Ledger, way: _Step, message: Message) -> Iterator[_Step]:
    """The ways on over one message, newest first."""
    ids = ledger.by_identity.get((way.tip, message.identity), ())
    if ids and message.answers not in way.call_ids:
        yield from (way.to(ledger.entries[i], message, loose=False) for i in ids[: -MAX_CANDIDATES - 1 : -1])
        return
    if message.role == "assistant":
        yield from _steps_over_answer(ledger, way, message)
        return
    found = [
        way.to(entry, message)
        for entry in _message_children(ledger, way.tip)
        if entry.message and _is_same(entry.message, message, way.call_ids)
    ] or list(_steps_over_told_result(ledger, way, message))
    yield from found
    if not found and way.entry and (silent := newest_silent_turn(ledger, way.tip)):
        replaced = way._replace(entry=silent, is_loose=False, identity="")
        yield from _steps(ledger, replaced, message)


def _steps_over_answer(ledger: Ledger, way: _Step, message: Message) -> Iterator[_Step]:
    is_known = calls_key(message.calls) in ledger.turns_by_echo  # the same call was made more than once: by its id
    found, rewritten = False, []
    for entry, text, calls in _answers_under(ledger, way.tip):
        rounds, ids = ledger.rounds.get(entry.id, ()), _new_ids(message.calls, calls)
        if ids and is_known:
            continue
        if (rounds and is_echoed_by(rounds, message)) or same_answer(text, calls, message):
            found = True
            yield way.to(entry, message, ids)
        # Claude Code 2.1 cuts "cd <its folder> && " off the commands that it sends back: by its words alone, a push
        # or a recall in the same message would be lost.
        elif (
            any(r.spoken.proxy_calls for r in rounds)
            and have_same_ids(calls, message.calls)
            and (not message.text.strip() or same_text(text, message.text))
        ):
            rewritten.append(entry)
    if not found and len(rewritten) == 1:  # of several answers under the same ids, the ids tell none
        yield way.to(rewritten[0], message, _SAME_IDS)


def _steps_over_told_result(ledger: Ledger, way: _Step, message: Message) -> Iterator[_Step]:
    """The way over results that a user's message tells as text, or that it told before under other ids."""
    if message.role != "user" or not _follows_calls(ledger, way.tip):
        return
    if last := _last_told_result(ledger, way.tip, message):
        yield way.to(last, message)
        return
    for entry in _message_children(ledger, way.tip):
        if entry.message and entry.message.role == "user" and same_told_result(entry.message.text, message.text):
            yield way.to(entry, message)


def _follows_calls(ledger: Ledger, tip: str) -> bool:
    """Whether nothing but messages of the user stands between the calls of an answer and what follows `tip`."""
    for _ in range(MAX_CANDIDATES):
        entry = ledger.entries.get(tip)
        if entry is None or entry.message is None or entry.message.role != "user":
            break
        tip = entry.parent
    return bool(visible_calls(ledger.rounds.get(tip, ())))


def _step_over_pieces(ledger: Ledger, way: _Step, messages: Sequence[Message]) -> _Step | None:
    """The way over one answer that the client tells in several messages in a row."""
    run = list(takewhile(lambda m: m.role == "assistant", messages[:MAX_PIECES]))
    for entry, text, calls in _answers_under(ledger, way.tip) if len(run) > 1 else ():
        for pieces in range(len(run), 1, -1):
            joined_text = ROUND_SEPARATOR.join(m.text for m in run[:pieces] if m.text.strip())
            made = tuple(call for m in run[:pieces] for call in m.calls)
            if _new_ids(made, calls) and calls_key(made) in ledger.turns_by_echo:
                continue
            if same_answer(text, calls, Message("assistant", b"", "", joined_text, made)):
                step, ids = way, _new_ids(made, calls)
                for _ in range(pieces):
                    step = step.to(entry, NAMELESS, ids)
                return step
    return None


def _answers_under(ledger: Ledger, parent: str) -> Iterator[tuple[Entry, str, tuple[Call, ...]]]:
    """The answers to one request, newest first, each with the text and the calls that the client saw."""
    for turn in reversed(ledger.turns_by_parent.get(parent, ())[-MAX_CANDIDATES:]):
        if rounds := ledger.rounds.get(turn, ()):
            yield ledger.entries[turn], visible_text(rounds), visible_calls(rounds)
    for entry in _message_children(ledger, parent):
        if entry.message is not None and entry.message.role == "assistant":
            yield entry, entry.message.text, entry.message.calls


def _message_children(ledger: Ledger, parent: str) -> Iterator[Entry]:
    children = ledger.children_of(parent)[: -MAX_CANDIDATES - 1 : -1]
    return (entry for child in children if (entry := ledger.entries[child]).kind is EntryKind.MESSAGE)


def _new_ids(theirs: Sequence[Call], ours: Sequence[Call]) -> Mapping[str, str]:
    """The stored ids of calls by those of the client, where they are others."""
    if len(theirs) != len(ours):
        return _SAME_IDS
    return {t.id: o.id for t, o in zip(theirs, ours, strict=True) if t.id != o.id and t.id and o.id}


def _is_same(stored: Message, message: Message, call_ids: Mapping[str, str]) -> bool:
    if stored.role != message.role or stored.answers != call_ids.get(message.answers, message.answers):
        return False
    if same_text(stored.text, message.text):
        return bool(message.text.strip() or message.answers)
    return message.answers in call_ids and is_pruned_result(stored, message)


def _last_told_result(ledger: Ledger, parent: str, message: Message) -> Entry | None:
    """The last of the results behind `parent` that a user's message tells as text."""
    chain: list[Entry] = []
    while following := next((e for e in _message_children(ledger, parent) if e.message and e.message.answers), None):
        chain.append(following)
        parent = following.id
    count = count_told_results([entry.message.text for entry in chain if entry.message], message.text)
    return chain[count - 1] if count else None
