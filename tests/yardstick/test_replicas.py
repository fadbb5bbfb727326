"""Recordings and captured clients, played through several replicas on PostgreSQL behind nginx, which gives each request
to another one: the figures are those of one process on SQLite."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ports import held_port, port_of
from tests.replicas_behind_nginx import ROOT, nginx_program
from tests.yardstick.test_captures import ALONE, HELD, SHARED
from tests.yardstick.test_recordings import NEVER, python

__all__ = ["python"]

LIMIT_S = 600
PLAYED = "cc-entire-13db96,cc-spotter-sub-a2898e,mswe-sympy,tau-airline-033"
"""A recording of each kind of work, two of which are folded."""
SAME = ("tokens", "cost_anthropic", "cost_openai90", "far_recall", "retrievable", "user_facts", "dearer_2pc")
TOLERANCE = 0.001
"""Ids are random, so their tokens differ from run to run."""

pytestmark = [
    pytest.mark.yardstick,
    pytest.mark.skipif(not (SHARED / "trajectories").is_dir(), reason="the recordings are not beside this checkout"),
    pytest.mark.skipif(nginx_program() is None, reason="nginx is not installed: apt-get install nginx-light"),
]


def started(replicas: int, settings: tuple[str, ...] = ()) -> str:
    """The command that starts so many replicas for the judge, or one process on SQLite."""
    chosen = " ".join(f"--set {setting}" for setting in settings)
    module = f"tests.replicas_behind_nginx --replicas {replicas}" if replicas > 1 else "callstack_proxy serve"
    return f"env PYTHONPATH={ROOT} {sys.executable} -m {module} --port {{port}} --upstream {{upstream}} {chosen}"


def figures_of(command: list[str], start: str, folder: Path) -> dict[str, Any]:
    written = folder / "figures.json"
    done = subprocess.run(
        [*command, "--start", start, "--json", str(written)],
        cwd=SHARED, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert written.is_file(), done.stdout[-3000:] + done.stderr[-3000:]
    return dict(json.loads(written.read_text()))


def test_recorded_agents_cost_and_find_the_same_on_two_replicas(python: str, tmp_path: Path) -> None:
    judge = [python, "-m", "yardstick.replay", "--only", PLAYED]
    one = figures_of(judge, started(1, (f"data={tmp_path / 'data'}",)), tmp_path)["summaries"]["proxy"]["all"]
    two = figures_of(judge, started(2), tmp_path)["summaries"]["proxy"]["all"]
    assert {name: two[name] for name in NEVER if two[name]} == {}
    assert {name: two[name] for name in SAME} == pytest.approx({name: one[name] for name in SAME}, abs=TOLERANCE)
    assert one["tokens"] < 0.8


def test_captured_clients_do_not_notice_four_replicas(tmp_path: Path) -> None:
    """All dialects, with hidden calls in every second request of a thread."""
    settings = ("tenancy=credential", "wake_at_tokens=0", *ALONE)
    with held_port() as here, held_port() as there:
        ports = ["--proxy", f"http://127.0.0.1:{port_of(here)}", "--upstream-port", str(port_of(there))]
        judge = [sys.executable, "-m", "yardstick.captures", "--dialect", "all", *ports, "--wake", "0", "--inject"]
        figures = figures_of(judge, started(4, settings), tmp_path)
    assert {name: figures["total"][name][0] for name in HELD if figures["total"][name][0]} == {}
    assert figures["total"]["hidden"][1] > 750
