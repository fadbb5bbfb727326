"""Which conversation is this? How a client's history is found again in the ledgers that are known.

Clients resend everything and mostly send no id, and what they echo is not what they got. So content decides: a
request is walked down the tree, message by message, and the longest known prefix wins. A turn is recognised by what
was *seen* of it, in any form the client may echo; where two answers look alike the newest one wins. Only where a
client rewrote, pruned or shortened its history are the newest turns of ours that it still holds used as anchors, and
the rest aligned by loose identity.

The law: **call ids repeat across runs and turns, so one alone is never a key**; what an anchor finds is a candidate,
and the content decides.

What this module does not do: it reads no store (candidates come in as loaded ledgers) and knows nothing of frames.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from hashlib import sha256
from itertools import chain, takewhile

import msgspec

from proxy.stack.ledger import (
    JOINT,
    PAUSED,
    Entry,
    Kind,
    Ledger,
    Round,
    Thread,
    calls_key,
    echoes,
    forms,
    is_silent,
    message_id,
    sealed_in,
    seen_calls,
    seen_identity,
    seen_text,
)
from proxy.stack.transcript import Call, Message, Request, identity_of

RETRY_MS = 600_000
"""How long an identical opening request joins the conversation it opened."""
TELLING = 24
"""Characters an answer without calls must have to identify a conversation by itself."""
ATTEMPTS = 16
"""How many of the newest answers to one request are looked at: clients retry, they do not go back to the hundredth
answer."""
NOTE = 300
"""Characters of the note that a client leaves where it pruned an output."""
PRUNING = re.compile(
    r"cleared|removed|truncated|omitted|pruned|elided|compacted|no longer|unchanged since", re.IGNORECASE
)
"""How such notes are worded (opencode: "[Old tool result content cleared]")."""
BRACKETED = re.compile(r"\s*(\[[^\[\]]*\]|<[^<>]*>)\s*")
"""How a note stands where no words are its own. One in plain words may be what a tool said."""
PROMPT = 8
"""Characters a text argument must have to be taken for a prompt: a pending call of the same tenant says the rest."""
NEWEST = 48
"""How many of a request's newest turns are used as anchors."""
LIKENESS = 2
"""What a request has of a thread at most: its system text, and its tools."""


# ------------------------------------------------------------------------------------------------------------ anchors
def anchors_to_find(request: Request) -> Iterator[tuple[str, ...]]:
    """Keys under which the conversation of this request may be known, in groups, the most telling first: mostly the
    first group is enough, and the others are not made."""
    if not any(m.role == "assistant" for m in request.messages):
        yield (retry_anchor(request),)
        return
    yield (_first_turn_anchor(request.messages),)
    turns = [m for m in request.messages if m.role == "assistant"]
    yield tuple(dict.fromkeys(chain.from_iterable(map(_turn_anchors, reversed(turns[-NEWEST:])))))
    yield (_opened_anchor(request.messages),)


def anchors_at_opening(request: Request) -> tuple[str, ...]:
    """Keys to store when a conversation opens: for its retries, and for a follow-up whose answer was never stored."""
    if any(m.role == "assistant" for m in request.messages):
        return (_first_turn_anchor(request.messages), _opened_anchor(request.messages))
    return (retry_anchor(request), _opened_anchor(request.messages))


def anchors_of_turn(messages: Sequence[Message], rounds: Sequence[Round]) -> tuple[str, ...]:
    """Keys to store for a turn that ended: `messages` are the client's before it."""
    if not rounds:
        return ()
    text, calls = seen_text(rounds), seen_calls(rounds)
    kept = _turn_anchors(Message("assistant", b"", seen_identity(rounds), text, calls))
    if any(m.role == "assistant" for m in messages):
        return kept
    opened = [_opening_key(messages, identity) for identity in sorted(forms(rounds))]
    return (*opened, *kept)


def prompts_in(rounds: Sequence[Round]) -> tuple[str, ...]:
    """Keys of what a turn's client calls may delegate: every text argument long enough to be a prompt. A subagent's
    first message is the prompt, character for character (CLIENTS section 5)."""
    texts = (value for call in seen_calls(rounds) for value in _texts(call))
    return tuple(dict.fromkeys(map(prompt_anchor, texts)))


def prompt_anchor(text: str) -> str:
    return "q" + sha256(text.strip().encode()).hexdigest()[:32]


