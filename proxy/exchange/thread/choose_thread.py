"""Chooses the thread of a request: the one that goes on, an earlier one on its path, or a new one at a fork."""

from __future__ import annotations

from itertools import takewhile

from msgspec.structs import replace

from proxy.core.frames import BranchState
from proxy.core.ledger import Entry, EntryKind, Ledger, Message, Request, Thread, message_id
from proxy.core.matching import Match, MatchKind, RequestRole, match_history, walk

TWIN_WINDOW_MS = 10_000
"""Replicas know of each other's entries after a tenth of a second, or later where the database is slow or away."""


def thread_id_for(ledger: Ledger, match: Match, request: Request, *, has_replicas: bool) -> str:
    """The thread that goes on, or a new one where the path forks."""
    if match.kind is MatchKind.NEW:
        return "main"
    if match.kind is MatchKind.BRANCHED and match.depth < len(request.messages):
        first = request.messages[match.depth]
        return "b" + message_id(match.path[-1].id, first.identity, ledger.conversation.id)[:8]
    tip = ledger.entries[match.adopts or match.path[-1].id]
    if match.kind is MatchKind.ALIGNED and (other := _find_divergence(ledger, match, request)) is not None:
        return "b" + message_id(other[0], other[1].identity, ledger.conversation.id)[:8]
    attempts = ledger.turns_by_parent.get(tip.parent, ()) if tip.kind is EntryKind.TURN else ()
    # Another answer to the same request has a follow-up already: two clients asked the same.
    if match.kind is MatchKind.CONTINUED and any(t != tip.id and t in ledger.parent_ids for t in attempts):
        return "b" + tip.id[:8]
    if in_mode := _thread_in_mode(ledger, match, request):
        return in_mode
    return (_thread_beside_twin(ledger, tip) if has_replicas else "") or tip.thread


def _thread_beside_twin(ledger: Ledger, tip: Entry) -> str:
    """Two replicas that are asked at once to go on from one answer know nothing of each other and keep its thread. The
    branch that began later takes a name of its own with its next request. Empty where there is no such branch."""
    first = ledger.entries[tip.parent] if tip.kind is EntryKind.TURN and tip.parent else tip
    while (before := ledger.entries.get(first.parent)) is not None and before.kind is not EntryKind.TURN:
        first = before
    if before is None or first.thread != tip.thread or first.alias:
        return ""
    since = first.created - TWIN_WINDOW_MS
    newest = takewhile(lambda entry: entry.created >= since, reversed(ledger.entries.values()))
    began_earlier = any(
        twin.parent == first.parent
        and (twin.kind, twin.thread, twin.alias) == (first.kind, first.thread, "")
        and _began(twin) < _began(first)
        for twin in newest
    )
    return "b" + first.id[:8] if began_earlier else ""


def _began(entry: Entry) -> tuple[int, str]:
    """What all replicas order entries by; in the ledger of each its own ones may come first."""
    return entry.created, entry.id


def _thread_in_mode(ledger: Ledger, match: Match, request: Request) -> str:
    """The thread of a loop that goes on under another system text and other tools: an earlier one on the path with
    these, or a new one. Empty if the thread of the newest entry goes on, as in a session that the client names."""
    tip_thread = thread_of_tip(ledger, match)
    thread = match_history.thread_of_request(ledger, request, match)
    if tip_thread is None or thread is None or ledger.conversation.hint:
        return ""
    if thread is not tip_thread:
        return thread.id
    if match_history.role_of_request(request, thread, named=False) is not RequestRole.SIDE:
        return ""
    return "m" + message_id(request.system_hash, "\n".join(request.tool_names), ledger.conversation.id)[:8]


def head_of(thread: Thread | None) -> tuple[str, str, str]:
    return (thread.system_hash, thread.tools_hash, thread.model) if thread else ("", "", "")


def _find_divergence(ledger: Ledger, match: Match, request: Request) -> tuple[str, Message] | None:
    """Where a rewritten history leaves the known path after the aligned turn: the last common entry, and the first
    different message."""
    aligned = [at for at, alias in enumerate(match.aliases, start=match.depth) if alias]
    behind = request.messages[aligned[-1] + 1 :] if aligned else ()
    path = walk(ledger, behind, match.adopts)
    tip = path[-1].id if path else match.adopts
    return (tip, behind[len(path)]) if len(path) < len(behind) and tip in ledger.parent_ids else None


def thread_of_tip(ledger: Ledger, match: Match) -> Thread | None:
    tip = match.adopts or match.newest_known
    return ledger.threads.get(ledger.entries[tip].thread) if tip else None


def changed_thread(known: Thread | None, thread: str, request: Request, model: str) -> Thread | None:
    """The thread as this request shows it, if that is new. A request without tools removes none."""
    names = request.tool_names or (known.tool_names if known else ())
    now = Thread(thread, request.system_hash, names, request.tools_hash, model)
    return None if now == known else now


def thread_on_branch(branches: BranchState, thread: Thread | None) -> Thread | None:
    """The thread as the last request on the current branch showed it, if it differs now."""
    look = branches.fingerprints.get(branches.current)
    if look is None or thread is None:
        return None
    then = replace(thread, system_hash=look[0], tools_hash=look[1], model=look[2])
    return None if then == thread else then
