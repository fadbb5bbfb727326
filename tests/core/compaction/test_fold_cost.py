"""Is a rewrite worth it? Figures in, figures out (S4-36)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.compaction.detours import DETOURS_PER_FOLD, DetourHistory
from proxy.core.compaction.fold_cost import (
    DETOUR_TOKENS,
    EXPECTED_REQUESTS,
    EXPECTED_REQUESTS_LATER,
    PRESSURE_SHARE,
    YOUNG_CONVERSATION_REQUESTS,
    CachePrices,
    ContextRewrite,
    GateReason,
    LongRequestPrice,
    evaluate_rewrite,
    expected_requests,
)

WARM = CachePrices(0.1, 1.25)
FOLD = ContextRewrite(removed=10_000, compaction=1_000, behind=2_000, context_tokens=40_000)


@pytest.mark.rows("S4-36")
def test_a_warm_fold_is_weighed_as_design_says() -> None:
    """(T-C)*r*N against S*(w-r) + C*w + q*recall."""
    verdict = evaluate_rewrite(FOLD, WARM, 50, cold=False)

    assert verdict.gain == pytest.approx(9_000 * 0.1 * 50)
    detours = DETOURS_PER_FOLD * (DETOUR_TOKENS * 1.25 + 40_000 * 0.1)
    assert verdict.cost == pytest.approx(2_000 * 1.15 + 1_000 * 1.25 + detours)
    assert (verdict.is_worth_it, verdict.reason) == (True, GateReason.GATE)


@pytest.mark.rows("S4-36")
def test_much_behind_the_cut_is_not_worth_it() -> None:
    verdict = evaluate_rewrite(replace(FOLD, behind=60_000), WARM, 50, cold=False)

    assert (verdict.is_worth_it, verdict.reason) == (False, GateReason.NOT_YET)
    assert verdict.cost > verdict.gain


@pytest.mark.rows("S0-53")
def test_detours_of_earlier_folds_are_weighed_too() -> None:
    def weighed(folds: int, detours: int, since_newest: int = 0) -> tuple[float, float]:
        verdict = evaluate_rewrite(FOLD, WARM, 50, cold=False, history=DetourHistory(folds, detours, since_newest))
        return verdict.gain, verdict.cost

    gain, cost = weighed(0, 0)
    detour = DETOUR_TOKENS * 1.25 + 40_000 * 0.1
    assert weighed(4, 0) == pytest.approx((gain, cost - DETOURS_PER_FOLD / 2 * detour))
    assert weighed(4, 8) == pytest.approx((gain, cost + (1.2 - DETOURS_PER_FOLD) * detour))
    assert weighed(4, 8, 1)[0] == pytest.approx(gain / 2)
    assert weighed(4, 8, 3)[0] == pytest.approx(gain / 2)


BANDED = CachePrices(0.1, 1.25, LongRequestPrice(above=100_000, factor=5.0))
LONG_FOLD = ContextRewrite(removed=20_000, compaction=1_000, behind=90_000, context_tokens=110_000)


@pytest.mark.rows("X-62")
def test_a_fold_that_keeps_a_request_below_a_band_is_worth_what_the_band_costs() -> None:
    flat = evaluate_rewrite(LONG_FOLD, WARM, 50, cold=False)
    banded = evaluate_rewrite(LONG_FOLD, BANDED, 50, cold=False)

    assert (flat.is_worth_it, flat.band) == (False, 0.0)
    assert (banded.is_worth_it, banded.reason) == (True, GateReason.BAND)
    assert banded.band == pytest.approx(4 * 110_000 * 0.1 * 50)
    assert [banded.gain, banded.cost] == pytest.approx([flat.gain + banded.band, flat.cost])


@pytest.mark.rows("X-62")
@pytest.mark.parametrize(
    ("context_tokens", "removed"),
    [(90_000, 20_000), (100_000, 20_000), (150_000, 20_000)],
    ids=["below with and without", "at the band", "above with and without"],
)
def test_a_fold_that_crosses_no_band_is_weighed_as_ever(context_tokens: int, removed: int) -> None:
    fold = replace(LONG_FOLD, context_tokens=context_tokens, removed=removed)
    flat, banded = (evaluate_rewrite(fold, prices, 50, cold=False) for prices in (WARM, BANDED))

    assert (banded.is_worth_it, banded.gain, banded.cost) == (flat.is_worth_it, flat.gain, flat.cost)


@pytest.mark.rows("X-62")
def test_a_band_counts_for_as_many_requests_as_the_context_stays_below_it() -> None:
    growing = replace(BANDED, long=LongRequestPrice(above=100_000, factor=5.0, growth=3_000))

    assert evaluate_rewrite(LONG_FOLD, growing, 50, cold=False).band == pytest.approx(4 * 110_000 * 0.1 * (1 + 9 / 3))
    assert evaluate_rewrite(LONG_FOLD, growing, 2, cold=False).band == pytest.approx(4 * 110_000 * 0.1 * 2)


@pytest.mark.rows("X-62")
def test_behind_a_cold_cache_a_band_is_worth_the_write_as_well() -> None:
    cold = evaluate_rewrite(LONG_FOLD, BANDED, 50, cold=True)

    assert cold.band == pytest.approx(4 * 110_000 * (0.1 * 50 + 1.15))


def test_lost_reasoning_is_a_cost() -> None:
    free = evaluate_rewrite(FOLD, WARM, 50, cold=False)

    assert evaluate_rewrite(replace(FOLD, reasoning=500), WARM, 50, cold=False).cost == free.cost + 500


def test_with_a_cold_cache_nothing_is_written_twice() -> None:
    verdict = evaluate_rewrite(replace(FOLD, behind=60_000), WARM, 50, cold=True)

    assert (verdict.is_worth_it, verdict.reason) == (True, GateReason.COLD)
    assert verdict.gain == pytest.approx(9_000 * 0.1 * 50 + 9_000 * 1.15)


def test_a_cold_cache_is_no_reason_to_grow() -> None:
    assert not evaluate_rewrite(ContextRewrite(100, 300, 0, 1_000), WARM, 50, cold=True).is_worth_it


def test_a_line_near_the_window_is_folded_whatever_it_costs() -> None:
    """Above 60 % of a window that is known, and only where it gets shorter."""
    dear = replace(FOLD, behind=60_000, context_tokens=int(100_000 * PRESSURE_SHARE) + 1)

    assert evaluate_rewrite(dear, WARM, 50, cold=False, window=100_000).reason is GateReason.PRESSURE
    assert (
        evaluate_rewrite(
            replace(dear, context_tokens=int(100_000 * PRESSURE_SHARE)), WARM, 50, cold=False, window=100_000
        ).is_worth_it
        is False
    )
    assert evaluate_rewrite(dear, WARM, 50, cold=False).is_worth_it is False
    assert evaluate_rewrite(replace(dear, removed=500), WARM, 50, cold=False, window=100_000).is_worth_it is False


def test_waking_has_to_earn_what_it_adds() -> None:
    assert evaluate_rewrite(replace(FOLD, added=1_000), WARM, 50, cold=False).gain == pytest.approx(8_000 * 0.1 * 50)
    assert not evaluate_rewrite(ContextRewrite(0, 0, 0, 40_000, added=1_000), WARM, 50, cold=False).is_worth_it


def test_requests_still_expected_are_the_medians_of_recorded_ones() -> None:
    assert [expected_requests(n) for n in (0, YOUNG_CONVERSATION_REQUESTS, YOUNG_CONVERSATION_REQUESTS + 1, 500)] == [
        EXPECTED_REQUESTS,
        EXPECTED_REQUESTS,
        *[EXPECTED_REQUESTS_LATER] * 2,
    ]


TOKENS = st.integers(0, 200_000)


@given(removed=TOKENS, compaction=TOKENS, behind=TOKENS, more=TOKENS, cold=st.booleans())
def test_more_behind_is_never_better_and_more_removed_never_worse(
    removed: int, compaction: int, behind: int, more: int, *, cold: bool
) -> None:
    here = ContextRewrite(removed + 1, compaction, behind, removed + behind + 1)
    net = evaluate_rewrite(here, WARM, 50, cold=cold)
    further = evaluate_rewrite(replace(here, behind=behind + more), WARM, 50, cold=cold)
    larger = evaluate_rewrite(replace(here, removed=removed + 1 + more), WARM, 50, cold=cold)

    assert further.gain - further.cost <= net.gain - net.cost
    assert larger.gain - larger.cost >= net.gain - net.cost
    assert net.is_worth_it == (net.gain > net.cost)
