"""A conversation that looks like a subagent's, and the call it may have come from, where nothing says so (S1-71a).

Mostly something does: the prompt of a call, or a header. Where an operator gave patterns of titles, a new conversation
that fits one is presumed to be a subagent's. The law: **no pattern is held against a long text**. System texts of main
agents speak of subagents at length; so only the first line of what the client put there counts, and the first line of
what the conversation was told to do, which is as much of a title as a request has.

What this module does not do: it knows no other conversation than the one it is given (`delegation` looks for it).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from proxy.core.frames import MAX_CRITERION_CHARACTERS, SubagentStarted, decode_event
from proxy.core.ledger import Call, Ledger, Request, Round, visible_calls
from proxy.core.observers import first_user_text
from proxy.core.safe_regex import matches_any


class WaitingCall(NamedTuple):
    """A call whose result has not come: of which turn, and since when (ms)."""

    turn: str
    call: Call
    since: int


def delegated_task(request: Request) -> str:
    """What a conversation that opens with this request was told to do, without what its client put around it."""
    return first_user_text((m.text for m in request.messages if m.role == "user"), MAX_CRITERION_CHARACTERS)


def has_subagent_title(request: Request, patterns: Sequence[str]) -> bool:
    """Whether this request opens a conversation that works, by a title that fits one of `patterns`."""
    if not request.tool_names or any(m.role == "assistant" for m in request.messages):
        return False
    texts = (delegated_task(request), *(m.text for m in request.head))
    return any(matches_any(patterns, line) for line in map(_first_line, texts) if line)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def guess_parent_call(ledger: Ledger, since: int) -> WaitingCall | None:
    """The call of the newest turn that a subagent may have come from: it waits for its result since `since` (ms) or
    later, and no frame stands for it yet."""
    turn = next(reversed(ledger.rounds), "")
    rounds = ledger.rounds.get(turn, ())
    if not rounds or turn in ledger.parent_ids or rounds[-1].created < since:
        return None
    call = longest_unclaimed_call(ledger, turn, rounds)
    return WaitingCall(turn, call, rounds[-1].created) if call else None


def longest_unclaimed_call(ledger: Ledger, turn: str, rounds: Sequence[Round]) -> Call | None:
    """Of the calls of a turn for which no frame stands, the one that says most: a prompt is longer than a path."""
    claimed = set(_claimed_calls(ledger, turn))
    return max((c for c in visible_calls(rounds) if c.id not in claimed), key=lambda c: len(c.arguments), default=None)


def _claimed_calls(ledger: Ledger, turn: str) -> Iterable[str]:
    events = (event for event in ledger.events.get(turn, ()) if event.kind == "delegated")
    return (begun.call for event in events if isinstance(begun := decode_event(event), SubagentStarted))
