"""Guesses that a new conversation is a subagent's, and the call that began it, where neither a prompt nor a header says
so.

An operator may give patterns of titles. They are matched against the first line of the system text and of the task,
because the long system texts of main agents mention subagents too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import NamedTuple

from proxy.core.frames import MAX_CRITERION_CHARACTERS, SubagentStarted, decode_event
from proxy.core.ledger import Call, Ledger, Request, Round, visible_calls
from proxy.core.matching import lookup_keys
from proxy.core.observers import first_user_text
from proxy.core.safe_regex import matches_any

_AGENT_TOOL = re.compile("agent|task|delegate", re.IGNORECASE)


class WaitingCall(NamedTuple):
    """A call without a result: its turn, and since when (ms) it waits."""

    turn: str
    call: Call
    since: int


def delegated_task(request: Request) -> str:
    """The task in the opening request of a conversation, without what the client puts around it."""
    return first_user_text((m.text for m in request.messages if m.role == "user"), MAX_CRITERION_CHARACTERS)


def has_subagent_title(request: Request, patterns: Sequence[str]) -> bool:
    """Whether the request opens a conversation with tools whose title matches one of `patterns`. A title is a weak
    sign: any word of an assistant beside it, be it a preamble, is taken for a history."""
    if not request.tool_names or any(m.role == "assistant" for m in request.messages):
        return False
    texts = (delegated_task(request), *(m.text for m in request.head))
    first_lines = (text.strip().partition("\n")[0].strip() for text in texts)
    return any(matches_any(patterns, line) for line in first_lines if line)


def guess_parent_call(ledger: Ledger, since: int) -> WaitingCall | None:
    """The call of the newest turn that may have begun a subagent: waiting since `since` (ms) or later, and without a
    frame."""
    turn = next(reversed(ledger.rounds), "")
    rounds = ledger.rounds.get(turn, ())
    if not rounds or turn in ledger.parent_ids or rounds[-1].created < since:
        return None
    call = longest_unclaimed_call(ledger, turn, rounds)
    return WaitingCall(turn, call, rounds[-1].created) if call else None


def has_begun_agent(ledger: Ledger, text: str) -> bool:
    """Whether a call gave `text` to an agent that works on beside it (Codex answers such a call at once), and none is
    known to have begun with it."""
    for turn in reversed(tuple(ledger.rounds)[-lookup_keys.MAX_ANCHOR_TURNS :]):
        call = lookup_keys.delegating_call(ledger.rounds[turn], text)
        if call and _AGENT_TOOL.search(call.name):
            return call.id not in _claimed_calls(ledger, turn) and len(text) >= lookup_keys.MIN_IDENTIFYING_CHARACTERS
    return False


def longest_unclaimed_call(ledger: Ledger, turn: str, rounds: Sequence[Round]) -> Call | None:
    """Of a turn's calls without a frame the one with the longest arguments: prompts are longer than paths."""
    claimed = _claimed_calls(ledger, turn)
    return max((c for c in visible_calls(rounds) if c.id not in claimed), key=lambda c: len(c.arguments), default=None)


def _claimed_calls(ledger: Ledger, turn: str) -> Set[str]:
    events = (event for event in ledger.events.get(turn, ()) if event.kind == "delegated")
    return {started.call for event in events if isinstance(started := decode_event(event), SubagentStarted)}
