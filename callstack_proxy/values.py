"""What a session takes and gives back: messages, requests and answers of the three APIs as plain JSON values."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from proxy.core.ledger import is_stack_tool
from proxy.errors import BadRequest, ProxyError

Json = dict[str, Any]
Api = Literal["chat", "messages", "responses"]


class Refused(ProxyError):
    """A request that gets no answer: the provider refuses it, or a person has stopped the agent. `status` is that of
    HTTP, `body` the whole error."""

    code = "refused"

    def __init__(self, status: int, body: bytes) -> None:
        message, code = _error_in(body)
        super().__init__(message or f"The request was refused with status {status}.", code=code)
        self.status = status
        self.body = body


def _error_in(body: bytes) -> tuple[str, str]:
    """The words of an error, and its code."""
    try:
        told = json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace"), ""
    error = told.get("error", told) if isinstance(told, dict) else told
    if not isinstance(error, dict):
        return str(error), ""
    return str(error.get("message") or ""), str(error.get("code") or "")


@runtime_checkable
class Dumpable(Protocol):
    """A value of an SDK, such as pydantic's."""

    def model_dump(self, *, exclude_none: bool) -> Any: ...


@dataclass(frozen=True, slots=True)
class Figures:
    """What a request came to. `tokens_in` is what the application's own messages would have taken. Money is in USD, by
    the list price of the model; `cost_untouched` is what the request would have cost without us."""

    status: str = "bypass"
    conversation: str = ""
    tokens_in: int = 0
    tokens_sent: int = 0
    tokens_saved: int = 0
    cost: float = 0.0
    cost_untouched: float = 0.0


def figures_of(headers: Mapping[str, str]) -> Figures:
    """The figures in the headers with which a proxy answers."""

    def told(name: str) -> str:
        return headers.get(f"x-stack-{name}", "0")

    return Figures(
        headers.get("x-stack-status", ""),
        headers.get("x-stack-conversation", ""),
        int(told("tokens-in")),
        int(told("tokens-sent")),
        int(told("tokens-saved")),
        float(told("cost")),
        float(told("cost-untouched")),
    )


@dataclass(frozen=True, slots=True)
class Step:
    """What the application does next. With `again` the model has only talked to us: call `context` with the same
    messages, and ask the model again. Otherwise `message` is the assistant's message for the application, without our
    calls: put it behind the others. The API `responses` has no such message: read `response`."""

    again: bool
    message: Json = field(default_factory=dict)
    calls: tuple[Json, ...] = ()
    """The calls of the application's own tools, as they stand in the message (or in the output)."""
    response: Json = field(default_factory=dict)
    """The whole answer."""
    figures: Figures = Figures()


def plain(value: Any) -> Any:
    """The same as JSON values: those of an SDK become what they are on the wire. Raises BadRequest for what is none."""
    return msgspec.json.decode(encoded(value))


def encoded(value: Any) -> bytes:
    """The same as JSON text. Raises BadRequest for what JSON does not have."""
    try:
        try:
            return msgspec.json.encode(value, enc_hook=_dumped)
        except UnicodeEncodeError:  # half of a surrogate pair
            return json.dumps(value, default=_dumped, separators=(",", ":")).encode()
    except (RecursionError, OverflowError):
        raise BadRequest("A message is nested too deep, or holds itself. Give plain lists and mappings.") from None
    except (TypeError, ValueError) as error:
        raise BadRequest(f"A message holds what JSON does not have: {error}") from None


def _dumped(value: Any) -> Any:
    if isinstance(value, Dumpable):
        return value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    raise TypeError(f"a value of type {type(value).__name__}")


def body_of(request: Mapping[str, Any]) -> bytes:
    """A request as it stands on the wire, asked for in one piece. Raises BadRequest."""
    rows = request.get("messages", request.get("input"))
    if isinstance(rows, list) and not all(isinstance(row, Mapping | Dumpable) for row in rows):
        raise BadRequest('Each message is a mapping, such as {"role": "user", "content": "hello"}.')
    if not isinstance(rows, list | str):
        raise BadRequest("The messages come as a list, the oldest first.")
    if not isinstance(request.get("tools") or [], list):
        raise BadRequest("The tools come as a list, as the API of the model has it.")
    return encoded({name: each for name, each in request.items() if name not in ("stream", "stream_options")})


