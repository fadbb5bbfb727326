"""The table of prices and traits, and the rows of a configuration before it: each checked figure was read off the
sources again, not off the code."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from proxy.accounting.model_facts import MODELS_FILE, FactRows, built_in_rows, read_facts, rows_of
from proxy.accounting.model_prices import Tariffs, plain_name, tariff_for
from proxy.accounting.tariff import UNKNOWN_TARIFF, Tariff
from proxy.config.model import Config
from proxy.errors import InvalidConfiguration
from proxy.upstream.routing import Routes

DAY = date(2026, 11, 28)
PRICES: dict[str, tuple[float, float, float]] = {
    "claude-fable-5-2": (8.0, 0.2, 40.0),
    "claude-fable-5-1": (10.0, 0.25, 50.0),
    "claude-fable-5": (10.0, 1.0, 50.0),
    "claude-opus-5-5": (4.0, 0.2, 20.0),
    "claude-opus-5": (5.0, 0.5, 25.0),
    "claude-opus-4-8": (5.0, 0.5, 25.0),
    "claude-opus-4-1": (15.0, 1.5, 75.0),
    "claude-sonnet-5-5": (2.0, 0.1, 10.0),
    "claude-sonnet-5": (2.0, 0.2, 10.0),
    "claude-sonnet-4-5": (3.0, 0.3, 15.0),
    "claude-haiku-5-5": (0.1, 0.01, 0.5),
    "claude-haiku-4-5": (1.0, 0.1, 5.0),
    "gpt-6.2-astra": (8.0, 0.4, 40.0),
    "gpt-6.2-sol": (2.0, 0.1, 10.0),
    "gpt-6.1-sol": (2.0, 0.1, 10.0),
    "gpt-6.1-terra": (1.0, 0.05, 5.0),
    "gpt-6-astra": (10.0, 1.0, 50.0),
    "gpt-6-sol": (2.0, 0.2, 10.0),
    "gpt-6-luna": (0.1, 0.01, 0.5),
    "gpt-5.6-sol": (4.0, 0.4, 20.0),
    "gpt-5.6-terra": (2.0, 0.2, 12.0),
    "gpt-5.6-luna": (0.2, 0.02, 1.2),
    "gpt-5.5": (5.0, 0.5, 30.0),
    "gpt-5.4": (2.5, 0.25, 15.0),
    "gpt-5.4-mini": (0.75, 0.075, 4.5),
    "gpt-5.3-codex": (1.75, 0.175, 14.0),
    "gemini-4-argon": (2.0, 0.1, 10.0),
    "gemini-4-neon": (3.0, 0.15, 15.0),
    "gemini-3.8-flash": (0.75, 0.075, 3.75),
    "gemini-3.1-pro": (2.0, 0.2, 12.0),
    "deepseek-flash": (0.3, 0.006, 1.2),
    "deepseek-v4-pro": (1.32, 0.044, 3.96),
    "grok-4.7": (2.0, 0.5, 6.0),
    "mistral-large-3": (0.5, 0.05, 1.5),
}
"""USD per million tokens: fresh input, cached input, output."""


@pytest.mark.rows("X-62")
@pytest.mark.parametrize("model", PRICES)
def test_a_model_costs_what_its_provider_asks(model: str) -> None:
    row = Tariffs(built_in=rows_of(read_facts(MODELS_FILE), DAY)).tariff_of(model)

    assert (row.input, row.read * row.input, row.output) == pytest.approx(PRICES[model])
    assert row.known
    assert row.as_of
    assert row.read_at


@pytest.mark.rows("X-62")
@pytest.mark.parametrize(
    ("model", "write", "ttl_s", "long_write", "long_ttl_s", "minimum"),
    [
        ("claude-opus-4-8", 1.25, 300, 2.0, 3600, 1024),
        ("claude-opus-4-7", 1.25, 300, 2.0, 3600, 2048),
        ("claude-opus-5", 1.25, 300, 2.0, 3600, 512),
        ("claude-haiku-4-5", 1.25, 300, 2.0, 3600, 4096),
        ("gpt-5.6-sol", 1.25, 1800, 2.5, 43200, 1024),
        ("gpt-5.6-luna", 1.25, 1800, 2.5, 43200, 1024),
        ("gpt-6.2-sol", 1.25, 1800, 2.5, 43200, 1024),
        ("gpt-5.4", 1.0, 600, 2.0, 3600, 1024),
        ("gemini-3.1-pro", 1.0, 300, 2.0, 3600, 4096),
        ("deepseek-v4-flash", 1.0, 86400, 2.0, 3600, 64),
    ],
)
def test_the_cache_of_a_model_lives_and_costs_what_its_provider_says(
    model: str, write: float, ttl_s: int, long_write: float, long_ttl_s: int, minimum: int
) -> None:
    row = tariff_for(model)

    assert (row.write, row.ttl_s, row.long_write, row.long_ttl_s) == (write, ttl_s, long_write, long_ttl_s)
    assert row.minimum == minimum


@pytest.mark.rows("X-62")
@pytest.mark.parametrize(
    ("model", "above", "dear", "dear_output"),
    [
        ("claude-haiku-5.5", 100_000, 0.5, 2.5),
        ("gpt-6.2-sol", 272_000, 4.0, 15.0),
        ("gpt-6.2-astra", 272_000, 16.0, 60.0),
        ("gpt-6.1-terra", 272_000, 2.0, 7.5),
        ("gpt-5.6-luna", 272_000, 0.4, 1.8),
        ("gpt-5.5", 272_000, 10.0, 45.0),
        ("gemini-3.1-pro", 200_000, 4.0, 18.0),
        ("grok-4.6", 200_000, 4.0, 12.0),
    ],
)
def test_a_long_request_costs_more_for_all_of_it(model: str, above: int, dear: float, dear_output: float) -> None:
    row = tariff_for(model)

    long = row.for_input(above + 1)

    assert row.for_input(above) == row
    assert [long.input, long.output, long.read] == pytest.approx([dear, dear_output, row.read])
    assert tariff_for("claude-opus-5").for_input(900_000) == tariff_for("claude-opus-5")


@pytest.mark.rows("X-62")
def test_a_price_that_was_announced_holds_from_its_day_on() -> None:
    before, after = (
        Tariffs(built_in=rows_of(read_facts(MODELS_FILE), day)).tariff_of("gemini-4-argon")
        for day in (date(2026, 11, 30), date(2026, 12, 1))
    )

    assert (before.input, before.output, before.read) == (2.0, 10.0, 0.05)
    assert (after.input, after.output, after.read) == (4.0, 20.0, 0.05)


@pytest.mark.rows("X-62")
@pytest.mark.parametrize(
    ("model", "like", "price"),
    [
        ("claude-opus-6", "claude-opus-5.5", 4.0),
        ("claude-haiku-6-20270301", "claude-haiku-5.5", 0.1),
        ("anthropic/claude-fable-6", "claude-fable-5.2", 8.0),
        ("gpt-6.3-sol", "gpt-6.2-sol", 2.0),
        ("gpt-7-luna", "gpt-6-luna", 0.1),
        ("gpt-7-codex", "gpt-5.3-codex", 1.75),
        ("gpt-4o-2024-08-06", "gpt-4*", 2.5),
        ("gemini-5-pro", "gemini-3.1-pro", 2.0),
        ("gemini-4.5-flash", "gemini-3.6-flash", 0.75),
        ("grok-5", "grok-4.6", 2.0),
        ("mistral-next", "mistral-large", 0.5),
    ],
)
def test_a_name_of_a_known_family_is_priced_like_its_sibling_and_flagged(model: str, like: str, price: float) -> None:
    row = tariff_for(model)

    assert (row.source, row.input) == (f"family of {like}", price)
    assert (row.known, row.window_known) == (False, False)


def test_what_is_no_longer_sold_keeps_the_cache_rules_of_a_model_nobody_knows() -> None:
    row, unknown = tariff_for("gpt-4.1-mini"), UNKNOWN_TARIFF

    assert (row.read, row.write, row.minimum, row.step, row.ttl_s) == (
        *(unknown.read, unknown.write, unknown.minimum, unknown.step, unknown.ttl_s),
    )
    assert row.window == unknown.window


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


def test_the_longest_name_that_fits_wins_whatever_the_order() -> None:
    wide, narrow = Tariff(("llama-*",), 1.0), Tariff(("llama-3-*",), 2.0)

    assert Tariffs(built_in=FactRows((wide, narrow))).tariff_of("llama-3-70b") is narrow
    assert Tariffs(built_in=FactRows((narrow, wide))).tariff_of("llama-3-70b") is narrow
    assert Tariffs(built_in=FactRows((narrow, wide))).tariff_of("llama-4-70b") is wide


def test_no_name_stands_in_two_rows() -> None:
    names = [name for row in built_in_rows().exact for name in row.names]

    assert len(names) == len(set(names))


def test_every_name_is_written_as_it_is_looked_up() -> None:
    """A name with a provider or a date in it would never be found."""
    literal = [name.replace("[-.]", "-") for row in built_in_rows().exact for name in row.names]

    assert [name for name in literal if plain_name(name) != name] == []


def test_what_a_model_requires_back_or_binds_is_told() -> None:
    """REASONING: signatures of Gemini 3, reasoning of DeepSeek V4, binding of the newest Claude models (L8)."""
    assert tariff_for("gemini-3.1-pro-preview").required == ("thought_signature",)
    assert tariff_for("deepseek-v4-flash").required == ("reasoning_content",)
    assert tariff_for("claude-opus-5.5").binding == "error"
    assert tariff_for("gpt-5.6-sol").binding == "drop"
    assert tariff_for("claude-opus-4-8").binding == "none"
    assert tariff_for("mistral-large-3").after_tool == "suffix"


@pytest.mark.rows("X-28", "X-29")
def test_models_of_no_known_api_want_alternating_roles_and_have_a_cap_on_tools() -> None:
    strict = {name: tariff_for(name).roles for name in ("qwen3-coder", "gemma-3-27b-it", "devstral-small-2")}
    free = {name: tariff_for(name).roles for name in ("gpt-4.1", "openai/o3", "claude-3-7-sonnet", "gemini-2.5-pro")}

    assert set(strict.values()) == {"alternate"}
    assert set(free.values()) == {"any"}
    assert (tariff_for("gpt-4.1").most_tools, tariff_for("qwen3-coder").most_tools) == (128, 128)
    assert (tariff_for("claude-opus-5").most_tools, tariff_for("claude-3-7-sonnet").most_tools) == (0, 0)


def test_every_row_has_a_window_that_holds_more_than_its_longest_answer() -> None:
    assert [row.names for row in built_in_rows().exact if not 0 < row.max_output < row.window] == []


# ------------------------------------------------------------------------------------------------ rows of configuration
def configured(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "proxy.yaml"
    file.write_text(text)
    return load_config(file=file)


def test_a_configured_row_has_prices_window_traits_and_a_date(tmp_path: Path) -> None:
    config = configured(
        tmp_path,
        """
