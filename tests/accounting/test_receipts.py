"""Receipts and totals by value. Every figure is worked out by hand beside its test, from the prices of `PLAIN`."""

import re
import time
from collections import Counter
from datetime import timedelta, timezone
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from pydantic import TypeAdapter

from callstack_proxy.management.reports import (
    GroupBy,
    ReadAgain,
    ReceiptTotals,
    format_statement,
    format_table,
    group_receipts,
    sum_receipts,
    without_fixed,
)
from callstack_proxy.management.reports.text_tables import TableColumn, format_columns
from callstack_proxy.management.views import StructSchema
from proxy.accounting import (
    NOTHING_SENT,
    Accountant,
    CacheUse,
    GateDecision,
    KnownHistory,
    PlanWindowUse,
    PromptCacheModel,
    Receipt,
    RequestOutcome,
    prompt_cache,
    response_headers,
)
from proxy.accounting.tariff import Tariff
from proxy.core.ledger.messages import Usage
from proxy.core.recall.reread_stats import RereadCount
from tests.pace import slowness

PLAIN = Tariff(("m",), input=2.0, output=10.0, read=0.1, write=1.0, minimum=1000, step=1, ttl_s=300)
DEARER_WRITES = replace(PLAIN, write=1.25)
IN_STEPS = replace(PLAIN, step=128)
KEY = ("tenant", "upstream", "m")
HEAD = ("head", 2000)


class Clock:
    """Milliseconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accountant(clock: Clock) -> Accountant:
    return Accountant(clock, tariff_of=lambda _: PLAIN)


def settled(
    accountant: Accountant,
    came: list[tuple[str, int]],
    *sent: list[tuple[str, int]],
    usage: tuple[Usage | None, ...] = (),
    outcome: RequestOutcome | None = None,
    begins: bool = False,
) -> Receipt:
    """One request from beginning to end."""
    account = accountant.open(came, ("t", "u", "m"), NOTHING_SENT if begins else KnownHistory())
    for chain in sent:
        account.add_round(chain)
    return account.settle(outcome or RequestOutcome(id="r", upstream_status=200, client_status=200), usage)


def split(use: CacheUse) -> tuple[int, int, int]:
    """Cached, written, uncached tokens."""
    return use.cached, use.written, use.uncached


# ---------------------------------------------------------------------------------------------------------- simulation
def test_a_line_that_grows_reads_what_it_was() -> None:
    cache = PromptCacheModel()

    first = cache.record_request(KEY, [HEAD, ("a", 500)], PLAIN, 0)
    second = cache.record_request(KEY, [HEAD, ("a", 500), ("b", 70)], PLAIN, 1)

    assert split(first) == (0, 0, 2500)
    assert split(second) == (2500, 0, 70)


def test_a_changed_piece_makes_everything_behind_it_new() -> None:
    cache = PromptCacheModel()
    cache.record_request(KEY, [HEAD, ("a", 500), ("b", 300), ("c", 200)], PLAIN, 0)

    assert split(cache.record_request(KEY, [HEAD, ("a", 500), ("x", 300), ("c", 200)], PLAIN, 1)) == (2500, 0, 500)


def test_a_parent_line_is_warm_when_its_child_returns() -> None:
    """A pop: the parent's beginning was used by every request of the child."""
    cache = PromptCacheModel()
    parent = [HEAD, ("a", 500)]
    cache.record_request(KEY, parent, PLAIN, 0)
    cache.record_request(KEY, [*parent, ("child", 9000)], PLAIN, 290_000)

    assert split(cache.record_request(KEY, [*parent, ("returned", 100)], PLAIN, 580_000)) == (2500, 0, 100)


def test_several_lines_are_warm_at_once_and_each_expires_by_itself() -> None:
    cache = PromptCacheModel()
    one, other = [HEAD, ("a", 500), ("one", 1000)], [HEAD, ("a", 500), ("other", 4000)]
    cache.record_request(KEY, one, PLAIN, 0)
    cache.record_request(KEY, other, PLAIN, 200_000)

    assert split(cache.record_request(KEY, one, PLAIN, 300_000)) == (3500, 0, 0)
    assert split(cache.record_request(KEY, other, PLAIN, 500_001)) == (2500, 0, 4000)


def test_two_conversations_share_their_head_and_nothing_else() -> None:
    cache = PromptCacheModel()
    cache.record_request(KEY, [HEAD, ("hello", 10), ("same", 50)], PLAIN, 0)

    assert split(cache.record_request(KEY, [HEAD, ("bye", 10), ("same", 50)], PLAIN, 1)) == (2000, 0, 60)


def test_nothing_is_shared_between_tenants_upstreams_and_models() -> None:
    cache = PromptCacheModel()
    cache.record_request(KEY, [HEAD, ("a", 500)], PLAIN, 0)

    assert cache.record_request(("other", "upstream", "m"), [HEAD, ("a", 500)], PLAIN, 1).cached == 0
    assert cache.record_request(("tenant", "other", "m"), [HEAD, ("a", 500)], PLAIN, 1).cached == 0
    assert cache.record_request(("tenant", "upstream", "other"), [HEAD, ("a", 500)], PLAIN, 1).cached == 0


def test_a_short_prefix_is_not_cached_and_a_long_one_only_in_steps() -> None:
    """999 tokens are below the minimum of 1,000; 2,500 are 19 steps of 128 and 68 more."""
    cache = PromptCacheModel()
    cache.record_request(KEY, [("short", 900), ("a", 99)], PLAIN, 0)
    cache.record_request(KEY, [HEAD, ("a", 500)], IN_STEPS, 0)

    assert split(cache.record_request(KEY, [("short", 900), ("a", 99), ("b", 1)], PLAIN, 1)) == (0, 0, 1000)
    assert split(cache.record_request(KEY, [HEAD, ("a", 500), ("b", 10)], IN_STEPS, 1)) == (2432, 0, 78)


def test_writes_are_told_apart_only_where_they_cost_more() -> None:
    cache = PromptCacheModel()

    assert split(cache.record_request(KEY, [HEAD, ("a", 500)], DEARER_WRITES, 0)) == (0, 2500, 0)
    assert split(cache.record_request(KEY, [HEAD, ("a", 500), ("b", 70)], DEARER_WRITES, 1)) == (2500, 70, 0)


def test_the_simulation_forgets_the_conversation_longest_unused() -> None:
    cache = PromptCacheModel(most_pieces=6)
    old, new = [HEAD, ("old", 500), ("x", 1)], [HEAD, ("new", 500), ("x", 1)]
    cache.record_request(KEY, old, PLAIN, 0)
    cache.record_request(KEY, new, PLAIN, 1)
    assert cache.has_seen(KEY, old)

    cache.record_request(KEY, [*new, ("y", 1)], PLAIN, 2)

    assert not cache.has_seen(KEY, old)
    assert cache.has_seen(KEY, new)


