"""How large a request may be: the window of a model, by its tariff or by what its provider said when it refused.

    window(upstream, model)   what is known of the window, from where, and in tokens as we count them
    refused(...)              teaches: a refusal names a limit, or was about this size
    answered(...)             teaches: a report of usage tells how the provider counts, and what passed

The law: **nothing is trimmed for a guess.** The window of a model that nobody knows is the declared default, which
serves as a yardstick and refuses nothing; only a tariff, a configured row, or a refusal binds. What was learned binds
the conversations that were refused: another one is asked first, for one wrong refusal must not shorten everybody's
lines. It is believed for a time, never against a larger prompt that passed, and is learned anew after a restart.

What this module does not do: it reads no status and decides no trimming (`overflow` tells a refusal for length from
others, `asking` trims).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from proxy.accounting import Tariff
from proxy.core.ledger import Usage
from proxy.upstream import overflow_errors as overflow

log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")

MAX_OUTPUT_RESERVE = 32_000
"""Tokens kept free for the answer at most (S4-20)."""
MAX_PROMPT_SHARE = 0.9
"""Of a window, what a prompt fills at most, however short the answers of its model are (C13)."""
NAMED_LIMIT_TTL_S = 24 * 3600.0
"""How long a limit that a provider named is believed: accounts move between tiers."""
REFUSED_SIZE_TTL_S = 3600.0
"""How long the mere size of a refused request is believed to be too much."""
MAX_OUTPUT_SHARE = 0.5
"""Of a window that is known, what a single output may fill where the configuration does not say."""
MIN_WINDOW = 1_000
"""A smaller figure in a refusal is no window."""
MAX_REMEMBERED_MODELS = 1024
"""Models, and conversations, of which something is remembered."""
MIN_RATIO_TOKENS = 2_000
"""Tokens from which a request tells how the provider counts: in a small one, what it adds of its own is too much."""
RATIO_RANGE = (0.75, 2.0)
"""How far a provider's count may lie from ours to be believed: reports of usage can be wrong too."""

WindowSource = Literal["table", "named", "size", "assumed"]
"""The tariff, the words of a refusal, the size that was refused, the declared default."""


class ContextWindow(msgspec.Struct, frozen=True):
    """`tokens` may be in one request, prompt and answer together; `limit` of them in the prompt. Both by our count: a
    provider whose vocabulary makes more tokens of the same text has a smaller window."""

    tokens: int
    limit: int
    source: WindowSource

    @property
    def is_binding(self) -> bool:
        """Somebody said so; a request may be trimmed for it."""
        return self.source != "assumed"

    @property
    def known_tokens(self) -> int:
        """`tokens` where somebody said so, else 0."""
        return self.tokens if self.is_binding else 0

    @property
    def max_output_tokens(self) -> int:
        """Tokens that a single output may have (L4), 0 where nobody knows the window."""
        return int(self.known_tokens * MAX_OUTPUT_SHARE)


