"""The head of a logged session: the system text and tools that stood in every request, and that few logs hold.

What is missing is made up for by words that mean nothing, so that tokens and money are as they were. Its size is what
the provider counted for the first request, less what the log holds of that request; or, where a log has no such count,
the usual size of the client's head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from callstack_proxy.replay.recording import encode_json
from callstack_proxy.replay.sessions.base import SessionFormat, Thread, text_in

FILLER_WORD = " the"
"""One token of every tokenizer in use."""


@dataclass(frozen=True, slots=True)
class Head:
    """`text` is added to the system text. `assumed`: its tokens, where nothing in the log tells the size."""

    text: str
    assumed: int = 0


def missing_head(thread: Thread, known: SessionFormat, count: Callable[[str], int]) -> Head:
    """What the log lacks of the head."""
    if thread.first_input:
        missing = thread.first_input - _tokens_of_first_request(thread, count)
        return Head(FILLER_WORD * max(0, missing))
    held = _tokens_of_head(thread, count)
    missing = max(0, known.head_tokens - held)
    return Head(FILLER_WORD * missing, missing)


def _tokens_of_head(thread: Thread, count: Callable[[str], int]) -> int:
    system = [text_in(m.get("content")) for m in thread.messages if m["role"] in ("system", "developer")]
    return sum(map(count, system[:1])) + count(encode_json(thread.tools).decode())


def _tokens_of_first_request(thread: Thread, count: Callable[[str], int]) -> int:
    """Counted roughly: what the tokens around messages take is part of what is made up for."""
    before = thread.messages[: thread.first_length]
    texts = [text_in(message.get("content")) for message in before]
    calls = [encode_json(calls).decode() for message in before if (calls := message.get("tool_calls"))]
    return sum(map(count, (*texts, *calls))) + (count(encode_json(thread.tools).decode()) if thread.tools else 0)
