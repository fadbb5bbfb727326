"""What the scripts of `docs/` count in recorded sessions of agents. Each is played once for both."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.recording_formats import read_recordings
from proxy.config.model import Config

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT.parent / "shared" / "trajectories"
PAGE = ROOT / "docs" / "autonomy.md"

pytestmark = [
    pytest.mark.long,
    pytest.mark.yardstick,
    pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings are not beside this checkout"),
]


@pytest.fixture(scope="module")
def scripts() -> tuple[ModuleType, ModuleType]:
    """Those that count heuristics and loops."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "docs"))
        return importlib.import_module("heuristics"), importlib.import_module("loops")


@pytest.fixture(scope="module")
def counted(scripts: tuple[ModuleType, ModuleType]) -> list[tuple[Any, Any]]:
    """Of each recording, how its heuristics scored and which loops it has."""
    heuristics, loops = scripts
    config = load_config(heuristics.LISTED)

    async def one(recording: Any) -> tuple[Any, Any]:
        looking, ledgers = await heuristics.played(recording, config)
        scored = await heuristics.scored_in(recording, config, looking, ledgers)
        return scored, loops.watched_in(recording, ledgers, config)

    files = sorted(RECORDINGS.glob("*.jsonl.gz"))
    return [asyncio.run(one(each)) for file in files for each in read_recordings(file, model="", dialect="chat")]


@pytest.mark.rows("C7", "S1-82")
def test_recorded_agents_are_told_little_and_the_page_says_how_much(
    counted: list[tuple[Any, Any]], scripts: tuple[ModuleType, ModuleType]
) -> None:
    """The default level adds no more than a few words to a session, or it would not be the default."""
    heuristics, _ = scripts
    scored = [each for each, _ in counted]

    assert Config().autonomy == "suggest"
    assert max(len(one.suggestions) for one in scored) <= heuristics.FEW
    assert sum(bool(one.suggestions) for one in scored) <= len(scored) / 4
    assert "\n".join(heuristics.table(scored)) in PAGE.read_text()


@pytest.mark.rows("S3-21", "D11")
def test_recorded_agents_are_never_warned_in_their_ordinary_cycles(counted: list[tuple[Any, Any]]) -> None:
    """S3-21, D11: no cycle of a change and a check is called a loop, and there are cycles enough to say so."""
    watched = [each for _, each in counted]

    assert sum(one.cycles for one in watched) > 100
    assert [loop for one in watched for loop in one.in_cycle] == []
