"""What a request cost, and what the untouched request would have cost.

Two simulated prompt caches stand side by side: one gets what is really sent, one what the client sent. `Accountant`
opens a `RequestAccount` for each client request; settled, that is a `Receipt`. A saving is never told too large: our
own tools, texts and hidden rounds count as sent, a saving is never more than that of two cold requests, and where the
provider counts fewer tokens than we do it is scaled down. Negative is told as negative.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from proxy.accounting.pricing import Tariff, tariff_for
from proxy.accounting.prompt_cache import (
    MAX_HEADS,
    CacheKey,
    CacheUse,
    PromptCacheModel,
    PromptChain,
    hash_chain,
    with_shorter_prefix,
)
from proxy.accounting.receipts import Receipt, RequestOutcome, format_usd
from proxy.core.ledger import Usage

MILLION = 1_000_000
_NO_CACHE_USE = CacheUse()
BilledRound = tuple[CacheUse, Usage | None]
"""A round as simulated, and what the provider reported of it."""


class RequestAccount:
    """One client request while it is under way: note every round as it leaves, settle once."""

    def __init__(self, accountant: Accountant, key: CacheKey, chain: PromptChain) -> None:
        self._accountant, self._key = accountant, key
        self._tariff = tariff = accountant.tariff_of(key[2])
        self.chain = chain
        """What the client sent."""
        self._hashed_chain = line = hash_chain(chain)
        self._is_taken_as_warm = len(chain) > 2 and not accountant.untouched_cache.has_seen(key, line)
        self._untouched = accountant.untouched_cache.record_request(
            key, line, tariff, accountant.clock(), warm=self._is_taken_as_warm
        )
        self._fixed, self._last_piece_tokens = (chain[0][1], chain[-1][1]) if chain else (0, 0)
        self._rounds: list[CacheUse] = []
        self._refused_rounds: set[int] = set()
        """Rounds that got no answer and were asked again."""
        self._compaction_usages: list[Usage] = []
        self._own = (0, 0, 0)
        self.tokens_in = line.total
        self.tokens_sent = 0
        """So far, all rounds together."""

    def add_round(self, chain: PromptChain, *, own_tools: int = 0, own_texts: int = 0, own_traces: int = 0) -> None:
        """A round leaves. `own_tools` and `own_texts` are tokens in `chain` that are ours; `own_traces` are those of
        `own_texts` that stand for frames."""
        accountant, warm = self._accountant, self._is_taken_as_warm and not self._rounds
        line = self._hashed_chain if chain == self.chain else hash_chain(chain)  # a thread that sleeps sends what came
        use = accountant.sent_cache.record_request(self._key, line, self._tariff, accountant.clock(), warm=warm)
        for refused in self._refused_rounds:  # what was refused is in no cache
            use = with_shorter_prefix(use, self._rounds[refused].prefix, self._tariff)
        self._rounds.append(use)
        self._own = (own_tools, own_texts, own_traces)
        self.tokens_sent += line.total

    def mark_round_refused(self) -> None:
        """The round that left last got no answer and is asked again: nobody is paid for it."""
        self._refused_rounds.add(len(self._rounds) - 1)

    def add_compactions(self, compacted: Iterable[Usage]) -> None:
        """So the provider used what it was sent to compact it, beside the round that it answered."""
        self._compaction_usages += compacted

    def settle(self, outcome: RequestOutcome, usage: Sequence[Usage | None] = ()) -> Receipt:
        """The receipt. `usage` is what the provider reported, one per round in order; missing ones count as None."""
        sent, untouched, tariff, total = self._rounds, self._untouched, self._tariff, self.tokens_sent
        rounds = len(sent)
        reported = (*usage, *[None] * rounds)[:rounds]
        newest = sent[-1] if rounds else _NO_CACHE_USE
        last = newest.total
        self._accountant.record_reported_usage(self._key, reported)
        answered = self._answered_rounds(reported)
        told = all(usage and usage.input for _, usage in answered)  # no prompt is 0 tokens: that says nothing
        basis: Literal["reported", "estimated"] = (
            "reported" if told and self._accountant.reports_cached_tokens(self._key) else "estimated"
        )
        failed = max(outcome.upstream_status, outcome.client_status) >= 400
        lost = failed and self._last_round_is_free(outcome, reported)
        cost, saved = self._cost_and_saving(answered[:-1] if lost else answered, basis, failed=failed)
        fixed = _use_of_beginning(untouched, self._fixed)
        own_tools, own_texts, own_traces = self._own
        return Receipt(
            **msgspec.structs.asdict(outcome),
            rounds=rounds,
            tokens_in=self.tokens_in,
            tokens_sent=total,
            tokens_last=last,
            tokens_saved=self.tokens_in - total if rounds else 0,
            fixed_in=self._fixed,
            fixed_sent=self._fixed * rounds,
            own_tools=own_tools,
            own_texts=own_texts,
            own_traces=own_traces,
            own_rounds=total - last,
            sent=newest if rounds == 1 else sum(sent, _NO_CACHE_USE),
            untouched=untouched,
            usage=_sum_usages(reported),
            usage_by_round=reported,
            cost=cost,
            cost_untouched=cost + saved,
            saved=saved,
            basis=basis,
            priced=tariff.known,
            output_priced=tariff.output is not None,
            tariffs_as_of=tariff.as_of,
            fixed_untouched=fixed,
            fixed_once=fixed if newest == untouched else _use_of_beginning(newest, self._fixed),
            cost_fixed=0.0
            if failed or not rounds
            else min(_cost_of_use(fixed, tariff.for_input(last)), cost, cost + saved),
            counter=self._accountant.counter,
        )

    def _last_round_is_free(self, outcome: RequestOutcome, reported: Sequence[Usage | None]) -> bool:
        """Whether nobody bills the round that left last, of a request that failed. What the provider answered to its
        end is billed, also where it could not be passed on."""
        ended = 0 < outcome.upstream_status < 400 and bool(outcome.finish_reason or any(reported[-1:]))
        return not ended and len(reported) - 1 not in self._refused_rounds

    def _answered_rounds(self, reported: Sequence[Usage | None]) -> list[BilledRound]:
        """The rounds that got an answer, each with what the provider reported of it."""
        rounds = list(zip(self._rounds, reported, strict=True))
        if not self._refused_rounds:
            return rounds
        return [billed for at, billed in enumerate(rounds) if at not in self._refused_rounds]

    def _cost_and_saving(self, billed: Sequence[BilledRound], basis: str, *, failed: bool) -> tuple[float, float]:
        """Cost and saving in USD. Where the client got an error, or no round was answered, nothing stands against the
        cost: without us the provider would have refused it too, or what is asked again is told with the request that
        asks."""
        charged: float = 0
        output: float = 0
        hidden: float = 0
        for use, usage in billed:
            hidden = output
            tariff = self._tariff.for_input(_input_tokens(use, usage))
            charged += _input_cost(use, usage, tariff, basis)
            output += _output_cost(usage, tariff) if usage else 0.0
        cost = charged + output + sum(map(self._compaction_cost, self._compaction_usages))
        if failed or not billed:
            return cost, 0.0 - cost
        # The untouched run has no hidden rounds: what the model wrote in them is our cost.
        saved = self._input_saving(billed, charged, basis) + self._output_saving(billed) - hidden
        # No run costs less than nothing: a loss is at most all that was paid.
        return cost, max(saved, -cost)

    def _compaction_cost(self, usage: Usage) -> float:
        """USD of one compaction. The client asked for it, so the untouched run pays for it as well."""
        tariff = self._tariff.for_input(usage.input)
        return _cost_of_use(_reported_use(usage), _with_paid_write_price(tariff, (usage,))) + _output_cost(
            usage, tariff
        )

    def _input_saving(self, billed: Sequence[BilledRound], charged: float, basis: str) -> float:
        """USD of input that the untouched run would have paid more than `charged`; negative where it is less."""
        if len(billed) == 1 and billed[0][0] == self._untouched:
            return 0.0
        uses, told = [use for use, _ in billed], [usage for _, usage in billed if usage]
        ratio = _ratio([use for use, usage in billed if usage], told)
        ours = _with_paid_write_price(self._tariff, told)
        # Of a mixture nobody knows which part the untouched run would have had written for an hour: none of it.
        theirs = ours if ours.write == ours.write_long else self._tariff
        theirs = theirs.for_input(self._untouched_input_tokens(ratio))
        if basis == "reported" and _cache_behaved_as_simulated(uses, told):
            return min(1.0, ratio) * _cost_of_use(self._best_untouched_use(uses, told), theirs) - charged
        estimate = sum(_cost_of_use(use, ours.for_input(_input_tokens(use, usage))) for use, usage in billed)
        untouched = _cost_of_use(self._untouched, theirs)
        # A provider that counts more may count only ours so: tools are written out in ways we do not see.
        simulated = min(untouched - max(1.0, ratio) * estimate, ratio * (untouched - estimate))
        if basis == "estimated":
            return simulated
        # Its cache missed. Ours was paid as told, and the untouched line would have been cold as well.
        return min(simulated, min(1.0, ratio) * _cost_of_use(self._untouched_use_if_cold(), theirs) - charged)

    def _untouched_input_tokens(self, ratio: float) -> float:
        """Tokens of what the client sent as the provider counts them, rather less than more."""
        return min(1.0, ratio) * self._untouched.total

    def _output_saving(self, billed: Sequence[BilledRound]) -> float:
        """USD that the last answer would have cost more behind the untouched request; negative where it is less. It is
        0 where both or none are long."""
        use, usage = billed[-1]
        if not self._tariff.long_context or usage is None or (len(billed) == 1 and use == self._untouched):
            return 0.0
        ratio = _ratio([use for use, usage in billed if usage], [usage for _, usage in billed if usage])
        theirs, ours = (
            self._tariff.for_input(tokens)
            for tokens in (self._untouched_input_tokens(ratio), _input_tokens(use, usage))
        )
        return _output_cost(usage, theirs) - _output_cost(usage, ours)

    def _untouched_use_if_cold(self) -> CacheUse:
        """What the client sent, if the cache held nothing of it."""
        use = self._untouched
        if self._tariff.write == 1:
            return CacheUse(0, 0, use.total)
        return CacheUse(0, use.cached + use.written, use.uncached)

    def _best_untouched_use(self, billed: Sequence[CacheUse], told: Sequence[Usage]) -> CacheUse:
        """What the client sent, if the cache held all that it could.

        Steps may fall luckier for other tokens than ours; and a provider that read clearly more than we thought warm
        would have had the untouched line warm too.
        """
        use = self._untouched
        cached = use.prefix
        believed = sum(one.prefix for one in billed) * _ratio(billed, told)
        if sum(usage.cached for usage in told) > 1.05 * believed + self._tariff.minimum:
            cached = max(cached, use.total - self._last_piece_tokens)
        cached = cached if cached >= self._tariff.minimum else 0
        written = max(0, use.written - max(0, cached - use.cached))
        return CacheUse(cached, written, max(0, use.total - cached - written), cached)


def _use_of_beginning(use: CacheUse, tokens: int) -> CacheUse:
    """How the first `tokens` of a request were charged: what a cache reads and writes is its beginning."""
    tokens = min(tokens, use.total)
    cached = min(tokens, use.cached)
    written = min(tokens - cached, use.written)
    return CacheUse(cached, written, tokens - cached - written, min(tokens, use.prefix))


def _input_cost(use: CacheUse, usage: Usage | None, tariff: Tariff, basis: str) -> float:
    """USD of a round's input: as reported, else split as we think and as many tokens as the provider says."""
    if usage is None:
        return _cost_of_use(use, tariff)
    if basis == "reported":
        return _cost_of_use(_reported_use(usage), _with_paid_write_price(tariff, (usage,)))
    return _cost_of_use(use, tariff) * _ratio_or_one(usage.input, use.total)


