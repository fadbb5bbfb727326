"""Errors as bodies: ours in the shape of each API, and what a provider said when it refused a request: its words, and
when to come back.

A refusal of a later round meets a client whose stream has begun, so it is told as the API tells a stream that failed.
The provider's own error object is kept, whatever its members; a page of a gateway is told in its words.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from proxy.dialects import raw_json
from proxy.dialects.sse import SseDecoder

MAX_WORDS = 300
"""Characters of a page that are told."""
BAD_GATEWAY = 502
"""The status of a failure that came as a success."""
TOO_MANY_REQUESTS = 429

ANTHROPIC_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",  # Anthropic's own status; its SDKs wait and ask again, as after a 503
}
"""Types of errors by their status, beside the two general ones."""

_MESSAGE_MEMBERS = ("message", "detail", "msg", "error")
_EVENT_BEGINNINGS = (b"data:", b"event:", b":")
_UNSEEN = re.compile(r"<(script|style)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE)
_TELLS_WHEN = re.compile(r"\b(try|retry) again (in|after)\b|\bretry in\b", re.IGNORECASE)


# ------------------------------------------------------------------------------------------------------ errors of ours
def openai_error_body(status: int, message: str, code: str) -> bytes:
    """As chat completions and responses tell one."""
    error = {"message": message, "type": _general_type(status), "param": None, "code": code}
    return msgspec.json.encode({"error": error})


def anthropic_error_body(status: int, message: str, code: str) -> bytes:
    """As messages tell one."""
    error = {"type": anthropic_error_type(status), "message": message, "code": code}
    return msgspec.json.encode({"type": "error", "error": error})


def anthropic_error_type(status: int) -> str:
    return ANTHROPIC_ERROR_TYPES.get(status) or _general_type(status)


def _general_type(status: int) -> str:
    return "invalid_request_error" if status < 500 else "api_error"


# ------------------------------------------------------------------------------------------------- errors of providers
class ProviderFailure(msgspec.Struct, frozen=True):
    """`error` is the provider's error object, empty where it sent none; `request_id` the provider's, where its body
    names it. `retry_after_s` is None where the provider named no time."""

    status: int
    message: str
    error: Mapping[str, Any] = {}
    request_id: str = ""
    retry_after_s: float | None = None

    @property
    def words(self) -> str:
        """The message, with the time to come back where it does not say that itself. Codex reads the time from these
        words."""
        # Behind the first byte of a stream there is no header left to name the time in.
        if not self.retry_after_s or _TELLS_WHEN.search(self.message):
            return self.message
        said = self.message.rstrip()
        stop = "" if said.endswith((".", "!", "?")) else "."
        return f"{said}{stop} Please try again in {self.retry_after_s:g}s."

    def told_error(self, kind: str) -> dict[str, Any]:
        """The provider's error object with a type (`kind` where it has none), the words, and the time to come back."""
        own = self.error.get("type")
        told = {**self.error, "type": own if isinstance(own, str) and own else kind, "message": self.words}
        return told | self.told_wait

    @property
    def told_wait(self) -> dict[str, float]:
        """The time to come back as a member of the error: a whole number of seconds where it is one."""
        wait_s = self.retry_after_s
        return {"retry_after": int(wait_s) if wait_s.is_integer() else wait_s} if wait_s else {}


# Errors come as an object, a string, a list, a page of HTML, or an empty body behind a status; what a client is told
# of one is in the form of its own API, because SDKs show nothing else.
def read_failure(status: int, body: bytes, retry_after_s: float | None = None) -> ProviderFailure:
    """The failure that an answer with this status and (plain) body tells. A body with the status of a success is the
    failure of a gateway."""
    status = BAD_GATEWAY if status < 400 else status
    said = _object_in(body)
    error = said.get("error")
    if isinstance(error, dict):
        message = _message_of(error) or _message_of(said)
    else:
        message, error = _message_of(said), {}
    if not message and not error:
        message = _words_of_page(body)
    request_id = said.get("request_id")
    return ProviderFailure(
        status,
        message or f"The provider answered {status}.",
        error,
        request_id if isinstance(request_id, str) else "",
        retry_after_s,
    )


def _object_in(body: bytes) -> dict[str, Any]:
    """The object that a body is, that is the first in its array, or that its first event holds."""
    begun = body.lstrip(b" \t\r\n\xef\xbb\xbf")
    if begun.startswith(_EVENT_BEGINNINGS):
        decoder = SseDecoder()
        begun = next((event.data for event in (*decoder.feed(begun), *decoder.end()) if event.data), b"")
    try:
        said = raw_json.parse(begun)
    except raw_json.JsonSplitError:
        return {}
    # Gemini's OpenAI-compatible endpoint sends its error object within an array.
    if isinstance(said, list) and said:
        said = said[0]
    return said if isinstance(said, dict) else {}


def _message_of(said: Mapping[str, Any]) -> str:
    """The words of an object: its message, or what it holds in other members that servers use for it."""
    for name in _MESSAGE_MEMBERS:
        found = said.get(name)
        if isinstance(found, str) and found.strip():
            return found.strip()
        if isinstance(found, dict | list) and found and name != "error":
            return raw_json.encode(found).decode()[:MAX_WORDS]
    return ""


def _words_of_page(body: bytes) -> str:
    text = html.unescape(_UNSEEN.sub(" ", body[: 64 * MAX_WORDS].decode("utf-8", "replace")))
    return " ".join(text.split())[:MAX_WORDS]
