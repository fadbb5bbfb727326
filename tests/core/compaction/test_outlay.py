"""What waking costs at once, against what a conversation has cost so far."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.compaction.fold_cost import (
    LONG_CONTEXT_TOKENS,
    WAKE_OUTLAY_SHARE,
    CachePrices,
    ContextRewrite,
    GateReason,
    LongRequestPrice,
    evaluate_rewrite,
    outlay,
    untouched_cost,
    within_outlay,
)
from proxy.core.ledger.messages import Message

PRICES = CachePrices(0.1, 1.25)
REWRITE = ContextRewrite(removed=10_000, compaction=1_000, behind=4_000, context_tokens=20_000, added=100)


def said(role: str, tokens: int) -> Message:
    return Message(role, b"", "", "", tokens=tokens)


def test_the_outlay_is_what_one_request_costs_more() -> None:
    """What comes in is written, what stays behind the cut is written instead of read, what leaves is not read."""
    assert outlay(REWRITE, PRICES, cold=False) == 1_100 * 1.25 + 4_000 * 1.15 - 10_000 * 0.1
    assert outlay(REWRITE, PRICES, cold=True) == 1_100 * 1.25 - 10_000 * 1.25


@pytest.mark.parametrize(
    ("context_tokens", "most"),
    [(LONG_CONTEXT_TOKENS, WAKE_OUTLAY_SHARE), (LONG_CONTEXT_TOKENS + 1, 2 * WAKE_OUTLAY_SHARE)],
)
@pytest.mark.parametrize(("share", "allowed"), [(0.99, False), (1.01, True)])
def test_a_rewrite_may_cost_a_share_of_what_was_paid(
    share: float, allowed: bool, context_tokens: int, most: float
) -> None:
    verdict = evaluate_rewrite(replace(REWRITE, context_tokens=context_tokens), PRICES, 50, cold=False)
    paid = share * outlay(REWRITE, PRICES, cold=False) / most

    assert verdict.is_worth_it
    assert within_outlay(verdict, paid, cold=False).is_worth_it is allowed
    assert within_outlay(verdict, None, cold=False) is verdict


def test_a_window_that_is_nearly_full_sets_no_limit() -> None:
    verdict = evaluate_rewrite(REWRITE, PRICES, 50, cold=False, window=22_000)

    assert verdict.reason is GateReason.PRESSURE
    assert within_outlay(verdict, 0.0, cold=False) is verdict


def test_the_untouched_cost_reads_what_was_written_and_writes_what_is_new() -> None:
    """Two answered requests; what came after the last answer has cost nothing yet."""
    history = [said("user", 100), said("assistant", 50), said("tool", 500), said("assistant", 20), said("user", 9)]

    assert untouched_cost(history, 1_000, PRICES) == pytest.approx(1_100 * 1.25 + (1_100 * 0.1 + 550 * 1.25))


@pytest.mark.rows("X-62")
def test_a_request_that_stays_below_a_band_costs_less_at_once() -> None:
    banded = replace(PRICES, long=LongRequestPrice(above=15_000, factor=5.0))

    assert outlay(REWRITE, banded, cold=False) == pytest.approx(outlay(REWRITE, PRICES, cold=False) - 4 * 20_000 * 0.1)
    assert outlay(REWRITE, banded, cold=True) == pytest.approx(outlay(REWRITE, PRICES, cold=True) - 4 * 20_000 * 1.25)


@pytest.mark.rows("X-62")
def test_the_untouched_cost_counts_the_requests_above_a_band() -> None:
    history = [said("user", 100), said("assistant", 50), said("tool", 500), said("assistant", 20), said("user", 9)]
    banded = replace(PRICES, long=LongRequestPrice(above=1_200, factor=2.0))

    first, second = 1_100 * 1.25, 1_100 * 0.1 + 550 * 1.25
    assert untouched_cost(history, 1_000, banded) == pytest.approx(first + 2 * second)
