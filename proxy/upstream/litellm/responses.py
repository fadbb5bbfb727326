"""Encodes litellm's answers as bytes of the dialect: a JSON body, or stream events.

Members stay as they are, except for nulls, which litellm adds. A stream without an end from the provider raises
UnfinishedStream, because litellm invents a `stop` for streams that break off.
"""

from __future__ import annotations

from typing import Any, Protocol

from proxy.config import WireFormat
from proxy.dialects import raw_json

DONE_EVENT = b"data: [DONE]\n\n"
Json = dict[str, Any]


class UnfinishedStream(Exception):
    """The provider's stream broke off without an error."""


class StreamEncoder(Protocol):
    def encode(self, event: Any) -> bytes:
        """Bytes of a litellm event. Raises UnfinishedStream for an end that the provider did not send."""

    def finish(self) -> bytes:
        """The last bytes. Raises UnfinishedStream if no end has come."""


class ChatStreamEncoder:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._finished = False

    def encode(self, event: Any) -> bytes:
        chunk = _members_of(event)
        choices = chunk.get("choices") or []
        if any(choice.get("finish_reason") for choice in choices):
            if getattr(self._stream, "received_finish_reason", "told") is None:
                raise UnfinishedStream
            self._finished = True
        if "usage" in chunk and not any(c.get("delta") or c.get("finish_reason") for c in choices):
            chunk["choices"] = choices = []  # as OpenAI tells it; litellm puts an empty delta there
        for choice in choices:
            choice.setdefault("finish_reason", None)
        return b"data: " + raw_json.encode(chunk) + b"\n\n"

    def finish(self) -> bytes:
        if not self._finished:
            raise UnfinishedStream
        return DONE_EVENT


class MessagesStreamEncoder:
    """Events of a message: raw bytes, or values where litellm wrote them itself."""

    def __init__(self, _stream: Any) -> None:
        self._finished = False

    def encode(self, event: Any) -> bytes:
        if isinstance(event, str):
            event = event.encode()
        if not isinstance(event, bytes):
            members = _members_of(event)
            event = f"event: {members.get('type', '')}\n".encode() + b"data: " + raw_json.encode(members) + b"\n\n"
        self._finished = self._finished or b"message_stop" in event
        return bytes(event)

    def finish(self) -> bytes:
        if not self._finished:
            raise UnfinishedStream
        return b""


class ResponsesStreamEncoder:
    """Events of a response. litellm numbers only some of them; here each gets a number."""

    FINAL_EVENT_TYPES = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})

    def __init__(self, _stream: Any) -> None:
        self._finished = False
        self._number = 0

    def encode(self, event: Any) -> bytes:
        members = _members_of(event)
        kind = str(getattr(members.get("type"), "value", members.get("type", "")))
        self._finished = self._finished or kind in self.FINAL_EVENT_TYPES
        event_members = {**members, "type": kind, "sequence_number": self._number}
        self._number += 1
        return f"event: {kind}\n".encode() + b"data: " + raw_json.encode(event_members) + b"\n\n"

    def finish(self) -> bytes:
        if not self._finished:
            raise UnfinishedStream
        return b""


STREAM_ENCODERS: dict[
    WireFormat, type[ChatStreamEncoder] | type[MessagesStreamEncoder] | type[ResponsesStreamEncoder]
] = {
    "chat": ChatStreamEncoder,
    "messages": MessagesStreamEncoder,
    "responses": ResponsesStreamEncoder,
}


def encode_body(value: Any) -> bytes:
    """A whole answer as JSON. A message without text gets null content, as clients expect."""
    members = _members_of(value)
    for choice in members.get("choices") or ():
        if isinstance(message := choice.get("message"), dict):
            message.setdefault("content", None)
    return raw_json.encode(members)


def _members_of(value: Any) -> Json:
    """Members of a litellm value without nulls."""
    if isinstance(value, dict):
        return value
    found: Json = value.model_dump(mode="json", exclude_none=True, exclude_unset=True)
    return found
