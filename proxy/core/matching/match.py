"""Which conversation is this? How a client's history is found again in the ledgers that are known.

Clients resend everything and mostly send no id, and what they echo is not what they got. So content decides: a
request is walked down the tree, and the longest known prefix wins (`walking`). Only where a client rewrote, pruned or
shortened its history the newest turn of ours that it still holds says where it goes on (`aligning`).

The law: **call ids repeat across runs and turns, so one alone is never a key**; what an anchor finds is a candidate
(`anchors`), and the content decides.

What this module does not do: it reads no store (candidates come in as loaded ledgers) and knows nothing of frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from proxy.core.ledger import Entry, EntryKind, Ledger, Message, Request, Thread, message_id
from proxy.core.matching.rewritten_history import MAX_THREAD_SIMILARITY, align, thread_similarity
from proxy.core.matching.walk_history import MAX_CANDIDATES, walk

RETRY_WINDOW_MS = 600_000
"""How long an identical opening request joins the conversation it opened."""


# -------------------------------------------------------------------------------------------------------------- match
class MatchKind(StrEnum):
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

    kind: MatchKind
    path: tuple[Entry, ...] = ()
    aliases: tuple[str, ...] = ()
    adopts: str = ""

    @property
    def depth(self) -> int:
        return len(self.path)


def match(ledger: Ledger, request: Request, path: tuple[Entry, ...] | None = None) -> Match:
    """Where `request` stands in this conversation; NEW when nothing of it is known here. `path` is what it was walked
    to, where that is known."""
    messages = request.messages
    path = walk(ledger, messages) if path is None else path
    known_turn = any(e.kind is EntryKind.TURN or (e.message and e.message.role == "assistant") for e in path)
    alike = known_turn and _shares_only_opening(ledger, path, messages[len(path) :])
    if len(path) == len(messages) and messages and not alike:
        return (
            Match(MatchKind.RETRIED, path)
            if known_turn or path[-1].id in ledger.turns_by_parent
            else Match(MatchKind.CONTINUED, path)
        )
    if aligned := align(ledger, request, path):
        return Match(MatchKind.ALIGNED, aligned.path, aligned.aliases, aligned.adopts)
    if alike or not known_turn:
        return Match(MatchKind.NEW)
    if path[-1].id not in ledger.parent_ids:
        return Match(MatchKind.CONTINUED, path)
    return Match(MatchKind.BRANCHED, path, adopts=_state_before_rewrite(ledger, path))


def _state_before_rewrite(ledger: Ledger, path: Sequence[Entry]) -> str:
    """The entry whose state goes on behind `path`, where it ends among forms of what was known that a client had
    written anew: their state is that of the newest turn it held then, and this request goes back to before that.
    Empty for any other path."""
    back = ""
    while form := _newest_rewritten_form(path):
        back, path = form, ledger.path(form)
    return back


def _newest_rewritten_form(path: Sequence[Entry]) -> str:
    """What the newest of the forms at the end of `path` is one of; empty where the path goes on from the turn itself
    that they were aligned with, or rests on none."""
    forms: list[str] = []
    for entry in reversed(path):
        if entry.kind is EntryKind.TURN:
            break
        forms += [entry.alias] if entry.alias else []
        if entry.adopts:
            return forms[0] if forms and entry.adopts not in forms else ""
    return ""


def _shares_only_opening(ledger: Ledger, path: tuple[Entry, ...], rest: Sequence[Message]) -> bool:
    """Whether no more is shared than what an application begins all its sessions with, examples or a greeting: answers
    without a call that nobody gave here, behind which the work went on otherwise. A session of a name is one."""
    if ledger.conversation.hint or any(
        e.kind is EntryKind.TURN or e.adopts or (e.message and e.message.calls) for e in path
    ):
        return False
    if rest:
        return rest[0].role == "user" and path[-1].id in ledger.parent_ids
    return any(turn in ledger.parent_ids for turn in ledger.turns_by_parent.get(path[-1].id, ()))


def match_retry(ledger: Ledger, request: Request, now: int) -> Match | None:
    """An opening request that asks the same again, byte for byte, while its conversation waits for the follow-up."""
    path = walk(ledger, request.messages)
    if len(path) != len(request.messages) or not path:
        return None
    asked = ledger.turns_by_parent.get(path[-1].id, [])[-MAX_CANDIDATES:] or [path[-1].id]
    if not ledger.parent_ids.isdisjoint(asked) or now - path[0].created > RETRY_WINDOW_MS:
        return None
    return Match(MatchKind.RETRIED, path)


def match_unanswered_opening(ledger: Ledger, request: Request) -> Match | None:
    """An opening that nothing whole is kept behind, where `request` goes on from an answer to it: the process that gave
    the answer was killed before it was on disk. Many open alike, so the loop must be the same."""
    path = walk(ledger, request.messages)
    behind = request.messages[len(path) :]
    if not path or not behind or behind[0].role != "assistant":
        return None
    tip = path[-1]
    turns = ledger.turns_by_parent.get(tip.id, ())
    if tip.id in ledger.parent_ids and not turns:
        return None
    if any(done.spoken.complete for turn in turns for done in ledger.rounds.get(turn, ())):
        return None
    return (
        Match(MatchKind.CONTINUED, path) if thread_similarity(ledger, tip, request) == MAX_THREAD_SIMILARITY else None
    )


def best_match(candidates: Iterable[Ledger], request: Request) -> tuple[Ledger, Match] | None:
    """The conversation that holds most of `request` up to its last turn; among equals the one whose thread is most like
    it, then the one that spoke last."""
    walked = [(ledger, walk(ledger, request.messages)) for ledger in candidates]
    last = _last_turn(request)
    held = [(ledger, path) for ledger, path in walked if len(path) > last]  # no other one can hold more
    matches = [(ledger, match(ledger, request, path)) for ledger, path in held or walked]
    known = [(ledger, found) for ledger, found in matches if found.kind is not MatchKind.NEW]
    if len(known) < 2:
        return known[0] if known else None
    return max(reversed(known), key=lambda one: _match_score(one[0], one[1], request))


def covers(found: Match, request: Request) -> bool:
    """Whether everything up to the last turn of `request` is held: no other conversation can hold more of it."""
    last = _last_turn(request)
    return found.depth > last


def _last_turn(request: Request) -> int:
    """The place of its last answer; -1 where it has none."""
    messages = request.messages
    return next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant"), -1)


def _match_score(ledger: Ledger, found: Match, request: Request) -> tuple[int, int, int]:
    last = _last_turn(request)
    held = [e.id for e in found.path[: last + 1]] + [a for a in found.aliases[: max(0, last + 1 - found.depth)] if a]
    newest = max((r.created for i in held for r in ledger.rounds.get(i, ())), default=0)
    strict = min(found.depth, last + 1)
    like = thread_similarity(ledger, ledger.entries[found.path[-1].id if found.path else found.adopts], request)
    return (len(held) * 2 + strict, like, newest)


# -------------------------------------------------------------------------------------------------------------- grow
def new_entries(ledger: Ledger, request: Request, found: Match, thread: str, now: int) -> tuple[Entry, ...]:
    """The new entries that `request` adds behind `found`, oldest first. The caller adds them."""
    parent = found.path[-1].id if found.path else ""
    made: list[Entry] = []
    for at, message in enumerate(request.messages[found.depth :]):
        alias = found.aliases[at] if at < len(found.aliases) else ""
        adopts = found.adopts if at == 0 else ""
        entry = Entry(
            message_id(parent, message.identity, ledger.conversation.id, adopts),
            parent,
            ledger.next_seq + at,
            EntryKind.MESSAGE,
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
class RequestRole(StrEnum):
    """What a matched request is to the thread it matched."""

    MAIN = "main"
    """The thread goes on, or a branch of it."""
    FORK = "fork"
    """A loop of its own that starts with this history: a conversation of its own whose parent is that point."""
    SIDE = "side"
    """A question about the history, answered beside the thread."""


def role_of_request(request: Request, thread: Thread, *, named: bool) -> RequestRole:
    """`named`: the client names the session, and it is this thread's.

    Another system text and another set of tools: a side request. Fewer of the thread's tools: a fork. A request
    without tools under the thread's own system text goes on on its line, and so does one with all its tools, whatever
    its system text. A client that names its sessions gives a delegated one a name of its own; one that offers tools
    under this name only changed its mode.
    """
    theirs, ours = set(request.tool_names), set(thread.tool_names)
    if named and theirs:
        return RequestRole.MAIN
    if theirs != ours and request.system_hash != thread.system_hash:
        return RequestRole.SIDE
    return RequestRole.FORK if theirs and theirs < ours else RequestRole.MAIN


def match_compacted(ledger: Ledger, request: Request) -> Match | None:
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
    asked = tip.parent if tip.kind is EntryKind.TURN else tip.id
    if path and len(path) == len(request.messages) and path[-1].id == asked:
        return Match(MatchKind.RETRIED, path)
    return Match(MatchKind.COMPACTED, adopts=tip.id)