def answer_body(answer: Any, usage: Any, api: Api, model: str) -> bytes:
    """What the model answered as the API's whole answer. Raises BadRequest for what is no answer."""
    said = plain(answer)
    if not isinstance(said, dict):
        raise BadRequest("answer() takes the assistant's message, or the whole answer of the model.")
    if api == "chat" and "choices" not in said:
        said = _completion_with(said, model)
    known = {"chat": "choices", "messages": "content", "responses": "output"}[api]
    if not isinstance(said.get(known), list):
        raise BadRequest(f'An answer of the API {api} has "{known}", a list; this one has {_names(said)}.')
    if usage is not None:
        said = {**said, "usage": plain(usage)}
    return encoded(said)


def refusal_in(error: Exception) -> tuple[int, Json]:
    """Status and body of a provider's refusal that an SDK raised. Raises the error itself where it is another one."""
    status, told = getattr(error, "status_code", None), getattr(error, "body", None)
    if not isinstance(status, int) or status < 400:
        raise error
    if isinstance(told, dict) and "error" in told:
        return status, told
    return status, {"error": told if isinstance(told, dict) else {"message": str(error)}}


def refusal_body(error: Any) -> bytes:
    """A provider's error as its body: the bytes or the text of it, or what stands in them."""
    if isinstance(error, bytes):
        return error
    return error.encode() if isinstance(error, str) else encoded(error)


def _completion_with(message: Json, model: str) -> Json:
    if message.get("role") != "assistant":
        raise BadRequest(f'answer() takes a message with the role "assistant"; this one has {_names(message)}.')
    return {
        "id": f"chatcmpl-{secrets.token_hex(12)}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls_in(message) else "stop"}],
    }


def _names(said: Json) -> str:
    return ", ".join(f'"{name}"' for name in said) or "nothing"


def step_with(body: bytes, api: Api, figures: Figures) -> Step:
    """What is for the application in a whole answer. Raises BadRequest where it is none."""
    try:
        response = msgspec.json.decode(body)
        if api == "responses":
            calls = [item for item in response["output"] if item.get("type") == "function_call"]
            return Step(again=False, calls=tuple(calls), response=response, figures=figures)
        if api == "messages":
            message = {"role": "assistant", "content": response["content"]}
        else:
            message = response["choices"][0]["message"]
        return Step(again=False, message=message, calls=tuple(calls_in(message)), response=response, figures=figures)
    except (ValueError, LookupError, TypeError, AttributeError):  # msgspec's error is a ValueError
        raise BadRequest("The model's answer is none that this API knows.", code="unreadable_answer") from None


def without_stack_calls(body: bytes, api: Api) -> bytes:
    """A whole answer less the calls of our tools, for an application that cannot have them answered."""
    response = msgspec.json.decode(body)
    if api == "chat":
        for choice in response["choices"]:
            message = choice["message"]
            kept = [call for call in message.get("tool_calls") or () if not is_stack_tool(call["function"]["name"])]
            choice["message"] = {name: each for name, each in message.items() if name != "tool_calls"}
            if kept:
                choice["message"]["tool_calls"] = kept
            elif choice.get("finish_reason") == "tool_calls":
                choice["finish_reason"] = "stop"
    else:
        name = "content" if api == "messages" else "output"
        response[name] = [item for item in response[name] if not is_stack_tool(item.get("name") or "")]
    return encoded(response)


def calls_in(message: Json) -> list[Json]:
    """The calls in an assistant's message of chat completions or messages."""
    if isinstance(message.get("content"), list) and "tool_calls" not in message:
        return [part for part in message["content"] if isinstance(part, dict) and part.get("type") == "tool_use"]
    return list(message.get("tool_calls") or [])
