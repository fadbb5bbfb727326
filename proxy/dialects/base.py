"""What a dialect is: all that the exchange needs to speak one wire format.

A dialect is one value of `Dialect`, made in one module beside its functions. Bytes that did not change are passed on as
they came, in both directions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from proxy.core.ledger import Message, ModelResponse, Request, ShouldContinue, ShouldRefuse, ShouldRetry, ToolMeant
from proxy.dialects.error_bodies import ProviderFailure
from proxy.dialects.parse_cache import ParseCache, ParseSteps, run_steps
from proxy.dialects.synthetic_responses import OwnResponse

Headers = Sequence[tuple[bytes, bytes]]
"""Of a request, as they came."""
Body = tuple[bytes, ...]
"""A body in pieces; joined they are what is sent. Every message is a piece of its own."""
CLIENT_RESPONSE_KEY = "response"
"""The member of `ModelResponse.extra` with the answer as the client was told it, where the provider has another one."""


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """What of the envelope differs from the client's."""

    extra_tools: bytes = b""
    """A JSON array of tools of ours, put behind the client's; empty for none."""
    include_usage: bool = True
    """Ask for usage at the end of a stream."""
    tool_choice_none: bool = False
    """The last round of a turn: no more calls, arrays unchanged."""
    fork: int = 0
    """How many messages stand before the active frame's own: where its prefix is worth a cache marker."""


class ResponseWriter(Protocol):
    """The client's answer while it is made, over all its upstream rounds, streamed or not."""

    round_is_visible: bool
    """Something of this round has left for the client, so it cannot be repeated."""
    has_sent_bytes: bool
    """Bytes of an answer have left for the client."""
    is_error: bool
    """This round's reply is no completion: an error status, or a content type that is not read."""
    should_refuse: ShouldRefuse | None
    """Calls of the client's tools that are answered here and not shown; set before the first round."""
    tool_meant: ToolMeant | None
    """Tools of ours in another spelling, which the client is not to see either; set before the first round."""
    hides_text: bool
    """The text of a round is not shown if another round follows; set before each round."""
    should_continue: ShouldContinue | None
    """Whether a round without a call is followed by another one, asked when its end comes; set before the first."""
    should_retry: ShouldRetry | None
    """Whether a round that said nothing but an error is asked for again; set before the first."""
    error_body: bytes
    """The beginning of a reply that could not be shown, because the client's stream had begun before it."""

    def in_asked_form(self, came: bytes, content_type: str, *, packed: bool) -> bytes | None:
        """A whole answer that came under another label than asked, as it was asked for; None where it passes as it
        came."""

    def begin_round(self, status: int, content_type: str, *, encoded: bool = False) -> None:
        """An upstream reply begins. `encoded`: its body is compressed, so it is not read."""

    @property
    def round_failed(self) -> bool:
        """The provider reported an error inside a reply that began well."""

    @property
    def round_is_empty(self) -> bool:
        """This round ended without a word, not even of an error, whatever else of it has left."""

    @property
    def can_retry_empty_round(self) -> bool:
        """This round ended without a word, and nothing of it has left: it can be asked again."""

    @property
    def retryable_error(self) -> bytes:
        """The error that is all this round said, where the provider is asked again for that; else b""."""

    @property
    def is_finished(self) -> bool:
        """The client has been told that the answer is over: no round can follow."""

    @property
    def retrievable_response(self) -> bytes:
        """The whole answer as the client is told it, once its last round has ended; b"" where it cannot ask for it
        again, or the provider has the very same."""

    @property
    def another_round_follows(self) -> bool:
        """This round has no call, and its ending was held because another round is to follow."""

    def retry_round(self) -> None:
        """Another round comes in the place of one that said nothing."""

    @property
    def call_count(self) -> int:
        """Calls that this round has begun so far."""

    @property
    def end_has_come(self) -> bool:
        """Of this round all has come that a client waits for, and what `feed` returned has the end of the answer."""

    def feed(self, chunk: bytes) -> bytes:
        """What leaves for the client now that `chunk` has come; b"" for nothing yet."""

    def end_round(self, *, complete: bool) -> ModelResponse:
        """The round as it was produced. `complete` is False when the upstream died or the client left."""

    def stop_reading(self) -> None:
        """What comes of this round passes unread, and what came is forgotten."""

    def partial_response(self) -> ModelResponse:
        """What has arrived of the round that is under way; it changes nothing."""

    def finish(self) -> bytes:
        """The end of the client's answer, after its last round."""

    def keep_alive(self) -> bytes:
        """A comment for a client that waits between two rounds, or nothing where none may stand."""

    def closing_error(self, message: str) -> bytes:
        """The last bytes of a stream that has begun and cannot go on; b"" where only a closed connection may say so."""

    def failed_end(self, failure: ProviderFailure) -> bytes:
        """The end of a stream that has begun and of which a later round was refused, as the API ends one that failed;
        b"" where that cannot be said."""


