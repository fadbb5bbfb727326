"""Captured requests: bodies as clients sent them, in order, and what is known of their answers.

Requests of several conversations and APIs may be mixed; those of one API are one recording. The answer to a request is
the recorded one, or its echo in a later request that continues it. A captured request is replayed in its own API, with
all its members except those that only say how the answer is delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from callstack_proxy.replay.api.base import ReplayApi
from callstack_proxy.replay.api.replay_api_list import APIS, api_of
from callstack_proxy.replay.files import LocatedValue
from callstack_proxy.replay.recording import (
    ClockMode,
    Json,
    NoRecording,
    NotReplayable,
    RecordedStep,
    Recording,
    RequestTimes,
    body_start_and_end,
    encode_json,
)
from callstack_proxy.replay.validation import check_messages, oddities
from proxy.core.ledger import DELIVERY_FIELDS, Request
from proxy.dialects import ParseCache, RequestParseError, dialect_at

UNNAMED_MODEL = "not recorded"
"""The model of a recording that names none; it has no prices, which reports say."""
REPLAYABLE_APIS = "chat completions, messages and responses"
_MESSAGES_BLOCKS = ("tool_use", "tool_result")


@dataclass(frozen=True, slots=True)
class CapturedRequest:
    """A request as the client sent it: its messages, and the other members of its body. `answer` is the recorded reply,
    `beside` a summary of the reply on the same line; `failed`: the provider refused the request."""

    api: ReplayApi
    model: str
    messages: tuple[bytes, ...]
    others: Json
    place: str
    answer: Json | None = None
    beside: Json | None = None
    at_s: float | None = None
    headers: tuple[tuple[bytes, bytes], ...] = ()
    failed: bool = False


# --------------------------------------------------------------------------------------------------------------- read
def captured_requests_in(items: Sequence[LocatedValue], path: Path) -> tuple[list[CapturedRequest], list[str]]:
    """The requests of a file, and notes on those left out. Raises NotReplayable."""
    shared: dict[bytes, bytes] = {}
    found: list[CapturedRequest] = []
    elsewhere: Counter[str] = Counter()
    for item in items:
        said = item.value
        body = said.get("body") if "body" in said else said
        endpoint = _text(said.get("path")).partition("?")[0] if "body" in said else ""
        if not isinstance(body, dict) or not body:
            continue
        dialect = dialect_at(endpoint)
        if endpoint and dialect is None:
            elsewhere[endpoint] += 1
            continue
        one = captured_request_of(body, api_of(dialect.name) if dialect else guess_api(body), item.place, shared)
        found.append(_with_line_fields(one, said) if "body" in said else one)
    other = ", ".join(f"{count} to {endpoint}" for endpoint, count in elsewhere.items())
    if not found:
        what = f"requests to another endpoint ({other})" if other else "no request with a body"
        raise NoRecording(f"{path} holds {what}; only requests to {REPLAYABLE_APIS} can be replayed")
    return found, [f"left out: {other}; only requests to {REPLAYABLE_APIS} are replayed"] if other else []


def guess_api(body: Json) -> ReplayApi:
    """The API of a body without a path."""
    if "input" in body and "messages" not in body:
        return APIS["responses"]
    return APIS["messages" if is_messages_body(body) else "chat"]


def is_messages_body(body: Json) -> bool:
    """Whether a body is of the messages API, by its system text, tools or blocks."""
    tools, messages = body.get("tools"), body.get("messages")
    return (
        "system" in body
        or any("input_schema" in tool for tool in _objects(tools))
        or any(
            block.get("type") in _MESSAGES_BLOCKS
            for message in _objects(messages)
            for block in _objects(message.get("content"))
        )
    )


def _objects(listed: object) -> Iterator[Mapping[str, Any]]:
    return (one for one in listed if isinstance(one, dict)) if isinstance(listed, list) else iter(())


def captured_request_of(body: Json, api: ReplayApi, place: str, shared: dict[bytes, bytes]) -> CapturedRequest:
    """The request of a body. `shared` keeps messages of many requests once. Raises NotReplayable."""
    wires = tuple(shared.setdefault(wire, wire) for wire in map(encode_json, _messages_in(body, api, place)))
    others = {name: value for name, value in body.items() if name not in {"model", api.messages_key} | DELIVERY_FIELDS}
    return CapturedRequest(api, _text(body.get("model")), wires, others, place)


def _messages_in(body: Json, api: ReplayApi, place: str) -> Sequence[Json]:
    listed = body.get(api.messages_key)
    if api.name == "responses" and isinstance(listed, str):
        return [{"role": "user", "content": listed}]
    if api.messages_key == "messages":
        return check_messages(listed, place)
    if not isinstance(listed, list) or not listed:
        raise NotReplayable(f"{place}: `{api.messages_key}` must be a text or a list of items that is not empty")
    return listed


def _with_line_fields(one: CapturedRequest, line: Json) -> CapturedRequest:
    """The request with what its line says beside the body."""
    answer = line.get("answer")
    status = answer.get("status") if isinstance(answer, dict) else None
    told = _answer_message(answer)
    return replace(
        one,
        answer=one.api.answer_in(line.get("response")),
        beside=None if told is None else one.api.answer_from_chat(told),
        at_s=at if is_timestamp(at := line.get("t")) else None,
        headers=_headers(line.get("headers")),
        failed=isinstance(status, int) and status >= 400,
    )


def _answer_message(answer: object) -> Json | None:
    """The message of an answer with `text`, `reasoning`, and `calls` of `id`, `name`, `args`."""
    if not isinstance(answer, dict) or not (answer.get("text") or answer.get("calls")):
        return None
    message: dict[str, Any] = {"role": "assistant", "content": _text(answer.get("text")) or None}
    if reasoning := _text(answer.get("reasoning")):
        message["reasoning_content"] = reasoning
    calls = [call for call in answer.get("calls") or () if isinstance(call, dict)]
    if calls:
        message["tool_calls"] = [
            {
                "id": str(call.get("id", "")),
                "type": "function",
                "function": {"name": str(call.get("name", "")), "arguments": _arguments(call.get("args"))},
            }
            for call in calls
        ]
    return message


def _arguments(told: object) -> str:
    return told if isinstance(told, str) else encode_json(told if told is not None else {}).decode()


def _headers(told: object) -> tuple[tuple[bytes, bytes], ...]:
    """Headers by which a client may name its session. The mode header is left out: the replay sets the mode."""
    if not isinstance(told, dict):
        return ()
    named = ((name.lower(), value) for name, value in told.items() if isinstance(value, str))
    return tuple(
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in named
        if name != "x-stack-mode"
    )


def is_timestamp(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# ----------------------------------------------------------------------------------------------------------- recorded
def group_by_api(captures: Iterable[CapturedRequest]) -> list[list[CapturedRequest]]:
    """The requests of each API, in order."""
    found: dict[str, list[CapturedRequest]] = {}
    for one in captures:
        found.setdefault(one.api.name, []).append(one)
    return list(found.values())


def recording_of_requests(
    name: str, captures: Sequence[CapturedRequest], *, model: str = "", clock: ClockMode = "recorded"
) -> Recording:
    """A recording of requests to one API, of one or several conversations, in order. Raises NotReplayable."""
    kept = [one for one in captures if not one.failed]
    if not kept:
        raise NotReplayable(f"{captures[0].place}: the provider refused this request and all behind it")
    refused = len(captures) - len(kept)
    notes = [f"left out: {refused} that the provider refused; what was asked next is there"] if refused else []
    api, moments, known = kept[0].api, RequestTimes(clock), ParseCache()
    steps: list[RecordedStep] = []
    for one in kept:
        before, behind = body_start_and_end(model or one.model or UNNAMED_MODEL, one.others, api.messages_key)
        steps.append(RecordedStep(before, one.messages, behind, one.answer, moments.next(one.at_s), one.headers))
    requests = [_parse_request(step, one, known) for step, one in zip(steps, kept, strict=True)]
    answered = [replace(step, answer=answer) for step, answer in zip(steps, _answers_of(requests, kept), strict=True)]
    _check_references(requests, answered, kept)
    last = requests[-1]
    pairings = [([call.id for call in m.calls], m.answers) for m in (*last.head, *last.messages)]
    notes += oddities(pairings, kept[-1].place)
    model = model or kept[0].model or UNNAMED_MODEL
    return Recording(name=name, model=model, steps=tuple(answered), notes=tuple(notes), dialect=api.name)


def _parse_request(step: RecordedStep, one: CapturedRequest, known: ParseCache) -> Request:
    try:
        return one.api.dialect.parse_request(step.body, known)
    except RequestParseError as wrong:
        raise NotReplayable(f"{one.place}: this is no request to {one.api.name}: wanted is {wrong}") from None


def _answers_of(requests: Sequence[Request], captures: Sequence[CapturedRequest]) -> Iterator[Json | None]:
    """The answer to each request: the recorded one, else the one its echo and `beside` give."""
    said = [(request.system_hash, [message.identity for message in request.messages]) for request in requests]
    for at, one in enumerate(captures):
        echo = None if one.answer is not None else _echoed_answer(at, said, requests)
        yield one.answer if one.answer is not None else one.api.answer_from_echo(echo, one.beside)


def _echoed_answer(at: int, said: Sequence[tuple[str, list[str]]], requests: Sequence[Request]) -> bytes | None:
    """The assistant message after this history in the next request that continues it."""
    system, identities = said[at]
    length = len(identities)
    for later, (other_system, others) in enumerate(islice(said, at + 1, None), at + 1):
        if len(others) > length and other_system == system and others[:length] == identities:
            echo = requests[later].messages[length]
            if echo.role == "assistant":
                return echo.wire
    return None


def _check_references(
    requests: Sequence[Request], steps: Sequence[RecordedStep], captures: Sequence[CapturedRequest]
) -> None:
    """Raises NotReplayable where a request continues an answer that was not recorded: its history is unknown."""
    told: set[str] = set()
    for request, step, one in zip(requests, steps, captures, strict=True):
        references = one.api.dialect.references
        previous = references.previous_response_id(request) if references else ""
        if previous and previous not in told:
            raise NotReplayable(
                f"{one.place}: this request goes on from the answer {previous[:60]!r}, which is not recorded; record "
                "each reply as `response` beside its request, or replay the conversation from the store"
            )
        if step.answer is not None:
            told.add(str(step.answer.get("id")))