def _input_tokens(use: CacheUse, usage: Usage | None) -> int:
    """Tokens of a round's input, as the provider counts them where it says so."""
    return usage.input if usage and usage.input else use.total


def _with_paid_write_price(tariff: Tariff, told: Iterable[Usage]) -> Tariff:
    """The tariff with the price that was paid for what was written: what is kept for an hour is dearer."""
    written, long = 0, 0
    for usage in told:
        written += usage.written
        long += usage.written_long
    if not long:
        return tariff
    if long == written:
        return msgspec.structs.replace(tariff, write=tariff.write_long)
    return msgspec.structs.replace(tariff, write=tariff.write + (tariff.write_long - tariff.write) * long / written)


def _cache_behaved_as_simulated(billed: Iterable[CacheUse], told: Iterable[Usage]) -> bool:
    """Whether the provider's cache held what we thought. Where it did not, it would not have for the untouched run."""
    return 2 * sum(usage.cached for usage in told) >= sum(use.cached for use in billed)


def _ratio(billed: Iterable[CacheUse], told: Iterable[Usage]) -> float:
    """The provider's tokens to ours; 1 where it reported none."""
    return _ratio_or_one(sum(usage.input for usage in told), sum(use.total for use in billed))


def _ratio_or_one(theirs: int, ours: int) -> float:
    return theirs / ours if ours and theirs else 1.0


