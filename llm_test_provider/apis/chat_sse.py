"""How server-sent events are written down, and the ways in which real servers write them oddly.

`events_of` turns the JSON payloads of a stream into the bytes of its events. The names in `FORMS` change the writing
of every event (`WRITINGS`) or what the sequence of events holds (`SEQUENCES`); names combine. Pure functions over
bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

DONE = b"[DONE]"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LONG_LINE = 10 * 1024 * 1024
"""Bytes of padding in the event of the form `long_line`."""


@dataclass(frozen=True, slots=True)
class EventStyle:
    """How one event becomes bytes."""

    line_end: bytes = b"\n"
    space: bytes = b" "
    comment: bool = False
    fields: bool = False
    """Also `event:`, `id:` and `retry:` lines."""
    many_lines: bool = False
    """The JSON is spread over several `data:` lines."""
    mark: bool = False
    """The stream opens with a byte order mark."""
    last_blank: bool = True
    """The last event is followed by a blank line."""


EVENT_STYLES: dict[str, dict[str, Any]] = {
    "cr": {"line_end": b"\r"},
    "crlf": {"line_end": b"\r\n"},
    "no_space": {"space": b""},
    "comments": {"comment": True},
    "event_fields": {"fields": True},
    "many_data_lines": {"many_lines": True},
    "byte_order_mark": {"mark": True},
    "no_last_blank_line": {"last_blank": False},
}


def _without_done(payloads: list[bytes]) -> list[bytes]:
    return [payload for payload in payloads if payload != DONE]


def _after_done(payloads: list[bytes]) -> list[bytes]:
    late = next((payload for payload in payloads if b'"content":' in payload), payloads[0])
    return [*payloads, late]


def _two_finishes(payloads: list[bytes]) -> list[bytes]:
    """The chunk with the finish reason twice in a row."""
    return [copy for payload in payloads for copy in ([payload] * (2 if _finishes(payload) else 1))]


def _calls_behind_finish(payloads: list[bytes]) -> list[bytes]:
    """The calls stand between the chunk with the finish reason and what follows it."""
    calls = [payload for payload in payloads if b'"tool_calls":[' in payload]
    others = [payload for payload in payloads if payload not in calls]
    at = next((n + 1 for n, payload in enumerate(others) if _finishes(payload)), len(others))
    return [*others[:at], *calls, *others[at:]]


def _finishes(payload: bytes) -> bool:
    choices = [] if payload == DONE else json.loads(payload).get("choices", [])
    return any(choice.get("finish_reason") for choice in choices)


def _invalid_utf8(payloads: list[bytes]) -> list[bytes]:
    """The first text delta opens with two bytes that no UTF-8 text holds."""
    at = next((n for n, payload in enumerate(payloads) if _says_text(payload)), None)
    if at is None:
        return payloads
    return [*payloads[:at], payloads[at].replace(b'"content":"', b'"content":"\xff\xfe', 1), *payloads[at + 1 :]]


def _says_text(payload: bytes) -> bool:
    return b'"content":"' in payload and b'"content":""' not in payload


def _long_line(payloads: list[bytes]) -> list[bytes]:
    """The first event carries a vendor field of ten megabytes."""
    padded = json.loads(payloads[0]) | {"x_padding": "x" * LONG_LINE}
    return [json.dumps(padded, separators=(",", ":")).encode(), *payloads[1:]]


SEQUENCES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "no_done": _without_done,
    "data_after_done": _after_done,
    "two_finish_reasons": _two_finishes,
    "calls_behind_finish": _calls_behind_finish,
    "invalid_utf8": _invalid_utf8,
    "long_line": _long_line,
}

FORMS: frozenset[str] = frozenset({*EVENT_STYLES, *SEQUENCES})
"""Every name a scenario may use."""


def events_of(payloads: Sequence[bytes], forms: Sequence[str]) -> list[bytes]:
    """The bytes of each event, in order, each with the blank line that ends it."""
    sequence = list(payloads)
    for form in forms:
        sequence = SEQUENCES[form](sequence) if form in SEQUENCES else sequence
    return written([("", payload) for payload in sequence], forms)


def written(payloads: Sequence[tuple[str, bytes]], forms: Sequence[str]) -> list[bytes]:
    """The bytes of each event, given its type (empty: it has none) and its data; only how they are written changes."""
    writing = EventStyle()
    for form in forms:
        writing = replace(writing, **EVENT_STYLES.get(form, {}))
    events = [_event(kind, payload, number, writing) for number, (kind, payload) in enumerate(payloads)]
    if writing.mark:
        events[0] = BYTE_ORDER_MARK + events[0]
    if not writing.last_blank:
        # Both line ends go: the hardest case for a reader is a last line that nothing ends.
        events[-1] = events[-1].removesuffix(writing.line_end * 2)
    return events


def _event(kind: str, payload: bytes, number: int, writing: EventStyle) -> bytes:
    lines = [b": still here"] if writing.comment else []
    if kind or writing.fields:
        lines.append(b"event:" + writing.space + (kind or "message").encode())
    if writing.fields:
        lines += [b"id: %d" % number, b"retry: 3000"]
    data = _spread(payload) if writing.many_lines and payload != DONE else [payload]
    lines += [b"data:" + writing.space + line for line in data]
    return writing.line_end.join([*lines, b"", b""])


def _spread(payload: bytes) -> list[bytes]:
    """The same JSON with a line break between its tokens, which is what the lines of one event are joined by."""
    return json.dumps(json.loads(payload), indent=0, ensure_ascii=False).encode().split(b"\n")