def test_the_simulation_remembers_a_bounded_number_of_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    # A patch: 4,096 conversations would show the same.
    monkeypatch.setattr(prompt_cache, "MAX_CONVERSATIONS", 2)
    cache = PromptCacheModel()
    chains = [[HEAD, (name, 500)] for name in ("old", "used", "new")]
    for chain in (*chains[:2], chains[1], chains[2]):
        cache.record_request(KEY, chain, PLAIN, 0)

    assert [cache.has_seen(KEY, chain) for chain in chains] == [False, True, True]


def test_a_conversation_that_grows_is_remembered_once() -> None:
    cache = PromptCacheModel(most_pieces=1000)
    other = [HEAD, ("other", 10)]
    cache.record_request(KEY, other, PLAIN, 0)
    chain = [HEAD]
    for number in range(500):
        chain.append((f"m{number}", 10))
        cache.record_request(KEY, chain, PLAIN, number)

    assert cache.has_seen(KEY, other)


# --------------------------------------------------------------------------------------------------------------- money
def test_a_request_that_passes_untouched_saves_exactly_nothing(accountant: Accountant) -> None:
    chain = [HEAD, ("a", 500)]
    receipt = settled(accountant, chain, chain, usage=(Usage(2600, 40),))

    assert (receipt.tokens_in, receipt.tokens_sent, receipt.tokens_saved) == (2500, 2500, 0)
    assert receipt.saved == 0.0
    # As many tokens as the provider says: 2,600 at 2 USD and 40 at 10 USD per million.
    assert receipt.cost == receipt.cost_untouched == pytest.approx(0.0052 + 0.0004)


def test_the_estimate_tells_what_a_folded_frame_saves(accountant: Accountant) -> None:
    long = [HEAD, ("a", 500), ("frame", 10_000)]
    settled(accountant, long[:2], long[:2])
    settled(accountant, long, long)
    receipt = settled(accountant, [*long, ("b", 100)], [*long[:2], ("result", 200), ("b", 100)])

    assert split(receipt.sent) == (2500, 0, 300)
    assert split(receipt.untouched) == (12_500, 0, 100)
    assert receipt.tokens_saved == 12_600 - 2_800
    # (300 + 0.1 * 2,500) and (100 + 0.1 * 12,500) tokens at 2 USD per million.
    assert receipt.cost == pytest.approx(550 * 2e-6)
    assert receipt.cost_untouched == pytest.approx(1350 * 2e-6)
    assert receipt.saved == pytest.approx(800 * 2e-6)
    assert receipt.basis == "estimated"


@pytest.mark.rows("X-16", "C13")
def test_reported_cached_tokens_are_what_is_charged(accountant: Accountant) -> None:
    """X-16, C13: `input` counts cached tokens too, they are not added again."""
    chain = [HEAD, ("a", 500)]
    settled(accountant, chain, chain)
    receipt = settled(accountant, chain, chain, usage=(Usage(2600, 100, cached=2048),))

    assert receipt.basis == "reported"
    # 552 in full, 2,048 at a tenth, 100 of output.
    assert receipt.cost == pytest.approx((552 + 204.8) * 2e-6 + 100 * 10e-6)
    assert receipt.saved == 0.0


def test_a_provider_that_once_told_of_its_cache_is_believed_when_it_tells_of_none(accountant: Accountant) -> None:
    chain = [HEAD, ("a", 500)]
    before = settled(accountant, chain, chain, usage=(Usage(2500, 0),))
    settled(accountant, chain, chain, usage=(Usage(2500, 0, cached=2500),))
    after = settled(accountant, chain, chain, usage=(Usage(2500, 0),))

    assert (before.basis, after.basis) == ("estimated", "reported")
    assert after.cost == pytest.approx(2500 * 2e-6)


def test_a_prompt_of_no_tokens_is_no_report(accountant: Accountant) -> None:
    """A usage of zeros would make the request free, and what it cost a saving."""
    chain = [HEAD, ("a", 500)]
    settled(accountant, chain, chain, usage=(Usage(2500, 0, cached=2048),))

    receipt = settled(accountant, chain, [*chain, ("status", 300)], usage=(Usage(),))

    assert receipt.basis == "estimated"
    assert receipt.cost == pytest.approx((2500 * 0.1 + 300) * 2e-6)
    assert receipt.saved < 0


def test_what_was_written_for_an_hour_costs_twice_the_input(clock: Clock) -> None:
    """As the provider charges it, and of a mixture the same part on both sides."""
    long, short = [HEAD, ("a", 500), ("frame", 10_000)], [HEAD, ("a", 500), ("result", 200)]
    accountant = Accountant(clock, tariff_of=lambda _: DEARER_WRITES)
    settled(accountant, long[:2], long[:2], usage=(Usage(2500, 0, written=2500, written_long=2500),))

    hour = settled(accountant, long, short, usage=(Usage(2700, 0, 2500, 200, 200),))
    mixed = settled(accountant, [*long, ("b", 10)], [*short, ("b", 10)], usage=(Usage(2710, 0, 2600, 110, 55),))

    assert hour.usage.written_long == 200
    assert hour.cost == pytest.approx((250 + 2 * 200) * 2e-6)
    assert hour.cost_untouched == pytest.approx((250 + 2 * 10_000) * 2e-6)
    assert mixed.cost == pytest.approx((260 + 1.25 * 55 + 2 * 55) * 2e-6)
    # Untouched: of 12,500 known tokens the cache held as many as of ours, 2,600 of 2,700; the rest was written.
    assert mixed.cost_untouched == pytest.approx((1203.7 + 1.625 * 473) * 2e-6, rel=1e-3)


def test_where_writing_costs_nothing_extra_an_hour_does_not_either(accountant: Accountant) -> None:
    chain = [HEAD, ("a", 500)]

    receipt = settled(accountant, chain, chain, usage=(Usage(2500, 0, written=2500, written_long=2500),))

    assert receipt.cost == pytest.approx(2500 * 2e-6)


@pytest.mark.rows("S4-02")
def test_hidden_rounds_and_what_was_written_in_them_are_our_cost(accountant: Accountant) -> None:
    """T13, S4-02: all rounds are summed for money; the fullest window is that of the last one alone."""
    chain = [HEAD, ("a", 500)]
    receipt = settled(accountant, chain, chain, [*chain, ("push", 300)], usage=(Usage(2500, 60), Usage(2800, 20)))

    assert (receipt.rounds, receipt.tokens_sent, receipt.tokens_last) == (2, 5300, 2800)
    assert receipt.own_rounds == 2500
    assert receipt.tokens_saved == 2500 - 5300
    # Second round: 2,500 cached, 300 new; its 550 and the 60 written in the first one are what the proxy cost.
    assert receipt.saved == pytest.approx(-(550 * 2e-6 + 60 * 10e-6))
    assert receipt.cost == pytest.approx(receipt.cost_untouched - receipt.saved)
    assert receipt.usage == Usage(5300, 80)
    assert sum_receipts([receipt]).peak_sent == 2800


