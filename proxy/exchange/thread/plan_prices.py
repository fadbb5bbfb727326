"""By which prices the gate decides where a plan pays: those of the plan's windows, in which cached tokens weigh little,
so that taking something out of the context gains little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from proxy.accounting import PAYER_HEADERS, PlanAccounts, Tariff
from proxy.config import UpstreamSettings
from proxy.exchange.thread.placement import Headers
from proxy.upstream import RawHeaders, Route, UnknownModel, outgoing_headers


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
