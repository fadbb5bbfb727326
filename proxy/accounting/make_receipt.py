"""What a request cost, and what the untouched request would have cost.

Two simulated prompt caches stand side by side: one gets what is really sent, one what the client sent. `Accountant`
opens a `RequestAccount` for each client request; settled, that is a `Receipt`. Our own tools, texts and hidden rounds
count as sent, and both sides are told in the tokens that the provider counts. Negative is told as negative.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import asdict

from proxy.accounting.cache_pauses import PaidRounds, head_is_kept_long, may_keep_head_long
from proxy.accounting.model_prices import tariff_for
from proxy.accounting.plans import PlanAccounts, PlanState, plan_tariff
from proxy.accounting.prompt_cache import (
    MAX_CONVERSATIONS,
    CacheKey,
    CacheUse,
    HashedChain,
    PromptCacheModel,
    PromptChain,
    cache_use_of,
    hash_chain,
    holds_all_pieces,
    with_shorter_prefix,
)
from proxy.accounting.receipt_fields import PlanCost, PlanWindowUse, Receipt, RequestAmounts, RequestOutcome, format_usd
from proxy.accounting.tariff import Tariff
from proxy.accounting.untouched_run import (
    PromptScale,
    ProviderCounts,
    SentRound,
    UntouchedRequest,
    scale_of_round,
    scaled_use,
)
from proxy.core.ledger import Usage
from proxy.core.memo import keep_newest

MILLION = 1_000_000
_NO_CACHE_USE = CacheUse()
BILL_MEMORY = 0.9
"""What a bill counts, once there is a newer one."""
MAX_BILLED_MODELS = 1024
BilledRound = tuple[SentRound, Usage | None]
"""A round as simulated, and what the provider reported of it."""


class KnownHistory(msgspec.Struct, frozen=True):
    """What this process knows of what was sent before a request.

    `begins`: the request is the first of its conversation here. `goes_on`: its beginning was sent before, by another
    process if not by this one. `elsewhere_at` is when another process sent it last (ms), if it did since this one: what
    that put into the provider's cache is not known here, so the client's own request is taken to have met all but its
    last message, which tells no saving too large. `is_stored`: the conversation is known from the store."""

    begins: bool = False
    goes_on: bool = True
    elsewhere_at: int = 0
    is_stored: bool = False


SENT_BEFORE = KnownHistory()
NOTHING_SENT = KnownHistory(begins=True, goes_on=False)


class _SettledCost(msgspec.Struct, frozen=True):
    """What a request came to, in USD. `failed`: the answer is an error; `came_to_nothing` also where it broke off."""

    cost: float
    saved: float
    basis: Literal["reported", "estimated"]
    failed: bool
    came_to_nothing: bool
    plan: PlanCost | None


class RequestAccount:
    """One client request while it is under way: note every round as it leaves, settle once."""

    def __init__(
        self, accountant: Accountant, key: CacheKey, chain: PromptChain | HashedChain, history: KnownHistory
    ) -> None:
        self._accountant, self._key, self._history = accountant, key, history
        self._tariff = tariff = accountant.tariff_of(key[2])
        self.chain = chain
        """What the client sent."""
        self._hashed_chain = hashed = hash_chain(chain)
        is_warm = history.goes_on and not accountant.untouched_cache.has_seen(key, hashed)
        is_warm = is_warm or 0 < history.elsewhere_at >= accountant.clock() - tariff.ttl_s * 1000
        self._is_taken_as_warm = is_warm and len(hashed.tokens) > 2
        self._untouched, self._untouched_known = accountant.untouched_cache.record_and_recall(
            key, hashed, tariff, accountant.clock(), warm=self._is_taken_as_warm
        )
        self._unmarked = hashed.behind_marker(tariff)
        self._fixed = hashed.tokens[0] if hashed.tokens else 0
        self._borrows_head = history.begins and not self._is_taken_as_warm and self._untouched.cached > 0
        """Whether of the untouched request only the head was sent before, by other conversations."""
        self._rounds: list[SentRound] = []
        self.newest_chain = hashed
        """What was sent last."""
        self._refused_rounds: set[int] = set()
        """Rounds that got no answer and were asked again."""
        self._compaction_usages: list[Usage] = []
        self._bills: list[float | None] = []
        """What the answers named as their cost, one for each round that was answered."""
        self._price_factor: float | None = None
        """What bills came to, as a multiple of list prices; None where no bill of this upstream is known."""
        self._added = (0, 0, 0)
        self._long_head = self._was_long_head = False
        """Whether the head is written for the longer lifetime, for which the client did not ask; and was before."""
        self._reread_tokens: int | None = 0
        self._brief_tools = 0
        self._first_chain = hashed
        """What was sent in the first round."""
        self._clients_in_first = hashed.total
        """Tokens of it that are not ours."""
        self.tokens_in = hashed.total
        self.tokens_sent = 0
        """So far, all rounds together."""

    def add_round(
        self,
        chain: PromptChain | HashedChain,
        *,
        added_tools: int = 0,
        added_texts: int = 0,
        added_traces: int = 0,
        brief_tools: int = 0,
    ) -> None:
        """A round leaves. `added_tools` and `added_texts` are tokens in `chain` that we added; `added_traces` are
        those of `added_texts` that stand for frames; `brief_tools` are missing in the client's tools."""
        accountant, warm = self._accountant, self.is_taken_as_warm
        # A thread that sleeps sends what came.
        hashed = self._hashed_chain if chain == self.chain else hash_chain(chain)
        use, known = accountant.sent_cache.record_and_recall(
            self._key, hashed, self._tariff, accountant.clock(), warm=warm, long_head=self._was_long_head
        )
        for refused in self._refused_rounds:  # what was refused is in no cache
            use = with_shorter_prefix(
                use, self._rounds[refused].use.prefix, self._tariff, hashed.behind_marker(self._tariff)
            )
        self._rounds.append(
            SentRound(
                use,
                known,
                hashed.tokens[0] if hashed.tokens else 0,
                is_assumed=warm and self._history.is_stored,
                borrows_head=self._history.begins and not (warm or self._rounds) and use.cached > 0,
                unmarked=hashed.behind_marker(self._tariff),
            )
        )
        if len(self._rounds) == 1:
            self._first_chain, self._clients_in_first = hashed, hashed.total - added_tools - added_texts
        self.newest_chain = hashed
        self._added = (added_tools, added_texts, added_traces)
        self._brief_tools = brief_tools
        self.tokens_sent += hashed.total

    def keeps_head_long(self, paid: PaidRounds, chain: PromptChain) -> bool:
        """Whether the head of what leaves next is to ask for the longer lifetime, after what the thread has `paid`."""
        now, scale = self._accountant.clock(), self._accountant.counts.newest(self._key).new
        head, total = scale * chain[0][1], scale * sum(tokens for _, tokens in chain)
        self._was_long_head = head_is_kept_long(paid, self._tariff, now)
        self._long_head = self._was_long_head or may_keep_head_long(paid, self._tariff, now, head, total)
        return self._long_head

    def add_rereads(self, tokens: int, *, nothing_else: bool) -> None:
        """The request brings so many tokens that had left the context, and `nothing_else`."""
        self._reread_tokens = None if nothing_else else tokens

    def switch_model(self, key: CacheKey) -> None:
        """The last round went to another model instead, which has neither request in its cache unless it had it
        before. Its prices count for both."""
        accountant, now = self._accountant, self._accountant.clock()
        self._key, self._tariff = key, accountant.tariff_of(key[2])
        self._untouched, self._untouched_known = accountant.untouched_cache.record_and_recall(
            key, self._hashed_chain, self._tariff, now, warm=False
        )
        self._unmarked = self._hashed_chain.behind_marker(self._tariff)
        if self._rounds:
            last, hashed = self._rounds.pop(), self.newest_chain
            use, known = accountant.sent_cache.record_and_recall(key, hashed, self._tariff, now, warm=False)
            unmarked = hashed.behind_marker(self._tariff)
            self._rounds.append(msgspec.structs.replace(last, use=use, known=known, unmarked=unmarked))

    @property
    def is_taken_as_warm(self) -> bool:
        """Whether the next round is taken to continue what another process sent."""
        return self._is_taken_as_warm and not self._rounds

    def take_as_cold(self) -> None:
        """What is sent now begins with something new. The untouched request continues what was sent all the same."""
        self._is_taken_as_warm = False

    def mark_round_refused(self) -> None:
        """The round that left last got no answer and is asked again: nobody is paid for it."""
        self._refused_rounds.add(len(self._rounds) - 1)

    @property
    def is_cache_reported(self) -> bool:
        """Whether this provider is known to say what it reads from its cache."""
        return self._accountant.reports_cached_tokens(self._key)

    def note_cache_reported(self) -> None:
        """The provider says what it read from its cache, be it nothing."""
        self._accountant.record_cache_reported(self._key)

    def add_compactions(self, compacted: Iterable[Usage]) -> None:
        """So the provider used what it was sent to compact it, beside the round that it answered."""
        self._compaction_usages += compacted

    def settle(
        self,
        outcome: RequestOutcome,
        usage: Sequence[Usage | None] = (),
        unreported_outputs: Mapping[int, int] = MappingProxyType({}),
        bills: Mapping[int, float] = MappingProxyType({}),
        plan: PlanState | None = None,
    ) -> Receipt:
        """The receipt. `usage` is what the provider reported, one per round in order; missing ones count as None, and
        `unreported_outputs` has our tokens of their answers, by the number of the round. `bills` has what answers
        named as their cost (USD), by the same. `plan` is what pays for the request, where that is not by the token."""
        rounds = len(self._rounds)
        for number, answer in unreported_outputs.items():
            if number < rounds:
                self._rounds[number] = msgspec.structs.replace(self._rounds[number], answer=answer)
        reported = (*usage, *[None] * rounds)[:rounds]
        self._accountant.record_reported_usage(self._key, reported)
        answered = self._answered_rounds(reported)
        self._accountant.record_borrowed_heads(self._key, answered)
        basis = self._basis_of(answered)
        failed = max(outcome.upstream_status, outcome.client_status) >= 400
        lost = failed and self._last_round_is_free(outcome, reported)
        self._bills = [bills.get(number) for number in range(rounds) if number not in self._refused_rounds]
        billed = answered[:-1] if lost else answered
        cost, saved = self._cost_and_saving(billed, basis, failed=failed)
        came_to_nothing = failed or outcome.status == "error"  # it was broken off
        # All messages of the client were sent, or at least as many tokens of its own.
        clients = self._clients_in_first >= self.tokens_in or holds_all_pieces(self._first_chain, self._hashed_chain)
        saves_nothing = came_to_nothing or (self.tokens_sent > self.tokens_in and clients and not self._was_long_head)
        if saves_nothing:
            # A step of the cache, or counts that are a little off, may make the latter look cheaper.
            saved = min(saved, 0.0)
        weighed = self._plan_cost(plan, billed, basis, saves_nothing=saves_nothing, failed=failed) if plan else None
        settled = _SettledCost(cost, saved, basis, failed=failed, came_to_nothing=came_to_nothing, plan=weighed)
        return self._receipt(outcome, reported, settled)

    def _basis_of(self, answered: Iterable[BilledRound]) -> Literal["reported", "estimated"]:
        is_told = all(usage and usage.input for _, usage in answered)  # no prompt is 0 tokens: that says nothing
        return "reported" if is_told and self._accountant.reports_cached_tokens(self._key) else "estimated"

    def _receipt(self, outcome: RequestOutcome, reported: tuple[Usage | None, ...], settled: _SettledCost) -> Receipt:
        sent, untouched, tariff, total = self._rounds, self._untouched, self._tariff, self.tokens_sent
        rounds, factor = len(sent), self._price_factor or 1.0
        newest = sent[-1].use if rounds else _NO_CACHE_USE
        last = newest.total
        fixed = _use_of_beginning(untouched, self._fixed)
        cost_fixed = factor * _cost_of_use(fixed, tariff.for_input(last))
        cost, cost_untouched = settled.cost, settled.cost + settled.saved
        added_tools, added_texts, added_traces = self._added
        tokens_saved = self.tokens_in - total if rounds else 0
        amounts = RequestAmounts(
            rounds=rounds,
            tokens_in=self.tokens_in,
            tokens_sent=total,
            tokens_saved=min(tokens_saved, 0) if settled.came_to_nothing else tokens_saved,
            fixed_in=self._fixed,
            fixed_sent=self._fixed * rounds,
            own_tools=added_tools,
            own_texts=added_texts,
            own_traces=added_traces,
            own_rounds=total - last,
            cost=cost,
            cost_untouched=cost_untouched,
            saved=settled.saved,
            cost_fixed=0.0 if settled.failed or not rounds else min(cost_fixed, cost, cost_untouched),
        )
        return Receipt(
            **(asdict(outcome) | asdict(amounts)),
            tokens_last=last,
            sent=newest if rounds == 1 else sum((each.use for each in sent), _NO_CACHE_USE),
            untouched=untouched,
            usage=_sum_usages(reported),
            usage_by_round=reported,
            cost_rereads=0.0 if settled.came_to_nothing or not rounds else self._cost_of_rereads(cost_untouched),
            basis=settled.basis,
            priced=tariff.known or self._price_factor is not None,
            output_priced=tariff.output is not None or self._price_factor is not None,
            price_factor=factor,
            billed=any(amount is not None for amount in self._bills),
            tariffs_as_of=tariff.as_of,
            fixed_untouched=fixed,
            fixed_once=fixed if newest == untouched else _use_of_beginning(newest, self._fixed),
            counter=self._accountant.counter,
            plan=settled.plan,
        )

    def _cost_of_rereads(self, untouched: float) -> float:
        """USD of `untouched`: all of a request that was made for nothing else, or what its new tokens cost."""
        if self._reread_tokens is None:
            return untouched
        tariff = self._tariff.for_input(self.tokens_in)
        tokens = self._reread_tokens * self._accountant.counts.newest(self._key).new
        return min(untouched, (self._price_factor or 1.0) * tokens * tariff.write * tariff.input / MILLION)

    def _plan_cost(
        self, plan: PlanState, billed: Sequence[BilledRound], basis: str, *, saves_nothing: bool, failed: bool
    ) -> PlanCost:
        """What the request took of the windows of the plan that pays for it."""
        weights, row = plan.weights, plan_tariff(self._tariff, plan.weights)
        scale = self._accountant.counts.newest(self._key)
        compactions = sum(self._compaction_cost(usage, row) for usage in self._compaction_usages)
        cost = compactions + sum(
            _input_cost(sent, usage, row, basis, scale) + _output_cost(sent, usage, row, scale)
            for sent, usage in billed
        )
        untouched = cost
        if failed or not billed:
            untouched = 0.0
        elif len(billed) > 1 or billed[0][0].use != self._untouched:
            untouched = compactions + self._untouched_cost(billed, basis, scale, row)
        untouched = min(untouched, cost) if saves_nothing else untouched
        return PlanCost(
            cost=cost,
            cost_untouched=untouched,
            read=weights.read_ratio,
            read_for_gate=weights.cautious_read_ratio,
            write=weights.write / weights.fresh,
            output=weights.output / weights.fresh,
            rounds=weights.rounds,
            windows=tuple(
                PlanWindowUse(
                    window.name,
                    window.scale * cost,
                    window.scale * untouched,
                    window.scale,
                    window.scale_error,
                    window.used,
                    window.resets_at,
                )
                for window in plan.windows
            ),
            account=plan.account,
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
        scale = self._learn_scale(billed)
        compactions = sum(self._compaction_cost(usage, self._tariff) for usage in self._compaction_usages)
        told, told_at_list, rest = 0.0, 0.0, compactions
        for (sent, usage), amount in zip(billed, self._bills, strict=False):
            tariff = self._tariff.for_input(scale_of_round(sent, usage, scale).tokens(sent.use.total))
            listed = _input_cost(sent, usage, tariff, basis, scale) + _output_cost(sent, usage, tariff, scale)
            if amount is None or not listed:
                rest += listed
            else:
                told, told_at_list = told + amount, told_at_list + listed
        if told_at_list and basis == "reported":
            self._accountant.bills.learn(self._key, told, told_at_list)
        self._price_factor = told / told_at_list if told_at_list else self._accountant.bills.factor(self._key)
        factor = self._price_factor or 1.0
        cost = told + factor * rest
        if failed or not billed:
            return cost, 0.0 - cost
        if len(billed) == 1 and billed[0][0].use == self._untouched:
            return cost, 0.0
        return cost, factor * (self._untouched_cost(billed, basis, scale, self._tariff) + compactions) - cost

    def _learn_scale(self, billed: Sequence[BilledRound]) -> PromptScale:
        """How the provider counts what the client sent."""
        counts, (sent, usage) = self._accountant.counts, billed[-1] if billed else (None, None)
        if sent and sent.use.total and usage and usage.input:
            missing = self._brief_tools
            return counts.learn(self._key, self._hashed_chain, self.newest_chain, usage.input, missing=missing)
        return counts.newest(self._key)

    def _compaction_cost(self, usage: Usage, row: Tariff) -> float:
        """USD of one compaction. The client asked for it, so the untouched run pays for it as well."""
        tariff = row.for_input(usage.input)
        read = _cost_of_use(_reported_use(usage), _with_paid_write_price(tariff, (usage,)))
        return read + usage.output * (tariff.output or 0.0) / MILLION

    def _untouched_cost(self, billed: Sequence[BilledRound], basis: str, scale: PromptScale, row: Tariff) -> float:
        """USD, at the prices of `row`, of what the client sent, and of the last answer: the untouched run has no hidden
        rounds."""
        told = [usage for _, usage in billed if usage]
        (first, usage), (last, answer) = billed[0], billed[-1]
        use = self._untouched
        if self._borrows_head and not first.use.prefix and not self._accountant.shares_heads(self._key):
            use = cache_use_of(use.total, 0, self._tariff, self._unmarked)
        came = UntouchedRequest(use, self._untouched_known, self._fixed, self._tariff, scale, self._unmarked)
        tariff = (row if self._long_head else _with_paid_write_price(row, told)).for_input(came.total)
        met_long_head_alone = self._was_long_head and first.use.prefix == first.head  # the client's cache had expired
        if basis == "reported" and usage and not met_long_head_alone:
            use = came.as_reported(first, usage, writes_are_told=self._accountant.reports_written_tokens(self._key))
        else:
            use = came.as_simulated()
        return _cost_of_use(use, tariff) + _output_cost(last, answer, tariff, scale)


def _use_of_beginning(use: CacheUse, tokens: int) -> CacheUse:
    """How the first `tokens` of a request were charged: what a cache reads and writes is its beginning."""
    tokens = min(tokens, use.total)
    cached = min(tokens, use.cached)
    written = min(tokens - cached, use.written)
    return CacheUse(cached, written, tokens - cached - written, min(tokens, use.prefix))


def _input_cost(sent: SentRound, usage: Usage | None, tariff: Tariff, basis: str, scale: PromptScale) -> float:
    """USD of a round's input: as reported, else split as we think and as many tokens as the provider says."""
    if usage is not None and basis == "reported":
        return _cost_of_use(_reported_use(usage), _with_paid_write_price(tariff, (usage,)))
    return _cost_of_use(scaled_use(sent.use, scale_of_round(sent, usage, scale), tariff, sent.unmarked), tariff)


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


def _cost_of_use(use: CacheUse, tariff: Tariff) -> float:
    return (use.uncached + tariff.read * use.cached + tariff.write * use.written) * tariff.input / MILLION


def _output_cost(sent: SentRound, usage: Usage | None, tariff: Tariff, scale: PromptScale) -> float:
    """USD of a round's answer: as reported, else as we count it."""
    output = usage.output if usage else scale.new * sent.answer
    return output * (tariff.output or 0.0) / MILLION


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


class LearnedPrices:
    """What answers named as their cost, beside what the same would cost by the list, for each upstream and model: there
    the list's prices are corrected by it, whoever asks."""

    def __init__(self) -> None:
        self._sums: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def learn(self, key: CacheKey, told: float, listed: float) -> None:
        """Older bills count less with each new one. USD."""
        place = key[1:]
        before = self._sums.get(place, (0.0, 0.0))
        both = (BILL_MEMORY * before[0] + told, BILL_MEMORY * before[1] + listed)
        keep_newest(self._sums, place, both, MAX_BILLED_MODELS)

    def factor(self, key: CacheKey) -> float | None:
        """What bills come to as a multiple of list prices; None where none is known."""
        told, listed = self._sums.get(key[1:], (0.0, 0.0))
        return told / listed if listed else None


class Accountant:
    """Keeps the two simulations. `clock` gives ms since 1970, `counter` names what counts our tokens."""

    def __init__(
        self, clock: Callable[[], int], counter: str = "o200k_base", tariff_of: Callable[[str], Tariff] = tariff_for
    ) -> None:
        self.clock, self.counter, self.tariff_of = clock, counter, tariff_of
        self.sent_cache, self.untouched_cache = PromptCacheModel(), PromptCacheModel()
        self.counts = ProviderCounts()
        self.bills = LearnedPrices()
        self.plans = PlanAccounts()
        self._conversations: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Those seen, by tenant and id."""
        self._reporting: OrderedDict[CacheKey, bool] = OrderedDict()
        """Who tells of cached tokens, and whether also of written ones."""
        self._sharing_heads: OrderedDict[CacheKey, bool] = OrderedDict()

    def open(
        self, chain: PromptChain | HashedChain, key: CacheKey, history: KnownHistory = SENT_BEFORE
    ) -> RequestAccount:
        """An account for a request; `chain` is what the client sent, `key` has the name of the model sent upstream."""
        return RequestAccount(self, key, chain, history)

    def caches_at_markers(self, model: str) -> bool:
        """Whether what is cached ends at the last cache marker: where writing to the cache has a price of its own."""
        return self.tariff_of(model).write != 1

    def meets_first(self, tenant: str, conversation: str) -> bool:
        """Whether this process has had no request of the conversation yet."""
        known = (tenant, conversation) in self._conversations
        keep_newest(self._conversations, (tenant, conversation), None, MAX_CONVERSATIONS)
        return not known

    def record_reported_usage(self, key: CacheKey, reported: Iterable[Usage | None]) -> None:
        """A provider that once told of cached tokens is believed from then on, also when it tells of none."""
        for usage in reported:
            if usage and (usage.cached or usage.written):
                self.record_cache_reported(key, writes=bool(usage.written))

    def record_cache_reported(self, key: CacheKey, *, writes: bool = False) -> None:
        """The provider told of cached tokens, with `writes` of written ones."""
        keep_newest(self._reporting, key, writes or self._reporting.get(key, False), MAX_CONVERSATIONS)

    def record_borrowed_heads(self, key: CacheKey, answered: Iterable[BilledRound]) -> None:
        """What the newest conversation found is believed whose head only others had sent: some providers keep a cache
        for each conversation, or answer on machines that share none."""
        for sent, usage in answered:
            if sent.borrows_head and usage and usage.input:
                keep_newest(self._sharing_heads, key, usage.cached > 0, MAX_CONVERSATIONS)

    def shares_heads(self, key: CacheKey) -> bool:
        """Whether a new conversation finds the head of another one in the provider's cache: not until one did."""
        return self._sharing_heads.get(key, False)

    def reports_cached_tokens(self, key: CacheKey) -> bool:
        return key in self._reporting

    def reports_written_tokens(self, key: CacheKey) -> bool:
        return self._reporting.get(key, False)


def response_headers(told: RequestAccount | Receipt, overhead_ms: float) -> list[tuple[bytes, bytes]]:
    """What the client is told of tokens and money: while streaming from the open account, else from the receipt."""
    came, sent = told.tokens_in, told.tokens_sent
    saved = told.tokens_saved if isinstance(told, Receipt) else came - sent if sent else 0
    headers = [
        (b"x-stack-tokens-in", b"%d" % came),
        (b"x-stack-tokens-sent", b"%d" % sent),
        (b"x-stack-tokens-saved", b"%d" % saved),
        (b"x-stack-overhead-ms", b"%.1f" % overhead_ms),
    ]
    if isinstance(told, Receipt):
        headers.append((b"x-stack-cost", format_usd(told.cost).encode()))
        headers.append((b"x-stack-cost-untouched", format_usd(told.cost_untouched).encode()))
        if not told.priced:
            headers.append((b"x-stack-priced", b"false"))
    return headers
