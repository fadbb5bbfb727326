"""Whether it pays to keep a provider's prompt cache through a pause of the client.

A ping sends the last request again for an answer of a token or so: the provider reads the prefix from its cache, at the
price of a read, and keeps it for another lifetime. That pays if the client comes back within that lifetime, and is
lost if it does not.
"""

from __future__ import annotations

import math

from proxy.accounting.tariff import Tariff

MAX_PINGS = 4
"""Pings of one pause, at most."""
PING_SHARE = 0.9
"""A ping leaves after this share of the cache's lifetime: for five minutes 30 s are left, for slow answers."""
PAUSE_EXPONENT = 0.43
"""Of the pauses longer than `t`, the share `(t / u) ** PAUSE_EXPONENT` is longer than `u`. Fitted to 24 recorded
sessions of coding agents with a clock, 2,780 pauses, those behind which no request came included: of 63 longer than 4.5
minutes 47, 39, 35 and 31 are longer than twice to five times that (this gives 47, 39, 35, 32)."""


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
