"""What the cost gate works with: prices of cached, written and long input, and whether the provider's cache is cold.

Where a plan pays, the prices are those of the plan's windows, in which cached tokens weigh little, so that taking
something out of the context gains little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.accounting import PAYER_HEADERS, PlanAccounts, Tariff
from proxy.config import UpstreamSettings
from proxy.core.compaction import CachePrices, LongRequestPrice, count_context_tokens
from proxy.core.ledger import Request, Usage
from proxy.core.observers import rounds_of
from proxy.core.text import CountTokens
from proxy.exchange.thread.placement import Headers, PolicyInput
from proxy.upstream import RawHeaders, Route, UnknownModel, outgoing_headers

MAX_PROVIDER_RATIO = 2.0
"""Tokens of the provider for one of ours, or of ours for one of the provider's, at most."""
UNCACHED_ROUNDS_LIMIT = 2
"""After so many rounds in a row without cached tokens, from a provider that reported some, nothing is assumed
cached."""


def gate_prices(tariff: Tariff, here: PolicyInput, *, uncached: bool = False) -> CachePrices:
    """The prices that the cost gate works with; `uncached`: the provider reads nothing from its cache."""
    read, write = (1.0, 1.0) if uncached else (tariff.read, tariff.write)
    if not tariff.long_context:
        return CachePrices(read, write)
    around = tokens_around_messages(here.request)
    above = tariff.long_context / _provider_ratio(here, around)
    growth = sum(m.tokens for m in here.request.messages) / max(1, sum(1 for _ in rounds_of(here.path_state.entries)))
    return CachePrices(read, write, LongRequestPrice(above, tariff.long_input, growth))


def costs_more_for_length(tariff: Tariff, here: PolicyInput, count: CountTokens) -> bool:
    """Whether the context is so long that its model charges more for all of it."""
    if MAX_PROVIDER_RATIO * here.request.tokens < tariff.long_context or not tariff.long_context:
        return False  # not even as the client sends it
    long = gate_prices(tariff, here).long
    if long is None:
        return False
    return tokens_around_messages(here.request) + count_context_tokens(here.path_state, count) > long.above


def tokens_around_messages(request: Request) -> int:
    """Of system text and tools, also of the tools that the messages load."""
    return request.fixed_tokens + request.loaded_tokens(request.messages)


def tariff_in_use(tariff: Tariff, usages: list[Usage]) -> Tariff:
    """The tariff with the longer cache's price and lifetime, if the provider's last cache writes were for that."""
    newest = next((usage for usage in reversed(usages) if usage.written), None)
    if newest is None or newest.written_long < newest.written:
        return tariff
    return replace(tariff, write=tariff.write_long, ttl_s=max(tariff.ttl_s, tariff.long_ttl_s))


def cache_is_cold(here: PolicyInput, ttl_s: int) -> bool:
    last = next((p.round.created for p in reversed(here.path_state.entries) if p.round), 0)
    return here.now - last > ttl_s * 1000


def stopped_reporting_cache(usages: list[Usage]) -> bool:
    newest = usages[-UNCACHED_ROUNDS_LIMIT:]
    return any(u.cached for u in usages) and len(newest) == UNCACHED_ROUNDS_LIMIT and not any(u.cached for u in newest)


def _provider_ratio(here: PolicyInput, around: int) -> float:
    """The provider's tokens for each of ours, by the first request whose usage it reported: nothing had left it yet."""
    ours = around
    for path_entry in here.path_state.entries:
        usage = path_entry.round.spoken.usage if path_entry.round else None
        if usage and usage.input and ours:
            return min(MAX_PROVIDER_RATIO, max(1 / MAX_PROVIDER_RATIO, usage.input / ours))
        message = path_entry.message
        ours += message.tokens if message else 0
    return 1.0


# --------------------------------------------------------------------------------------------------------------- plans


def payer_headers(client: Headers, settings: UpstreamSettings) -> RawHeaders:
    """What of a request's headers says who pays at this upstream: the client, or the operator whose key goes out."""
    return [header for header in outgoing_headers(client, settings, readable=True) if header[0] in PAYER_HEADERS]


@dataclass
class PlanPrices:
    """One for each dialect, asked from the event loop and from threads. `route_of` finds the upstream of a client's
    model; raises UnknownModel."""

    plans: PlanAccounts
    route_of: Callable[[str], Route]
    _newest: tuple[Headers, str, str] = field(default=((), "", ""), init=False)
    """The request that was asked about last, and its account: the gate asks many times for one request."""

    def row(self, model: str, headers: Headers, tariff: Tariff) -> Tariff:
        """The row of a client's model for a request with these headers; unchanged for who pays by the token."""
        if not self.plans.may_pay(headers):
            return tariff
        of_headers, of_model, account = self._newest  # read once: another thread may replace it
        if of_headers is not headers or of_model != model:
            account = self._account_of(model, headers)
            self._newest = headers, model, account
        return self.plans.gate_row(account, tariff)

    def _account_of(self, model: str, headers: Headers) -> str:
        try:
            settings = self.route_of(model).upstream.settings
        except UnknownModel:
            return ""
        return self.plans.account_of(payer_headers(headers, settings))
