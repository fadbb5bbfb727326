"""A recorded conversation as the requests it was made of.

A client resends its whole history, so the same message is part of many requests: it is written once, and requests
share its bytes. The law: **the recorded next step is fixed**. Whatever the proxy sends, the answer is the recorded one.

What this module does not do: it reads no file and judges no message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from proxy.errors import ProxyError

Json = Mapping[str, Any]
ClockMode = Literal["recorded", "fast"]
PAUSE_S = 15.0
"""Between two requests where no time was recorded: what an agent's step takes."""
FAST_S = 1.0
"""Between two requests of the fast clock: no cache ever goes cold."""


class NotReplayable(ProxyError):
    """Nothing can be played of this; the message says where, why, and what to do."""

    code = "not_replayable"


class NoRecording(NotReplayable):
    """It may be sound, but it is no recording of any kind."""

    code = "no_recording"


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One request and its recorded answer. `before` and `behind` are the body around its messages; `at_ms` counts from
    the first request."""

    body_start: bytes
    messages: tuple[bytes, ...]
    body_end: bytes
    answer: Json | None
    """In the words of its API (`api.Api`); None where it was not recorded."""
    at_ms: int
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def body(self) -> bytes:
        return self.body_start + b",".join(self.messages) + self.body_end


@dataclass(frozen=True, slots=True)
class Recording:
    """`steps` in the order in which they were asked. `notes` say what is odd about it, and was played all the same.
    `dialect` is the API it is replayed in (`apis.APIS`). `without_body` counts requests that could not become steps,
    because what the client sent is not kept."""

    name: str
    model: str
    steps: tuple[RecordedStep, ...]
    notes: tuple[str, ...] = ()
    dialect: str = "chat"
    without_body: int = 0


def encode_json(value: object) -> bytes:
    """`value` as JSON; half a surrogate pair, which UTF-8 cannot say, as an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def body_start_and_end(model: str, others: Json, listing: str = "messages") -> tuple[bytes, bytes]:
    """A body before and behind its messages, which stand in the member `listing`. `others` are the members that are
    neither model nor messages."""
    members = b"".join(b"," + encode_json(name) + b":" + encode_json(value) for name, value in others.items())
    return b'{"model":' + encode_json(model) + b"," + encode_json(listing) + b":[", b"]" + members + b"}"


class RequestTimes:
    """When each request was made, in ms since the first one: never earlier than the one before."""

    def __init__(self, clock: ClockMode) -> None:
        self._fast = clock == "fast"
        self._first: float | None = None
        self._last = -1.0

    def next(self, recorded_s: float | None) -> int:
        """`recorded_s`: seconds on any clock, or None where the recording has none."""
        if self._last < 0:
            self._first, self._last = recorded_s, 0.0
        elif self._fast:
            self._last += FAST_S
        elif recorded_s is None or self._first is None:
            self._last += PAUSE_S
        else:
            self._last = max(self._last, recorded_s - self._first)
        return int(self._last * 1000)
