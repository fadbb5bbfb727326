"""Recognizes by their wording refusals of requests that are too long for the model.

There is no standard for them. Throttling ("too many tokens, please wait") and limits on the length of an answer or a
name are not overflow, because trimming would lose context for nothing. In doubt it is not overflow, and the client gets
the refusal unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from proxy.core.word_lists import read_table

# Most say 400, gateways 413, some servers 500. Seven of eleven agents end their run on such a refusal (2026-11), so it
# is worth shortening and asking again before they see it.
OVERFLOW_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses of overflow refusals. 429 is always throttling."""


class _Refusals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The lists of `overflow_errors.toml`, which says of each what it is for."""

    too_long: tuple[str, ...]
    too_long_in_other_languages: tuple[str, ...]
    throttled: tuple[str, ...]
    other_limit: tuple[str, ...]
    body_too_large: tuple[str, ...]


def _any_of(expressions: Iterable[str]) -> re.Pattern[bytes]:
    return re.compile("|".join(expressions).encode(), re.IGNORECASE)


_REFUSALS = read_table(__package__, "overflow_errors.toml", _Refusals)
_TOO_LONG, _THROTTLED = _any_of(_REFUSALS.too_long), _any_of(_REFUSALS.throttled)
_OTHER_LIMIT, _BODY_TOO_LARGE = _any_of(_REFUSALS.other_limit), _any_of(_REFUSALS.body_too_large)
_TOO_LONG_IN_OTHER_LANGUAGES = re.compile("|".join(_REFUSALS.too_long_in_other_languages), re.IGNORECASE)
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
_PROMPT_AND_OUTPUT_TOO_LONG = re.compile(rb"your request has \d+ input tokens", re.IGNORECASE)
"""Prompt and requested answer are too long together: a shorter prompt helps."""
_NUMBER = rb"(\d{1,3}(?:[,_]\d{3})+|\d+)"
_LIMIT_PATTERNS = tuple(
    re.compile(before + _NUMBER, re.IGNORECASE)
    for before in (
        rb"(?:>|\\u003e) ?",
        rb"(?:up to|(?:<|\\u003c)=|cannot exceed|model with|\[\d,) ",
        rb"(?:length|window|size|limit|allowed)(?: is| of|:)? \(?(?<!length )",
    )
)
"""Text before the limit, most reliable first; most refusals also contain the requested size."""
MAX_SCANNED_BYTES = 8_192
# Cerebras says nothing at all; other gateways leave out the body of a refusal that they pass on.
MIN_UNEXPLAINED_OVERFLOW_TOKENS = 16_000
"""From this size on a 400 or 413 without a message counts as overflow: some providers say nothing else."""


def is_overflow(status: int, body: bytes, tokens: int = 0) -> bool:
    """Whether a refusal of a request of so many tokens means that it does not fit the model's window."""
    text = body[:MAX_SCANNED_BYTES]
    if (
        status not in OVERFLOW_STATUSES
        or _THROTTLED.search(text)
        or (_OTHER_LIMIT.search(text) and not _PROMPT_AND_OUTPUT_TOO_LONG.search(text))
    ):
        return False
    if not text.strip():
        return status in (400, 413) and tokens >= MIN_UNEXPLAINED_OVERFLOW_TOKENS
    said = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text.decode(errors="replace"))
    return _TOO_LONG.search(text) is not None or _TOO_LONG_IN_OTHER_LANGUAGES.search(said) is not None


def named_limit(body: bytes) -> int | None:
    """The allowed tokens that a refusal names, if any."""
    text = body[:MAX_SCANNED_BYTES]
    match_of_limit = next((match for pattern in _LIMIT_PATTERNS if (match := pattern.search(text))), None)
    return int(re.sub(rb"\D", b"", match_of_limit[1])) if match_of_limit else None


def mentions_context(body: bytes) -> bool:
    """Whether an overflow refusal is about tokens. One about bytes, or without a message, tells no size."""
    text = body[:MAX_SCANNED_BYTES]
    return bool(text.strip()) and not _BODY_TOO_LARGE.search(text)
