"""Usage of providers in one measure (S4-60, C13) and what a client of several rounds is told (DESIGN 7, S4-02)."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.ledger.messages import Usage
from proxy.dialects.usage import (
    compaction_usages,
    cost_of_header,
    cost_of_usage,
    merge_usage,
    usage_for_client,
    usage_of,
    usage_of_timings,
)

OPENAI = {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 60}}
DEEPSEEK = {
    "prompt_tokens": 100,
    "completion_tokens": 9,
    "prompt_cache_hit_tokens": 60,
    "prompt_cache_miss_tokens": 40,
}
ANTHROPIC = {
    "input_tokens": 30,
    "output_tokens": 9,
    "cache_read_input_tokens": 60,
    "cache_creation_input_tokens": 10,
}
THROUGH_A_GATEWAY = {"prompt_tokens": 100, "completion_tokens": 9} | {
    "cache_read_input_tokens": 60,
    "cache_creation_input_tokens": 10,
}
GEMINI = {
    "promptTokenCount": 100,
    "candidatesTokenCount": 4,
    "thoughtsTokenCount": 5,
    "cachedContentTokenCount": 60,
}
MOONSHOT = {"prompt_tokens": 100, "completion_tokens": 9, "cached_tokens": 60}


@pytest.mark.rows("S4-60", "C13")
@pytest.mark.parametrize(
    ("told", "written"),
    [(OPENAI, 0), (DEEPSEEK, 0), (ANTHROPIC, 10), (THROUGH_A_GATEWAY, 10), (GEMINI, 0), (MOONSHOT, 0)],
)
def test_s4_60_c13_the_input_is_the_whole_prompt_whoever_tells_it(told: dict[str, Any], written: int) -> None:
    assert usage_of(told) == Usage(input=100, output=9, cached=60, written=written)


@pytest.mark.rows("S4-60")
def test_what_llama_cpp_tells_beside_its_times_is_a_usage_too() -> None:
    told = {"cache_n": 60, "prompt_n": 40, "prompt_ms": 12.5, "predicted_n": 9, "predicted_ms": 81.0}

    assert usage_of_timings(told) == Usage(input=100, output=9, cached=60)
    assert usage_of_timings({}) is usage_of_timings({"prompt_n": "40", "prompt_ms": 12.5}) is None


def test_reasoning_that_is_told_beside_the_output_is_output_too() -> None:
    """It is paid as output; a total that holds it as well is how one knows."""
    details = {"completion_tokens_details": {"reasoning_tokens": 317}}
    beside = {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 331, **details}
    within = {"prompt_tokens": 12, "completion_tokens": 319, "total_tokens": 331, **details}

    assert usage_of(beside) == usage_of(within) == Usage(12, 319)
    assert usage_of(beside | {"total_tokens": None}).output == 2
    assert usage_for_client([beside]) == beside
    assert usage_for_client([beside, beside])["total_tokens"] == 12 + 2 * 319


def test_what_is_written_for_an_hour_is_a_part_of_what_is_written() -> None:
    told = ANTHROPIC | {"cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 7}}

    assert usage_of(told) == Usage(100, 9, 60, 10, written_long=7)
    assert usage_of(told | {"cache_creation": {"ephemeral_1h_input_tokens": 70}}).written_long == 10
    assert usage_of(told | {"cache_creation": None}).written_long == 0


def test_output_that_only_the_total_holds_is_output_too() -> None:
    """Gateways to Gemini tell of the thoughts nowhere else."""
    told = {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623}

    assert usage_of(told) == usage_of({"input_tokens": 20, "output_tokens": 198, "total_tokens": 623}) == Usage(20, 603)
    assert usage_for_client([told, told])["total_tokens"] == 20 + 2 * 603
    assert usage_of(told | {"total_tokens": 218}).output == usage_of(told | {"total_tokens": 1}).output == 198
    assert usage_of({"total_tokens": 623}).output == 0


@pytest.mark.parametrize("cached", [{"cache_read_input_tokens": 405}, {"prompt_cache_hit_tokens": 405}])
def test_a_total_with_what_the_cache_held_has_no_more_output(cached: dict[str, Any]) -> None:
    told = {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623}

    assert usage_of(told | cached).output == 198


@pytest.mark.parametrize("told", [{}, {"prompt_tokens": None}, {"prompt_tokens": "7", "prompt_tokens_details": [1]}])
def test_what_is_no_figure_is_0(told: dict[str, Any]) -> None:
    assert usage_of(told) == Usage()


@pytest.mark.parametrize(
    "figure", [float("inf"), float("-inf"), float("nan"), -7, pytest.param(10**400, id="long"), 1e30]
)
def test_what_no_prompt_can_have_is_0(figure: float) -> None:
    """`1e400` is JSON, and a parser's infinity."""
    assert usage_of({"prompt_tokens": figure, "completion_tokens": 9}) == Usage(0, 9)
    assert usage_for_client([{"completion_tokens": figure, "total_tokens": figure}] * 2)["total_tokens"] == 0