def _cost_of_use(use: CacheUse, tariff: Tariff) -> float:
    return (use.uncached + tariff.read * use.cached + tariff.write * use.written) * tariff.input / MILLION


def _output_cost(usage: Usage, tariff: Tariff) -> float:
    return usage.output * (tariff.output or 0.0) / MILLION


def _reported_use(usage: Usage) -> CacheUse:
    return CacheUse(usage.cached, usage.written, max(0, usage.input - usage.cached - usage.written))


def _sum_usages(reported: Iterable[Usage | None]) -> Usage:
    told = [usage for usage in reported if usage]
    if len(told) == 1:
        return told[0]
    return Usage(
        sum(usage.input for usage in told),
        sum(usage.output for usage in told),
        sum(usage.cached for usage in told),
        sum(usage.written for usage in told),
        sum(usage.written_long for usage in told),
    )


class Accountant:
    """Keeps the two simulations. `clock` gives ms since 1970, `counter` names what counts our tokens."""

    def __init__(
        self, clock: Callable[[], int], counter: str = "o200k_base", tariff_of: Callable[[str], Tariff] = tariff_for
    ) -> None:
        self.clock, self.counter, self.tariff_of = clock, counter, tariff_of
        self.sent_cache, self.untouched_cache = PromptCacheModel(), PromptCacheModel()
        self._reporting: OrderedDict[CacheKey, None] = OrderedDict()

    def open(self, chain: PromptChain, *, tenant: str, upstream: str, model: str) -> RequestAccount:
        """An account for a request; `chain` is what the client sent, `model` the name sent upstream."""
        return RequestAccount(self, (tenant, upstream, model), chain)

    def record_reported_usage(self, key: CacheKey, reported: Iterable[Usage | None]) -> None:
        """A provider that once told of cached tokens is believed from then on, also when it tells of none."""
        for usage in reported:
            if usage and (usage.cached or usage.written):
                self._reporting[key] = None
                self._reporting.move_to_end(key)
                if len(self._reporting) > MAX_HEADS:
                    self._reporting.popitem(last=False)

    def reports_cached_tokens(self, key: CacheKey) -> bool:
        return key in self._reporting


def response_headers(told: RequestAccount | Receipt, overhead_ms: float) -> list[tuple[bytes, bytes]]:
    """What the client is told of tokens and money: while streaming from the open account, else from the receipt."""
    came, sent = told.tokens_in, told.tokens_sent
    headers = [
        (b"x-stack-tokens-in", b"%d" % came),
        (b"x-stack-tokens-sent", b"%d" % sent),
        (b"x-stack-tokens-saved", b"%d" % (came - sent if sent else 0)),
        (b"x-stack-overhead-ms", b"%.1f" % overhead_ms),
    ]
    if isinstance(told, Receipt):
        headers.append((b"x-stack-cost", format_usd(told.cost).encode()))
        headers.append((b"x-stack-cost-untouched", format_usd(told.cost_untouched).encode()))
        if not told.priced:
            headers.append((b"x-stack-priced", b"false"))
    return headers
