"""Recorded agent conversations, replayed by `callstack replay` in every API: the same is saved in each.

The recordings are other people's, so they stay outside the project: without them this test skips and says so.
`tests/replay/test_dialects.py` holds the same on a session of our own.
"""

import asyncio
from pathlib import Path

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.management.reports import ReceiptTotals
from callstack_proxy.replay.api.replay_api_list import APIS
from callstack_proxy.replay.outcome import MarkerCosts, ReplayResult
from callstack_proxy.replay.player import play_recording
from callstack_proxy.replay.recording_formats import read_recordings

RECORDINGS = Path(__file__).resolve().parents[3] / "shared" / "trajectories"
NEAR = 0.02
"""How far the shares of the cost that is left may lie apart where open work was cut as often."""
CUT_LESS = 0.12
"""The same where it was not: where reasoning is bound to its prefix, no steps are kept behind a cut, so that it pays
earlier. One of these recordings is cut at its request 33 there (0.574, 0.577 left), and in chat only later (0.680)."""
BYTES = (45_000, 60_000)
"""Size of the recordings that are played, packed: long enough to be folded, short enough to be quick."""
PLAYED = 3

pytestmark = [
    pytest.mark.yardstick,
    pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings are not beside this checkout"),
]


def played(file: Path, dialect: str) -> ReplayResult:
    (recording,) = read_recordings(file, dialect=dialect)
    return asyncio.run(play_recording(recording, load_config({}), str(file), lambda: None))


def share(told: ReceiptTotals | MarkerCosts) -> float:
    return told.cost / told.cost_untouched


def test_the_same_is_saved_in_every_api() -> None:
    least, most = BYTES
    files = [file for file in sorted(RECORDINGS.glob("*.jsonl.gz")) if least <= file.stat().st_size <= most][:PLAYED]
    assert files
    folded = 0
    for file in files:
        told = {dialect: played(file, dialect) for dialect in APIS}
        shares = {dialect: share(one.row) for dialect, one in told.items()}
        cuts = {dialect: one.events.get("parted", 0) for dialect, one in told.items()}
        apart = max(shares.values()) - min(shares.values())
        assert apart < (NEAR if len(set(cuts.values())) == 1 else CUT_LESS), (file.name, shares, cuts)
        assert abs(shares["messages"] - shares["responses"]) < NEAR, (file.name, shares)
        assert {one.unequal for one in told.values()} == {0}
        assert not [s for one in told.values() for s in one.statuses if s.startswith(("bypass", "error"))]
        folded += told["messages"].events.get("folded", 0)
    assert folded
