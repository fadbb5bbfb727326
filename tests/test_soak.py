"""`bench/soak.py` runs, and its exit code says whether the proxy stood it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--limit=1e9"], 0, "all is level"),
        (["--limit=-1e9"], 1, "memory grows by"),
        (["--limit=1e9", "--set=mode=off"], 1, "calls of tools that are not the client's: {'stack_frame_push'}"),
    ],
    ids=["level", "memory grows", "requests fail"],
)
def test_a_soak_of_some_seconds(options: list[str], code: int, told: str) -> None:
    command = [sys.executable, "bench/soak.py", "--minutes=0.06", "--every=0.5", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, told in done.stdout) == (code, True), done.stdout + done.stderr
    for figure in ("memory_mb", "descriptors", "threads", "store_mb", "requests_per_s", "added_ms"):
        assert f"\n{figure} " in done.stdout
