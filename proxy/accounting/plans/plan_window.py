"""Windows of plans that are not paid by the token: what the headers of an answer say of how much of them is used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

Headers = Iterable[tuple[bytes, bytes]]
"""Names in lower case."""

UNIFIED_PREFIX = b"anthropic-ratelimit-unified-"
UNIFIED_STEP = 0.01
"""Anthropic tells the used share with two decimals (`0.05`, `0.42`)."""
CODEX_STEP = 0.01
"""Codex' backend tells percent; they are parsed as a fraction, and come as whole numbers."""
HOUR_MINUTES, DAY_MINUTES = 60, 24 * 60


class WindowReading(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one answer said of one window. `used` is a share of it, 1 when it is used up."""

    name: str
    """Its length: `5h`, `7d`."""
    used: float
    resets_at: int = 0
    """Seconds since 1970; 0 where it was not told."""
    status: str = ""
    """"allowed", "allowed_warning" or "rejected", where it was told."""
    step: float = UNIFIED_STEP
    """To what `used` is rounded."""


def read_windows(headers: Headers, now_s: float) -> tuple[WindowReading, ...]:
    """The windows that an answer's headers tell, the shortest first; none for who pays by the token.

    Anthropic: `anthropic-ratelimit-unified-{5h,7d}-{utilization,reset,status}` (`0.05`, `1790814600`, `allowed`), as
    public programs quote answers of 2026 to Claude Code's login. Codex:
    `x-codex-{primary,secondary}-{used-percent,window-minutes,reset-at}`, in older answers `-reset-after-seconds`
    (codex-rs/codex-api/src/rate_limits.rs of github.com/openai/codex). A value that is no number leaves its window
    out."""
    told = {name: value for name, value in headers if name.startswith((UNIFIED_PREFIX, b"x-codex-"))}
    if not told:
        return ()
    found = {reading.name: reading for reading in (*_unified_windows(told), *_codex_windows(told, now_s))}
    return tuple(sorted(found.values(), key=lambda reading: window_minutes(reading.name)))


def _unified_windows(told: Mapping[bytes, bytes]) -> Iterable[WindowReading]:
    for name in (b"5h", b"7d"):
        used = _number(told.get(UNIFIED_PREFIX + name + b"-utilization"))
        if used is not None:
            reset = _number(told.get(UNIFIED_PREFIX + name + b"-reset")) or 0
            status = told.get(UNIFIED_PREFIX + name + b"-status", b"").decode("latin-1")[:40]
            yield WindowReading(name.decode(), used, int(reset), status, UNIFIED_STEP)


def _codex_windows(told: Mapping[bytes, bytes], now_s: float) -> Iterable[WindowReading]:
    for which, usual in ((b"primary", 5 * HOUR_MINUTES), (b"secondary", 7 * DAY_MINUTES)):
        start = b"x-codex-" + which
        used = _number(told.get(start + b"-used-percent"))
        if used is None:
            continue
        minutes = _number(told.get(start + b"-window-minutes"))
        if minutes == 0:
            continue  # a plan without this window
        reset = _number(told.get(start + b"-reset-at"))
        left = _number(told.get(start + b"-reset-after-seconds"))
        if reset is None and left is not None:
            reset = now_s + left
        yield WindowReading(window_name(int(minutes or usual)), used / 100, int(reset or 0), "", CODEX_STEP)


def _number(said: bytes | None) -> float | None:
    try:
        number = float(said) if said else None
    except ValueError:
        return None
    return number if number is not None and math.isfinite(number) and number >= 0 else None


def window_name(minutes: int) -> str:
    """`5h` for 300, `7d` for 10,080; some plans say a minute less."""
    if minutes >= DAY_MINUTES - 1 and abs(minutes - round(minutes / DAY_MINUTES) * DAY_MINUTES) <= HOUR_MINUTES:
        return f"{round(minutes / DAY_MINUTES)}d"
    return f"{round(minutes / HOUR_MINUTES)}h" if minutes >= HOUR_MINUTES - 1 else f"{minutes}m"


def window_minutes(name: str) -> int:
    return int(name[:-1]) * {"d": DAY_MINUTES, "h": HOUR_MINUTES}.get(name[-1], 1)
