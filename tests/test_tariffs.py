"""The table of prices and traits: each checked figure was read off the sources again, not off the code."""

import pytest

from proxy.tariffs import TARIFFS, UNKNOWN, Tariff, plain_name, tariff_among, tariff_for


@pytest.mark.parametrize(
    ("model", "figures"),
    [
        ("claude-opus-4-8", (5.0, 0.1, 1.25, 1024)),
        ("claude-opus-4-7", (5.0, 0.1, 1.25, 2048)),
        ("claude-opus-5", (5.0, 0.1, 1.25, 512)),
        ("claude-opus-5-5", (4.0, 0.05, 1.25, 1024)),
        ("claude-sonnet-5-5", (2.0, 0.05, 1.25, 1024)),
        ("claude-fable-5-1", (10.0, 0.025, 1.25, 1024)),
        ("claude-haiku-4-5", (1.0, 0.1, 1.25, 4096)),
        ("gpt-5.5", (5.0, 0.1, 1.0, 1024)),
        ("gpt-5.4", (2.5, 0.1, 1.0, 1024)),
        ("gpt-5.4-mini", (0.75, 0.1, 1.0, 1024)),
        ("gpt-5.6-luna", (1.0, 0.1, 1.25, 1024)),
        ("gemini-3.1-pro", (2.0, 0.1, 1.0, 2048)),
        ("deepseek-v4-flash", (0.14, 0.02, 1.0, 1024)),
    ],
)
def test_a_model_costs_what_its_provider_asks(model: str, figures: tuple[float, float, float, int]) -> None:
    row = tariff_for(model)

    assert (row.input, row.read, row.write, row.minimum) == figures
    assert row.known


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("openai/GPT-5.4", "gpt-5.4"),
        ("gpt-5.4-2026-03-05", "gpt-5.4"),
        ("anthropic/claude-opus-4.5", "claude-opus-4.5"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("openrouter/anthropic/claude-opus-4.5:beta", "claude-opus-4.5"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("gpt-5.4-mini", "gpt-5.4-mini"),
    ],
)
def test_provider_region_and_date_do_not_hide_a_model(written: str, plain: str) -> None:
    assert plain_name(written) == plain


def test_both_spellings_of_a_version_are_one_row() -> None:
    assert tariff_for("anthropic/claude-opus-4.5") is tariff_for("claude-opus-4-5-20251101")


def test_a_variant_that_is_not_listed_is_flagged_and_not_priced_as_its_sibling() -> None:
    row = tariff_for("gpt-5.4-pro")

    assert row is UNKNOWN
    assert (row.known, row.read, row.write, row.window) == (False, 0.1, 1.0, 128_000)


def test_the_longest_name_that_fits_wins_whatever_the_order() -> None:
    wide, narrow = Tariff(("llama-*",), 1.0), Tariff(("llama-3-*",), 2.0)

    assert tariff_among("llama-3-70b", (wide, narrow)) is narrow
    assert tariff_among("llama-3-70b", (narrow, wide)) is narrow
    assert tariff_among("llama-4-70b", (narrow, wide)) is wide


def test_no_name_stands_in_two_rows() -> None:
    names = [name for row in TARIFFS for name in row.names]

    assert len(names) == len(set(names))


def test_every_name_is_written_as_it_is_looked_up() -> None:
    """A name with a provider or a date in it would never be found."""
    literal = [name.replace("[-.]", "-").replace("[12]", "1") for row in TARIFFS for name in row.names]

    assert [name for name in literal if plain_name(name) != name] == []


def test_what_a_model_requires_back_or_binds_is_told() -> None:
    """REASONING: signatures of Gemini 3, reasoning of DeepSeek V4, binding of the newest Claude models (L8)."""
    assert tariff_for("gemini-3.1-pro-preview").required == ("thought_signature",)
    assert tariff_for("deepseek-v4-flash").required == ("reasoning_content",)
    assert tariff_for("claude-opus-5.5").binding == "error"
    assert tariff_for("gpt-5.6-sol").binding == "drop"
    assert tariff_for("claude-opus-4-8").binding == "none"
    assert tariff_for("mistral-large-3").after_tool == "suffix"


def test_every_row_has_a_window_that_holds_more_than_its_longest_answer() -> None:
    assert [row.names for row in TARIFFS if not 0 < row.max_output < row.window] == []