def _texts(call: Call) -> list[str]:
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return []
    values = arguments.values() if isinstance(arguments, dict) else ()
    return [v for v in values if isinstance(v, str) and len(v.strip()) >= PROMPT]


def answer_anchor(answer: str) -> str:
    """Of a turn, by the id the provider gave its answer."""
    return "i" + sha256(answer.encode()).hexdigest()[:32]


def delegated_at(ledger: Ledger, text: str) -> str:
    """The newest turn with a call that delegates `text` and has no result yet; empty when there is none."""
    key = prompt_anchor(text)
    for turn in reversed(tuple(ledger.rounds)[-NEWEST:]):
        if turn not in ledger.has_child and key in prompts_in(ledger.rounds[turn]):
            return turn
    return ""


def delegating_call(rounds: Sequence[Round], text: str) -> Call | None:
    """The call of a turn that delegates `text`."""
    key = prompt_anchor(text)
    return next((call for call in seen_calls(rounds) if key in map(prompt_anchor, _texts(call))), None)


def retry_anchor(request: Request) -> str:
    """The body, byte for byte."""
    return "r" + request.digest[:32]


def _first_turn_anchor(messages: Sequence[Message]) -> str:
    """The chain up to and including the first assistant turn."""
    at = next(i for i, m in enumerate(messages) if m.role == "assistant")
    return _opening_key(messages[:at], messages[at].identity)


def _opened_anchor(messages: Sequence[Message]) -> str:
    """The chain before the first assistant turn: many conversations may open alike, so it is asked last."""
    at = next((i for i, m in enumerate(messages) if m.role == "assistant"), len(messages))
    return _opening_key(messages[:at], "")


def _opening_key(before: Sequence[Message], first_answer: str) -> str:
    whole = "\n".join([*(m.identity for m in before), first_answer])
    return "p" + sha256(whole.encode()).hexdigest()[:32]


def _turn_anchors(turn: Message) -> tuple[str, ...]:
    keys = tuple("c" + sha256(f"{c.id}\n{c.name}".encode()).hexdigest()[:32] for c in turn.calls if c.id)
    return (*keys, "s" + turn.identity) if len(turn.text.strip()) >= TELLING else keys


# -------------------------------------------------------------------------------------------------------------- match
class How(StrEnum):
    """How a request relates to what is known."""

    NEW = "new"
    CONTINUED = "continued"
    RETRIED = "retried"
    BRANCHED = "branched"
    ALIGNED = "aligned"
    """The client rewrote or shortened its history; produced turns in it say where it goes on."""
    COMPACTED = "compacted"
    """Only the session the client names says so."""


class Match(msgspec.Struct, frozen=True):
    """Where a request stands. `path` are the known entries of its first messages, in order; `aliases` the stored
    entries that later messages are another form of, by position; `adopts` the entry whose state goes on."""

    how: How
    path: tuple[Entry, ...] = ()
    aliases: tuple[str, ...] = ()
    adopts: str = ""

    @property
    def depth(self) -> int:
        return len(self.path)


def walk(ledger: Ledger, messages: Sequence[Message]) -> tuple[Entry, ...]:
    """The longest known prefix of `messages`, as entries. Overlays hang beside and are never walked. A turn that said
    nothing, and that the client does not give back, stands in the place of the message it answered."""
    path: list[Entry] = []
    parent = ""
    entries, by_identity = ledger.entries, ledger.by_identity
    for at, message in enumerate(messages):
        if at < len(path):
            continue  # another piece of the turn that is known by now
        ids = by_identity.get((parent, message.identity), ())
        if len(ids) == 1:  # nearly always; a whole history is walked with every request
            parent = ids[0]
            path.append(entries[parent])
            continue
        found = _children(ledger, parent, message)
        unsaid = _silent_under(ledger, parent) if path and not found and message.role != "assistant" else None
        if unsaid is not None:
            path[-1], parent = unsaid, unsaid.id
            found = _children(ledger, parent, message)
        if not found:
            turn, pieces = _paused_before(ledger, parent, message), 1
            if turn is None:
                turn, pieces = _in_pieces(ledger, parent, messages[at:])
            if turn is None:
                break
            path += [turn] * pieces
            parent = turn.id
            continue
        entry = found[0] if len(found) == 1 else _deeper(ledger, found, messages[at + 1 :])
        path.append(entry)
        parent = entry.id
    return tuple(path)


