"""Whether it pays to keep a provider's prompt cache through pauses of the client.

A ping sends the last request again for an answer of a token or so: the provider reads the prefix from its cache, at the
price of a read, and keeps it for another lifetime. That pays if the client comes back within that lifetime, and is
lost if it does not. Where a longer lifetime is sold, the head can be written for that: once dearer, then cached.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from proxy.accounting.tariff import Tariff
from proxy.core.ledger import Usage

MAX_PINGS = 4
"""Pings of one pause, at most."""
PING_SHARE = 0.9
"""A ping leaves after this share of the cache's lifetime: for five minutes 30 s are left, for slow answers."""
PAUSE_EXPONENT = 0.43
"""Of the pauses longer than `t`, the share `(t / u) ** PAUSE_EXPONENT` is longer than `u`. Fitted to 24 recorded
sessions of coding agents with a clock, 2,780 pauses, those behind which no request came included: of 63 longer than 4.5
minutes 47, 39, 35 and 31 are longer than twice to five times that (this gives 47, 39, 35, 32)."""

LONG_HEAD_SHARE = 0.03
"""Of what a thread has cost so far: the most that the longer lifetime of its head may have cost after a pause."""
PaidRounds = Sequence[tuple[int, Usage]]
"""When each answer of a thread came, in ms since the epoch, and what the provider reported of it; oldest first."""


def head_is_kept_long(paid: PaidRounds, tariff: Tariff, now: int) -> bool:
    """Whether the head was written for the longer lifetime, and has been used within it ever since."""
    longest, kept, before = tariff.long_ttl_s * 1000, False, 0
    for at, usage in paid:
        kept = usage.written_long > 0 or (kept and at - before <= longest)
        before = at
    return kept and now - before <= longest


def may_keep_head_long(paid: PaidRounds, tariff: Tariff, now: int, head: float, total: float) -> bool:
    """Whether a request of `total` tokens comes after a pause that the cache did not outlive, and the longer lifetime
    of its first `head` tokens costs little beside what was paid so far, with what it has cost after earlier pauses."""
    if not paid or not tariff.known or now - paid[-1][0] <= tariff.ttl_s * 1000:
        return False
    lasting = head + sum(usage.written_long for _, usage in paid)
    extra = lasting * (tariff.write_long - tariff.write) * tariff.for_input(total).input
    return 0 < extra <= LONG_HEAD_SHARE * sum(_paid(usage, tariff.for_input(usage.input)) for _, usage in paid)


def _paid(usage: Usage, prices: Tariff) -> float:
    """In millionths of a dollar."""
    fresh, short = usage.input - usage.cached - usage.written, usage.written - usage.written_long
    read = fresh + prices.read * usage.cached + prices.write * short + prices.write_long * usage.written_long
    return read * prices.input + usage.output * (prices.output or 0.0)


def return_chance(ping: int) -> float:
    """How likely the client comes back before the next ping would be due, if it has not before this one (1, 2, ...)."""
    return 1.0 - math.pow(ping / (ping + 1), PAUSE_EXPONENT)


def pings_that_pay(tariff: Tariff, write: float, most: int = MAX_PINGS) -> int:
    """How many pings of one pause are worth more than they cost, `most` at most. `write` is what a newly cached token
    costs as a multiple of the input price. Of a model without a known price none is."""
    if not tariff.known:
        return 0
    saved = max(write, 1.0) - tariff.read
    paying = 0
    while paying < min(most, MAX_PINGS) and return_chance(paying + 1) * saved > tariff.read:
        paying += 1
    return paying


def ping_cost(tariff: Tariff, tokens: int) -> float:
    """USD of reading a prefix of `tokens` from the cache."""
    prices = tariff.for_input(tokens)
    return tokens * prices.read * prices.input / 1_000_000
