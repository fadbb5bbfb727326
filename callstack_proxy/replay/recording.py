"""A recorded conversation as the requests it was made of.

A client resends its whole history, so a message is part of many requests: it is written once, and requests share its
bytes. The recorded answer is fixed, whatever the proxy sends.
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
"""Seconds between two requests without recorded times: about what an agent's step takes."""
FAST_S = 1.0
"""Seconds between two requests of the fast clock: no cache ever goes cold."""


class NotReplayable(ProxyError):
    """This cannot be replayed; the message says where, why, and what to do."""

    code = "not_replayable"


class NoRecording(NotReplayable):
    """The file may be sound, but it holds no recording of any kind."""

    code = "no_recording"


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One request and its recorded answer. `body_start` and `body_end` are the body around its messages; `at_ms` counts
    from the first request."""

    body_start: bytes
    messages: tuple[bytes, ...]
    body_end: bytes
    answer: Json | None
    """In the form of its API (`ReplayApi`); None where it was not recorded."""
    at_ms: int
    headers: tuple[tuple[bytes, bytes], ...] = ()
    is_copy: bool = False
    """The request was counted with another recording: it is played, and its money does not count here."""

    @property
    def body(self) -> bytes:
        return self.body_start + b",".join(self.messages) + self.body_end


class RecordingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a recording beside its requests."""

    name: str
    model: str
    dialect: str = "chat"
    """The API it is replayed in, a key of `APIS`: chat, messages, responses."""
    without_body: int = 0
    """Requests that cannot be replayed, because their body is not stored."""
    client: str = ""
    """Who wrote the session log it was read from."""
    started_s: float | None = None
    """When the session began, in seconds since the epoch."""
    assumed_head: int = 0
    """Tokens of system text and tools that the log does not hold and nothing in it tells."""
    folder: str = ""
    """Where the client worked, as its log says."""


class Recording(RecordingFacts, frozen=True, kw_only=True):
    """`steps` in the order of the requests. `notes` name oddities that do not stop the replay."""

    steps: tuple[RecordedStep, ...]
    notes: tuple[str, ...] = ()


def encode_json(value: object) -> bytes:
    """`value` as JSON; half a surrogate pair, which UTF-8 cannot encode, as an escape."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def body_start_and_end(model: str, others: Json, listing: str = "messages") -> tuple[bytes, bytes]:
    """A body before and after its messages, which are the member `listing`. `others` are the remaining members besides
    the model."""
    members = b"".join(b"," + encode_json(name) + b":" + encode_json(value) for name, value in others.items())
    return b'{"model":' + encode_json(model) + b"," + encode_json(listing) + b":[", b"]" + members + b"}"


class RequestTimes:
    """When each request was made, in ms since the first one; never earlier than the request before."""

    def __init__(self, clock: ClockMode) -> None:
        self._fast = clock == "fast"
        self._first: float | None = None
        self._last = -1.0

    def next(self, recorded_s: float | None) -> int:
        """`recorded_s`: seconds on any clock, or None where no time was recorded."""
        if self._last < 0:
            self._first, self._last = recorded_s, 0.0
        elif self._fast:
            self._last += FAST_S
        elif recorded_s is None or self._first is None:
            self._last += PAUSE_S
        else:
            self._last = max(self._last, recorded_s - self._first)
        return int(self._last * 1000)