class ResponseWriterFactory(Protocol):
    """Begins the answer to a client's request. Without `intercept` it is only read along."""

    def __call__(self, request: Request, *, intercept: bool) -> ResponseWriter: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseReferences:
    """How requests of a dialect name what was said before instead of sending it again."""

    is_answer_stored: Callable[[Request], bool]
    """Whether the answer to a request is kept by the provider, so that the client may name it."""
    previous_response_id: Callable[[Request], str]
    """The id of the answer that a request goes on from, or empty."""
    referenced_item_ids: Callable[[Request], tuple[str, ...]]
    """The ids of the items that stand for themselves in it, in order."""
    unresolvable_reason: Callable[[Request, Container[str]], str]
    """Why a request cannot be placed, where these items are known; or empty."""
    resolve: Callable[[Request, Sequence[Message], Mapping[str, bytes]], Request]
    """The request behind these earlier messages, with these items (by id) in the places of their names."""
    items_by_id: Callable[[Message], Mapping[str, bytes]]
    """The items of an answer by the ids a client may name them with."""
    client_view: Callable[[Sequence[Message]], Message]
    """What the rounds of a turn were for the client."""
    members_to_store: Callable[[Request, bytes], Mapping[str, bytes]]
    """What outlasts an answer to a request, each as JSON by its name. With it all of the answer that the client was
    told, empty where that is what the provider has."""
    opening_messages: Callable[[Mapping[str, bytes]], Sequence[Message]]
    """The messages that open the conversation of a turn with which this is kept. Their tokens are not counted."""


@dataclass(frozen=True, slots=True)
class AppendedTools:
    """How tools and guidance of ours are told behind the newest message instead of in front of all, so that what stands
    there stays as it is."""

    model_family: str
    """Whose models take them so (`tariffs.family_of`): another vendor's API in the same dialect is not known to."""
    is_supported: Callable[[Request, Headers], bool]
    """Whether the API takes them so from the client of this request."""
    encode: Callable[[Request, str, str], bytes]
    """Guidance and a JSON array of tools as one message's wire; the request shows how the client tells of its own."""
    parse: Callable[[bytes], Message]
    """The message of such a wire."""


