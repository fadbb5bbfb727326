"""Decides how a request relates to a known conversation.

Clients resend their whole history, mostly without an id, and their echo differs from what they received. So content
decides: the request is walked down the ledger's tree, and the longest known prefix wins (`walk_history`). If the client
rewrote, pruned or shortened its history, the newest turn of ours that it still holds says where it continues
(`rewritten_history`). A request of which nothing is new is a retry (`recognize_retry`); an edited one continues or
branches before the edit. A call id alone is never a key, because ids repeat across runs and turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import msgspec

from proxy.core.ledger import Entry, EntryKind, Ledger, Message, Request, Thread, message_id
from proxy.core.matching.loose_walk import walk_loosely
from proxy.core.matching.match_result import Match, MatchKind
from proxy.core.matching.recognize_retry import is_retry, match_newest_retry
from proxy.core.matching.rewritten_history import MAX_THREAD_SIMILARITY, align, thread_similarity
from proxy.core.matching.walk_history import walk


# -------------------------------------------------------------------------------------------------------------- match
def match(ledger: Ledger, request: Request, path: tuple[Entry, ...] | None = None) -> Match:
    """How `request` relates to this conversation; NEW if it is unknown here. `path` is the result of `walk`, if
    known."""
    messages = request.messages
    path = walk(ledger, messages) if path is None else path
    if len(path) <= _last_turn(request) and (loose := walk_loosely(ledger, messages, path)) is not None:
        found = _match_behind(ledger, request, loose.path)
        return msgspec.structs.replace(found, exact=len(path), call_ids=loose.call_ids)
    return _match_behind(ledger, request, path)


def _match_behind(ledger: Ledger, request: Request, path: tuple[Entry, ...]) -> Match:
    """The match of a request whose first messages are the entries of `path`."""
    messages = request.messages
    known_turn = any(e.kind is EntryKind.TURN or (e.message and e.message.role == "assistant") for e in path)
    shares_only_opening = known_turn and _shares_only_opening(ledger, path, messages[len(path) :])
    if len(path) == len(messages) and messages and not shares_only_opening:
        sent_before = is_retry(ledger, path, known_turn=known_turn)
        return Match(MatchKind.RETRIED if sent_before else MatchKind.CONTINUED, path)
    if aligned := align(ledger, request, path):
        return Match(MatchKind.ALIGNED, aligned.path, aligned.aliases, aligned.adopts)
    if shares_only_opening or not known_turn:
        return Match(MatchKind.NEW)
    if path[-1].id not in ledger.parent_ids:
        return Match(MatchKind.CONTINUED, path)
    return Match(MatchKind.BRANCHED, path, adopts=_state_before_rewrite(ledger, path))


def _state_before_rewrite(ledger: Ledger, path: Sequence[Entry]) -> str:
    """The entry whose state continues behind `path`, if `path` ends among rewritten forms: their state is that of the
    newest turn of the rewritten history, and this request goes back to before that. Empty for any other path."""
    state = ""
    while form := _newest_rewritten_form(path):
        state, path = form, ledger.path(form)
    return state


def _newest_rewritten_form(path: Sequence[Entry]) -> str:
    """The original of the newest rewritten form at the end of `path`; empty if the path continues from the turn with
    which the forms were aligned, or has no forms."""
    forms: list[str] = []
    for entry in reversed(path):
        if entry.kind is EntryKind.TURN:
            break
        forms += [entry.alias] if entry.alias else []
        if entry.adopts:
            return forms[0] if forms and entry.adopts not in forms else ""
    return ""


def _shares_only_opening(ledger: Ledger, path: tuple[Entry, ...], rest: Sequence[Message]) -> bool:
    """Whether only the opening is shared with which an application begins all its sessions: examples or a greeting,
    without calls and turns of ours. A session that the client names shares more."""
    if ledger.conversation.hint or any(
        e.kind is EntryKind.TURN or e.adopts or (e.message and e.message.calls) for e in path
    ):
        return False
    if rest:
        return rest[0].role == "user" and path[-1].id in ledger.parent_ids
    return any(turn in ledger.parent_ids for turn in ledger.turns_by_parent.get(path[-1].id, ()))


def match_unanswered_opening(ledger: Ledger, request: Request) -> Match | None:
    """An opening without a complete stored answer that `request` continues: the process ended before the answer was on
    disk. Many conversations open alike, so system text and tools must be the same."""
    path = walk(ledger, request.messages)
    rest = request.messages[len(path) :]
    if not path or not rest or rest[0].role != "assistant":
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
    """The conversation that holds most of `request` up to its last turn; among equals the one with the most similar
    thread, then the one that answered last."""
    walked = [(ledger, walk(ledger, request.messages)) for ledger in candidates]
    last = _last_turn(request)
    complete = [(ledger, path) for ledger, path in walked if len(path) > last]  # no other one can hold more
    matches = [(ledger, match(ledger, request, path)) for ledger, path in complete or walked]
    matching = [(ledger, found) for ledger, found in matches if found.kind is not MatchKind.NEW]
    if len(matching) > 1:
        matching = _without_siblings(matching)
    if len(matching) < 2:
        return matching[0] if matching else None
    return max(reversed(matching), key=lambda pair: _match_score(pair[0], pair[1], request))


def _without_siblings(matching: list[tuple[Ledger, Match]]) -> list[tuple[Ledger, Match]]:
    """Without forks of which the request holds only the history that they took over: it left their parent as they did,
    and resembles them most."""
    own = [(ledger, found) for ledger, found in matching if not _leaves_before_first_turn(ledger, found)]
    return own or [pair for pair in matching if not pair[0].conversation.parent] or matching


def _leaves_before_first_turn(ledger: Ledger, found: Match) -> bool:
    """Whether the request leaves the known history among messages that came with the first request."""
    if found.kind is MatchKind.RETRIED or found.aliases or not found.path or found.path[-1].id not in ledger.parent_ids:
        return False
    return not any(entry.kind is EntryKind.TURN or entry.adopts for entry in found.path)


def covers(found: Match, request: Request) -> bool:
    """Whether everything up to the last turn of `request` is known: no other conversation can hold more of it."""
    last = _last_turn(request)
    return found.depth > last and found.exact < 0


def _last_turn(request: Request) -> int:
    """Index of the last assistant message; -1 if there is none."""
    messages = request.messages
    return next((index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "assistant"), -1)


def _match_score(ledger: Ledger, found: Match, request: Request) -> tuple[int, int, int]:
    last = _last_turn(request)
    known = [e.id for e in found.path[: last + 1]] + [a for a in found.aliases[: max(0, last + 1 - found.depth)] if a]
    newest = max((r.created for i in known for r in ledger.rounds.get(i, ())), default=0)
    exact = min(found.depth if found.exact < 0 else found.exact, last + 1)
    similarity = thread_similarity(ledger, ledger.entries[found.newest_known or found.adopts], request)
    return (len(known) * 2 + exact, similarity, newest)


# -------------------------------------------------------------------------------------------------------------- grow
def new_entries(ledger: Ledger, request: Request, found: Match, thread: str, now: int) -> tuple[Entry, ...]:
    """The entries that `request` adds behind `found`, oldest first. The caller adds them to the ledger."""
    parent = found.newest_known
    entries: list[Entry] = []
    for index, message in enumerate(request.messages[found.depth :]):
        alias = found.aliases[index] if index < len(found.aliases) else ""
        adopts = found.adopts if index == 0 else ""
        entry = Entry(
            message_id(parent, message.identity, ledger.conversation.id, adopts),
            parent,
            ledger.next_seq + index,
            EntryKind.MESSAGE,
            thread,
            message,
            adopts=adopts,
            alias=alias,
            created=now,
        )
        entries.append(entry)
        parent = entry.id
    return tuple(entries)


# ------------------------------------------------------------------------------------------------------ kind of request
def with_stored_call_ids(request: Request, found: Match, with_call_id: Callable[[Message, str], Message]) -> Request:
    """The request as its client would have sent it with the call ids that it was given: the results behind the known
    history answer the stored calls. `with_call_id` is the same result of another call."""
    if not found.call_ids:
        return request
    known, new = request.messages[: found.depth], request.messages[found.depth :]
    renamed = (with_call_id(m, ours) if (ours := found.call_ids.get(m.answers)) else m for m in new)
    return msgspec.structs.replace(request, messages=(*known, *renamed))


class RequestRole(StrEnum):
    """What a matched request is to its thread."""

    MAIN = "main"
    """The thread continues, or a branch of it."""
    FORK = "fork"
    """Another agent loop starts with this history: a conversation of its own with that parent."""
    SIDE = "side"
    """A question about the history, answered beside the thread."""


def role_of_request(request: Request, thread: Thread, *, named: bool, holds_own_answers: bool = False) -> RequestRole:
    """`named`: the client names the session, and it is this thread's. `holds_own_answers`: the history holds an answer
    that was given under the system text or the tools of this request.

    Another system text and other tools make a side request, until it holds its own answers: then a loop goes on in
    another mode, or another agent took over. Fewer of the thread's tools make a fork. A request without tools but with
    the thread's system text continues the thread, and so does one with all its tools. Clients that name sessions name
    delegated ones differently, so a named request with tools only changed its mode.
    """
    theirs, ours = set(request.tool_names), set(thread.tool_names)
    if named and theirs:
        return RequestRole.MAIN
    if not _resembles(request, thread) and not holds_own_answers:
        return RequestRole.SIDE
    return RequestRole.FORK if theirs and theirs < ours else RequestRole.MAIN


def _resembles(request: Request, thread: Thread) -> bool:
    return set(request.tool_names) == set(thread.tool_names) or request.system_hash == thread.system_hash


def thread_of_request(ledger: Ledger, request: Request, found: Match) -> Thread | None:
    """The thread that `request` is compared with: that of the newest entry it shares, or an earlier one on that path
    with its system text or its tools. None if it shares nothing."""
    tip = found.adopts or found.newest_known
    newest = ledger.threads.get(ledger.entries[tip].thread) if tip else None
    if newest is None or _resembles(request, newest):
        return newest
    earlier = dict.fromkeys(entry.thread for entry in reversed(ledger.path(tip)))
    known = (ledger.threads.get(thread) for thread in earlier)
    return next((thread for thread in known if thread and _resembles(request, thread)), newest)


def count_unknown_answers(request: Request, found: Match) -> int:
    """Answers that nobody here gave, behind the newest known message of `request`. An answer at its very end is one
    that the client began for the model."""
    aligned = [at for at, alias in enumerate(found.aliases, start=found.depth) if alias]
    behind = request.messages[(aligned[-1] + 1 if aligned else found.depth) : -1]
    return sum(message.role == "assistant" for message in behind)


def match_compacted(ledger: Ledger, request: Request) -> Match | None:
    """For a session hint that names one thread: a request with its system text or tools that matches nothing continues
    it, because the client compacted its history. If it ends at the thread's open request, it is a retry."""
    tip = ledger.newest_tip()
    thread = ledger.threads.get(tip.thread) if tip else None
    if tip is None or thread is None or not thread.tool_names or not ledger.rounds:
        return None
    if thread.tool_names != request.tool_names and thread.system_hash != request.system_hash:
        return None
    return match_newest_retry(ledger, request, tip) or Match(MatchKind.COMPACTED, adopts=tip.id)
