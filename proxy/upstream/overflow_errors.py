"""Did the provider refuse a request because it is too long? There is no standard, so wordings decide.

The law: **throttling is not overflow**, nor is what is said of the length of an answer or a name. "Too many tokens,
please wait" is answered by waiting; trimming for it would lose context for nothing. When in doubt it is no overflow,
and the refusal passes to the client as it is.

What this module does not do: it remembers nothing (`limits` does) and trims nothing.
"""

from __future__ import annotations

import re

OVERFLOW_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses that providers refuse an overlong request with. 429 is always throttling."""
_TOO_LONG = re.compile(
    rb"context[ _-]?(length|window|size)|maximum context|max(imum)?[ _](prompt|input)[ _]?(length|tokens)"
    rb"|prompt is too long|input is too long|too (long|large)[^\"]{0,40}(prompt|input|context|model)"
    rb"|(prompt|input|request|messages?)[^\"]{0,60}(exceed|too long|too large|larger than|longer than)"
    rb"[^\"]{0,80}(token|context|length|limit|window)"
    rb"|exceeds?[^\"]{0,60}(context|token limit|maximum number of tokens|available context)"
    rb"|(token count|tokens?)[^\"]{0,80}(exceed|only supports up to|must be <=)|range of input length"
    rb"|reduce the (length|input token)|exceed_context_size|request_too_large",
    re.IGNORECASE,
)
_THROTTLED = re.compile(
    rb"rate.?limit|per (minute|day|hour|second)|please wait|try again (in|later)|quota|too many requests|tpm|capacity"
    rb"|overloaded|retry after",
    re.IGNORECASE,
)
_OTHER_LIMIT = re.compile(
    rb"max_completion_tokens|max_(output_)?tokens[^a-z_]{0,12}(is|must|should|exceeds the maximum allowed output)"
    rb"|maximum tokens you requested|(string|array) too long\. expected [^\"]{0,40}maximum length \d{1,4}\b",
    re.IGNORECASE,
)
"""How long an answer may be, or a name or an id: trimming the prompt for it would be in vain."""
_PROMPT_AND_OUTPUT_TOO_LONG = re.compile(rb"your request has \d+ input tokens", re.IGNORECASE)
"""The answer that is asked for is too long beside this prompt: behind a shorter one it fits."""
_BODY_TOO_LARGE = re.compile(rb"request_too_large|request entity too large|maximum size|bytes|\bmi?b\b", re.IGNORECASE)
"""A body may be too large for the wire, pictures above all; that says nothing of tokens."""
_NUMBER = rb"(\d{1,3}(?:[,_]\d{3})+|\d+)"
_LIMIT_PATTERNS = tuple(
    re.compile(before + _NUMBER, re.IGNORECASE)
    for before in (
        rb"(?:>|\\u003e) ?",
        rb"(?:up to|(?:<|\\u003c)=|cannot exceed|model with|\[\d,) ",
        rb"(?:length|window|size|limit|allowed)(?: is| of|:)? \(?(?<!length )",
    )
)
"""What stands before the limit in a refusal, the surest first; the size that was asked for stands beside it in most."""
MAX_SCANNED_BYTES = 8_192
"""Bytes of an error body that are read."""
MIN_UNEXPLAINED_OVERFLOW_TOKENS = 16_000
"""Tokens from which a 400 or 413 without a word, or an answer without one, is taken for overflow: some providers say
nothing else."""


def is_overflow(status: int, body: bytes, tokens: int = 0) -> bool:
    """Whether this refusal says that the request, of so many tokens, does not fit the model's window."""
    told = body[:MAX_SCANNED_BYTES]
    if (
        status not in OVERFLOW_STATUSES
        or _THROTTLED.search(told)
        or (_OTHER_LIMIT.search(told) and not _PROMPT_AND_OUTPUT_TOO_LONG.search(told))
    ):
        return False
    if not told.strip():
        return status in (400, 413) and tokens >= MIN_UNEXPLAINED_OVERFLOW_TOKENS
    return _TOO_LONG.search(told) is not None


def named_limit(body: bytes) -> int | None:
    """The tokens that a refusal for length says are allowed, where it does."""
    told = body[:MAX_SCANNED_BYTES]
    found = next((match for pattern in _LIMIT_PATTERNS if (match := pattern.search(told))), None)
    return int(re.sub(rb"\D", b"", found[1])) if found else None


def mentions_context(body: bytes) -> bool:
    """Whether a refusal for length is about tokens: one about the bytes of the body, or without a word, teaches no
    size."""
    told = body[:MAX_SCANNED_BYTES]
    return bool(told.strip()) and not _BODY_TOO_LARGE.search(told)