def never_holds_compaction(_: Message) -> bool:
    """In this dialect no message holds a compaction."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One wire format."""

    name: str
    minimal_body: Mapping[str, object] = field(hash=False)
    """The members beside the model that the smallest request must have."""
    parse_in_steps: Callable[[bytes, ParseCache], ParseSteps[Request]]
    """The request in a body, read bit by bit. Raises RequestParseError."""
    render: Callable[[Request, Sequence[Message], Sequence[bytes], RenderOptions], Body]
    """The body of an upstream request: the client's members in its order, with this head (as `extend_head` writes
    it) and these messages."""
    client_body: Callable[[Request], Body]
    """The client's own body, cut at the borders of its messages."""
    extend_head: Callable[[Request, str], tuple[bytes, ...]]
    """The head with a text of ours at its end; nothing to say changes nothing."""
    tools_json: Callable[[Sequence[Mapping[str, Any]]], bytes]
    """The array of tools of ours, each with name, description and parameters: constant bytes for constant tools."""
    tool_result: Callable[[str, str], Message]
    """The result of a call (its id) that we answered."""
    user_message: Callable[[str], Message]
    """A user-role text of ours: a trace, a note, guidance."""
    without_reasoning: Callable[[Message], Message]
    """The same message less its reasoning; the very same where it has none."""
    without_calls: Callable[[Message, Collection[str]], Message]
    """The same message less the calls with these ids, and less what cannot stand without them. Its tokens are not
    counted."""
    with_content: Callable[[Message, str], Message]
    """The same message with this text for its content; every other member as it was. Its tokens are not counted."""
    with_call_id: Callable[[Message, str], Message]
    """The same result, of the call with this id; every other member as it was."""
    joined: Callable[[Message, Message], Message | None]
    """A user message or a result, with the content of a user message behind its own; every other member as it was.
    Its tokens are those of both. None where that cannot be written."""
    assistant_message: Callable[[str], Message]
    """An answer of ours in these words, to stand for one that is not shown."""
    error_body: Callable[[int, str, str], bytes]
    """An error of ours in the API's own shape, from its HTTP status, its words and its code."""
    new_response_writer: ResponseWriterFactory
    encode_own_response: Callable[[Request, OwnResponse], bytes]
    """A whole answer of ours to a request: a plain body, or all of a stream where it asks for one."""
    references: ResponseReferences | None = None
    """None where every request holds its whole history."""
    holds_compaction: Callable[[Message], bool] = never_holds_compaction
    """Whether a message holds a compaction of the provider's: what stands for all before it, readable by nobody
    else."""
    must_open_with_reasoning: Callable[[Request], bool | None] = lambda _: None
    """Whether the answer that is under way in a tool loop of this request must open with its reasoning; None where only
    the model says."""
    asks_to_drop_reasoning: Callable[[Request], bool] = lambda _: False
    """Whether the client asks its provider to drop reasoning that does not fit, and to tell it what was dropped."""
    appended_tools: AppendedTools | None = None
    """None where everything has to stand in front."""
    in_sent_order: Callable[[Sequence[Message], Sequence[Message]], Sequence[Message]] = lambda messages, _: messages
    """Messages in the order in which `render` sends them, given the client's messages."""
    unmarked_tokens: Callable[[Request, Sequence[Message] | None], int] = lambda _request, _line: 0
    """Tokens at the end of the client's request that stand behind its last cache marker, or of the context that is sent
    for it. 0 in an API without markers."""
    cache_ping: Callable[[bytes], bytes | None] = lambda _: None
    """A body as it was sent, asked again for the shortest answer and in one piece, so that the provider reads the same
    prefix; None where its answer cannot be kept short."""
    with_hour_head: Callable[[Request, Sequence[bytes]], tuple[Request, tuple[bytes, ...]] | None] = lambda *_: None
    """A request and its head, whose markers ask for a cache of an hour; None where that cannot be asked for."""
    without_unneeded_reasoning: Callable[[Message], Message] | None = None
    """The same less the reasoning that no part of it needs; None where no part needs any."""
    with_reasoning: Callable[[Message, str], Message] | None = None
    """An answer with calls and without reasoning, with this text as its reasoning; None where that cannot be
    written."""
    has_signed_reasoning: bool = False
    """Reasoning comes signed in it: it is the provider's own, and clients leave out what no longer fits."""

    def parse_request(self, body: bytes, known: ParseCache) -> Request:
        """The request in a body, at once. Raises RequestParseError."""
        return run_steps(self.parse_in_steps(body, known))
