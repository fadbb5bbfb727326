"""Context windows of models, from the tariffs or learned from the provider's refusals and usage reports.

Only a tariff, a configured row or a refusal is binding; the default for unknown models never causes trimming. A learned
window applies only to conversations that were refused, so that one wrong refusal does not shorten others. It expires,
gives way to a larger prompt that passed, and is forgotten at a restart.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import msgspec

from proxy.accounting import Tariff
from proxy.core.ledger import Usage
from proxy.core.memo import keep_newest
from proxy.upstream import overflow_errors
from proxy.upstream.learned_traits import LearnedTrait, TraitKind

log = logging.getLogger(__name__)

MAX_OUTPUT_RESERVE = 32_000
"""Most tokens that are kept free for the answer."""
MAX_PROMPT_SHARE = 0.9
"""Largest share of a window that a prompt may fill."""
NAMED_LIMIT_TTL_S = 24 * 3600.0
"""How long a limit named by a provider is believed: accounts move between tiers."""
REFUSED_SIZE_TTL_S = 3600.0
"""How long the size of a refused request counts as too large."""
MAX_OUTPUT_SHARE = 0.5
"""Share of a known window that one tool output may fill by default."""
MIN_WINDOW = 1_000
"""A smaller figure in a refusal is not a window."""
MAX_REMEMBERED_MODELS = 1024
"""Remembered models, and remembered conversations."""
MIN_RATIO_TOKENS = 2_000
"""Least size of a request that shows how the provider counts: in a small one, what the provider adds dominates."""
RATIO_RANGE = (0.75, 2.0)
"""Believed ratios of the provider's token count to ours: usage reports can be wrong."""

WindowSource = Literal["table", "named", "size", "assumed"]
"""The tariff, a limit named in a refusal, the size of a refused request, the default."""


class ContextWindow(msgspec.Struct, frozen=True):
    """`tokens` for prompt and answer together, `limit` for the prompt. Both by our count: a provider whose tokenizer
    makes more tokens has a smaller window."""

    tokens: int
    limit: int
    source: WindowSource

    @property
    def is_binding(self) -> bool:
        """Whether a request may be trimmed to fit it."""
        return self.source != "assumed"

    def holds(self, prompt_tokens: int) -> bool:
        """Whether a prompt need not be trimmed."""
        return not self.is_binding or prompt_tokens <= self.limit

    @property
    def known_tokens(self) -> int:
        """`tokens` if binding, else 0."""
        return self.tokens if self.is_binding else 0

    @property
    def max_output_tokens(self) -> int:
        """Most tokens of one tool output; 0 if the window is unknown."""
        return int(self.known_tokens * MAX_OUTPUT_SHARE)


def prompt_limit(window: int, max_output: int) -> int:
    """Tokens of a window for the prompt, including cached ones: the window less the room for the answer, at most nine
    tenths, at least half, because some models may answer at the length of their window."""
    return max(min(window - min(max_output, MAX_OUTPUT_RESERVE), int(window * MAX_PROMPT_SHARE)), window // 2)


@dataclass(slots=True)
class _LearnedWindow:
    """Learned window of one model at one upstream. `valid_until` is in seconds of the clock."""

    tokens: int = 0
    source: WindowSource = "named"
    valid_until: float = 0.0
    largest_passed: int = 0
    """Largest prompt that was answered, by the provider's count."""


_NOTHING_LEARNED = _LearnedWindow()
_TABLE: WindowSource = "table"
_ASSUMED: WindowSource = "assumed"


class ContextWindows:
    """One per process. `clock` is monotonic, in seconds. The ratio of a provider's count to ours depends on the text,
    so it is kept per conversation."""

    def __init__(self, clock: Callable[[], float], tariff_of: Callable[[str], Tariff]) -> None:
        self._clock, self._tariff_of = clock, tariff_of
        self._learned: OrderedDict[tuple[str, str], _LearnedWindow] = OrderedDict()
        self._ratios: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._refused_conversations: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._warned: OrderedDict[str, None] = OrderedDict()

    def window(self, upstream: str, model: str, conversation: str = "") -> ContextWindow:
        """The smaller one of tariff and learned window; the default, with one warning, if neither is known."""
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
        """Learn from an answered request: its tokens by our count, and the provider's count if reported."""
        if usage is None or not usage.input or tokens < MIN_RATIO_TOKENS:
            return
        least, most = RATIO_RANGE
        ratio = min(max(usage.input / tokens, least), most)
        keep_newest(self._ratios, (upstream, model, conversation), ratio, MAX_REMEMBERED_MODELS)
        learned = self._learned_for(upstream, model)
        learned.largest_passed = max(learned.largest_passed, usage.input)
        if learned.tokens and usage.input >= learned.tokens:
            learned.tokens = 0  # more than was said to fit has passed

    def learn_from_refusal(self, upstream: str, model: str, conversation: str, tokens: int, body: bytes) -> None:
        """Learn from a request refused for its length. A named limit is believed unless a larger prompt has passed; the
        size alone counts only if the refusal mentions the context and nothing better is known."""
        learned = self._learned_for(upstream, model)
        size = round(tokens * self._ratios.get((upstream, model, conversation), 1.0))
        if named := overflow_errors.named_limit(body):
            if named < max(MIN_WINDOW, learned.largest_passed + 1):
                return
            self._learn(learned, named, "named", NAMED_LIMIT_TTL_S)
        elif overflow_errors.mentions_context(body) and size > max(MIN_WINDOW, learned.largest_passed):
            if self._tariff_of(model).window_known or (self._is_valid(learned) and learned.tokens <= size):
                return
            self._learn(learned, size, "size", REFUSED_SIZE_TTL_S)
        else:
            return
        keep_newest(self._refused_conversations, (upstream, model, conversation), None, MAX_REMEMBERED_MODELS)
        log.info("window learned", extra={"upstream": upstream, "model": model[:80], "tokens": learned.tokens})

    def traits(self, now: int) -> Iterator[LearnedTrait]:
        """The windows that were learned and are believed. `now` is in ms since the epoch, at the time of the clock."""
        for (upstream, model), learned in self._learned.items():
            if self._is_valid(learned):
                named = learned.source == "named"
                until = now + round((learned.valid_until - self._clock()) * 1000)
                lasts = round((NAMED_LIMIT_TTL_S if named else REFUSED_SIZE_TTL_S) * 1000)
                kind: TraitKind = "window_named" if named else "window_size"
                yield LearnedTrait(upstream, model, kind, until - lasts, until, learned.tokens)

    def _learn(self, learned: _LearnedWindow, tokens: int, source: WindowSource, seconds: float) -> None:
        learned.tokens, learned.source, learned.valid_until = tokens, source, self._clock() + seconds

    def _is_valid(self, learned: _LearnedWindow) -> bool:
        return bool(learned.tokens) and self._clock() < learned.valid_until

    def _learned_for(self, upstream: str, model: str) -> _LearnedWindow:
        learned = self._learned.get((upstream, model)) or _LearnedWindow()
        keep_newest(self._learned, (upstream, model), learned, MAX_REMEMBERED_MODELS)
        return learned

    def _warn(self, model: str, window: int) -> None:
        if model in self._warned:
            self._warned.move_to_end(model)
            return
        keep_newest(self._warned, model, None, MAX_REMEMBERED_MODELS)
        extra = {"model": model[:80], "tokens": window}
        log.warning("no tariff for this model; its window is assumed", extra=extra)
