"""`callstack config`: what may be set while the proxy runs, with a proxy and without one (S1-118)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import Shell, Stocked

pytestmark = pytest.mark.rows("S1-118")


def told(stock: Stocked, *words: str) -> Any:
    done = stock.shell.on_data("config", *words, "--json")
    assert done.code == 0, done.errors
    return json.loads(done.out)


def test_it_is_set_in_the_store_where_no_proxy_runs(own_stock: Stocked) -> None:
    changed = told(own_stock, "--set", "subagent.min_duration=5000", "--set", "enabled=false", "--add-pattern", "scout")
    assert (changed["minDuration"], changed["enabled"], changed["patterns"]) == (5_000, False, ["scout"])
    assert told(own_stock, "--set", "subagent.patterns=a,b")["patterns"] == ["a", "b"]

    lines = own_stock.shell.on_data("config").out.splitlines()
    assert lines[0].split() == ["key", "value"]
    assert [line.split() for line in lines if "duration" in line or "idle" in line or "patterns" in line] == [
        ["subagent.idle_delay", "300000"],
        ["subagent.min_duration", "5000", "set"],
        ["subagent.patterns", "'a'", "'b'", "set"],
    ]
    words = ("--reset", "subagent.min_duration", "--reset", "enabled", "--reset", "patterns")
    assert told(own_stock, *words)["changed"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "subagent.min_duration=soon"], "subagent.min_duration: Input should be a valid integer"),
        (["--set", "subagent.idle_delay=1"], "subagent.idle_delay: Input should be greater than or equal to 100"),
        (["--set", "mode=off"], "mode: cannot be set while the proxy runs; these can: subagent.enabled,"),
        (["--set", "subagent.model_may_configure=true"], "subagent.model_may_configure: cannot be set while"),
        (["--set", "enabled"], "--set enabled: write it as key=value"),
        (["--reset", "nothing"], "nothing: cannot be set while the proxy runs"),
        (["--add-pattern", "("], "subagent.patterns: '(' is no regular expression"),
        (["--add-pattern", "x" * 300], "addPattern: String should have at most 200 characters"),
        (["--remove-pattern", "x"], "subagent.patterns: 'x' is none of them; known: there is none"),
    ],
)
def test_what_cannot_be_meant_is_answered_with_what_can(stocked: Stocked, words: list[str], said: str) -> None:
    refused = stocked.shell.on_data("config", *words)

    assert refused.code == 2
    assert said in " ".join(refused.errors.split())


def test_a_running_proxy_is_asked_and_without_a_store_nothing_is_said(
    own_stock: Stocked, started: Callable[..., Any], shell: Shell
) -> None:
    """It holds there at once, and after it."""
    assert shell.run("config", "--data", str(shell.home / "empty")).code == 2
    usual = ("--upstream", "http://127.0.0.1:9", "--port", "0", "--data", str(own_stock.shell.data))
    running = started("serve", *usual, "--set", "retention=0", "--set", "subagent.min_messages=9")
    assert running.stdout.readline().startswith("clients")

    assert told(own_stock)["minMessageCount"] == 9, "what the proxy was started with"
    assert told(own_stock, "--set", "min_duration=7", "--add-pattern", "scout")["minMessageCount"] == 9
    refused = own_stock.shell.on_data("config", "--add-pattern", "(a+)+")
    assert (refused.code, "could take too long" in refused.errors) == (2, True)
    running.terminate()
    running.communicate(timeout=30)
    assert told(own_stock)["changed"] == ["minDuration", "patterns"]