def _children(ledger: Ledger, parent: str, message: Message) -> list[Entry]:
    """Entries under `parent` that `message` may be, the newest first."""
    ids = ledger.by_identity.get((parent, message.identity), [])
    if len(ids) == 1:
        return [ledger.entries[ids[0]]]
    ids = ids[-ATTEMPTS:]
    if not ids and message.role == "assistant":
        tried = ledger.turns_under.get(parent, [])[-ATTEMPTS:]
        ids = [t for t in tried if echoes(ledger.rounds.get(t, ()), message)]
    return [ledger.entries[i] for i in reversed(ids)]


def _silent_under(ledger: Ledger, parent: str) -> Entry | None:
    """The newest answer to the request that ended with `parent`, where there was nothing in it for the client."""
    turns = ledger.turns_under.get(parent, ())
    return ledger.entries[turns[-1]] if turns and is_silent(ledger.rounds.get(turns[-1], ())) else None


def _paused_before(ledger: Ledger, parent: str, message: Message) -> Entry | None:
    """The turn that `message` ends with, where it begins with one or more under `parent` that paused: what these said
    and what they went on with may come back as one message."""
    waiting = [(turn, ledger.rounds.get(turn, ())) for turn in ledger.turns_under.get(parent, [])[-ATTEMPTS:]]
    while waiting and message.role == "assistant":
        turn, rounds = waiting.pop()
        if len({r.turn for r in rounds}) > 1 and (message.identity in forms(rounds) or echoes(rounds, message)):
            return ledger.entries[turn]
        if rounds and rounds[-1].spoken.finish == PAUSED:
            behind = ledger.turns_under.get(turn, [])[-ATTEMPTS:]
            waiting += [(later, (*rounds, *ledger.rounds.get(later, ()))) for later in behind]
    return None


def _in_pieces(ledger: Ledger, parent: str, messages: Sequence[Message]) -> tuple[Entry | None, int]:
    """The turn under `parent` that `messages` begin with in several pieces, and how many: a client gives a compaction
    back as a message of its own, between what was said before and behind it. None and 0 where there is none."""
    run = list(takewhile(lambda m: m.role == "assistant", messages))
    for turn in reversed(ledger.turns_under.get(parent, [])[-ATTEMPTS:] if len(run) > 1 else []):
        rounds = ledger.rounds.get(turn, ())
        if not (sealed := sealed_in(rounds)):
            continue
        for pieces in range(len(run), 1, -1):
            text = JOINT.join(m.text for m in run[:pieces] if m.text.strip())
            calls = tuple(call for m in run[:pieces] for call in m.calls)
            whole = Message("assistant", b"", identity_of("assistant", text, calls), text, calls)
            held = sealed <= {m.identity for m in run[:pieces]}
            if held and (whole.identity in forms(rounds) or echoes(rounds, whole)):
                return ledger.entries[turn], pieces
    return None, 0


def _deeper(ledger: Ledger, candidates: list[Entry], rest: Sequence[Message]) -> Entry:
    """Of entries that look alike, the one under which most of what follows is known; among equals the newest."""
    alive = [(entry, [entry.id]) for entry in candidates]
    for message in rest:
        further = ((entry, [c.id for tip in tips for c in _children(ledger, tip, message)]) for entry, tips in alive)
        held = [(entry, tips) for entry, tips in further if tips]
        alive = held or alive
        if len(held) < 2:
            break
    return alive[0][0]


def match(ledger: Ledger, request: Request, path: tuple[Entry, ...] | None = None) -> Match:
    """Where `request` stands in this conversation; NEW when nothing of it is known here. `path` is what it was walked
    to, where that is known."""
    messages = request.messages
    path = walk(ledger, messages) if path is None else path
    known_turn = any(e.kind is Kind.TURN or (e.message and e.message.role == "assistant") for e in path)
    if len(path) == len(messages) and messages:
        return (
            Match(How.RETRIED, path) if known_turn or path[-1].id in ledger.turns_under else Match(How.CONTINUED, path)
        )
    if aligned := _align(ledger, request, path):
        return aligned
    if not known_turn:
        return Match(How.NEW)
    return Match(How.BRANCHED if _continued_elsewhere(ledger, path[-1]) else How.CONTINUED, path)


def _continued_elsewhere(ledger: Ledger, tip: Entry) -> bool:
    return tip.id in ledger.has_child


