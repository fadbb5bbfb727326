"""How large a request may be: the window of a model, by its tariff or by what its provider said when it refused.

    window(upstream, model)       what is known of the window, and from where
    measured(upstream, model, n)  n tokens of ours in the provider's measure: it counts with another vocabulary
    refused(...), answered(...)   what teaches: a refusal that names a limit or was about this size, a usage report

The law: **nothing is trimmed for a guess.** The window of a model that nobody knows is the declared default, which
serves as a yardstick and refuses nothing; only a tariff, a configured row, or a refusal binds. What was learned is
believed for a time, never against a larger prompt that passed, and is learned anew after a restart.

What this module does not do: it reads no status and decides no trimming (`overflow` tells a refusal for length from
others, `asking` trims).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from proxy import overflow
from proxy.stack.transcript import Usage
from proxy.tariffs import tariff_for

log = logging.getLogger(__name__)

OUTPUT_RESERVE = 32_000
"""Tokens kept free for the answer at most (S4-20)."""
NAMED_FOR_S = 24 * 3600.0
"""How long a limit that a provider named is believed: accounts move between tiers."""
SIZED_FOR_S = 3600.0
"""How long the mere size of a refused request is believed to be too much."""
LEAST_WINDOW = 1_000
"""A smaller figure in a refusal is no window."""
REMEMBERED = 512
"""Models of upstreams of which something is remembered."""
LARGE = 2_000
"""Tokens from which a request tells how the provider counts: in a small one, what it adds of its own is too much."""
FARTHEST = (0.75, 2.0)
"""How far a provider's count may lie from ours to be believed: reports of usage can be wrong too."""

Source = Literal["table", "named", "size", "assumed"]
"""The tariff, the words of a refusal, the size that was refused, the declared default."""


@dataclass(frozen=True, slots=True)
class Window:
    """`tokens` may be in one request, prompt and answer together; `limit` of them in the prompt."""

    tokens: int
    limit: int
    source: Source

    @property
    def binds(self) -> bool:
        """Somebody said so; a request may be trimmed for it."""
        return self.source != "assumed"


def overflows(used: int, window: int, max_output: int) -> bool:
    """S4-20: whether a prompt of `used` tokens, cached ones included, leaves too little for the answer."""
    return used > prompt_limit(window, max_output)


def prompt_limit(window: int, max_output: int) -> int:
    """What of a window a prompt may fill; at least half of it, for there are models whose answer may be as long."""
    return max(window - min(max_output, OUTPUT_RESERVE), window // 2)


@dataclass(slots=True)
class _Learned:
    """Of one model at one upstream. `until` is on the clock's seconds; `ratio` is the provider's count over ours."""

    tokens: int = 0
    source: Source = "named"
    until: float = 0.0
    ratio: float = 1.0
    passed: int = 0
    """The largest prompt that was answered, in the provider's measure."""


class Limits:
    """One per process; `clock` tells seconds and never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._learned: OrderedDict[tuple[str, str], _Learned] = OrderedDict()
        self._warned: OrderedDict[str, None] = OrderedDict()

    def window(self, upstream: str, model: str) -> Window:
        """The smaller one of what the tariff says and what was learned; the default, with a warning once, where
        neither says anything."""
        tariff, learned = tariff_for(model), self._known(upstream, model)
        if learned is not None and (not tariff.known or learned.tokens < tariff.window):
            named = learned.source == "named"
            limit = prompt_limit(learned.tokens, tariff.max_output) if named else learned.tokens - 1
            return Window(learned.tokens, limit, learned.source)
        limit = prompt_limit(tariff.window, tariff.max_output)
        if not tariff.known:
            self._warn(model, tariff.window)
        return Window(tariff.window, limit, "table" if tariff.known else "assumed")

    def measured(self, upstream: str, model: str, tokens: int) -> int:
        """`tokens` by our count, in the measure of this provider's newest report."""
        learned = self._learned.get((upstream, model))
        return round(tokens * learned.ratio) if learned else tokens

    def answered(self, upstream: str, model: str, tokens: int, usage: Usage | None) -> None:
        """A request of so many tokens of ours passed; what the provider counted, where it says so (S4-60)."""
        if usage is None or not usage.input or tokens < LARGE:
            return
        learned = self._of(upstream, model)
        least, most = FARTHEST
        learned.ratio = min(max(usage.input / tokens, least), most)
        learned.passed = max(learned.passed, usage.input)
        if learned.tokens and usage.input >= learned.tokens:
            learned.tokens = 0  # more than was said to fit has passed

    def refused(self, upstream: str, model: str, tokens: int, body: bytes) -> None:
        """A request of so many tokens of ours was refused for its length, in these words. A named limit is believed
        unless more has passed; the size alone teaches where the refusal speaks of the context and nobody knows
        better."""
        learned, size = self._of(upstream, model), self.measured(upstream, model, tokens)
        if named := overflow.named_limit(body):
            if named < max(LEAST_WINDOW, learned.passed + 1):
                return
            self._learn(learned, named, "named", NAMED_FOR_S)
        elif overflow.speaks_of_context(body) and size > max(LEAST_WINDOW, learned.passed):
            if tariff_for(model).known or (self._holds(learned) and learned.tokens <= size):
                return
            self._learn(learned, size, "size", SIZED_FOR_S)
        else:
            return
        log.info("window learned", extra={"upstream": upstream, "model": model[:80], "tokens": learned.tokens})

    def _learn(self, learned: _Learned, tokens: int, source: Source, seconds: float) -> None:
        learned.tokens, learned.source, learned.until = tokens, source, self._clock() + seconds

    def _known(self, upstream: str, model: str) -> _Learned | None:
        learned = self._learned.get((upstream, model))
        return learned if learned and self._holds(learned) else None

    def _holds(self, learned: _Learned) -> bool:
        return bool(learned.tokens) and self._clock() < learned.until

    def _of(self, upstream: str, model: str) -> _Learned:
        learned = self._learned.setdefault((upstream, model), _Learned())
        self._learned.move_to_end((upstream, model))
        if len(self._learned) > REMEMBERED:
            self._learned.popitem(last=False)
        return learned

    def _warn(self, model: str, window: int) -> None:
        if model in self._warned:
            return
        self._warned[model] = None
        if len(self._warned) > REMEMBERED:
            self._warned.popitem(last=False)
        log.warning("no tariff for this model; its window is assumed", extra={"model": model[:80], "tokens": window})