@pytest.mark.rows("S4-02")
def test_s4_02_the_input_side_is_the_last_rounds_and_the_output_side_is_the_sum() -> None:
    rounds = [
        {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        | {"completion_tokens_details": {"reasoning_tokens": 4}, "cost": 0.1},
        {"prompt_tokens": 120, "completion_tokens": 5, "total_tokens": 125}
        | {"prompt_tokens_details": {"cached_tokens": 100}}
        | {"completion_tokens_details": {"reasoning_tokens": 2, "note": None}, "cost": 0.2},
    ]
    assert usage_for_client(rounds) == {
        "prompt_tokens": 120,
        "completion_tokens": 15,
        "total_tokens": 135,
        "prompt_tokens_details": {"cached_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 6, "note": None},
        "cost": 0.2,
    }


def test_usage_told_in_parts_is_the_newest_total_and_nothing_is_taken_back() -> None:
    begun = {"input_tokens": 30, "cache_read_input_tokens": 60, "output_tokens": 1, "service_tier": "standard"}
    ended: dict[str, Any] = {"input_tokens": 0, "cache_read_input_tokens": None, "output_tokens": 9, "iterations": []}
    assert merge_usage(begun, ended) == {**begun, "output_tokens": 9, "iterations": []}
    assert merge_usage({}, {"input_tokens": 0}) == {"input_tokens": 0}


def test_requests_of_server_tools_are_those_of_all_rounds() -> None:
    rounds = [{"output_tokens": 1, "server_tool_use": {"web_search_requests": n}} for n in (1, 2)]
    assert usage_for_client(rounds) == {"output_tokens": 2, "server_tool_use": {"web_search_requests": 3}}


def test_each_compaction_of_the_provider_is_told_by_itself() -> None:
    done = {"type": "compaction", **ANTHROPIC}
    told = {
        "input_tokens": 5,
        "iterations": [done, {"type": "message", "input_tokens": 5}, done | {"output_tokens": 1}],
    }

    assert compaction_usages(told) == (Usage(100, 9, 60, 10), Usage(100, 1, 60, 10))
    assert usage_of(told).input == 5
    assert (
        compaction_usages({"iterations": None})
        == compaction_usages({"iterations": ["x", {}]})
        == compaction_usages({})
        == ()
    )


@pytest.mark.rows("X-62")
@pytest.mark.parametrize(
    ("told", "cost"),
    [
        ({"cost": 0.25}, 0.25),
        ({"cost": 1}, 1.0),
        ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.19}}, 0.2),
        ({"cost": 0.25, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.19}}, 0.25),
        ({"cost": 0}, None),
        ({"cost": -1.0}, None),
        ({"cost": True}, None),
        ({"cost": "0.25"}, None),
        ({"cost": {"total_cost": 0.25}}, None),
        ({"cost": float("inf")}, None),
        ({"cost": float("nan")}, None),
        ({}, None),
    ],
)
def test_what_an_answer_names_as_its_cost(told: dict[str, Any], cost: float | None) -> None:
    assert cost_of_usage(told) == (None if cost is None else pytest.approx(cost))


@pytest.mark.rows("X-62")
def test_what_a_header_names_as_the_cost() -> None:
    assert cost_of_header("0.0123") == 0.0123
    assert [cost_of_header(value) for value in ("", "0", "-1", "n/a", "inf", "nan", "None")] == [None] * 7