def _align(ledger: Ledger, request: Request, path: tuple[Entry, ...]) -> Match | None:
    """The rest of a rewritten history, matched loosely against the path of the newest produced turn that it still
    holds.

    A thread with tools does not go on from an answer that was given without any: that was a summary, or a title. And
    words alone say little, many agents greet alike: where nothing else is known, the loop must be the same.
    """
    rest = request.messages[len(path) :]
    turns = ((t, m) for m in reversed(rest) if m.role == "assistant" and (t := _produced(ledger, m)))
    if (newest := next(turns, None)) is None or not _same_kind(ledger, newest[0], request):
        return None
    anchor, echo = newest
    walked = {p.id for p in path}
    stored = [e for e in ledger.path(anchor.id) if e.id not in walked]
    places = _Places(ledger, stored)
    aliases: list[str] = []
    at = 0
    for message in rest:
        found = next((i for i in places.of(message, at) if _alike(ledger, stored[i], message)), None)
        aliases.append(stored[found].id if found is not None else "")
        at = at if found is None else found + 1
    known = len(path) + sum(map(bool, aliases))
    if known == 1 and not echo.calls and _likeness(ledger, anchor, request) < LIKENESS:
        return None
    return Match(How.ALIGNED, path, tuple(aliases), anchor.id)


class _Places:
    """Where in a stored path a message may stand in any form, so that not every message is held against every entry: a
    history of a thousand messages that went another way would take seconds, with every request."""

    def __init__(self, ledger: Ledger, stored: Sequence[Entry]) -> None:
        self._alike: defaultdict[str, list[int]] = defaultdict(list)
        self._calls: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        self._results: defaultdict[str, list[int]] = defaultdict(list)
        self._partial: list[int] = []
        for at, entry in enumerate(stored):
            if entry.kind is Kind.TURN:
                self._turn(at, ledger.rounds.get(entry.id, ()))
            elif entry.message is not None:
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


def _likeness(ledger: Ledger, tip: Entry, request: Request) -> int:
    """How much of the thread of `tip` a request has: from 0 to `LIKENESS`."""
    thread = ledger.threads.get(tip.thread)
    if thread is None:
        return 0
    return (thread.system_hash == request.system_hash) + (thread.tool_names == request.tool_names)


def _produced(ledger: Ledger, message: Message) -> Entry | None:
    """The newest turn of ours that `message` echoes, wherever it stands. Short answers without calls identify
    nothing."""
    if not message.calls and len(message.text.strip()) < TELLING:
        return None
    exact = ledger.produced.get(message.identity, [])[-1:]
    alike = ledger.produced.get(calls_key(message.calls), [])[-ATTEMPTS:] if message.calls else []
    for turn in (*exact, *reversed(alike)):
        if turn in exact or echoes(ledger.rounds[turn], message):
            return ledger.entries[turn]
    return None


def _alike(ledger: Ledger, stored: Entry, message: Message) -> bool:
    """Loose identity: an entry and another form of it."""
    if stored.kind is Kind.TURN:
        rounds = ledger.rounds.get(stored.id, ())
        return message.identity in forms(rounds) or echoes(rounds, message)
    if stored.message is None or stored.message.role != message.role:
        return False
    if stored.message.identity == message.identity:
        return True
    same_call = bool(message.answers) and stored.message.answers == message.answers
    return same_call and pruned(stored.message.text, message.text)


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


def retry_of(ledger: Ledger, request: Request, now: int) -> Match | None:
    """An opening request repeated byte for byte, while its conversation waits for the follow-up."""
    path = walk(ledger, request.messages)
    if len(path) != len(request.messages) or not path:
        return None
    asked = ledger.turns_under.get(path[-1].id, [])[-ATTEMPTS:] or [path[-1].id]
    if any(at in ledger.has_child for at in asked) or now - path[0].created > RETRY_MS:
        return None
    return Match(How.RETRIED, path)


def unanswered(ledger: Ledger, request: Request) -> Match | None:
    """An opening that nothing whole is kept behind, where `request` goes on from an answer to it: the process that gave
    the answer was killed before it was on disk. Many open alike, so the loop must be the same."""
    path = walk(ledger, request.messages)
    behind = request.messages[len(path) :]
    if not path or not behind or behind[0].role != "assistant":
        return None
    tip = path[-1]
    turns = ledger.turns_under.get(tip.id, ())
    if tip.id in ledger.has_child and not turns:
        return None
    if any(done.spoken.complete for turn in turns for done in ledger.rounds.get(turn, ())):
        return None
    return Match(How.CONTINUED, path) if _likeness(ledger, tip, request) == LIKENESS else None


