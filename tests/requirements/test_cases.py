"""Situations that others met, each a script with a provider and a client of its own, played through this tree.

The scripts are other people's, so they stay outside the project: without them these tests skip and say so.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_commands import forked_callstack

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT.parent / "shared" / "cases"
SLOW = {"br28": 900}
"""Scripts that wait for minutes, with their limit in seconds."""
LIMIT_S = 300
ANSWERED = "-- 200 after "
"""What br28 says of a request that was answered. It looks for the text in the first 160 bytes of an answer, where two
of its own six answers do not have it yet, asked directly too; so the status is what counts."""
NONE_HERE = pytest.mark.skip(reason="the scripts of cases are not beside this checkout")

pytestmark = pytest.mark.long


def scripts() -> list[object]:
    """The slow ones first: at the end of a run they would leave the other processes idle."""
    found = sorted(CASES.glob("br[0-9]*_*.py"), key=lambda script: (script.stem[:4] not in SLOW, script.stem))
    marks = {script: [pytest.mark.crash] if script.stem[:4] in SLOW else [] for script in found}
    return [pytest.param(s, id=s.stem, marks=marks[s]) for s in found] or [pytest.param(None, marks=NONE_HERE)]


@pytest.mark.parametrize("script", scripts())
def test_a_case_goes_as_it_should(script: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(script), "--callstack", str(forked_callstack(tmp_path))]
    limit = SLOW.get(script.stem[:4], LIMIT_S)
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=limit, check=False)

    told = [line for line in done.stdout.splitlines() if line.startswith(("PASS", "FAIL"))]
    is_slow = script.stem.startswith("br28")
    failed = [line for line in told if (ANSWERED not in line if is_slow else line.startswith("FAIL"))]
    assert told, done.stderr[-2000:]
    assert failed == [], done.stdout[-4000:] + done.stderr[-2000:]
    assert done.returncode == 0 or is_slow, done.stderr[-2000:]
