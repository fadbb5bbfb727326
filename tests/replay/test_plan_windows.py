"""Recorded sessions, played with a login: what a plan's window pays for them, with us and untouched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import msgspec
import pytest
from _pytest.mark import ParameterSet

from callstack_proxy.config_sources import load_config
from callstack_proxy.management.reports import ReceiptTotals
from callstack_proxy.replay.player import play_recording
from callstack_proxy.replay.recording_formats import read_recordings

RECORDINGS = sorted((Path(__file__).resolve().parents[3] / "shared" / "trajectories").glob("*.jsonl.gz"))
QUICK = ("oh-multiswe-1", "tau-airline-033")
READ_WEIGHTS = (0.0, 1 / 70, 0.02, 0.1)
WRITE, OUTPUT = 1.25, 5.0
"""What a written and an answered token weigh, as a multiple of a fresh one."""
MODEL = "claude-sonnet-4-5"
LOGIN = ((b"authorization", b"Bearer sk-ant-oat01-recorded"),)

pytestmark = [
    pytest.mark.rows("X-63"),
    pytest.mark.skipif(not RECORDINGS, reason="the recordings are not beside this checkout"),
]


def weigh(row: ReceiptTotals, read: float) -> tuple[float, float]:
    """What the window pays, with us and untouched, in fresh tokens."""
    answers = OUTPUT * row.reported_output
    sent = row.sent_uncached + read * row.sent_cached + WRITE * row.sent_written
    untouched = row.untouched_uncached + read * row.untouched_cached + WRITE * row.untouched_written
    return sent + answers, untouched + answers


def _parameter(at: int, file: Path) -> ParameterSet:
    """Two in a quick run, every sixth in a long one, all before a release: a recording is played in up to a minute."""
    sampled = (pytest.mark.long,) if at % 6 == 0 else (pytest.mark.long, pytest.mark.whole)
    marks = () if file.name.startswith(QUICK) else sampled
    return pytest.param(file, id=file.name.removesuffix(".jsonl.gz"), marks=marks)


@pytest.mark.parametrize("file", [*starmap(_parameter, enumerate(RECORDINGS))])
def test_a_session_takes_no_more_of_the_window_than_untouched(file: Path) -> None:
    for recording in read_recordings(file, model=MODEL, dialect="messages"):
        steps = tuple(replace(step, headers=(*step.headers, *LOGIN)) for step in recording.steps)
        logged_in = msgspec.structs.replace(recording, steps=steps)
        row = asyncio.run(play_recording(logged_in, load_config({}), "a file", lambda: None)).row
        for read in READ_WEIGHTS:
            ours, untouched = weigh(row, read)
            assert ours <= 1.01 * untouched, read
