"""How often a tenant may ask `/stack`: by the clock, and over a real proxy."""

from __future__ import annotations

import pytest

from callstack_proxy.management.api.limits import MAX_TENANTS, MINUTE_S, RequestRateLimiter
from callstack_proxy.management.issued_keys import issue_key
from proxy.auth import Tenant
from proxy.config.model import Config
from proxy.errors import RateLimited
from tests.wire.proxied import TOKEN, ServedProxy
from tests.wire.stage import Starting
from tests.wire.stage import _provider as _provider
from tests.wire.stage import provider as provider
from tests.wire.stage import start as start
from tests.wire.talking import ReceivedAnswer, ask

ONE, OTHER = Tenant("one", "one"), Tenant("other", "other")
OPERATOR = Tenant("operator", "operator", admin=True)


class Clock:
    """Seconds, as the test sets them."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def admitted(pace: RequestRateLimiter, tenant: Tenant, most: int = 1_000) -> int:
    """How many requests pass in a row."""
    for number in range(most):
        try:
            pace.admit(tenant)
        except RateLimited:
            return number
    return most


def test_a_minutes_requests_may_come_at_once_and_then_come_at_the_pace() -> None:
    clock = Clock()
    pace = RequestRateLimiter(60, clock)

    assert admitted(pace, ONE) == 60
    clock.now += 5
    assert admitted(pace, ONE) == 5
    clock.now += 10 * MINUTE_S
    assert admitted(pace, ONE) == 60


def test_who_waits_as_long_as_told_is_admitted_and_a_refusal_costs_nothing() -> None:
    clock = Clock()
    pace = RequestRateLimiter(7, clock)
    admitted(pace, ONE)
    with pytest.raises(RateLimited) as told:
        pace.admit(ONE)
    assert admitted(pace, ONE) == 0

    assert 0 < told.value.retry_after_s <= MINUTE_S
    clock.now += told.value.retry_after_s
    assert admitted(pace, ONE) >= 1


def test_one_tenant_takes_nothing_from_another() -> None:
    pace = RequestRateLimiter(3, Clock())

    assert (admitted(pace, ONE), admitted(pace, OTHER)) == (3, 3)


def test_operators_are_not_counted_nor_anybody_where_there_is_no_pace() -> None:
    assert admitted(RequestRateLimiter(3, Clock()), OPERATOR) == 1_000
    assert admitted(RequestRateLimiter(0, Clock()), ONE) == 1_000


def test_what_is_remembered_of_tenants_is_bounded() -> None:
    pace = RequestRateLimiter(3, Clock())
    admitted(pace, ONE)
    for number in range(MAX_TENANTS):
        pace.admit(Tenant(str(number), str(number)))

    assert len(pace._spent) == MAX_TENANTS
    assert admitted(pace, ONE) == 3


# ------------------------------------------------------------------------------------------------------ over the socket
def asks(proxy: ServedProxy, key: str, path: str = "/stack/conversations") -> ReceivedAnswer:
    return ask(proxy.origin, method="GET", path=path, headers={"x-stack-key": key})


def test_too_many_requests_are_told_when_to_ask_again(start: Starting) -> None:
    """On every path, also those that are none; whoever else asks is answered."""
    proxy = start(tenancy="key", api_requests_per_minute=5)
    file = Config(data=proxy.data).keys_path
    one, other, admin = (issue_key(file, name, admin=name == "admin") for name in ("one", "other", "admin"))
    assert [asks(proxy, one).status for _ in range(5)] == [200] * 5

    for path in ("/stack/conversations", "/stack/nothing", "/stack/frames/f1"):
        refused = asks(proxy, one, path)
        assert refused.status == 429
        assert 1 <= int(refused.header("retry-after")) <= MINUTE_S
        assert "api_requests_per_minute" in refused.json["error"]["message"]
        assert refused.json["error"]["code"] == "too_often"
        assert refused.told == "error; reason=too_often"
    assert asks(proxy, other).status == 200
    assert {asks(proxy, key).status for key in (admin, TOKEN) for _ in range(10)} == {200}
    assert asks(proxy, one, "/health").status == 200


def test_the_one_user_of_a_single_proxy_is_not_counted(start: Starting) -> None:
    proxy = start(api_requests_per_minute=1)

    assert {ask(proxy.origin, method="GET", path="/stack/conversations").status for _ in range(5)} == {200}


def test_what_is_refused_without_a_key_is_nobodys_request(start: Starting) -> None:
    proxy = start(tenancy="key", api_requests_per_minute=2)
    key = issue_key(Config(data=proxy.data).keys_path, "one")

    assert {asks(proxy, "csk_guessed").status for _ in range(5)} == {401}
    assert asks(proxy, key).status == 200