def prompt_limit(window: int, max_output: int) -> int:
    """What of a window a prompt may fill, cached tokens included (S4-20): all but what the answer may take, and a tenth
    is kept free in any case (C13); at least half of it, for there are models whose answer may be as long as their
    window."""
    return max(min(window - min(max_output, MAX_OUTPUT_RESERVE), int(window * MAX_PROMPT_SHARE)), window // 2)


@dataclass(slots=True)
class _LearnedWindow:
    """Of one model at one upstream. `until` is on the clock's seconds."""

    tokens: int = 0
    source: WindowSource = "named"
    valid_until: float = 0.0
    largest_passed: int = 0
    """The largest prompt that was answered, in the provider's measure."""


_NOTHING_LEARNED = _LearnedWindow()
_TABLE: WindowSource = "table"
_ASSUMED: WindowSource = "assumed"


class ContextWindows:
    """One per process; `clock` tells seconds and never goes back, `tariff_of` what a model is known for.

    How a provider counts depends on what is counted, so its ratio to our count is kept per conversation.
    """

    def __init__(self, clock: Callable[[], float], tariff_of: Callable[[str], Tariff]) -> None:
        self._clock, self._tariff_of = clock, tariff_of
        self._learned: OrderedDict[tuple[str, str], _LearnedWindow] = OrderedDict()
        self._ratios: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._refused_conversations: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._warned: OrderedDict[str, None] = OrderedDict()

    def window(self, upstream: str, model: str, conversation: str = "") -> ContextWindow:
        """The smaller one of what the tariff says and what was learned; the default, with a warning once, where
        neither says anything."""
        place, tariff = (upstream, model, conversation), self._tariff_of(model)
        tokens, source = tariff.window, _TABLE if tariff.window_known else _ASSUMED
        if place in self._refused_conversations:
            learned = self._learned.get((upstream, model), _NOTHING_LEARNED)
            if self._is_valid(learned) and (not tariff.window_known or learned.tokens < tariff.window):
                tokens, source = learned.tokens, learned.source
        # How much a model may answer is known by its tariff alone; without one nothing is kept free for it.
        limit = prompt_limit(tokens, tariff.max_output) if tariff.window_known else tokens - (source == "size")
        if source == "assumed":
            self._warn(model, tokens)
        ratio = self._ratios.get(place, 1.0)
        return ContextWindow(round(tokens / ratio), round(limit / ratio), source)

    def learn_from_usage(self, upstream: str, model: str, conversation: str, tokens: int, usage: Usage | None) -> None:
        """A request of so many tokens of ours passed; what the provider counted, where it says so (S4-60)."""
        if usage is None or not usage.input or tokens < MIN_RATIO_TOKENS:
            return
        least, most = RATIO_RANGE
        self._ratios[upstream, model, conversation] = min(max(usage.input / tokens, least), most)
        _evict_oldest(self._ratios, (upstream, model, conversation))
        learned = self._learned_for(upstream, model)
        learned.largest_passed = max(learned.largest_passed, usage.input)
        if learned.tokens and usage.input >= learned.tokens:
            learned.tokens = 0  # more than was said to fit has passed

    def learn_from_refusal(self, upstream: str, model: str, conversation: str, tokens: int, body: bytes) -> None:
        """A request of so many tokens of ours was refused for its length, in these words. A named limit is believed
        unless more has passed; the size alone teaches where the refusal speaks of the context and nobody knows
        better."""
        learned = self._learned_for(upstream, model)
        size = round(tokens * self._ratios.get((upstream, model, conversation), 1.0))
        if named := overflow.named_limit(body):
            if named < max(MIN_WINDOW, learned.largest_passed + 1):
                return
            self._learn(learned, named, "named", NAMED_LIMIT_TTL_S)
        elif overflow.mentions_context(body) and size > max(MIN_WINDOW, learned.largest_passed):
            if self._tariff_of(model).window_known or (self._is_valid(learned) and learned.tokens <= size):
                return
            self._learn(learned, size, "size", REFUSED_SIZE_TTL_S)
        else:
            return
        self._refused_conversations[upstream, model, conversation] = None
        _evict_oldest(self._refused_conversations, (upstream, model, conversation))
        log.info("window learned", extra={"upstream": upstream, "model": model[:80], "tokens": learned.tokens})

    def _learn(self, learned: _LearnedWindow, tokens: int, source: WindowSource, seconds: float) -> None:
        learned.tokens, learned.source, learned.valid_until = tokens, source, self._clock() + seconds

    def _is_valid(self, learned: _LearnedWindow) -> bool:
        return bool(learned.tokens) and self._clock() < learned.valid_until

    def _learned_for(self, upstream: str, model: str) -> _LearnedWindow:
        learned = self._learned.setdefault((upstream, model), _LearnedWindow())
        _evict_oldest(self._learned, (upstream, model))
        return learned

    def _warn(self, model: str, window: int) -> None:
        if model in self._warned:
            self._warned.move_to_end(model)
            return
        self._warned[model] = None
        _evict_oldest(self._warned, model)
        extra = {"model": model[:80], "tokens": window}
        log.warning("no tariff for this model; its window is assumed", extra=extra)


def _evict_oldest(kept: OrderedDict[K, V], newest: K) -> None:
    """What was used longest ago goes first; `newest` was used now."""
    kept.move_to_end(newest)
    if len(kept) > MAX_REMEMBERED_MODELS:
        kept.popitem(last=False)
