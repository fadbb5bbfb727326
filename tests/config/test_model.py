"""The configuration: what wins over what, and that a mistake is told by name before anything starts."""

from __future__ import annotations

import ast
import inspect
import pickle
from itertools import pairwise
from pathlib import Path
from textwrap import dedent

import pytest

from callstack_proxy.config_sources import known_keys, load_config, parse_assignments
from proxy.config.for_core import tool_settings
from proxy.config.model import Config, is_loopback
from proxy.config.sections import UpstreamSettings
from proxy.errors import InvalidConfiguration

SHIPPED = Path(__file__).parents[2] / "proxy.yaml"


def refusal(**layers: object) -> str:
    with pytest.raises(InvalidConfiguration) as refused:
        load_config(**layers)  # type: ignore[arg-type]
    return str(refused.value)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "proxy.yaml"
    file.write_text("wake_at_tokens: 1\nmode: off\nstack_rounds: 1\n")
    return file


def test_the_shipped_file_is_the_default_configuration() -> None:
    assert load_config(file=SHIPPED).model_dump() == Config().model_dump() == load_config().model_dump()


def test_a_configuration_whose_prices_were_asked_for_goes_to_another_process() -> None:
    """`savings --plan` weighs what is done while it hands out more."""
    config = Config.model_validate({"tariffs": {"own": {"input": 3.0}}})
    assert config.tariff_of("own").input == 3.0
    assert pickle.loads(pickle.dumps(config)).tariff_of("own") == config.tariff_of("own")


def test_the_shipped_file_shows_every_key() -> None:
    text = SHIPPED.read_text()
    missing = [key for key in known_keys() if f"{key.rpartition('.')[2]}:" not in text]
    assert not missing, f"write these with their defaults into proxy.yaml: {missing}"


