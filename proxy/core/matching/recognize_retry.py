"""Recognizes a retry: a request that its client sends again as it was, mostly after a timeout or a broken stream.

A retry adds nothing to the conversation and is answered where it stands. If its client edited a message before, the
request is a branch: see `match_history`.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.ledger import Entry, EntryKind, Ledger, Request
from proxy.core.matching.match_result import Match, MatchKind
from proxy.core.matching.walk_history import MAX_CANDIDATES, walk

RETRY_WINDOW_MS = 600_000
"""An identical opening request within this time is a retry, not a new conversation."""


def is_retry(ledger: Ledger, path: Sequence[Entry], *, known_turn: bool) -> bool:
    """Whether a request was sent before whose messages are all known, as the entries of `path`. `known_turn`: an
    assistant message is among them; a request without one must have been answered before."""
    return known_turn or path[-1].id in ledger.turns_by_parent


def match_retry(ledger: Ledger, request: Request, now: int) -> Match | None:
    """A byte-identical opening request while its conversation waits for the follow-up."""
    path = walk(ledger, request.messages)
    if len(path) != len(request.messages) or not path:
        return None
    answers = ledger.turns_by_parent.get(path[-1].id, [])[-MAX_CANDIDATES:] or [path[-1].id]
    if not ledger.parent_ids.isdisjoint(answers) or now - path[0].created > RETRY_WINDOW_MS:
        return None
    return Match(MatchKind.RETRIED, path)


def match_newest_retry(ledger: Ledger, request: Request, tip: Entry) -> Match | None:
    """The request that `tip`, the newest entry of the conversation, is or answers, sent again."""
    path = walk(ledger, request.messages)
    request_entry = tip.parent if tip.kind is EntryKind.TURN else tip.id
    if path and len(path) == len(request.messages) and path[-1].id == request_entry:
        return Match(MatchKind.RETRIED, path)
    return None