def test_waking_is_shown_as_the_loss_it_is(accountant: Accountant) -> None:
    """Our tools and guidance stand in the head, so everything behind them is new once."""
    chain = [HEAD, ("a", 500), ("b", 10_000)]
    settled(accountant, chain[:2], chain[:2])
    settled(accountant, chain, chain)

    receipt = settled(accountant, [*chain, ("c", 10)], [("head+ours", 3000), *chain[1:], ("c", 10)])

    assert receipt.tokens_saved == -1000
    # Sent: 13,510 new. Untouched: 12,500 cached, 10 new.
    assert receipt.saved == pytest.approx((1250 + 10 - 13_510) * 2e-6)


def test_a_restart_saves_nothing(clock: Clock) -> None:
    """O2: neither side is taken as cold for a conversation that another process began."""
    long = [HEAD, ("a", 500), ("frame", 10_000), ("b", 100)]
    short = [HEAD, ("a", 500), ("result", 200), ("b", 100)]

    receipt = settled(Accountant(clock, tariff_of=lambda _: PLAIN), long, short)

    assert split(receipt.sent) == (2700, 0, 100)
    assert split(receipt.untouched) == (12_500, 0, 100)


@pytest.mark.rows("X-41")
@pytest.mark.parametrize("counts", [0.5, 0.9, 1.14, 2.0])
def test_both_sides_are_told_in_the_tokens_that_the_provider_counts(accountant: Accountant, counts: float) -> None:
    """X-41: fewer or more than ours, on a gain as on a loss."""
    long, short = [HEAD, ("a", 500), ("frame", 10_000)], [HEAD, ("a", 500), ("result", 200)]
    settled(accountant, long[:2], long[:2], usage=(Usage(round(counts * 2500), 0, cached=1),))

    warm = round(counts * 2500)
    gain = settled(accountant, long, short, usage=(Usage(round(counts * 2700), 0, cached=warm),))
    loss = settled(accountant, short, long, usage=(Usage(round(counts * 12_500), 0, cached=warm),))

    # Both with 2,500 cached: 10,000 new tokens untouched and 200 sent, and the other way round.
    assert gain.saved == pytest.approx(counts * 9800 * 2e-6)
    assert loss.saved == pytest.approx(-counts * 9800 * 2e-6)


@pytest.mark.rows("X-41")
def test_what_was_folded_is_counted_as_it_was_when_it_was_sent(accountant: Accountant) -> None:
    """X-41: the provider counts the head at 1.2 times our tokens, the frame at 1.05 and the rest as we do."""
    line, theirs = [HEAD, ("a", 1000)], 2400 + 1000
    settled(accountant, line, line, usage=(Usage(theirs, 0, cached=1),))
    long = [*line, ("frame", 10_000)]
    settled(accountant, long, long, usage=(Usage(theirs + 10_500, 0, cached=theirs),))

    folded = settled(
        accountant, [*long, ("b", 100)], [*line, ("trace", 0), ("b", 100)], usage=(Usage(theirs + 100, 0, theirs),)
    )
    after = settled(
        accountant,
        [*long, ("b", 100), ("c", 50)],
        [*line, ("trace", 0), ("b", 100), ("c", 50)],
        usage=(Usage(theirs + 150, 0, theirs + 100),),
    )

    untouched = theirs + 10_500
    assert folded.cost_untouched == pytest.approx((0.1 * untouched + 100) * 2e-6, rel=0.01)
    assert after.cost_untouched == pytest.approx((0.1 * (untouched + 100) + 50) * 2e-6, rel=0.01)


@pytest.mark.rows("X-41")
def test_our_tools_in_the_head_break_no_cache_of_the_untouched_run(accountant: Accountant) -> None:
    """X-41: the provider knew nothing of the request that brings our tools, and would have known the client's."""
    chain = [HEAD, ("a", 500), ("b", 10_000)]
    settled(accountant, chain[:2], chain[:2], usage=(Usage(2500, 0, cached=1),))
    settled(accountant, chain, chain, usage=(Usage(12_500, 0, cached=2500),))

    woken = settled(accountant, [*chain, ("c", 10)], [("ours", 2100), *chain[1:], ("c", 10)], usage=(Usage(12_610, 0),))
    half_known = settled(
        accountant, [*chain, ("d", 10)], [("more", 2200), *chain[1:], ("d", 10)], usage=(Usage(12_710, 0, 1900),)
    )

    assert woken.cost_untouched == pytest.approx((1250 + 10) * 2e-6)
    assert half_known.cost_untouched == pytest.approx((1250 + 10) * 2e-6, rel=0.005)


def test_a_provider_whose_cache_missed_would_have_missed_the_untouched_request_too(accountant: Accountant) -> None:
    long, short = [HEAD, ("a", 500), ("frame", 10_000)], [HEAD, ("a", 500), ("result", 200)]
    settled(accountant, long, short, usage=(Usage(2700, 0, cached=1),))

    receipt = settled(accountant, [*long, ("b", 100)], [*short, ("b", 100)], usage=(Usage(2800, 0),))

    assert receipt.cost_untouched == pytest.approx(12_600 * 2e-6)


@pytest.mark.rows("X-41")
@pytest.mark.parametrize(
    ("borrowed", "untouched_usd"),
    [(2000, (0.1 * 2000 + 300) * 2e-6), (0, 2300 * 2e-6)],
    ids=["found the head of the first", "found nothing"],
)
def test_a_head_that_another_conversation_sent_is_as_warm_as_the_newest_conversation_found_it(
    accountant: Accountant, borrowed: int, untouched_usd: float
) -> None:
    """Three conversations with one head. We give tools to the first two, so the head of the third is new upstream, and
    only untouched it would be one that was sent before."""
    ours = ("head and our tools", 2100)
    settled(accountant, [HEAD, ("a", 500)], [ours, ("a", 500)], usage=(Usage(2600, 0, cached=1),), begins=True)
    settled(accountant, [HEAD, ("b", 400)], [ours, ("b", 400)], usage=(Usage(2500, 0, cached=borrowed),), begins=True)

    third = settled(accountant, [HEAD, ("c", 300)], [HEAD, ("c", 300)], usage=(Usage(2300, 0),), begins=True)

    assert third.cost == pytest.approx(2300 * 2e-6)
    assert third.cost_untouched == pytest.approx(untouched_usd)


