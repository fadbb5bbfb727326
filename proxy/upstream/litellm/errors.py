"""Converts litellm's exceptions to the provider's own answer, or to a lost connection.

litellm changes status and text (529 becomes 500, "AnthropicException - ..." precedes the text), so both are taken from
the innermost exception, which was made from the provider's answer. Exceptions are recognized by class name, because
they come from three libraries that change.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proxy.errors import UpstreamClosed, UpstreamError, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream.http import RawHeaders
from proxy.upstream.litellm.loader import INSTALL_DIALECTS_COMMAND

TIMEOUT_ERRORS = frozenset({"Timeout", "TimeoutException", "APITimeoutError", "TimeoutError"})
UNREACHABLE_ERRORS = frozenset({"ConnectError", "ConnectTimeout", "ClientConnectorError", "ConnectionRefusedError"})
CONNECTION_LOST_ERRORS = frozenset({"TransportError", "RequestError", "ClientError", "ConnectionError"})
PASSED_HEADERS = ("retry-after", "request-id", "x-request-id", "x-should-retry")
RATE_LIMIT_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
"""Provider headers for clients; others from litellm belong to the connection."""


@dataclass(frozen=True, slots=True)
class ProviderRefusal:
    status: int
    message: str
    code: str
    headers: RawHeaders


def refusal_of(error: BaseException, upstream: str) -> ProviderRefusal:
    """The refusal behind a failed call. Raises UpstreamError if nobody answered."""
    causes = list(causes_of(error))
    if lost := _connection_error_of(causes, upstream):
        raise lost from error
    missing = next((cause.name for cause in causes if isinstance(cause, ModuleNotFoundError)), None)
    if missing:
        return ProviderRefusal(
            404, f"litellm needs the package {missing!r} to serve this; {INSTALL_DIALECTS_COMMAND}", "not_installed", []
        )
    answered = [cause for cause in causes if isinstance(_status_of(cause), int)]
    if not answered:
        # Its words are litellm's own and may quote the request, so they are told to nobody.
        failed = f"upstream {upstream}: litellm failed with {type(causes[-1]).__name__}"
        raise UpstreamError(f"{failed}. Send the request again; the operator can update litellm.") from error
    first = answered[-1]
    words, code = message_and_code_of(_body_text_of(first))
    given = (
        getattr(each, "headers", None) or getattr(getattr(each, "response", None), "headers", None) for each in answered
    )
    headers = [header for own in given for header in client_headers_of(own)]
    return ProviderRefusal(_status_of(first) or 500, words or str(error), code, list(dict(headers).items()))


def stream_error_of(error: BaseException, upstream: str) -> UpstreamError:
    """The error for an exception in the middle of an answer."""
    lost = _connection_error_of(list(causes_of(error)), upstream)
    if isinstance(lost, UpstreamTimeout):
        return UpstreamTimeout(f"upstream {upstream} fell silent in the middle of its answer. Send the request again.")
    return UpstreamClosed(f"upstream {upstream} broke off before its answer ended. Send the request again.")


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An exception and its causes, outermost first."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__


def client_headers_of(headers: Any) -> RawHeaders:
    """The provider's headers that clients use. litellm prefixes some."""
    pairs = headers.items() if hasattr(headers, "items") else ()
    plain = {str(name).lower().removeprefix("llm_provider-"): str(value) for name, value in pairs}
    return [
        (n.encode(), v.encode()) for n, v in plain.items() if n in PASSED_HEADERS or n.startswith(RATE_LIMIT_PREFIXES)
    ]


def message_and_code_of(raw: str) -> tuple[str, str]:
    """Message and code of a provider's error in OpenAI's, Anthropic's, Google's or AWS's shape, or as plain text."""
    try:
        parsed = json.loads(raw)
    except ValueError:
        return raw.strip(), ""
    parsed = parsed[0] if isinstance(parsed, list) and parsed else parsed
    if not isinstance(parsed, dict):
        return raw.strip(), ""
    inner = parsed.get("error", parsed)
    if not isinstance(inner, dict):
        return str(inner), ""
    words = inner.get("message") or inner.get("Message") or raw.strip()
    code = inner.get("code") or inner.get("status") or inner.get("type") or ""
    return str(words), str(code)


def _connection_error_of(causes: list[BaseException], upstream: str) -> UpstreamError | None:
    names = {each.__name__ for cause in causes for each in type(cause).__mro__}
    if names & UNREACHABLE_ERRORS:
        look = f"have the operator look at upstreams.{upstream}.url and its network"
        return UpstreamUnreachable(
            f"upstream {upstream} cannot be reached. Send the request again; if that does not help, {look}."
        )
    if names & TIMEOUT_ERRORS:
        raised = f"raise upstreams.{upstream}.idle_timeout_s if it takes longer"
        return UpstreamTimeout(f"upstream {upstream} sent nothing in time. Send the request again, or {raised}.")
    if names & CONNECTION_LOST_ERRORS:
        return UpstreamClosed(f"upstream {upstream} closed the connection, and answered nothing. Ask again.")
    return None


def _status_of(error: BaseException) -> int | None:
    """HTTP status of an exception, if it is one of a refusal."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and 400 <= status <= 599 else None


def _body_text_of(error: BaseException) -> str:
    """The provider's body as text. litellm keeps it as a message, for streams as printed bytes; openai as parsed or
    raw, and in some versions only the status in the message."""
    body = getattr(error, "body", None)
    if isinstance(body, dict | list):
        return json.dumps(body)
    if isinstance(body, str) and body.strip():
        return body
    message = getattr(error, "message", None)
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message or error)
    if text.startswith(("b'", 'b"')):
        try:
            return bytes(ast.literal_eval(text)).decode(errors="replace")
        except (ValueError, SyntaxError):
            return text
    return text
