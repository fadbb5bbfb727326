"""When a provider that refused wants to be asked again, from the headers of its refusal or its body.

A client decides for itself when it comes back. What the proxy asks on its own account, a summary or a cache ping, waits
until then.
"""

from __future__ import annotations

import re
import time
from datetime import UTC
from email.utils import parsedate_to_datetime

from proxy.upstream.http import Answer, RawHeaders, Upstream

# Agents wait by this header and then send the same body (eleven of eleven, 2026-11), so it passes to them unchanged.
MILLISECONDS, SECONDS_OR_DATE = b"retry-after-ms", b"retry-after"
"""Headers that tell it; the first is Azure's and OpenAI's, and more exact."""
_DELAY_IN_BODY = re.compile(rb'"retryDelay": *"([\d.]+)s"')
"""Google names the time in the body alone."""
MAX_REST_S = 24 * 3600
"""A provider that names a later time is asked again after a day."""


def is_busy(status: int) -> bool:
    """Whether a refusal is about load: the time that it names is the provider's, not that of one request."""
    return status == 429 or status >= 500


def note_rest(upstream: Upstream, got: Answer, now: int) -> None:
    """Remember until when a provider wants to be left alone, however the machine's clock jumps. `now` is as below."""
    if is_busy(got.status) and (wait_s := retry_after_s(got.headers, now)):
        upstream.rests_until = max(upstream.rests_until, time.monotonic() + min(wait_s, MAX_REST_S))


def is_resting(upstream: Upstream) -> bool:
    return time.monotonic() < upstream.rests_until


def retry_after_s(headers: RawHeaders, now: int, body: bytes = b"") -> float | None:
    """Seconds until then, at least 0; None where the provider names no time. `now` is in ms since the epoch, names in
    `headers` are in lower case, and `body` is the refusal's."""
    told = dict(reversed(headers))
    if (found := _number(told.get(MILLISECONDS, b""))) is not None:
        return found / 1000
    in_body = _DELAY_IN_BODY.search(body)
    said = told.get(SECONDS_OR_DATE) or (in_body[1] if in_body else b"")
    if (found := _number(said)) is not None:
        return found
    try:
        until = parsedate_to_datetime(said.decode("latin-1"))
    except (ValueError, TypeError, IndexError):
        return None
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(round(until.timestamp() - now / 1000, 1), 0.0)


def _number(said: bytes) -> float | None:
    try:
        found = float(said.decode("latin-1").strip())
    except ValueError:
        return None
    return max(found, 0.0) if found < float("inf") else None  # neither is NaN
