"""Recognizes by their wording refusals of requests that are too long for the model.

There is no standard for them. Throttling ("too many tokens, please wait") and limits on the length of an answer or a
name are not overflow, because trimming would lose context for nothing. In doubt it is not overflow, and the client gets
the refusal unchanged.
"""

from __future__ import annotations

import re

# Most say 400, gateways 413, some servers 500. Seven of eleven agents end their run on such a refusal (2026-11), so it
# is worth shortening and asking again before they see it.
OVERFLOW_STATUSES = frozenset({400, 413, 422, 500})
"""Statuses of overflow refusals. 429 is always throttling."""
_TOO_LONG = re.compile(
    rb"context[ _-]?(length|window|size)|maximum context|max(imum)?[ _](prompt|input)[ _]?(length|tokens)"
    rb"|prompt is too long|input is too long|too (long|large)[^\"]{0,40}(prompt|input|context|model)"
    rb"|(prompt|input|request|messages?)[^\"]{0,60}(exceed|too long|too large|larger than|longer than)"
    rb"[^\"]{0,80}(token|context|length|limit|window)"
    rb"|exceeds?[^\"]{0,60}(context|token limit|maximum number of tokens|available context|max_(seq|model)_len)"
    rb"|(token count|tokens?)[^\"]{0,80}(exceed|only supports up to|must be <=)|range of input length"
    rb"|inputs?`? must have less than \d+ tokens|reduce the (length|input token)|exceed_context_size|request_too_large"
    rb"|context (limit|overflow)|tokens in (the )?prompt|(prompt|input)[^\"]{0,30}(greater than|over the limit)"
    rb"|(model|window) (only )?supports( at most| up to)? \d+( tokens|\")|requested \d+ tokens, max"
    rb"|(prompt|input|conversation|history) (is |was )?too long|maximum number of (input|prompt) tokens",
    re.IGNORECASE,
)
_TOO_LONG_IN_OTHER_LANGUAGES = re.compile(
    r"(?:上下文|输入|输入长度|提示)[^\"]{0,30}(?:超过|超出|过长|太长)|(?:コンテキスト|プロンプト|入力)[^\"]{0,20}(?:長すぎ|超え)"
    r"|(?:프롬프트|입력|컨텍스트)[^\"]{0,20}(?:너무 길|초과)"
    r"|(?:eingabe|prompt|anfrage|kontext)[^\"]{0,40}(?:zu lang|überschreite)|überschreite[^\"]{0,40}kontext"
    r"|(?:dépasse|excede|supera|excedeu)[^\"]{0,60}(?:context|jetons|tokens)",
    re.IGNORECASE,
)
_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")
# "Too many tokens, please wait" is throttling (Bedrock, and limits by the minute of several others): a shorter request
# would lose context and be refused all the same.
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
"""Limits on an answer, a name or an id: trimming the prompt would not help."""
_PROMPT_AND_OUTPUT_TOO_LONG = re.compile(rb"your request has \d+ input tokens", re.IGNORECASE)
"""Prompt and requested answer are too long together: a shorter prompt helps."""
_BODY_TOO_LARGE = re.compile(rb"request_too_large|request entity too large|maximum size|bytes|\bmi?b\b", re.IGNORECASE)
"""A body too large in bytes, mostly by pictures, says nothing about tokens."""
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
