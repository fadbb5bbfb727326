"""What a replay must know of an API beside its dialect: how a client writes a recorded conversation, and how a provider
writes a recorded answer.

A `ReplayApi` is one value, made in the module of its API (`chat`, `messages`, `responses`). A recorded answer is a JSON
object in the form of the API, without what surrounds it in a reply. A recording says the same in every API: content
that an API cannot express is refused (`validation.check_expressible`), never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from callstack_proxy.replay.recording import Json
from proxy.accounting import CacheUse, PromptChain
from proxy.core.ledger import Message, Request, is_stack_tool
from proxy.dialects import Dialect

NOTHING_MORE_TEXT = "(nothing more of this turn was recorded)"
"""The text of an answer that consists of calls of stack tools alone, as the client gets it."""


class ConversationWriter(Protocol):
    """A whole conversation as a client of one API writes it. Each request is a stretch of it."""

    @property
    def others(self) -> Json:
        """The members of every request besides its model and its list of messages."""

    def messages_between(self, start: int, end: int) -> tuple[bytes, ...]:
        """The messages of a request with the head, and the history from message `start` to before `end`. Empty where
        there is nothing to answer."""

    def answer_at(self, at: int) -> Json:
        """The assistant message number `at` as a recorded answer."""


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """A conversation recorded as chat completions. `request_starts`: messages at which a request may begin, because
    the client had compacted everything before."""

    model: str
    messages: Sequence[Json]
    tools: Sequence[Json]
    request_starts: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class ReplyMetadata:
    """What surrounds an answer. `number` counts the answers of a replay, `created` is in seconds."""

    number: int
    model: str
    created: int


@dataclass(frozen=True, slots=True)
class ReplayApi:
    """One API."""

    name: str
    """As users write it: chat, messages or responses."""
    dialect: Dialect
    path: str
    messages_key: str
    """The member of a request that lists its messages."""
    cache_pieces: Callable[[Request], PromptChain]
    """The parts of a request that the provider's prompt cache compares."""
    write: Callable[[RecordedConversation], ConversationWriter]
    """Writes the conversation as a client of this API would have sent it."""
    as_message: Callable[[Json], Message]
    """A recorded answer as a value."""
    reply: Callable[[Json, ReplyMetadata, CacheUse, int], Json]
    """The body of a reply, from a recorded answer, its metadata, the use of the prompt cache, and the output tokens."""
    without_own_calls: Callable[[Json], Json]
    """A recorded answer without its calls of stack tools."""
    answer_from_chat: Callable[[Json], Json]
    """An assistant message of chat completions as a recorded answer."""
    answer_in: Callable[[Any], Json | None]
    """The answer in the body of a reply, or None."""
    answer_from_echo: Callable[[bytes | None, Json | None], Json | None]
    """The recorded answer, from its echo in a later request (the bytes of a message) and from the answer that was
    recorded beside its own request."""


def is_own_call(call: Json) -> bool:
    """Whether this block, item or function is a call of a stack tool."""
    return is_stack_tool(str(call.get("name", "")))