def test_what_breaks_both_lines_is_known_as_far_as_the_provider_knew_it(accountant: Accountant) -> None:
    """A client that changes the end of its system text: providers find the rest of it."""
    line = [HEAD, ("a", 500), ("frame", 10_000)]
    settled(accountant, line, [HEAD, ("a", 500)], usage=(Usage(2500, 0, cached=1),))
    other = ("another head", 2000)

    account = accountant.open([other, *line[1:]], ("t", "u", "m"), KnownHistory(goes_on=False))
    account.add_round([other, ("a", 500)])
    receipt = account.settle(RequestOutcome(id="r", upstream_status=200, client_status=200), (Usage(2500, 0, 1500),))

    assert receipt.cost_untouched == pytest.approx((150 + 11_000) * 2e-6)


def test_what_we_changed_after_a_restart_is_not_taken_for_a_cold_cache(clock: Clock) -> None:
    """Another process sent 2,500 of the 2,600 tokens. This one leaves 400 out, so the provider knows 2,050 of them."""
    accountant = Accountant(clock, tariff_of=lambda _: PLAIN)
    came = [HEAD, ("a", 50), ("work", 450), ("b", 100)]

    account = accountant.open(came, ("t", "u", "m"), KnownHistory(is_stored=True))
    account.add_round([HEAD, ("a", 50), ("trace", 50), ("b", 100)])
    receipt = account.settle(
        RequestOutcome(id="r", upstream_status=200, client_status=200), (Usage(2_200, 0, cached=2_050),)
    )

    assert receipt.cost_untouched == pytest.approx((0.1 * 2_500 + 100) * 2e-6)


def test_a_history_that_nobody_is_known_to_have_sent_is_as_warm_as_the_provider_says(clock: Clock) -> None:
    """Its head is in the cache, because other conversations have the same."""
    accountant = Accountant(clock, tariff_of=lambda _: PLAIN)
    came = [HEAD, ("a", 50), ("work", 450), ("b", 100)]

    account = accountant.open(came, ("t", "u", "m"))
    account.add_round([*came, ("ours", 10)])
    receipt = account.settle(
        RequestOutcome(id="r", upstream_status=200, client_status=200), (Usage(2_610, 0, cached=2_000),)
    )

    assert receipt.cost_untouched > 1.2 * (0.1 * 2_500 + 100) * 2e-6, "that is what it would be if all were warm"


def test_a_cache_that_is_cold_after_a_restart_is_cold_on_both_sides(clock: Clock) -> None:
    accountant = Accountant(clock, tariff_of=lambda _: PLAIN)
    settled(accountant, [("other", 2_000)], [("other", 2_000)], usage=(Usage(2_000, 0, cached=1_999),))
    came = [HEAD, ("a", 500), ("b", 100)]

    account = accountant.open(came, ("t", "u", "m"))
    account.add_round([HEAD, ("a", 500), ("b", 100), ("ours", 10)])
    receipt = account.settle(
        RequestOutcome(id="r", upstream_status=200, client_status=200), (Usage(2_610, 0, cached=0),)
    )

    assert receipt.cost_untouched == pytest.approx(2_600 * 2e-6)


def test_a_thread_that_wakes_after_a_restart_is_cold_and_untouched_it_would_be_warm(clock: Clock) -> None:
    accountant = Accountant(clock, tariff_of=lambda _: PLAIN)
    came = [HEAD, ("a", 500), ("b", 100)]

    account = accountant.open(came, ("t", "u", "m"))
    account.take_as_cold()
    account.add_round([("head with tools", 2_100), ("a", 500), ("b", 100)])
    receipt = account.settle(
        RequestOutcome(id="r", upstream_status=200, client_status=200), (Usage(2_700, 0, cached=0),)
    )

    assert receipt.cost == pytest.approx(2_700 * 2e-6)
    assert receipt.cost_untouched == pytest.approx((0.1 * 2_500 + 100) * 2e-6, rel=0.01)


def test_what_keeps_a_request_from_being_long_saves_its_higher_price(clock: Clock) -> None:
    """Untouched 12,600 tokens at twice the price, sent 2,800; and the answer would have cost half as much again."""
    accountant = Accountant(clock, tariff_of=lambda _: replace(PLAIN, long_context=12_000))
    long, short = [HEAD, ("a", 500), ("frame", 10_000)], [HEAD, ("a", 500)]
    settled(accountant, long, long, usage=(Usage(12_500, 0, cached=1),))

    came, left = [*long, ("b", 100)], [*short, ("b", 100)]
    receipt = settled(accountant, came, left, usage=(Usage(2600, 40, cached=2500),))

    assert receipt.cost == pytest.approx((350 * 2 + 40 * 10) * 1e-6)
    assert receipt.cost_untouched == pytest.approx((1350 * 2 * 2 + 40 * 10 * 1.5) * 1e-6)


def test_a_request_that_only_we_made_long_is_a_loss_at_the_higher_price(clock: Clock) -> None:
    accountant = Accountant(clock, tariff_of=lambda _: replace(PLAIN, long_context=2_600))
    came = [HEAD, ("a", 500)]

    receipt = settled(accountant, came, [*came, ("ours", 200)], usage=(Usage(2700, 40, cached=1),))

    assert receipt.cost == pytest.approx(((2699 + 0.1) * 2 * 2 + 40 * 10 * 1.5) * 1e-6)
    assert receipt.cost_untouched == pytest.approx((2500 * 2 + 40 * 10) * 1e-6)


def test_a_long_request_that_passes_untouched_saves_nothing(clock: Clock) -> None:
    """Also where the provider counts more than we do, and so has it longer than it is."""
    accountant = Accountant(clock, tariff_of=lambda _: replace(PLAIN, long_context=2_600))
    came = [HEAD, ("a", 500)]

    receipt = settled(accountant, came, came, usage=(Usage(2700, 40, cached=1),))

    assert receipt.saved == 0
    assert receipt.cost == pytest.approx(((2699 + 0.1) * 2 * 2 + 40 * 10 * 1.5) * 1e-6)


def test_cached_tokens_of_the_untouched_run_come_in_steps_too(clock: Clock) -> None:
    accountant = Accountant(clock, tariff_of=lambda _: IN_STEPS)
    long = [HEAD, ("a", 500), ("frame", 10_000)]
    settled(accountant, long, long, usage=(Usage(12_500, 0, cached=1),))

    receipt = settled(accountant, [*long, ("b", 100)], [*long[:2], ("b", 100)], usage=(Usage(2600, 0, cached=2432),))

    # Untouched: 97 steps cached, 184 new. Sent, as reported: 168 new, 2,432 cached.
    assert receipt.saved == pytest.approx((1241.6 + 184 - 168 - 243.2) * 2e-6)