def test_every_key_is_explained_beneath_itself() -> None:
    for model in (Config, UpstreamSettings):
        (definition,) = ast.parse(dedent(inspect.getsource(model))).body
        assert isinstance(definition, ast.ClassDef)
        explained = {
            ast.unparse(field.target)
            for field, below in pairwise(definition.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        }
        assert not model.model_fields.keys() - explained


def test_flags_win_over_the_environment_which_wins_over_the_file(written: Path) -> None:
    environ = {"STACK_WAKE_AT_TOKENS": "2", "STACK_STACK_ROUNDS": "2"}

    config = load_config({"wake_at_tokens": 3}, environ, written)

    assert (config.wake_at_tokens, config.stack_rounds, config.mode, config.port) == (3, 2, "off", 8787)


def test_off_in_the_file_is_a_word_and_not_false(written: Path) -> None:
    assert load_config(file=written).mode == "off"


@pytest.mark.rows("S1-48", "S1-49", "S1-50", "S1-51")
@pytest.mark.parametrize("part", ["total", "ancestors", "siblings", "current"])
def test_the_budget_names_of_the_environment_are_understood(part: str) -> None:
    """S1-48, S1-49, S1-50, S1-51."""
    config = load_config(environ={f"STACK_TOKEN_BUDGET_{part.upper()}": "700"})
    assert getattr(config.budgets, part) == 700


def test_an_upstream_is_gathered_from_all_layers_leaf_by_leaf(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("upstreams:\n  main:\n    url: https://a.example/v1\n    models: [gpt-*]\n")
    environ = {"STACK_UPSTREAMS__MAIN__KEY": "env:PROVIDER", "PROVIDER": "sk-canary"}

    config = load_config(
        parse_assignments(["upstreams.main.aliases.gpt-4.1=gpt-5", "upstreams.main.verify=false"]), environ, file
    )

    main = config.upstreams["main"]
    assert main.key is not None
    assert main.key.get_secret_value() == "sk-canary"
    assert (main.url, main.models, main.aliases, main.verify) == (
        "https://a.example/v1",
        ("gpt-*",),
        {"gpt-4.1": "gpt-5"},
        False,
    )


def test_a_key_is_not_shown_when_the_configuration_is_printed() -> None:
    """A8."""
    config = load_config({"upstream": "http://a.example", "upstreams.default.key": "sk-canary"})
    assert "canary" not in repr(config) + config.model_dump_json() + str(config)


def test_the_variables_of_another_program_called_stack_are_left_alone() -> None:
    assert load_config(environ={"STACK_ROOT": "elsewhere", "STACK_YAML": "stack.yaml"}) == load_config(environ={})


@pytest.mark.parametrize("key", ["upstreams.main.url", "upstreams.main.proxy"])
def test_a_refused_url_is_not_repeated_because_it_may_hold_a_password(key: str) -> None:
    """A8."""
    flags = {"upstreams.main.url": "http://a.example"} | {key: "http://user:canary@a.example"}
    told = refusal(flags=flags)
    assert key in told
    assert "canary" not in told


def test_upstream_is_short_for_the_default_one(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("upstream: http://a.example\n")
    for config in (
        load_config(file=file),
        load_config({"upstream": "http://a.example"}),
        load_config(environ={"STACK_UPSTREAM": "http://a.example"}),
    ):
        assert config.upstreams["default"].url == "http://a.example"


@pytest.mark.rows("X-15")
def test_a_model_name_with_dots_may_have_exceptions() -> None:
    """X-15: a mode per model."""
    config = load_config({"models.gpt-4.1.mode": "off", "models.gpt-*.mode": "shadow"})
    assert [config.mode_of(name) for name in ("gpt-4.1", "gpt-5", "claude")] == ["off", "shadow", "active"]


@pytest.mark.parametrize(
    ("layers", "told"),
    [
        ({"flags": {"wake_at_token": "1"}}, ["wake_at_token:", "unknown key", "did you mean wake_at_tokens?"]),
        ({"flags": {"budgets.totl": "1"}}, ["budgets.totl:", "did you mean budgets.total?"]),
        (
            {"flags": {"upstreams.a.url": "http://a", "upstreams.a.modls": "x"}},
            ["upstreams.a.modls", "upstreams.a.models?"],
        ),
        ({"flags": {"quux": "1"}}, ["quux: unknown key", "allowed:", "wake_at_tokens"]),
        ({"environ": {"STACK_WAKE_AT_TOKEN": "1"}}, ["STACK_WAKE_AT_TOKEN", "did you mean STACK_WAKE_AT_TOKENS?"]),
        (
            {"flags": {"upstream": "https://a.example/v1/chat/completions"}},
            ["must be the base URL", "leave out /chat/completions"],
        ),
        ({"environ": {"STACK_NOBODY__KNOWS": "1"}}, ["nobody", "unknown key", "STACK_NOBODY__KNOWS"]),
        (
            {"environ": {"STACK_MODE": "actve"}},
            ["mode:", "'actve'", "did you mean active?", "allowed: off, shadow, passive, active"],
        ),
        (
            {"environ": {"STACK_GUIDANCE": "replaced"}},
            ["guidance:", "'replaced'", "did you mean replace?", "allowed: mirror, replace"],
        ),
        ({"flags": {"tenancy": "header"}}, ["front.addresses:", "that the proxy in front sends from"]),
        ({"flags": {"port": "99999"}}, ["port:", "'99999'", "65535"]),
        ({"flags": {"child_view": "last:0"}}, ["child_view:", "fork, isolate, auto, last:K"]),
        ({"flags": {"store": "mysql://a"}}, ["store:", "sqlite", "memory:"]),
        ({"flags": {"upstreams.a.models": "x"}}, ["upstreams.a.url: is required"]),
        (
            {"flags": {"upstream": "a.example/v1"}},
            ["upstreams.default.url:", "http:// or https://", "such as https://"],
        ),
        (
            {"flags": {"upstream": "http://a", "upstreams.default.key": "env:GONE"}},
            ["upstreams.default.key", "GONE is not set"],
        ),
        ({"flags": {"allowed_hosts": "*.a.example"}}, ["allowed_hosts:", "without scheme, port or wildcard"]),
        ({"flags": {"models.m.upstream": "gone"}}, ["models.m.upstream:", "'gone'"]),
    ],
)
def test_a_mistake_is_told_with_key_fault_and_what_is_allowed(layers: dict[str, object], told: list[str]) -> None:
    message = refusal(**layers)
    assert all(part in message for part in told), message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mode: [", "not valid YAML"),
        ("port: 1\n  mode: off", "mine.yaml:2: is not valid YAML"),
        ("- mode", "must be a mapping"),
        ("port: 1\nport: 2", "'port' is written twice"),
        ("port: 1\n? [a, b]\n: 2", "mine.yaml:2: is not valid YAML: a key must be one word"),
        ("models: &all\n  m: *all", "a part of it refers to itself"),
        ("modus: off", "modus: unknown key"),
        ("upstream: {default: {url: http://a}}", "upstream: unknown key; did you mean upstreams?"),
        ("budgets: {totale: 1}", "did you mean budgets.total?"),
        ("budgets: 5", "budgets:"),
        ("upstreams: [a]", "upstreams:"),
        ("upstreams: {a: 5}", "upstreams.a:"),
        ("upstreams:\n  a:\n  url: http://a", "upstreams.a: None: must hold keys of its own, indented below it"),
        ("upstream: http://a\nupstreams: 5", "upstreams:"),
        ("quux: {}", "quux: unknown key"),
    ],
)
def test_a_mistake_in_the_file_names_the_file(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    message = refusal(file=file)
    assert told in message
    assert "mine.yaml" in message


def test_a_file_that_is_named_but_absent_is_told(tmp_path: Path) -> None:
    assert "absent.yaml: cannot be read" in refusal(file=tmp_path / "absent.yaml")


def test_all_faults_are_told_at_once() -> None:
    assert len(refusal(flags={"port": "x", "quux": "1"}).splitlines()) == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "proxy.internal", ""])
@pytest.mark.parametrize("tenancy", ["single", "credential"])
def test_a13_beyond_loopback_without_client_keys_refuses_to_start(host: str, tenancy: str) -> None:
    told = refusal(flags={"host": host, "tenancy": tenancy})
    assert told.startswith("tenancy:")
    assert "callstack key add" in told


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_a13_loopback_needs_no_client_keys(host: str) -> None:
    assert is_loopback(host)
    assert load_config({"host": host}).tenancy == "single"


def test_a13_beyond_loopback_with_client_keys_starts() -> None:
    assert load_config({"host": "0.0.0.0", "tenancy": "key"}).host == "0.0.0.0"


def test_a_setting_without_an_equals_sign_is_told() -> None:
    with pytest.raises(InvalidConfiguration, match="key=value"):
        parse_assignments(["mode"])


def test_the_store_lies_in_the_data_directory_unless_said_otherwise(tmp_path: Path) -> None:
    assert load_config({"data": tmp_path}).store_path == tmp_path / "callstack.db"
    assert load_config({"store": "memory:"}).store_path is None
    assert load_config({"store": "sqlite:/a/b.db"}).store_path == Path("/a/b.db")
    assert "~" not in str(load_config().data)


@pytest.mark.rows("S1-81", "S1-84", "S1-96")
def test_autonomy_is_set_by_the_names_of_the_environment() -> None:
    """What lies beyond 0 and 100 is taken as the nearer of both; a name nobody knows is kept, to be warned of."""
    config = load_config(
        environ={
            "STACK_AUTONOMY_LEVEL": "auto",
            "STACK_PUSH_THRESHOLD": "150",
            "STACK_POP_THRESHOLD": "-1",
            "STACK_SUGGEST_IN_CONTEXT": "false",
            "STACK_ENABLED_HEURISTICS": "stagnation, intuition, duration",
            "STACK_MODEL_MAY_SET": "level,stats",
        }
    )

    rules = config.autonomy_rules
    assert (rules.level, rules.push_threshold, rules.pop_threshold) == ("auto", 100, 0)
    assert (rules.suggest_in_context, rules.heuristics) == (False, ("duration", "stagnation"))
    assert (config.unknown_heuristics, tool_settings(config).model_may_set) == (("intuition",), ("level", "stats"))
    with pytest.raises(InvalidConfiguration, match=r"^autonomy: 'always': allowed: manual, suggest, auto"):
        load_config(environ={"STACK_AUTONOMY_LEVEL": "always"})


@pytest.mark.rows("X-50")
def test_no_client_waits_longer_for_a_first_byte_than_the_proxy() -> None:
    """The SDKs of OpenAI and Anthropic, and Claude Code, wait ten minutes."""
    assert UpstreamSettings(url="http://127.0.0.1:1").idle_timeout_s >= 600


@pytest.mark.proves("S1-48", "S1-49", "S1-50", "S1-51", "S1-71c", "S1-71f", "S1-84", "S3-20", "X-12")
def test_the_defaults_are_those_of_the_requirements() -> None:
    config = Config()

    assert (config.budgets.total, config.budgets.ancestors) == (4_000, 1_500)
    assert (config.budgets.siblings, config.budgets.current) == (1_500, 800)
    assert (config.subagent.min_duration, config.subagent.min_messages) == (60_000, 3)
    assert config.subagent.idle_delay == 300_000
    assert (config.push_threshold, config.pop_threshold) == (70, 80)
    assert (config.loop_repeats, config.stack_rounds) == (3, 8)
