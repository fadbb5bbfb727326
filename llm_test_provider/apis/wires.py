"""The three dialects as the scripted model sees them: one `Wire` each, all with the same questions.

A wire checks a request, takes it apart for caches and binding, and writes answers and errors. Everything else
(scripts, counting, deliveries) is the same for all of them and lives in `model.py`. A new dialect is one more entry
in `WIRES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from llm_test_provider.answer import AnswerFacts, ApiError, ErrorEvent, FixedReply, Headers, JsonObject, ScriptedAnswer
from llm_test_provider.apis import (
    Dialect,
    chat,
    messages_checks,
    messages_request,
    responses,
    responses_checks,
    responses_request,
)
from llm_test_provider.apis import messages as messages_wire
from llm_test_provider.apis.json import mapping, mappings
from llm_test_provider.prompt_cache import PromptPart
from llm_test_provider.reasoning_binding import WORDS, BoundRequest, Kind, Mode
from llm_test_provider.script import ReceivedRequest
from llm_test_provider.tokens import Counter, parts_of


@dataclass(frozen=True, slots=True)
class Wire:
    """One dialect. `check` says why a request is refused."""

    check: Callable[[ReceivedRequest], ApiError | None]
    parts: Callable[[ReceivedRequest, Counter], tuple[PromptPart, ...]]
    bound: Callable[[ReceivedRequest], BoundRequest]
    body_of: Callable[[ScriptedAnswer, AnswerFacts], JsonObject]
    events_of: Callable[[ScriptedAnswer, AnswerFacts], list[bytes]]
    error_body: Callable[[FixedReply], bytes]
    """A reply that tells an error, in the shape of this API."""
    failure: Callable[[ErrorEvent], JsonObject]
    """What an unstreamed answer is where the streamed one turns into an error."""
    headers: Callable[[int], Headers]
    """Of an answer, by its number."""
    call_id: str
    """What the ids of calls begin with."""
    words: Mapping[Kind, str]
    """How reasoning that does not fit is refused."""
    cache: str = "openai"
    """The cache of a model that names none."""
    too_long: str = "openai"
    """The words for a prompt that is too long, of a model that names none."""
    mode: Callable[[ReceivedRequest, Mode], Mode] = lambda _, mode: mode
    """What a request makes of the way in which its model binds reasoning."""
    known_as: Callable[[bytes], bytes] = bytes
    readable: Callable[[ReceivedRequest, ScriptedAnswer], str] = lambda _, answer: (
        "" if answer.redacted else answer.reasoning
    )
    """The reasoning of an answer as far as a request gets to read it."""
    together: Callable[[ScriptedAnswer], bytes] = lambda _: b""
    """What the reasoning of an answer is bound to of the answer itself, as `known_as` tells it."""


# ----------------------------------------------------------------------------------------------------- chat completions
def _check_chat(received: ReceivedRequest) -> ApiError | None:
    body = received.body
    if not isinstance(body, dict):
        return ApiError("We could not parse the JSON body of your request.")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ApiError("Invalid 'messages': expected a non-empty array.")
    if len(mappings(messages)) != len(messages):
        return ApiError("Invalid 'messages': expected objects.")
    return None


def _openai_headers(number: int) -> Headers:
    return (("x-request-id", f"req-scripted-{number}"), ("x-ratelimit-remaining-requests", "999"))


CHAT = Wire(
    check=_check_chat,
    parts=lambda received, count: parts_of(received.body, count),
    bound=lambda _: BoundRequest(b""),
    body_of=chat.body_of,
    events_of=chat.events_of,
    error_body=lambda reply: reply.body,
    failure=lambda event: {"error": dict(event.error)},
    headers=_openai_headers,
    call_id="call_",
    words=WORDS,
)


# ------------------------------------------------------------------------------------------------------------- messages
def check_messages(received: ReceivedRequest, *, counted: bool = False) -> ApiError | None:
    """Why a request is refused that asks for an answer, or only to be `counted`."""
    betas = ",".join(value for name, value in received.headers if name.lower() == "anthropic-beta")
    words = messages_checks.refusal(received.body, betas, counted=counted)
    return ApiError(words) if words else None


def _mode_of_messages(received: ReceivedRequest, mode: Mode) -> Mode:
    """A request may choose, where its model binds at all."""
    binding = mapping(mapping(received.body.get("thinking")).get("block_binding"))
    wanted: Mapping[object, Mode] = {"drop_block": "drop", "error": "error"}
    return mode if mode == "none" else wanted.get(binding.get("prefix_mismatch_behavior"), mode)


def _readable_in_messages(received: ReceivedRequest, answer: ScriptedAnswer) -> str:
    """Thoughts may be left out of sight; their signature is there all the same."""
    omitted = mapping(received.body.get("thinking")).get("display") == "omitted"
    return "" if answer.redacted or omitted else answer.reasoning


def _anthropic_headers(number: int) -> Headers:
    return (("request-id", f"req_scripted_{number}"), ("anthropic-ratelimit-requests-remaining", "999"))


MESSAGES = Wire(
    check=check_messages,
    parts=lambda received, count: messages_request.parts_of(received.body, count),
    bound=lambda received: messages_request.bound_of(received.body),
    body_of=messages_wire.body_of,
    events_of=messages_wire.events_of,
    error_body=messages_wire.error_body,
    failure=messages_wire.failure,
    headers=_anthropic_headers,
    call_id="toolu_",
    words=WORDS,
    cache="anthropic",
    too_long="anthropic",
    mode=_mode_of_messages,
    readable=_readable_in_messages,
)

# ------------------------------------------------------------------------------------------------------------ responses
RESPONSES = Wire(
    check=lambda received: responses_checks.refusal(received.body, received.items or ()),
    parts=lambda received, count: responses_request.parts_of(received.body, received.items or (), count),
    bound=lambda received: responses_request.bound_of(received.body, received.items or ()),
    body_of=responses.body_of,
    events_of=responses.events_of,
    error_body=lambda reply: reply.body,
    failure=responses.failure,
    headers=_openai_headers,
    call_id="call_",
    words=responses.WORDS,
    too_long="openai-window",
    known_as=responses_request.known_as,
    together=responses.together,
)

WIRES: Mapping[Dialect, Wire] = {"chat": CHAT, "messages": MESSAGES, "responses": RESPONSES}