@pytest.mark.rows("X-41")
def test_the_report_says_in_which_step_the_prefix_of_both_ends(clock: Clock) -> None:
    """We count 2,500 tokens of prefix, which are 19 steps, and 2,600 with our tools, 20 steps. The provider read 21, so
    there are at least 88 tokens more than we count, and 20 steps of the client's. Our 100 weigh a fifth more."""
    accountant = Accountant(clock, tariff_of=lambda _: IN_STEPS)
    ours = ("head and our tools", 2100)
    settled(accountant, [HEAD, ("a", 500)], [ours, ("a", 500)], usage=(Usage(2600, 0, cached=1),))
    came, sent = [HEAD, ("a", 500), ("b", 400)], [ours, ("a", 500), ("b, cut", 290)]

    receipt = settled(accountant, came, sent, usage=(Usage(2890, 0, cached=21 * 128),))

    assert receipt.cost_untouched == pytest.approx((2881 - 20 * 128 + 0.1 * 20 * 128) * 2e-6)


def test_a_cache_that_lives_longer_than_we_think_makes_no_saving(accountant: Accountant, clock: Clock) -> None:
    """After a pause both lines look cold; the provider shows that they are not."""
    long, short = [HEAD, ("a", 500), ("frame", 10_000)], [HEAD, ("a", 500), ("result", 1000)]
    settled(accountant, long, short, usage=(Usage(3500, 0, cached=1),))
    clock.now += 301_000

    receipt = settled(accountant, [*long, ("b", 100)], [*short, ("b", 100)], usage=(Usage(3600, 0, cached=3500),))

    # Untouched: 12,500 cached after all, 100 new. Sent, as reported: 3,500 cached, 100 new.
    assert receipt.saved == pytest.approx((1350 - 450) * 2e-6)


@pytest.mark.rows("X-62")
def test_where_the_head_alone_lives_longer_the_rest_is_not_taken_as_cached(
    accountant: Accountant, clock: Clock
) -> None:
    """Claude Code keeps its head for an hour, and its messages for five minutes."""
    long, short = [HEAD, ("a", 500), ("frame", 10_000)], [HEAD, ("a", 500), ("result", 1000)]
    settled(accountant, long, short, usage=(Usage(3500, 0, cached=1),))
    clock.now += 301_000

    receipt = settled(accountant, [*long, ("b", 100)], [*short, ("b", 100)], usage=(Usage(3600, 0, cached=2000),))

    # Untouched: the head of 2,000 cached, 10,600 paid in full. Sent, as reported: 2,000 cached, 1,600 in full.
    assert receipt.saved == pytest.approx((10_600 - 1_600) * 2e-6)


def test_a_refused_request_costs_nothing_either_way(accountant: Accountant) -> None:
    chain = [HEAD, ("a", 500)]

    receipt = settled(accountant, chain, chain, outcome=RequestOutcome(id="r", upstream_status=429))

    assert (receipt.cost, receipt.cost_untouched, receipt.saved) == (0.0, 0.0, 0.0)
    assert receipt.tokens_in == 2500


@pytest.mark.parametrize("told", [Usage(2800, 20), None], ids=["told", "untold"])
def test_an_answer_that_could_not_be_passed_on_is_paid_and_saves_nothing(
    accountant: Accountant, told: Usage | None
) -> None:
    """The client asks again, and what that would have cost without us is told with that request."""
    chain = [HEAD, ("a", 500)]
    ours = RequestOutcome(id="r", upstream_status=200, client_status=500, finish_reason="tool_calls")

    receipt = settled(accountant, chain, chain, [*chain, ("status", 300)], usage=(Usage(2500, 60), told), outcome=ours)

    # Second round: 2,500 cached, 300 new, and the 20 that it is known to have written.
    cost = (2500 + 60 * 5 + 550) * 2e-6 + (20 * 1e-5 if told else 0)
    assert receipt.cost == pytest.approx(cost)
    assert (receipt.cost_untouched, receipt.saved) == (0.0, -receipt.cost)


@pytest.mark.parametrize("status", [0, 429, 200], ids=["unreachable", "refused", "broken off"])
def test_a_hidden_round_without_an_answer_is_not_paid(accountant: Accountant, status: int) -> None:
    chain = [HEAD, ("a", 500)]
    finish = "" if status == 200 else "tool_calls"  # that of the round before, where this one was not heard at all
    lost = RequestOutcome(id="r", upstream_status=status, client_status=502, finish_reason=finish)

    receipt = settled(accountant, chain, chain, [*chain, ("status", 300)], usage=(Usage(2500, 60),), outcome=lost)

    assert receipt.cost == pytest.approx((2500 + 60 * 5) * 2e-6)
    assert receipt.saved == -receipt.cost


def test_a_request_that_never_left_saves_no_tokens(accountant: Accountant) -> None:
    receipt = settled(accountant, [HEAD, ("a", 500)])

    assert (receipt.tokens_in, receipt.tokens_sent, receipt.tokens_saved, receipt.cost) == (2500, 0, 0, 0.0)


# ------------------------------------------------------------------------------------------------- refused, asked again
def asked_again(
    accountant: Accountant, came: list[tuple[str, int]], refused: list[tuple[str, int]], answered: Usage | None
) -> Receipt:
    """A request whose first round is refused, and asked again with what came."""
    account = accountant.open(came, ("t", "u", "m"))
    account.add_round(refused)
    account.mark_round_refused()
    account.add_round(came)
    return account.settle(RequestOutcome(id="r", upstream_status=200, client_status=200), (None, answered))


@pytest.mark.parametrize("told", [Usage(2500, 60), None], ids=["told", "untold"])
@pytest.mark.parametrize("longer", [0, 9_000])
def test_a_round_that_was_refused_and_asked_again_is_not_paid(
    accountant: Accountant, told: Usage | None, longer: int
) -> None:
    """And of what was refused nothing is in the cache."""
    chain = [HEAD, ("a", 500)]

    receipt = asked_again(accountant, chain, [*chain, *([("longer", longer)] if longer else [])], told)

    assert receipt.cost == pytest.approx(2500 * 2e-6 + (60 * 1e-5 if told else 0))
    assert receipt.saved == pytest.approx(0)
    assert (receipt.rounds, receipt.tokens_sent) == (2, 5000 + longer)


def test_what_was_known_before_a_refusal_is_known_behind_it(accountant: Accountant) -> None:
    chain = [HEAD, ("a", 500), ("b", 1_000)]
    settled(accountant, chain[:2], chain[:2], usage=(Usage(2500, 0, cached=1),))

    receipt = asked_again(accountant, chain, chain, Usage(3500, 0, cached=2500))

    assert receipt.basis == "reported"
    assert split(receipt.sent) == (5000, 0, 2000)
    assert receipt.cost == pytest.approx((250 + 1000) * 2e-6)


