"""The gate's prices where a plan pays."""

from typing import Any

import pytest

from proxy.accounting import PlanAccounts, Tariff
from proxy.exchange.thread.gate_prices import PlanPrices
from proxy.upstream import RawHeaders, UnknownModel

pytestmark = pytest.mark.rows("X-63")

ROW = Tariff(("claude-x",), input=3.0, output=15.0, read=0.1, write=1.25)
LOGIN: RawHeaders = [(b"authorization", b"Bearer sk-ant-oat01-x")]
KEY: RawHeaders = [(b"authorization", b"Bearer sk-proj-x")]


class Accounts(PlanAccounts):
    def may_pay(self, headers: Any) -> bool:
        return True


class Interrupted(PlanPrices):
    """Another thread asks for another request right after this one noted whose it is."""

    others: RawHeaders | None = None

    def _account_of(self, model: str, headers: Any) -> str:
        return self.plans.account_of(headers)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_newest" and (others := self.others) is not None:
            self.others = None
            self.row("m", others, ROW)


def no_route(model: str) -> Any:
    raise UnknownModel(model)


@pytest.mark.parametrize(("asked", "others", "read"), [(KEY, LOGIN, ROW.read), (LOGIN, KEY, 0.0)])
def test_a_request_is_priced_by_its_own_account_where_another_thread_asks_meanwhile(
    asked: RawHeaders, others: RawHeaders, read: float
) -> None:
    prices = Interrupted(Accounts(), no_route)
    prices.others = others
    assert prices.row("m", asked, ROW).read == read
    assert prices.row("m", others, ROW).read != read
