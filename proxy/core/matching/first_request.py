"""Recognizes the first request of a conversation: no call was made in it yet, and it holds no answer of ours.

What an assistant says before that was never generated: clients open with a preamble ("Got it. Thanks for the
context!"), and prompts hold examples of answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from proxy.core.ledger import Entry, EntryKind, Message


def opening_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages before the first call."""
    return tuple(takewhile(_makes_no_call, messages))


def is_beginning(messages: Sequence[Message], path: Sequence[Entry]) -> bool:
    """Whether a conversation begins with a request of these messages; `path` has its entries."""
    return all(map(_makes_no_call, messages)) and not any(map(_is_answer_of_ours, path))


def _makes_no_call(message: Message) -> bool:
    return not message.calls and not message.is_result


def _is_answer_of_ours(entry: Entry) -> bool:
    """Also in the form into which a client rewrote it."""
    if entry.kind is EntryKind.TURN:
        return True
    return bool(entry.alias) and entry.message is not None and entry.message.role == "assistant"
