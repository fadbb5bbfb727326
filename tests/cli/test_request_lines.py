"""What `serve` shows on a terminal: a short line for each request, each word explained where it first appears."""

import logging
import os
import pty
import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from callstack_proxy.cli.serve.log_output import TerminalLogFormatter
from proxy.telemetry import LogFields
from tests.cli.conftest import command
from tests.forked_commands import environment

LIMIT_S = 30


def shown(formatter: TerminalLogFormatter, **fields: object) -> list[str]:
    told = {"levelno": logging.INFO, "name": "proxy.exchange", "msg": "request", "stack": LogFields(fields)}
    return formatter.format(logging.makeLogRecord(told)).splitlines()


def test_a_request_is_a_short_line_with_the_sum_so_far() -> None:
    formatter = TerminalLogFormatter()
    shown(formatter, status="full", model="gpt-5.5", tokens_in=30_000, tokens_sent=20_000, saved=0.25)

    (line,) = shown(formatter, status="full", model="gpt-5.5", tokens_in=12_431, tokens_sent=9_102, saved=1.0)

    assert re.fullmatch(r"\d\d:\d\d:\d\d  gpt-5\.5 +12,431 ->   9,102 tokens  saved \$1\.25 so far  full", line)
    assert len(line) <= 80


@pytest.mark.rows("X-63")
def test_where_a_plan_pays_no_line_speaks_of_dollars() -> None:
    formatter = TerminalLogFormatter()
    sums = {"status": "full", "model": "m", "tokens_in": 3_000, "tokens_sent": 2_000}

    (by_plan, *_) = shown(formatter, **sums, saved=0.25, paid_by="plan")
    (by_key, *_) = shown(formatter, **sums, saved=1.0)

    assert by_plan.endswith("paid by a plan  full")
    assert "saved $1.00 so far" in by_key


def test_a_word_is_explained_once() -> None:
    formatter = TerminalLogFormatter()
    first = shown(formatter, status="asleep", model="m", tokens_in=1, tokens_sent=1, saved=0.0)
    second = shown(formatter, status="asleep", model="m", tokens_in=1, tokens_sent=1, saved=0.0)

    assert [len(first), len(second)] == [2, 1]
    assert "asleep: passed on unchanged, since" in first[1]


def test_a_reason_is_explained_once_within_80_columns() -> None:
    formatter = TerminalLogFormatter()
    first = shown(formatter, status="asleep", reason="in_loop", model="m", tokens_in=1, tokens_sent=1, saved=0.0)
    second = shown(formatter, status="asleep", reason="in_loop", model="m", tokens_in=1, tokens_sent=1, saved=0.0)

    assert "in_loop: it continues tool calls" in " ".join(" ".join(first).split())
    assert all(len(line) <= 80 for line in first[1:])
    assert len(second) == 1


def test_a_loss_is_called_one_and_nothing_moves_the_cursor() -> None:
    (line, *_) = shown(
        TerminalLogFormatter(), status="side", model="\x1b[2Jevil", tokens_in=1, tokens_sent=2, saved=-0.5
    )

    assert "lost $0.5000 so far" in line
    assert "\x1b" not in line


def test_other_events_stay_lines_of_text() -> None:
    record = logging.makeLogRecord({"levelno": logging.WARNING, "levelname": "WARNING", "name": "a", "msg": "stopping"})

    assert TerminalLogFormatter().format(record).endswith("[stack] warning a stopping")


def test_a_terminal_sees_it_from_a_running_proxy(tmp_path: Path) -> None:
    """The upstream is a port that nobody listens on, so the line tells of an error."""
    master, slave = pty.openpty()
    words = command("serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--data", str(tmp_path / "data"))
    running = subprocess.Popen(words, cwd=tmp_path, env=environment(tmp_path), stdout=slave, stderr=slave)
    try:
        url = re.search(r"clients +(\S+)/v1", read_until(master, "clients  http"))
        assert url
        with pytest.raises(urllib.error.HTTPError, match="502"):
            urllib.request.urlopen(f"{url[1]}/v1/models", timeout=LIMIT_S)
        told = read_until(master, "upstream_unreachable")
    finally:
        running.terminate()
        running.wait()
        os.close(slave)
        os.close(master)

    assert re.search(r"\d\d:\d\d:\d\d  - .* error \(upstream_unreachable\)", told)


def read_until(terminal: int, words: str) -> str:
    """What the terminal has shown up to these words and the end of their line."""
    told, limit = "", time.monotonic() + LIMIT_S
    while not re.search(f"{words}.*\n", told) and time.monotonic() < limit:
        told += os.read(terminal, 4096).decode()
    return told