def test_a_request_that_was_refused_as_often_as_it_was_asked_costs_nothing(accountant: Accountant) -> None:
    """Its client left while it was to be asked once more: it was told no status."""
    account = accountant.open([HEAD, ("a", 500)], ("t", "u", "m"))
    account.add_round([HEAD, ("a", 500)])
    account.mark_round_refused()

    receipt = account.settle(RequestOutcome(id="r", status="error", reason="client_left"), (None,))

    assert (receipt.cost, receipt.cost_untouched, receipt.saved) == (0.0, 0.0, 0.0)
    assert sum_receipts([receipt]).estimated == 0


def test_what_hidden_rounds_wrote_is_our_cost_also_where_the_last_one_tells_no_usage(accountant: Accountant) -> None:
    """A client that leaves in the middle of the last round has it end without its usage."""
    chain = [HEAD, ("a", 500)]

    receipt = settled(accountant, chain, chain, [*chain, ("push", 300)], usage=(Usage(2500, 60), None))

    assert receipt.saved == pytest.approx(-(550 * 2e-6 + 60 * 10e-6))


def test_a_request_that_never_left_saves_no_money(accountant: Accountant) -> None:
    """A client that left before its line was on disk."""
    receipt = settled(
        accountant, [HEAD, ("a", 500)], outcome=RequestOutcome(id="r", status="error", reason="client_left")
    )

    assert (receipt.cost, receipt.cost_untouched, receipt.saved) == (0.0, 0.0, 0.0)
    assert sum_receipts([receipt]).estimated == 0


def test_a_question_to_the_summariser_is_counted_among_no_requests(accountant: Accountant) -> None:
    chain = [HEAD, ("a", 500)]
    asked = settled(accountant, chain, chain, usage=(Usage(2600, 9, 512),))
    untold = settled(accountant, [*chain, ("b", 10)], [*chain, ("b", 10)])
    summary = settled(accountant, [], [("question", 5000)], outcome=RequestOutcome(id="s", status="summary"))
    told = settled(
        accountant, [], [("other", 5000)], usage=(Usage(5000, 9),), outcome=RequestOutcome(id="s", status="summary")
    )

    both = sum_receipts([asked, untold, summary, told])

    assert (both.requests, both.rounds, both.reported, both.estimated) == (2, 4, 1, 1)
    assert both.cost == pytest.approx(sum(r.cost for r in (asked, untold, summary, told)))
    assert "the provider told its count for 1 of 2 requests" in format_statement(both)


def test_a_model_without_a_price_is_flagged(clock: Clock) -> None:
    account = Accountant(clock).open([HEAD], ("t", "u", "home-made"))
    account.add_round([HEAD])
    receipt = account.settle(RequestOutcome(id="r"))

    assert (receipt.priced, receipt.output_priced) == (False, False)
    assert (b"x-stack-priced", b"false") in response_headers(receipt, 1)


def test_a_receipt_is_one_json_object_and_comes_back_from_it(accountant: Accountant) -> None:
    chain = [HEAD, ("a", 500)]
    receipt = settled(accountant, chain, chain, usage=(Usage(2500, 10, 5),))

    raw = msgspec.json.encode(receipt)

    told = {"input": 2500, "output": 10, "cached": 5, "written": 0, "written_long": 0}
    assert msgspec.json.decode(raw)["usage_by_round"] == [told]
    assert msgspec.json.decode(raw, type=Receipt) == receipt


def test_keeping_account_of_300_messages_takes_less_than_100_microseconds(accountant: Accountant) -> None:
    """The best of several, so that a busy machine is not a failure; the margin is for slower ones."""
    chain = [HEAD, *((f"{number:032x}", 300) for number in range(300))]

    def once() -> float:
        began = time.thread_time()
        settled(accountant, chain, chain)
        return time.thread_time() - began

    assert min(once() for _ in range(200)) < 300e-6 * slowness()


# ------------------------------------------------------------------------------------------------------------- headers
def test_the_headers_of_an_answer_say_tokens_and_money(accountant: Accountant) -> None:
    chain = [HEAD, ("a", 500)]
    receipt = settled(accountant, chain, [HEAD, ("b", 100)])

    assert dict(response_headers(receipt, 1.26)) == {
        b"x-stack-tokens-in": b"2500",
        b"x-stack-tokens-sent": b"2100",
        b"x-stack-tokens-saved": b"400",
        b"x-stack-overhead-ms": b"1.3",
        b"x-stack-cost": b"0.00420000",
        b"x-stack-cost-untouched": b"0.00500000",
    }


def test_the_headers_of_a_stream_say_what_is_known_when_it_begins(accountant: Accountant) -> None:
    account = accountant.open([HEAD, ("a", 500)], ("t", "u", "m"))
    account.add_round([HEAD, ("b", 600)])

    told = dict(response_headers(account, 0.0))

    assert (told[b"x-stack-tokens-sent"], told[b"x-stack-tokens-saved"]) == (b"2600", b"-100")
    assert b"x-stack-cost" not in told


# -------------------------------------------------------------------------------------------------------------- totals
def receipts(accountant: Accountant) -> list[Receipt]:
    """Three requests in two conversations, the last one a day later."""
    made = []
    for number, (conversation, frame, created) in enumerate(
        [("c1", "f1", 0), ("c1", "", 1000), ("c2", "f1", 86_400_000)]
    ):
        chain = [HEAD, (f"question {number}", 1000 * (number + 1))]
        outcome = RequestOutcome(
            id=f"r{number}",
            conversation=conversation,
            frame=frame,
            model="m",
            created=created,
            upstream_status=200,
            client_status=200,
        )
        made.append(settled(accountant, chain, [HEAD, ("short", 10)], outcome=outcome))
    return made


@pytest.mark.rows("X-16")
def test_the_sum_over_calls_is_the_total(accountant: Accountant) -> None:
    """X-16."""
    made = receipts(accountant)
    whole = sum_receipts(made)

    assert (whole.requests, whole.tokens_in, whole.tokens_sent) == (3, 12_000, 6030)
    assert whole.tokens_saved == 5970
    assert whole.saved == pytest.approx(sum(receipt.saved for receipt in made))
    assert whole.peak_in == 5000
    for by in ("request", "frame", "conversation", "model", "day", "client"):
        rows = group_receipts(made, by)
        assert sum(row.tokens_sent for row in rows) == 6030
        assert sum(row.cost for row in rows) == pytest.approx(whole.cost)


@pytest.mark.rows("S2-15")
def test_rows_are_grouped_by_what_was_asked(accountant: Accountant) -> None:
    """S2-15: per frame and per conversation."""
    made = receipts(accountant)

    assert [(row.key, row.requests) for row in group_receipts(made, "conversation")] == [("c1", 2), ("c2", 1)]
    assert [(row.key, row.requests) for row in group_receipts(made, "frame")] == [("f1", 2), ("(no frame)", 1)]
    assert [row.key for row in group_receipts(made, "day")] == ["1970-01-01", "1970-01-02"]


