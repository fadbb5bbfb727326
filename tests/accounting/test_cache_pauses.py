"""When a ping that keeps the provider's prompt cache is worth its price."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.accounting.cache_pauses import MAX_PINGS, ping_cost, pings_that_pay, return_chance
from proxy.accounting.tariff import UNKNOWN_TARIFF, Tariff

MODEL = Tariff(("m",), input=2.0, output=10.0, read=0.1, write=1.25, ttl_s=300)


@pytest.mark.parametrize(
    ("read", "write", "pings"), [(0.1, 1.25, 4), (0.05, 1.25, 4), (0.1, 1.0, 3), (0.25, 1.0, 0), (0.5, 1.0, 0)]
)
def test_the_dearer_a_read_and_the_cheaper_a_write_the_fewer_pay(read: float, write: float, pings: int) -> None:
    assert pings_that_pay(replace(MODEL, read=read), write) == pings


def test_what_is_kept_for_an_hour_is_dearer_to_write_again() -> None:
    """At a read of 0.3: one ping for 2.0, none for 1.25."""
    dear = replace(MODEL, read=0.3)
    assert (pings_that_pay(dear, dear.write), pings_that_pay(dear, dear.write_long)) == (0, 1)


def test_no_more_than_asked_and_never_more_than_four() -> None:
    free = replace(MODEL, read=0.0)
    assert [pings_that_pay(free, 1.25, most) for most in (0, 1, 9)] == [0, 1, MAX_PINGS]


def test_without_a_price_none_pays() -> None:
    assert pings_that_pay(replace(UNKNOWN_TARIFF, read=0.0), 1.25) == 0


def test_who_has_been_away_for_long_is_less_likely_to_come_back() -> None:
    """As recorded: of 63 pauses 16 end before the second ping would be due, 8 before the third, 4 before the fourth."""
    chances = [return_chance(ping) for ping in (1, 2, 3, 4)]
    assert chances == sorted(chances, reverse=True)
    assert chances == pytest.approx([16 / 63, 8 / 47, 4 / 39, 4 / 35], abs=0.03)


def test_a_ping_costs_a_read_of_all_at_the_price_of_its_length() -> None:
    long = replace(MODEL, long_context=50_000, long_input=2.0)
    assert ping_cost(MODEL, 100_000) == pytest.approx(0.02)
    assert ping_cost(long, 100_000) == pytest.approx(0.04)
