"""`callstack top`: what the screen shows at each size, keys, and a terminal that is as it was afterwards."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from typing import Any, cast

import pytest

from callstack_proxy.cli.top.screen import TopView, screen_lines
from callstack_proxy.management.views import ConversationRow
from tests.cli.conftest import Shell, Stocked
from tests.forked_commands import environment

NOW = 1_700_000_000_000
HOSTILE = "\x1b[31mred \u202e title " * 9
TREE = "\n".join(["→ root [f1]", *(f"├─ ✓ part {n} [f{n}]" for n in range(60)), "└─ → at work [f99] (active)"])


def row(number: int, **more: Any) -> ConversationRow:
    figures = {"requests": 12_345, "frames": 70, "cost": 0.5, "cost_untouched": 1.5, "saved": 1.0, "plan": ""}
    told = {"id": f"c{number}", "title": HOSTILE, "last_active": NOW - number * 90_000, "awake": True}
    return cast(ConversationRow, {**told, **figures, "saved_percent": 66.7, **more})


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (40, 10), (10, 3)])
@pytest.mark.parametrize("count", [0, 1, 50])
def test_it_fits_every_size(size: tuple[int, int], count: int) -> None:
    width, height = size
    lines = screen_lines(TopView([row(n) for n in range(count)], TREE, 0, NOW), width, height)

    assert len(lines) <= height
    assert [line.plain for line in lines if len(line.plain) > width] == []
    assert not any("\x1b" in line.plain or "\u202e" in line.plain for line in lines)


@pytest.mark.parametrize("chosen", [0, 7, 49])
def test_the_chosen_row_and_the_active_frame_are_in_sight(chosen: int) -> None:
    view = TopView([row(n, title=f"task {n}") for n in range(50)], TREE, chosen, NOW)
    shown = [line.plain for line in screen_lines(view, 80, 24)]

    [marked] = [line for line in shown if line.startswith(">")]
    assert marked.endswith(f"task {chosen}")
    assert any("(active)" in line for line in shown)


def test_sums_and_states_are_told() -> None:
    rows = [row(0, last_active=NOW - 2_000), row(1, awake=False, saved_percent=None, title="quiet")]
    head, _, first, second, *_ = [line.plain for line in screen_lines(TopView(rows, TREE, 0, NOW), 80, 24)]

    assert "2 conversations  paid $1.00 of $3.00  67 % saved" in head
    assert first.split()[1:5] == ["working", "2", "s", "ago"]
    assert second.strip().startswith("passed on")


def test_what_a_plan_paid_for_has_no_dollars() -> None:
    by_plan = row(0, plan="4.1 % of your week", cost=0.0, cost_untouched=0.0, saved=0.0, saved_percent=None)
    head, _, first, *_ = [line.plain for line in screen_lines(TopView([by_plan], TREE, 0, NOW), 80, 24)]
    assert head.startswith("callstack top  1 conversation  paid by a plan  ")
    assert "$" not in head.partition("  ")[2]
    assert first.split()[7] == "plan"

    both = [line.plain for line in screen_lines(TopView([by_plan, row(1)], TREE, 0, NOW), 80, 24)]
    assert "2 conversations  paid $0.50 of $1.50  67 % saved" in both[0]


def test_where_the_output_is_no_terminal_it_looks_once(stocked: Stocked) -> None:
    done = stocked.shell.on_data("top")

    assert done.code == 0
    assert "callstack top  2 conversations" in done.out
    assert all(len(line) <= 120 for line in done.out.splitlines()), "as COLUMNS says"


def test_without_a_store_it_says_what_to_do(shell: Shell) -> None:
    done = shell.on_data("top")

    assert done.code != 0
    assert "Traceback" not in done.errors
    assert done.errors.startswith("error:")


def test_a_key_ends_it_and_the_terminal_is_as_before(stocked: Stocked) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, "-m", "callstack_proxy", "top", "--data", str(stocked.shell.data)],
        stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment(stocked.shell.home) | {"TERM": "xterm"},
    )  # fmt: skip
    shown = _read_until(ours, b"conversation", 30)
    os.write(ours, b"j\x1b[Ax")
    os.write(ours, b"q")
    errors = _drain(ours, process)

    assert b"last active" in shown
    assert (process.returncode, errors) == (0, b"")
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


def _read_until(descriptor: int, text: bytes, seconds: float) -> bytes:
    read, end = b"", time.monotonic() + seconds
    while text not in read and time.monotonic() < end:
        if select.select([descriptor], [], [], 0.2)[0]:
            read += os.read(descriptor, 65_536)
    return read


def _drain(descriptor: int, process: subprocess.Popen[bytes]) -> bytes:
    """Reads what the process still shows, so that it does not wait for us; returns its errors."""
    end = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < end:
        if select.select([descriptor], [], [], 0.1)[0]:
            os.read(descriptor, 65_536)
    assert process.stderr is not None
    errors = process.stderr.read()
    process.stderr.close()
    return errors