@pytest.mark.rows("S2-15")
def test_what_was_read_again_stands_in_the_rows_and_the_statement(accountant: Accountant) -> None:
    """S2-15: and nothing is said of it where nobody looked."""
    made = receipts(accountant)
    again = {"r0": RereadCount(2, 1), "r2": RereadCount(1)}

    rows = group_receipts(made, "conversation", again=again)
    whole = sum_receipts(made, again=again)

    assert [(row.key, row.rereads, row.rereads_gone) for row in rows] == [("c1", 2, 1), ("c2", 1, 0)]
    headings, *shown = format_table(rows, by="conversation").splitlines()
    for heading, cells in (("re-reads", ["2", "1"]), ("gone", ["1", "0"])):
        end = headings.index(heading) + len(heading)
        assert [line[:end].split()[-1] for line in shown] == cells
    assert "3 reads of what had been read before, 1 of them after it was put away" in format_statement(whole)
    assert "re-reads" not in format_table(group_receipts(made, "day"))
    assert "read before" not in format_statement(sum_receipts(made))


def test_the_table_can_leave_out_what_the_client_sends_every_time(accountant: Accountant) -> None:
    made = receipts(accountant)
    rows = group_receipts(made, "model")

    assert rows[0].fixed_in == rows[0].fixed_sent == 6000
    whole, rest = (
        format_table(rows, width=80),
        format_table(group_receipts(map(without_fixed, made), "model"), width=80),
    )

    assert whole.splitlines()[1].split()[:4] == ["m", "3", "12,000", "6,030"]
    assert rest.splitlines()[1].split()[:4] == ["m", "3", "6,000", "30"]
    assert rest.splitlines()[1].split()[-1] == whole.splitlines()[1].split()[-1]


def test_a_loss_stands_in_the_table_as_a_loss(accountant: Accountant) -> None:
    row = sum_receipts([settled(accountant, [HEAD], [("head+ours", 3000)])])

    assert "-1,000" in format_table([row])
    assert "-0.0020" in format_table([row])


# ------------------------------------------------------------------------------------------------------------ decisions
@pytest.mark.rows("S4-36")
def test_a_receipt_keeps_what_the_gate_decided_also_not_now(accountant: Accountant) -> None:
    """S4-36: decision and numbers are in the receipt."""
    put_off = GateDecision("fold", "f12", False, "not_yet", 9_000, 700, 40_000, 35, 0.1, 1.25, cost=46_875, gain=29_050)
    woke = GateDecision("wake", "main", True, "gate", added=1_100, reasoning=300)
    outcome = RequestOutcome(id="r", upstream_status=200, decisions=(put_off, woke), lost_reasoning=300)
    receipt = settled(accountant, [HEAD], [HEAD], outcome=outcome)

    raw = msgspec.json.encode(receipt)

    assert msgspec.json.decode(raw, type=Receipt).decisions == (put_off, woke)
    told = msgspec.json.decode(raw)["decisions"][0]
    assert (told["kind"], told["done"], told["reason"], told["behind"], told["gain"]) == (
        "fold", False, "not_yet", 40_000, 29_050,
    )  # fmt: skip
    assert sum_receipts([receipt]).lost_reasoning == 300


def test_what_the_api_describes_is_what_receipts_hold(accountant: Accountant) -> None:
    """OpenAPI names every field of a receipt and of the records in it, and needs none that old ones lack."""
    described = TypeAdapter(Annotated[Receipt, StructSchema()]).json_schema()
    plan = next(each for each in described["properties"]["plan"]["anyOf"] if "properties" in each)

    assert set(described["properties"]) == set(Receipt.__struct_fields__)
    assert set(plan["properties"]["windows"]["items"]["properties"]) == set(PlanWindowUse.__struct_fields__)
    assert "written_long" not in described["properties"]["usage"]["required"]


def test_a_receipt_of_an_older_version_can_still_be_read(accountant: Accountant) -> None:
    """Receipts lie on disk for weeks: what was added since has a default."""
    receipt = settled(accountant, [HEAD], [HEAD])
    told = msgspec.json.decode(msgspec.json.encode(receipt))
    for name in ("decisions", "lost_reasoning", "own_traces", "fixed_untouched", "fixed_once", "plan", "cost_fixed"):
        del told[name]
    del told["usage"]["written_long"]

    assert msgspec.convert(told, Receipt).tokens_in == receipt.tokens_in


def test_traces_are_told_among_our_texts(accountant: Accountant) -> None:
    account = accountant.open([HEAD], ("t", "u", "m"))
    account.add_round([HEAD, ("trace", 300)], added_texts=300, added_traces=250)
    row = sum_receipts([account.settle(RequestOutcome(id="r"))])

    assert (row.own, row.own_texts, row.own_traces) == (300, 300, 250)
    assert "texts 300 (traces 250)" in format_statement(row)


# ------------------------------------------------------------------------------------------------- any receipts at all
amounts = st.integers(0, 200_000)
money = st.floats(-1, 1, allow_nan=False)


@st.composite
def any_receipt(draw: st.DrawFn) -> Receipt:
    """As the accountant might have made it, on any day, with or without usage."""
    head, told, ours = draw(amounts), draw(amounts), draw(amounts)
    clock = Clock()
    accountant = Accountant(clock, tariff_of=lambda _: draw(st.sampled_from([PLAIN, DEARER_WRITES, IN_STEPS])))
    usage = draw(st.none() | st.builds(Usage, st.just(ours + head), amounts, st.integers(0, ours + head)))
    outcome = RequestOutcome(
        id=draw(st.uuids(version=4)).hex,
        conversation=draw(st.sampled_from("abc")),
        frame=draw(st.sampled_from(["", "f1", "f2"])),
        model=draw(st.sampled_from("mn")),
        created=draw(st.integers(0, 2_000_000_000_000)),
        recalls=draw(st.integers(0, 3)),
        client_status=draw(st.sampled_from([200, 500])),
    )
    account = accountant.open([("head", head), ("told", told)], ("t", "u", "m"))
    rounds = draw(st.integers(0, 3))
    for _ in range(rounds):
        account.add_round([("head", head), ("ours", ours)], added_texts=min(ours, 20))
    return account.settle(outcome, [usage] * rounds)


NO_SUMS = ("key", "title", "saved_percent", "status", "peak_in", "peak_sent", "rereads_gone_by", "read_again")
AFTER = ("caused", "cost_caused", "saved_after", "saved_after_percent")
"""What is above a rate in many receipts may not be in each of them."""
WHOLE = [name for name in ReceiptTotals.__struct_fields__ if name not in (*NO_SUMS, *AFTER)]
TOOLS = st.sampled_from([(), ("read",), ("read", "view", "read")])


