"""The figures in the README are those that its commands print today: over what ships with the project, or over the
recordings and logs beside a checkout (`../shared`). Without these the test is skipped and says so.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
README = " ".join((ROOT / "README.md").read_text().split())
LIMIT_S = 600
BESIDE = "../shared, with the recordings and the logs of clients, is not beside this checkout"

pytestmark = pytest.mark.long


def printed(*words: str) -> str:
    """What a command prints, its line breaks and runs of blanks as one blank each."""
    command = [sys.executable, "-m", "callstack_proxy", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return " ".join(done.stdout.split())


def numbers(texts: tuple[str, ...]) -> tuple[float, ...]:
    return tuple(float(text.translate(str.maketrans("", "", "$,"))) for text in texts)


def test_the_demo_prints_the_figures_of_its_table() -> None:
    """About these: ids are random, and have more tokens or fewer."""
    rows = re.findall(
        r"^\| (?:tokens|cost)[^|]* \| ([$\d,.]+) \| ([$\d,.]+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    shown = re.findall(r"(?:request|requests|sides) (\$?[\d,.]+) (\$?[\d,.]+) \d+ %", printed("demo"))

    assert len(rows) == len(shown) == 4
    assert list(map(numbers, shown)) == [pytest.approx(numbers(row), rel=0.01) for row in rows]


@pytest.mark.skipif(not (SHARED / "client-logs").is_dir(), reason=BESIDE)
def test_savings_prints_its_block() -> None:
    block = README[README.index("They cost $") : README.index("``` Short sessions save")].strip()

    assert block in printed("savings", str(SHARED / "client-logs"))


@pytest.mark.skipif(not (SHARED / "trajectories").is_dir(), reason=BESIDE)
def test_replay_prints_the_figures_over_the_recordings() -> None:
    shown = printed("replay", str(SHARED / "trajectories"))

    money = re.search(r"Money: \$([\d.]+) with us, \$([\d.]+) without us: .*? less \$([\d.]+) to read again", shown)
    assert money
    ours, untouched, again = map(float, money.groups())
    bill = (
        f"**The cost was {ours / untouched:.0%} of the cost without us, {(ours + again) / untouched:.0%} with".replace(
            "%", " %"
        )
    )
    assert bill in README
    names = re.search(r"used ([\d,]+) that stood .*? ([\d.]+ %) stood in what was sent, ([\d.]+ %) behind a ref", shown)
    assert names
    assert f"{names[1]} names (of files, functions, numbers) again: {names[2]} of them" in README
    assert f"For the other {names[3]}" in README
    far = re.search(r"Of the ([\d,]+) said last 10 or more requests before: ([\d.]+ %), ([\d.]+ %)", shown)
    assert far
    assert (
        f"For the {far[1]} names that were last said ten or more requests before, the shares are {far[2]} and {far[3]}"
        in README
    )
    dearer = re.search(r"Dearer with us: 1 recording, (\$[\d.]+) in all, at most ([\d.]+ %)", shown)
    assert dearer
    assert f"One conversation was dearer, by {dearer[2]}, {dearer[1]}" in README
