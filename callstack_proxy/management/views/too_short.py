"""Says how a conversation stands by its newest request, and when the proxy begins to help where it is too short for it:
at how many tokens, and how many it has now. What an agent does next is not known, so the figures are about right."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.accounting import OWN_REQUEST_STATUSES, Receipt

BROKEN_OFF = frozenset({"client_left", "cancelled", "stopped", "shutdown"})
"""Reasons of errors that say nothing of how the next request fares."""
LENGTH_REASONS = frozenset({"", "small", "no_gain", "in_loop"})
"""Reasons for which a conversation is left alone that pass by as it grows."""
SMALLEST_TOKENS = 4_000
"""About so many tokens a request has where our smallest offer of tools is small beside it (`docs/how-it-works.md`)."""

QUIET_MS = 3_600_000
"""An agent that has asked for nothing for so long has finished, or was left: nothing waits for anybody."""


def waiting_or_quiet(last_active: int, now: int) -> str:
    """The word for a conversation that we help in and in which nothing is under way. Both are ms since the epoch."""
    return "quiet" if now - last_active >= QUIET_MS else "waiting"


def tells_standing(receipt: Receipt) -> bool:
    """Whether a request tells how its conversation stands: not one of ours, a question beside the work, or one that was
    broken off."""
    if receipt.status == "error":
        return receipt.reason not in BROKEN_OFF
    return receipt.status not in OWN_REQUEST_STATUSES and receipt.status != "side"


def newest_telling(newest_first: Iterable[Receipt]) -> Receipt | None:
    return next(filter(tells_standing, newest_first), None)


def is_too_short(receipt: Receipt) -> bool:
    return receipt.status == "asleep" and receipt.reason in LENGTH_REASONS


def help_begins(receipt: Receipt | None, wake_at: int | None) -> str:
    """For example `begins at about 16k tokens; 9k now`; empty where the length is not the reason, or nothing is known.
    `wake_at` is the setting `wake_at_tokens`."""
    if receipt is None or not is_too_short(receipt):
        return ""
    now = f"{_about(receipt.tokens_in)} now"
    if wake_at is not None and receipt.tokens_in >= wake_at:  # amid tool calls it does not begin
        return f"begins with your next message; {now}"
    if wake_at is not None:
        return f"begins at about {_about(wake_at)} tokens; {now}"
    if receipt.reason == "small":
        return f"begins at about {_about(SMALLEST_TOKENS)} tokens; {now}"
    asked = next((each for each in reversed(receipt.decisions) if each.kind == "wake"), None)
    if asked is None or asked.removed <= asked.compaction or asked.gain <= 0:
        return f"begins once a first part of the work is finished; {now}"
    if asked.gain >= asked.cost:
        return f"begins with your next message; {now}"
    gain_per_token = asked.gain / (asked.removed - asked.compaction)
    needed = max(SMALLEST_TOKENS, receipt.tokens_in + (asked.cost - asked.gain) / gain_per_token)
    return f"begins at about {_about(needed)} tokens; {now}"


def _about(tokens: float) -> str:
    """Whole thousands, and below ten of them a decimal."""
    if tokens < 1_000:
        return f"{tokens:.0f}"
    return f"{tokens / 1000:.0f}k" if tokens >= 10_000 else f"{tokens / 1000:.1f}k".replace(".0k", "k")
