"""The script of `docs/` that counts what the heuristics of autonomy do in recordings: it sees what is there, and its
page holds what it prints (C7, S1-82)."""

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
PAGE = ROOT / "docs" / "autonomy.md"
Json = dict[str, Any]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("heuristics")


def recording(folder: Path, edits: int) -> Path:
    """One turn of a user in which so many files are changed, as a file."""
    tools = [{"type": "function", "function": {"name": "Edit", "parameters": {}}}]
    told = {"id": "one", "model": "claude-sonnet-4-5", "messages": list(messages(edits)), "tools": tools}
    file = folder / "one.json"
    file.write_text(json.dumps(told))
    return file


def messages(edits: int) -> Iterator[Json]:
    yield {"role": "user", "content": "Rename the class in every file."}
    for n in range(edits):
        arguments = json.dumps({"file_path": f"{n}.py", "old_string": "x", "new_string": f"y{n}"})
        call = {"id": f"c{n}", "type": "function", "function": {"name": "Edit", "arguments": arguments}}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"c{n}", "content": "The file has been updated."}
    yield {"role": "assistant", "content": "Done."}


def counts(counting: ModuleType, file: Path, **settings: str) -> Any:
    config = load_config(counting.LISTED | settings)
    (found,) = (asyncio.run(counting.scored(one, config)) for one in read_recordings(file, model="", dialect="chat"))
    return found


@pytest.mark.rows("C7", "S1-82", "S1-87")
def test_scores_suggestions_and_frames_are_counted(counting: ModuleType, tmp_path: Path) -> None:
    found = counts(counting, recording(tmp_path, 11))

    assert len(found.points["complexity"]) == found.requests == 12
    assert max(found.points["complexity"]) == 70
    assert found.reached["max", "push"] == 2  # with the tenth and the eleventh edit
    assert [(each.heuristic, each.confidence) for each in found.suggestions] == [("complexity", 70)]
    assert (found.opened, found.ended) == (1, 0)
    told = list(counting.table([found]))
    assert told[0] == "1 recordings, 12 requests of awake threads."
    assert "| `complexity` | push | 9 (75.0%) | 7 (58.3%) | 2 (16.7%) | 0 | 70 |" in told
    assert "| suggestions of a push or a pop (`suggest`) | 1 | 1 | 1 |" in told
    assert next(iter(counting.details([found]))).startswith(f"{found.name}: [STACK SUGGESTION: Consider pushing")


def test_what_the_user_sets_counts(counting: ModuleType, tmp_path: Path) -> None:
    found = counts(counting, recording(tmp_path, 11), push_threshold="100")

    assert (found.suggestions, found.opened) == ((), 0)
