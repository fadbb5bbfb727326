"""What was attacked from outside, each a script with a provider and a client of its own, played against this tree.

The scripts are other people's, so they stay outside the project: without them these tests skip and say so.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ports import held_port, port_of

ROOT = Path(__file__).resolve().parents[2]
FAULTS = ROOT.parent / "shared" / "cases" / "faults"
ROWS = {
    "rel_budget": "X-57",
    "rel_name_speaks": "X-60",
    "rel_unauth_memory": "X-56",
    "rel_wrap_squatter": "X-59",
}
LIMIT_S = 300

pytestmark = pytest.mark.long


def scripts() -> list[object]:
    return [pytest.param(FAULTS / f"{name}.py", id=name, marks=pytest.mark.rows(row)) for name, row in ROWS.items()]


@pytest.mark.parametrize("script", scripts())
def test_an_attack_from_outside_gets_nowhere(script: Path, tmp_path: Path) -> None:
    if not script.exists():
        pytest.skip("the scripts of faults are not beside this checkout")
    command = tmp_path / "callstack"
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m callstack_proxy "$@"\n')
    command.chmod(0o755)
    env = {**os.environ, "CALLSTACK": str(command), "TMPDIR": str(tmp_path)}
    with held_port() as one:
        port = port_of(one)
    done = subprocess.run(
        [sys.executable, str(script), str(port)],
        cwd=script.parent,
        env=env,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
