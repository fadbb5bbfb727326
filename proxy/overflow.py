"""Did the provider refuse a request because it is too long? There is no standard, so wordings decide.

The law: **throttling is not overflow.** "Too many tokens, please wait" is answered by waiting; trimming for it would
lose context for nothing. When in doubt it is no overflow, and the refusal passes to the client as it is.
"""

from __future__ import annotations

import re

STATUSES = frozenset({400, 413, 422, 500})
"""Statuses that providers refuse an overlong request with. 429 is always throttling."""
_LONG = re.compile(
    rb"context[ _-]?(length|window|size)|maximum context|max(imum)?[ _](prompt|input)?[ _]?(length|tokens)"
    rb"|prompt is too long|input is too long|too (long|large)[^\"]{0,40}(prompt|input|context|model)"
    rb"|(prompt|input|request|messages?)[^\"]{0,60}(exceed|too long|too large|larger than|longer than)"
    rb"[^\"]{0,80}(token|context|length|limit|window)"
    rb"|exceeds?[^\"]{0,60}(context|token limit|maximum number of tokens|available context)"
    rb"|(token count|tokens?)[^\"]{0,80}(exceed|only supports up to|must be <=)|range of input length"
    rb"|reduce the (length|input token)|string too long|exceed_context_size|request_too_large",
    re.IGNORECASE,
)
_WAIT = re.compile(
    rb"rate.?limit|per (minute|day|hour|second)|please wait|try again (in|later)|quota|too many requests|tpm|capacity"
    rb"|overloaded|retry after|max_tokens (is|must|should)|max_completion_tokens",
    re.IGNORECASE,
)
LOOKED_AT = 8_192
"""Bytes of an error body that are read."""
SILENT = 16_000
"""Tokens from which a 400 or 413 without a word is taken for overflow: some providers say nothing else."""


def is_overflow(status: int, body: bytes, tokens: int = 0) -> bool:
    """Whether this refusal says that the request, of so many tokens, does not fit the model's window."""
    told = body[:LOOKED_AT]
    if status not in STATUSES or _WAIT.search(told):
        return False
    if not told.strip():
        return status in (400, 413) and tokens >= SILENT
    return _LONG.search(told) is not None