def best(candidates: Iterable[Ledger], request: Request) -> tuple[Ledger, Match] | None:
    """The conversation that holds most of `request` up to its last turn; among equals the one whose thread is most like
    it, then the one that spoke last."""
    walked = [(ledger, walk(ledger, request.messages)) for ledger in candidates]
    last = _last_turn(request)
    held = [(ledger, path) for ledger, path in walked if len(path) > last]  # no other one can hold more
    matches = [(ledger, match(ledger, request, path)) for ledger, path in held or walked]
    known = [(ledger, found) for ledger, found in matches if found.how is not How.NEW]
    if len(known) < 2:
        return known[0] if known else None
    return max(reversed(known), key=lambda one: _merit(one[0], one[1], request))


def covers(found: Match, request: Request) -> bool:
    """Whether everything up to the last turn of `request` is held: no other conversation can hold more of it."""
    last = _last_turn(request)
    return found.depth > last


def _last_turn(request: Request) -> int:
    """The place of its last answer; -1 where it has none."""
    messages = request.messages
    return next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant"), -1)


def _merit(ledger: Ledger, found: Match, request: Request) -> tuple[int, int, int]:
    last = _last_turn(request)
    held = [e.id for e in found.path[: last + 1]] + [a for a in found.aliases[: max(0, last + 1 - found.depth)] if a]
    newest = max((r.created for i in held for r in ledger.rounds.get(i, ())), default=0)
    strict = min(found.depth, last + 1)
    like = _likeness(ledger, ledger.entries[found.path[-1].id if found.path else found.adopts], request)
    return (len(held) * 2 + strict, like, newest)


# -------------------------------------------------------------------------------------------------------------- grow
def grown(ledger: Ledger, request: Request, found: Match, thread: str, now: int) -> tuple[Entry, ...]:
    """The new entries that `request` adds behind `found`, oldest first. The caller adds them."""
    parent = found.path[-1].id if found.path else ""
    made: list[Entry] = []
    for at, message in enumerate(request.messages[found.depth :]):
        alias = found.aliases[at] if at < len(found.aliases) else ""
        adopts = found.adopts if at == 0 else ""
        entry = Entry(
            message_id(parent, message.identity, ledger.conversation.id, adopts),
            parent,
            ledger.seq + at,
            Kind.MESSAGE,
            thread,
            message,
            adopts=adopts,
            alias=alias,
            created=now,
        )
        made.append(entry)
        parent = entry.id
    return tuple(made)


# ------------------------------------------------------------------------------------------------------ kind of request
class Part(StrEnum):
    """What a matched request is to the thread it matched."""

    MAIN = "main"
    """The thread goes on, or a branch of it."""
    FORK = "fork"
    """A loop of its own that starts with this history: a conversation of its own whose parent is that point."""
    SIDE = "side"
    """A question about the history, answered beside the thread."""


def part_of(request: Request, thread: Thread, *, named: bool) -> Part:
    """`named`: the client names the session, and it is this thread's.

    Another system text and another set of tools: a side request. Fewer of the thread's tools: a fork. A request
    without tools under the thread's own system text goes on on its line, and so does one with all its tools, whatever
    its system text. A client that names its sessions gives a delegated one a name of its own; one that offers tools
    under this name only changed its mode.
    """
    theirs, ours = set(request.tool_names), set(thread.tool_names)
    if named and theirs:
        return Part.MAIN
    if theirs != ours and request.system_hash != thread.system_hash:
        return Part.SIDE
    return Part.FORK if theirs and theirs < ours else Part.MAIN


def compacted(ledger: Ledger, request: Request) -> Match | None:
    """Under a session hint that names one thread: a request with that thread's system text or tools that matches
    nothing goes on where the thread stood. The client compacted its history. Where the thread stands at this very
    request it is asked again, in other bytes."""
    tip = ledger.newest_tip()
    thread = ledger.threads.get(tip.thread) if tip else None
    if tip is None or thread is None or not thread.tool_names or not ledger.rounds:
        return None
    if thread.tool_names != request.tool_names and thread.system_hash != request.system_hash:
        return None
    path = walk(ledger, request.messages)
    asked = tip.parent if tip.kind is Kind.TURN else tip.id
    if path and len(path) == len(request.messages) and path[-1].id == asked:
        return Match(How.RETRIED, path)
    return Match(How.COMPACTED, adopts=tip.id)
