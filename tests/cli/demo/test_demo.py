"""The demo from outside: a process, its exit code, and the figures it tells. One run serves all tests of a module."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from callstack_proxy.cli.demo.agent import Agent
from callstack_proxy.cli.demo.model import DemoModel
from callstack_proxy.cli.demo.project import write_project
from callstack_proxy.cli.demo.run import MODEL, demo_script, provider_for, work_on
from callstack_proxy.cli.demo.session import SYSTEM
from proxy.accounting.model_prices import tariff_for

TIME_LIMIT_S = 60


def demo(*options: str) -> list[str]:
    return [sys.executable, "-m", "callstack_proxy", "demo", "--delay", "0", *options]


@dataclass(frozen=True)
class Direct:
    """The same session without a proxy: what the provider charged, and how full its last request was."""

    cost: float
    requests: int
    last: int


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Direct:
    folder = tmp_path_factory.mktemp("project")
    write_project(folder)
    script = demo_script()
    model = DemoModel(script)
    with provider_for(model) as provider:
        agent = Agent(provider.url, folder, model=MODEL, system=SYSTEM)
        for task in script:
            for _ in work_on(agent, model, task):
                pass
        agent.close()
        charged = [received.usage for received in provider.asked if received.usage]
    row = tariff_for(MODEL)
    assert row.output is not None
    cost = sum(((u.prompt - u.cached) + row.read * u.cached) * row.input + u.completion * row.output for u in charged)
    return Direct(cost / 1_000_000, len(charged), charged[-1].prompt)


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    """What `callstack demo --json` tells."""
    done = subprocess.run(demo("--json"), capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_the_session_is_long_enough_to_show_something(direct: Direct) -> None:
    """About 70 requests, and more than 80k tokens in the last untouched one."""
    assert 65 <= direct.requests <= 80
    assert direct.last > 80_000


def test_the_demo_plays_the_whole_session_and_every_answer_arrives(played: dict[str, Any], direct: Direct) -> None:
    assert played["ok"]
    assert len(played["requests"]) == direct.requests
    assert {receipt["status"] for receipt in played["requests"]} == {"asleep", "full"}


def test_the_model_uses_every_core_tool(played: dict[str, Any]) -> None:
    names = {f"stack_frame_{move}" for move in ("push", "pop", "plan", "activate")} | {"stack_recall"}

    assert set(played["hidden"]) == names


def test_the_tree_shows_a_subtask_in_a_subtask_and_a_failed_attempt(played: dict[str, Any]) -> None:
    tree = played["tree"]

    assert re.search(r"✓ Measure the damage.*\n[│ ]+└─ ✓ Read the other nights", tree)
    assert "✗ Round half to even" in tree
    assert "✓ Round once per rate" in tree


def test_the_context_stays_small_while_the_clients_history_grows(played: dict[str, Any]) -> None:
    total = played["total"]

    assert total["peak_in"] > 80_000
    assert total["peak_sent"] < total["peak_in"] / 2


def test_nothing_that_was_put_away_is_read_again(played: dict[str, Any]) -> None:
    """The script reads no file twice that did not change: with all of it in sight, no agent of today would."""
    assert played["total"]["read_again"]["gone"] == 0
    assert played["total"]["cost_caused"] == 0


def test_the_money_told_for_the_untouched_run_is_what_it_really_costs(played: dict[str, Any], direct: Direct) -> None:
    """O2: at most two thousandths above what the provider charges for the same session without a proxy, and at most two
    percent below."""
    told = played["total"]["cost_untouched"]

    assert 0.98 * direct.cost <= told <= 1.002 * direct.cost
    assert played["total"]["saved"] > 0


@pytest.mark.rows("X-16")
def test_the_totals_are_the_sums_of_the_rows(played: dict[str, Any]) -> None:
    """X-16."""
    rows, total = played["requests"], played["total"]

    for name in ("tokens_in", "tokens_sent", "tokens_saved", "cost", "cost_untouched", "saved"):
        assert total[name] == pytest.approx(sum(row[name] for row in rows))


@pytest.mark.long
def test_the_result_fits_a_terminal_of_80_by_24() -> None:
    done = subprocess.run(demo(), capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    lines = done.stdout.splitlines()

    assert done.returncode == 0, done.stderr
    assert len(lines) <= 24
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.long
def test_the_data_is_kept_where_it_is_asked_for_and_can_be_looked_at(tmp_path: Path) -> None:
    data = tmp_path / "kept"
    done = subprocess.run(demo("--data", str(data)), capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^cost.* \d+ %$", done.stdout, re.MULTILINE)
    (command,) = re.findall(r"^  callstack (tree .*)$", done.stdout, re.MULTILINE)
    tree = subprocess.run(
        [sys.executable, "-m", "callstack_proxy", *command.split()],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert tree.returncode == 0, tree.stderr
    assert "Read the modules" in tree.stdout


@dataclass(frozen=True)
class Running:
    """A demo that has begun to print rows; `port` is the one its proxy listens on."""

    process: subprocess.Popen[str]
    port: int


@pytest.fixture
def running() -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-m", "callstack_proxy", "demo", "--all", "--delay", "5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    assert process.stdout is not None
    begun = list(takewhile(lambda line: not line.startswith("  1 "), process.stdout))
    (port,) = re.findall(r"^proxy  http://127\.0\.0\.1:(\d+)/", "".join(begun), re.MULTILINE)
    yield Running(process, int(port))
    process.kill()
    process.communicate()


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_ctrl_c_is_clean_and_leaves_nothing_running(running: Running, sent: signal.Signals) -> None:
    running.process.send_signal(sent)

    out, err = running.process.communicate(timeout=30)

    assert running.process.returncode == 130
    assert "Interrupted." in out
    assert "Traceback" not in out + err
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", running.port))