@pytest.mark.rows("X-16", "S2-15")
@given(
    st.lists(any_receipt(), max_size=8, unique_by=lambda r: r.id),
    st.lists(st.builds(RereadCount, st.integers(0, 9), st.integers(0, 9), TOOLS), max_size=8),
    st.sampled_from([True, False]),
)
def test_totals_are_the_sums_of_their_rows_whatever_they_are_grouped_by(
    made: list[Receipt], reads: list[RereadCount], fixed: bool
) -> None:
    """X-16, S2-15, as a law: every figure, by every key, with the fixed part and without; peaks are the largest."""
    made = made if fixed else [without_fixed(receipt) for receipt in made]
    again = {receipt.id: read for receipt, read in zip(made, reads, strict=False)}
    whole = sum_receipts(made, again=again)
    bys: tuple[GroupBy, ...] = ("request", "frame", "conversation", "model", "day", "client")
    for by in bys:
        rows = group_receipts(made, by, again=again)
        for name in WHOLE:
            assert getattr(whole, name) == pytest.approx(sum(getattr(row, name) for row in rows), abs=1e-12)
        for name in ReadAgain.__struct_fields__:
            counts = [getattr(row.read_again, name) for row in rows]
            assert getattr(whole.read_again, name) == pytest.approx(sum(counts), abs=1e-12)
        by_tool = sum((Counter(row.rereads_gone_by or {}) for row in rows), Counter())
        assert whole.rereads_gone_by == dict(by_tool)
        assert whole.peak_in == max((row.peak_in for row in rows), default=0)


@given(any_receipt())
def test_without_the_fixed_part_the_saving_stays_and_no_figure_turns_negative(receipt: Receipt) -> None:
    rest = without_fixed(receipt)

    assert rest.tokens_saved == receipt.tokens_saved
    assert rest.cost_untouched - rest.cost == pytest.approx(receipt.cost_untouched - receipt.cost)
    for use in (rest.sent, rest.untouched):
        assert min(use.cached, use.written, use.uncached) >= 0
    assert min(rest.tokens_in, rest.tokens_sent, rest.cost, rest.cost_untouched) >= 0
    assert (rest.sent.total, rest.untouched.total) == (rest.tokens_sent, rest.tokens_in)


# ---------------------------------------------------------------------------------------------------------- how it
# reads
def test_days_are_those_of_the_zone_that_is_asked_for(accountant: Accountant) -> None:
    late = settled(accountant, [HEAD], [HEAD], outcome=RequestOutcome(id="r", created=86_400_000 - 1))

    assert [row.key for row in group_receipts([late], "day")] == ["1970-01-01"]
    assert [row.key for row in group_receipts([late], "day", zone=timezone(timedelta(hours=1)))] == ["1970-01-02"]


def test_a_narrow_table_leaves_columns_out_and_cuts_no_figure(accountant: Accountant) -> None:
    rows = [row_of(accountant, f"{n:032x}", "A title that is quite long for a table") for n in range(3)]

    for width in (60, 80, 100, 140, 200, 300):
        text = format_table(rows, by="conversation", heading="conversation", width=width).splitlines()
        assert max(map(len, text)) <= width
        assert len({len(line) for line in text}) == 1
        for heading in ("tokens in", "sent", "with us $", "saved $"):
            assert heading in text[0]
        assert "2,000" in text[1]
    assert "without us $" in format_table(rows, width=300).splitlines()[0]


def row_of(accountant: Accountant, key: str, title: str) -> ReceiptTotals:
    row = sum_receipts([settled(accountant, [HEAD], [HEAD])])
    row.key, row.title = key, title
    return row


def test_what_may_be_cut_is_cut_and_what_matters_least_is_left_out() -> None:
    key = TableColumn("key", ("abcdefghijkl",), min_width=4, is_number=False, is_id=True)
    title = TableColumn("title", ("a long title",), 1, min_width=6, is_number=False)
    figure, minor = TableColumn("sent", ("1,234,567",)), TableColumn("minor", ("1",), 2)

    assert format_columns([key, title, figure, minor])[1] == "abcdefghijkl  a long title  1,234,567      1"
    assert format_columns([key, title, figure, minor], 36)[1] == "abcd  a long title  1,234,567      1"
    assert format_columns([key, title, figure, minor], 24)[1] == "abcd  a long…  1,234,567"
    assert format_columns([key, title, figure, minor], 5)[1] == "abcd  1,234,567"


def test_a_statement_says_what_came_what_left_and_what_the_provider_says(accountant: Accountant) -> None:
    """T13: the reported usage stands beside our estimate."""
    chain = [HEAD, ("a", 500)]
    text = format_statement(
        sum_receipts(
            [settled(accountant, chain, chain, [*chain, ("b", 100)], usage=(Usage(2600, 9, 512), Usage(2700, 9)))]
        )
    )

    assert max(map(len, text.splitlines())) <= 80
    rows = (re.split(r" {2,}", line.strip()) for line in text.splitlines())
    told = {name: cells for name, *cells in rows}
    assert told["from the agents"][0] == "2,500"
    assert told["sent"][0] == "5,100"
    assert told["the provider counted"][:2] == ["5,300", "512"]
    assert told["saved"][0] == "-2,600"
    assert "% of the money lost" in text
    assert "rounds that only the model saw 2,500" in text
    assert "the provider told its count for 1 of 1 request: 3.9 % more than ours" in text


def test_of_a_model_that_is_in_no_table_the_price_of_output_is_not_missing_besides(accountant: Accountant) -> None:
    """Its assumed prices may have one."""
    asked = settled(accountant, [HEAD], [HEAD], usage=(Usage(2600, 9, 512),))
    free = msgspec.structs.replace(asked, output_priced=False)
    assumed = msgspec.structs.replace(asked, priced=False)

    text = format_statement(sum_receipts([free, assumed, assumed]))

    assert "2 of 3: model in no price table, its prices are assumed" in text
    assert "1 of 3: the price of output is not known, it counts as free" in text


def test_a_request_that_we_answered_leaves_no_price_and_no_usage_open(accountant: Accountant) -> None:
    """The line that a person typed to the proxy asked nobody."""
    asked = settled(accountant, [HEAD], [HEAD], usage=(Usage(2600, 9, 512),))
    typed = settled(accountant, [], outcome=RequestOutcome(id="a", status="answered"))
    typed = msgspec.structs.replace(typed, priced=False, output_priced=False)

    both = sum_receipts([asked, typed])

    assert (both.requests, both.reported, both.unpriced, both.output_unpriced) == (2, 2, 0, 0)
    assert "the provider told its count for 2 of 2 requests" in format_statement(both)


def test_small_amounts_are_shown_with_more_decimals(accountant: Accountant) -> None:
    row = sum_receipts([settled(accountant, [("head", 10)], [("head", 10)])])

    assert "0.000020" in format_table([row])
