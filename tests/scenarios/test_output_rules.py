"""Rules for outputs, as somebody writes them, and what comes of them over HTTP (S2-44)."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from callstack_proxy.config_sources import load_config
from llm_test_provider import Model, ScriptedProvider, says
from proxy.core.compaction.truncate_outputs import CLEARED_PREFIX, OutputRule
from proxy.errors import InvalidConfiguration
from tests.cli.conftest import Shell
from tests.harness import Stage
from tests.scenarios.sessions import TOOLS, Session
from tests.scenarios.test_overflow import PLAIN, UNFOLDED, words, worked
from tests.scenarios.test_reads import AGAIN, TWO_TASKS

pytestmark = pytest.mark.rows("S2-44")
FILE = "read:\n  keep: whole\n'web*':\n  tail: 40\n"


@pytest.mark.parametrize(("settings", "whole"), [({}, False), ({"outputs__shell__keep": "whole"}, True)])
def test_a_rule_keeps_outputs_of_its_tools_from_being_cut(
    stage: Stage, provider: ScriptedProvider, settings: dict[str, object], whole: bool
) -> None:
    chat = stage.chat(stage.proxy(**UNFOLDED, output_cap=500, **settings))
    result = words(3_000, "all of it")
    worked(chat, provider, result)
    provider.will(says("read"))

    chat.returns(result)

    assert (provider.received[-1].messages[-1]["content"] == result) is whole


@PLAIN
@pytest.mark.parametrize("provider", [{"models": [Model("gpt-x", window=90_000)]}], indirect=True)
def test_a_rule_says_what_stays_of_an_output_that_is_cleared(stage: Stage, provider: ScriptedProvider) -> None:
    """And the same bytes stay in every later request."""
    proxy = stage.proxy(**UNFOLDED, outputs__bash__tail=4)
    chat = stage.chat(proxy)
    results = [f"{words(15_000, f'result {n}')}the end {n}" for n in range(6)]
    worked(chat, provider, *results)
    provider.will(says("done"), says("again"))
    stage.excuse()

    chat.returns(results[-1])

    told = [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"]
    cleared = [text for text in told if text.startswith(CLEARED_PREFIX)]
    assert [text[-9:] for text in cleared] == [f"the end {n}" for n in range(len(cleared))]
    assert cleared
    chat.says("go on")
    assert told == [m["content"] for m in provider.received[-1].messages if m["role"] == "tool"]


@pytest.mark.one_process("each counts, and tells, what it does itself")
def test_a_regret_is_logged_with_the_rule_and_told_by_the_command(
    stage: Stage, provider: ScriptedProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """S2-44: so that rules can be tuned; no name of a file stands in the log."""
    caplog.set_level(logging.INFO, logger="proxy.exchange.notes.reread_counts")
    session = Session(stage.chat(stage.proxy(outputs__read__tail=20), tools=TOOLS), provider)
    session.plays(TWO_TASKS + AGAIN)

    (logged,) = (record for record in caplog.records if record.name == "proxy.exchange.notes.reread_counts")
    assert (logged.getMessage(), vars(logged)["tool"], vars(logged)["rule"]) == ("regret", "read", "read")
    proxy = session.chat.proxy
    (conversation,) = proxy.conversations  # which waits until all of it is on disk, where a command of its own looks
    data = proxy.config.data
    shell = Shell(data, data)
    (data / "proxy.yaml").write_text("outputs:\n  'rea*':\n    tail: 20\n")
    told = json.loads(shell.on_data("regrets", "--json").out)
    assert told == {"regrets": [{"tool": "read", "times": 1, "rule": "rea*"}]}
    (data / "proxy.yaml").unlink()
    shown = shell.on_data("regrets", "--conversation", conversation["id"])
    assert shown.out.splitlines()[:2] == ["tool  read again  rule", "read           1  none"]


# --------------------------------------------------------------------------------------------------------- as written
def test_rules_may_lie_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(FILE)
    written = tmp_path / "proxy.yaml"
    written.write_text("outputs: rules.yaml\nobserve:\n  peruse:\n    role: read\n")

    config = load_config(file=written)

    other = load_config(environ={"STACK_OUTPUTS": "rules.yaml"}, file=written)
    assert config.model_dump() == other.model_dump()
    assert config.output_rules.rule_for("peruse") == OutputRule("read", keep_whole=True)
    assert config.output_rules.rule_for("webfetch") == OutputRule("web*", tail=40)
    assert config.output_rules.rule_for("bash") is None
    assert not load_config().output_rules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("read: whole", "outputs.read: 'whole': must hold keys of its own"),
        ("read:\n  kep: whole", "outputs.read.kep: unknown key; did you mean outputs.read.keep?"),
        ("read:\n  keep: half", "outputs.read.keep: 'half': allowed: , whole"),
        ("read:\n  tail: -1", "outputs.read.tail: -1: input should be greater than or equal to 0"),
        ("read:\n  tail: many", "outputs.read.tail: 'many'"),
        ("read:\n  keep: whole\n  tail: 5", "outputs.read: keep: whole leaves nothing to cut"),
        ("read:\n  tail: 0", "outputs.read: says nothing; set keep, cap, head or tail"),
        ("- read", "rules.yaml: must be a mapping of keys to values"),
        ("read: {", "rules.yaml:1: is not valid YAML"),
        (None, "rules.yaml: cannot be read"),
    ],
)
def test_bad_rules_stop_the_start_with_what_is_wrong(tmp_path: Path, text: str | None, said: str) -> None:
    """And with the file in which it stands."""
    if text is not None:
        (tmp_path / "rules.yaml").write_text(text)
    written = tmp_path / "proxy.yaml"
    written.write_text("outputs: rules.yaml\n")

    with pytest.raises(InvalidConfiguration) as refused:
        load_config(file=written)

    assert said in str(refused.value)
    assert "rules.yaml" in str(refused.value)
