"""The script of `docs/` that counts loops in recordings: it sees those that are there, and the recordings have none in
their ordinary cycles (S3-21, D11)."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.recording_formats import read_recordings

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT.parent / "shared" / "trajectories"
Json = dict[str, Any]
Step = tuple[str, Json, str]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("loops")


def recording(folder: Path, *steps: Step) -> Path:
    """One turn of a user with these steps, as a file."""
    told = {"id": "one", "model": "claude-sonnet-4-5", "messages": list(messages(steps)), "tools": []}
    names = sorted({name for name, _, _ in steps})
    told["tools"] = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]
    file = folder / "one.json"
    file.write_text(json.dumps(told))
    return file


def messages(steps: tuple[Step, ...]) -> Iterator[Json]:
    yield {"role": "user", "content": "Make the suite green."}
    for n, (name, arguments, result) in enumerate(steps):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"c{n}", "type": "function", "function": function}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"c{n}", "content": result}
    yield {"role": "assistant", "content": "Done."}


def pytest_run() -> Step:
    return "Bash", {"command": "pytest -q"}, "1 failed, 3 passed\nExit code 1"


def edited(n: int) -> Step:
    return "Edit", {"file_path": "a.py", "old_string": "x", "new_string": f"try {n}"}, "The file has been updated."


def counts(counting: ModuleType, file: Path) -> Any:
    config = load_config(counting.EVERYTHING)
    (found,) = (asyncio.run(counting.watched(one, config)) for one in read_recordings(file, model="", dialect="chat"))
    return found


def test_a_loop_and_a_cycle_are_counted_apart(counting: ModuleType, tmp_path: Path) -> None:
    cycles = counts(counting, recording(tmp_path, *(step for n in range(4) for step in (edited(n), pytest_run()))))
    loop = counts(counting, recording(tmp_path, edited(0), pytest_run(), pytest_run(), pytest_run()))

    assert (cycles.calls, cycles.cycles, cycles.loops) == (8, 3, ())
    assert [(one.kind, one.count) for one in loop.loops] == [("repetition", 3)]
    told = list(counting.table([cycles, loop]))
    assert told[-3] == "| all 2 | 14 | 12 | 3 | 1 | 0 | 0 |"


def test_the_loop_of_a_check_is_told_apart_from_others(counting: ModuleType, tmp_path: Path) -> None:
    """What would be a false warning: the check of a cycle, in a loop."""
    steps = [edited(0), pytest_run(), edited(1), pytest_run(), pytest_run(), pytest_run()]

    assert len(counts(counting, recording(tmp_path, *steps)).in_cycle) == 1