tariffs:
  house:
    names: [house-*, Llama-3.1-70B]
    as_of: 2026-10-31
    input: 0.5
    output: 1.5
    read: 0.25
    write: 1.1
    minimum: 512
    step: 16
    ttl_s: 120
    long_write: 3
    long_ttl_s: 7200
    window: 65536
    max_output: 8192
    long_context: 40000
    long_input: 3
    long_output: 1.25
    binding: drop
    after_tool: suffix
    thinking_in_loop: required
    required: [reasoning_content]
    append: [system]
    roles: any
    most_tools: 64
""",
    )
    expected = Tariff(
        ("house-*", "llama-3.1-70b"), 0.5, 1.5, 0.25, 1.1, 120, 3.0, 7200, 40_000, 3.0, 1.25, minimum=512, step=16,
        window=65_536, max_output=8192, binding="drop", thinking_in_loop="required", required=("reasoning_content",),
        after_tool="suffix", append=("system",), most_tools=64, as_of="2026-10-31", source="tariffs.house",
    )  # fmt: skip

    assert config.tariff_of("house-7") == expected
    assert config.tariff_of("together/llama-3.1-70b") == expected
    assert config.tariff_of("gpt-5.4") == tariff_for("gpt-5.4")


@pytest.mark.parametrize(
    ("row", "asked", "price"),
    [
        ("gpt-5.4", "gpt-5.4", 9.0),  # as long as the built-in name
        ("claude-opus-5.5", "claude-opus-5-5", 4.0),  # the other spelling is not its name
        ("claude-opus-5.5", "anthropic/claude-opus-5.5", 9.0),  # a choice of characters is one character long
        ("gpt-*", "gpt-5.4", 2.5),  # shorter than the built-in name
        ("gpt-*", "gpt-4.1", 9.0),
        ("openrouter/*", "openrouter/openai/gpt-5.4", 9.0),  # with what stands in front
        ("*", "nobody", 9.0),
    ],
)
def test_the_longest_fitting_name_wins_and_a_configured_one_of_two_as_long(
    tmp_path: Path, row: str, asked: str, price: float
) -> None:
    config = configured(tmp_path, f"tariffs: {{'{row}': {{input: 9}}}}")

    assert config.tariff_of(asked).input == price


def test_what_a_configured_row_leaves_out_is_as_the_model_has_it(tmp_path: Path) -> None:
    """A price alone must not lose the trait that keeps requests from being refused (L8)."""
    config = configured(tmp_path, "tariffs: {claude-opus-5.5: {input: 3}, new-one: {window: 16000}}")

    cheaper, unpriced = config.tariff_of("claude-opus-5.5"), config.tariff_of("new-one")

    assert (cheaper.input, cheaper.binding, cheaper.window, cheaper.as_of) == (3.0, "error", 1_000_000, "")
    assert (unpriced.known, unpriced.window_known, unpriced.window) == (False, True, 16_000)
    assert unpriced.max_output < unpriced.window


def test_models_in_no_table_get_the_configured_default_and_stay_flagged(tmp_path: Path) -> None:
    config = configured(tmp_path, "default_tariff: {input: 4, output: 8, window: 32000, max_output: 4000}")
    row = config.tariff_of("nobody")

    assert (row.input, row.output, row.window, row.source) == (4.0, 8.0, 32_000, "default_tariff")
    assert (row.known, row.window_known) == (False, False)
    assert load_config().tariff_of("nobody") == UNKNOWN_TARIFF


def test_a_row_can_be_changed_in_one_leaf_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "proxy.yaml"
    file.write_text("tariffs: {gpt-4.1: {input: 2, output: 8}}")

    row = load_config({"tariffs.gpt-4.1.input": "3"}, file=file).tariff_of("gpt-4.1")

    assert (row.input, row.output) == (3.0, 8.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("tariffs: {m: {inptu: 1}}", ["tariffs.m.inptu: unknown key", "did you mean tariffs.m.input?"]),
        ("tariffs: {m: {input: -1}}", ["tariffs.m.input:", "-1"]),
        ("tariffs: {m: {input: .nan}}", ["tariffs.m.input:"]),
        ("tariffs: {m: {input: cheap}}", ["tariffs.m.input:", "'cheap'"]),
        ("tariffs: {m: {input: 1, window: 0}}", ["tariffs.m.window:"]),
        ("tariffs: {m: {input: 1, window: 100, max_output: 200}}", ["tariffs.m:", "max_output must be smaller"]),
        ("tariffs: {m: {input: 1, binding: eror}}", ["tariffs.m.binding:", "did you mean error?"]),
        ("tariffs: {m: {input: 1, append: [tols]}}", ["tariffs.m.append:", "did you mean tools?"]),
        ("tariffs: {m: {input: 1, as_of: someday}}", ["tariffs.m.as_of:"]),
        ("tariffs: {m: {input: 1, names: ['']}}", ["tariffs.m.names:", "must not be empty"]),
        ("tariffs: {m: {names: [a, b]}}", ["tariffs.m:", "says nothing"]),
        ("tariffs: {m: {}}", ["tariffs.m:", "says nothing"]),
        ("tariffs: {m: }", ["tariffs.m:", "keys of its own"]),
        ("tariffs: [{input: 1}]", ["tariffs:", "keys of its own"]),
        ("tariffs: {a: {input: 1}, b: {names: [A], input: 2}}", ["tariffs.b.names: 'a' stands in tariffs.a too"]),
        ("default_tariff: {names: [x]}", ["default_tariff.names: unknown key"]),
    ],
)
def test_a_row_that_is_wrong_stops_the_start_and_names_its_key(tmp_path: Path, text: str, told: list[str]) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        configured(tmp_path, text)

    assert all(part in str(refused.value) for part in told), str(refused.value)


@pytest.mark.parametrize("asked", ["gpt-5.4", "fast", "slow", "here", "there", "other-1", "nobody"])
def test_a_name_of_the_client_is_known_by_the_upstreams_name_for_it(tmp_path: Path, asked: str) -> None:
    """L8: an alias must not hide that a model binds its reasoning. What is told is what the route sends."""
    config = configured(
        tmp_path,
        """
upstreams:
  default: {url: "http://a.example", aliases: {fast: claude-opus-5.5, here: one}}
  second: {url: "http://b.example", models: ["other-*"], aliases: {there: two, here: three}}
models:
  slow: {alias: fast}
  here: {upstream: second}
""",
    )

    assert config.upstream_model_of(asked) == Routes(config).choose(asked).model
    assert config.tariff_of(config.upstream_model_of("slow")).binding == "error"


def test_the_rows_are_listed_with_the_configured_ones_first(tmp_path: Path) -> None:
    rows = configured(tmp_path, "tariffs: {gpt-5.4: {input: 9}}").tariff_table.all_tariffs()

    assert (rows[0].source, rows[0].input, rows[0].output) == ("tariffs.gpt-5.4", 9.0, 15.0)
    assert rows[1:-1] == (*built_in_rows().exact, *built_in_rows().family)
    assert rows[-1] == UNKNOWN_TARIFF


def test_the_explained_keys_are_the_fields_of_a_row() -> None:
    """A field that is added to a row can be configured too."""
    ours: dict[str, Any] = Config.model_fields["default_tariff"].default.model_dump()

    assert set(ours) == set(Tariff.__struct_fields__) - {"names", "known", "window_known", "as_of", "source", "read_at"}
