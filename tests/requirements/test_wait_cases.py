"""Waits that others saw never end, each a script with a provider and clients of its own, played through this tree.

The scripts are other people's, so they stay outside the project: without them these tests skip and say so.
"""

import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.postgresql_server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
FAULTS = ROOT.parent / "shared" / "cases" / "faults"
LIMIT_S = 400

pytestmark = [
    pytest.mark.long,
    pytest.mark.crash,
    pytest.mark.skipif(not FAULTS.is_dir(), reason="the scripts of faults are not beside this checkout"),
]


@pytest.fixture
def callstack(tmp_path: Path) -> Path:
    """The command of this tree."""
    command = tmp_path / "callstack"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m callstack_proxy "$@"\n')
    command.chmod(0o755)
    return command


def first_of_free_ports(count: int) -> int:
    """The scripts take neighbouring ports. They lie below those that the system gives out by itself."""
    while True:
        first = random.randint(15_000, 30_000)
        try:
            for port in range(first, first + count):
                with socket.socket() as place:
                    place.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first


def play(script: str, callstack: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, str(FAULTS / script), *arguments],
        cwd=FAULTS,
        env={**os.environ, "CALLSTACK": str(callstack), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.rows("X-54")
def test_broken_framing_is_heard_of(callstack: Path) -> None:
    play("rel_bad_chunk.py", callstack, str(first_of_free_ports(2)))


@pytest.mark.rows("X-55")
def test_a_replica_that_stands_still_holds_nobody_up(callstack: Path, postgres: PostgresServer) -> None:
    play("rel_paused_replica.py", callstack, postgres.new_database(), str(first_of_free_ports(3)))
