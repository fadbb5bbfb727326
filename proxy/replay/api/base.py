"""What a replay must know of an API beside its dialect: how a client writes a recorded conversation in it, and how its
provider tells a recorded answer.

An `Api` is one value, made in one module beside its functions (`chat_api`, `messages_api`, `responses_api`). A recorded
answer is a JSON object in the API's own words: what its provider would have sent, less what surrounds it.

The law: **a recording says the same in every API**. Roles, texts, calls and results are those of the recording;
what an API has no word for is refused (`messages.check_tellable`), never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.accounting import CacheUse, PromptChain
from proxy.core.ledger import Message, Request, is_stack_tool
from proxy.dialects import Dialect
from proxy.replay.recording import Json

NOTHING_MORE_TEXT = "(nothing more of this turn was recorded)"
"""What is left for the client of an answer that was nothing but calls of ours."""


class ConversationWriter(Protocol):
    """A conversation as one client writes it, all of it: requests are made of stretches."""

    @property
    def others(self) -> Json:
        """The members of every request that are neither its model nor its list of messages."""

    def messages_between(self, start: int, end: int) -> tuple[bytes, ...]:
        """What a request holds whose history begins with message `start` and ends before `end`, behind the head;
        nothing where there is nothing to answer."""

    def answer_at(self, at: int) -> Json:
        """The assistant message `at`, as its answer."""


@dataclass(frozen=True, slots=True)
class RecordedConversation:
    """A conversation recorded as chat completions. `beginnings`: messages at which a request may begin, because the
    client had compacted what stood before."""

    model: str
    messages: Sequence[Json]
    tools: Sequence[Json]
    request_starts: Collection[int] = ()


@dataclass(frozen=True, slots=True)
class ReplyMetadata:
    """What surrounds an answer. `number` counts the answers of a replay, `created` are seconds."""

    number: int
    model: str
    created: int


@dataclass(frozen=True, slots=True)
class ReplayApi:
    """One API."""

    name: str
    """As users write it: chat, messages, responses."""
    dialect: Dialect
    path: str
    messages_key: str
    """The member of a request that lists its messages."""
    cache_pieces: Callable[[Request], PromptChain]
    """A request as the provider's prompt cache sees it."""
    write: Callable[[RecordedConversation], ConversationWriter]
    """As a client of this API would have sent it."""
    as_message: Callable[[Json], Message]
    """A recorded answer as a value."""
    reply: Callable[[Json, ReplyMetadata, CacheUse, int], Json]
    """The body of a reply: a recorded answer, what surrounds it, what the cache made of its prompt, and its tokens."""
    without_own_calls: Callable[[Json], Json]
    """What is left of a recorded answer for the client."""
    answer_from_chat: Callable[[Json], Json]
    """An assistant message of chat completions as a recorded answer."""
    answer_in: Callable[[Any], Json | None]
    """The answer in the body of a reply, or None."""
    answer_from_echo: Callable[[bytes | None, Json | None], Json | None]
    """The recorded answer from its echo in a later request (the bytes of a message) and from what was told of it
    beside its request."""


def is_own_call(call: Json) -> bool:
    """Whether this block, item or function is a call of a tool of ours."""
    return is_stack_tool(str(call.get("name", "")))
