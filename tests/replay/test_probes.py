"""The probes of `docs/`: what they count is right, and they see what is missing (S2-16, S2-17, S2-18, S2-19)."""

import asyncio
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callstack_proxy.config_sources import load_config
from callstack_proxy.replay.recording import body_start_and_end, encode_json
from callstack_proxy.replay.recording_formats import read_recordings
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES
from proxy.dialects import OPENAI_CHAT, ParseCache

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "docs" / "probes.py"
Json = dict[str, Any]
HOUR = 3600
PLAN = [
    {"content": "Replace the parser", "status": "in_progress"},
    {"content": "Teach the printer commas", "status": "pending"},
]
SAID = "I decided to keep the tables in memory instead of a file because they are small."


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("probing")


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def says(text: str) -> Json:
    return {"role": "assistant", "content": text}


def did(number: int, tool: str, arguments: Json, result: str, text: str | None = None) -> list[Json]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def conversation() -> Json:
    """Two requests of a user an hour apart, so that the first one's work leaves when the second one comes."""
    long = "\n".join(f"row {at} holds measure_of_run_{at} and no more than that" for at in range(900))
    messages = [
        user("Please make the report of the runs faster, it takes minutes now."),
        *did(1, "TodoWrite", {"todos": PLAN}, "Todos have been modified"),
        *did(2, "Read", {"file_path": "src/parser.py"}, long, text=SAID),
        *did(3, "Edit", {"file_path": "src/parser.py", "old_string": "a", "new_string": "b"}, "File updated."),
        *did(4, "Write", {"file_path": "src/new_printer.py", "content": "x = 1"}, "File created successfully"),
        *did(5, "Edit", {"file_path": "src/none.py", "old_string": "a", "new_string": "b"}, "Error: file not found"),
        *did(6, "Bash", {"command": "pytest -q tests/printer"}, "1 failed in 0.2s\nExit code 1"),
        says("The parser is fast now; the printer's test fails because it does not know commas yet."),
        user("Something else: write a letter to the users about the move of our office to Lyon in May."),
        says("Dear users, in May we move to Lyon."),
        user("Make it shorter."),
        says("In May we move to Lyon."),
    ]
    later = next(at for at, m in enumerate(messages) if str(m["content"]).startswith("Something else"))
    times = [float(at) + (HOUR if at >= later else 0) for at in range(len(messages))]
    return {"id": "runs", "model": "claude-sonnet-4-5", "messages": messages, "ts": times, "tools": []}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    told = conversation()
    names = sorted({c["function"]["name"] for m in told["messages"] for c in m.get("tool_calls", ())})
    schema = {"type": "object", "properties": {}}
    told["tools"] = [{"type": "function", "function": {"name": name, "parameters": schema}} for name in names]
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(told))
    return path


def probed(probing: ModuleType, file: Path, **flags: object) -> Any:
    (recording,) = read_recordings(file)
    return asyncio.run(
        probing.probed(
            recording, load_config({"wake_at_tokens": 0, "folding": "full", "frame_max_tokens": 16_000, **flags})
        )
    )


@pytest.mark.rows("S2-16", "S2-17", "S2-18", "S2-19")
def test_every_probe_finds_what_a_fold_kept_and_recall_brings_back(probing: ModuleType, file: Path) -> None:
    done = probed(probing, file)

    shares = {key: (share.hit, share.of) for key, share in done.shares.items()}
    assert done.rewritten > 0
    assert shares["files precise"] == shares["files listed"] == (2, 2)
    assert shares["user messages"] == (3, 3)
    seen, facts = shares["facts in sight"]
    assert 0 < seen < facts
    assert shares["facts by name"] == (probing.ASKED, probing.ASKED)
    assert shares["failing check"][0] == shares["failing check"][1] > 0
    assert shares["decisions reached"] == (1, 1)


def test_an_edit_is_ready_while_its_old_text_is_in_sight_and_far_once_ten_requests_passed(
    probing: ModuleType, tmp_path: Path
) -> None:
    """The same edit right after the file was read, and twelve requests later, when the reading has left."""
    told = conversation()
    old = {"file_path": "src/parser.py", "old_string": "  row 7 holds measure_of_run_7 and no more than that"}
    edit = did(7, "Edit", {**old, "new_string": "x"}, "File updated.")
    read = next(at for at, m in enumerate(told["messages"]) if m.get("tool_call_id") == "c2")
    more = [m for n in range(12) for m in (user(f"And then number {n}?"), says(f"That was number {n}."))]
    last = did(8, "Edit", {**old, "new_string": "y"}, "File updated.")
    told["messages"] = [
        *told["messages"][: read + 1], *edit, *told["messages"][read + 1 :], *more, user("Undo the parser."), *last,
    ]  # fmt: skip
    told["ts"] = [float(at) + (HOUR if at > read + 12 else 0) for at in range(len(told["messages"]))]
    told["tools"] = [{"type": "function", "function": {"name": "Edit", "parameters": {"type": "object"}}}]
    path = tmp_path / "edits.json"
    path.write_text(json.dumps(told))

    result = probed(probing, path)

    shares = {name: (share.hit, share.of) for name, share in result.shares.items()}
    assert shares["far edits"] == (0, 1)
    assert shares["edits"] == (2, 3)  # with one of "a", which an edit before it shows


def test_a_patch_replaces_the_lines_that_it_removes_or_leaves(probing: ModuleType) -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n kept\n-gone\n+new\n*** End Patch"

    assert list(probing.replaced_texts({"input": patch})) == ["kept\ngone"]
    assert list(probing.replaced_texts({"edits": [{"oldText": "one"}, {"oldText": "two"}]})) == ["one", "two"]
    assert probing.bare_lines("  12\tx = 1\n\n    7→  y = 2\n") == {"x = 1", "y = 2"}


def test_nothing_is_asked_where_nothing_left(probing: ModuleType, file: Path) -> None:
    done = probed(probing, file, mode="off")

    assert (done.requests, done.rewritten) == (9, 0)
    assert done.shares.keys() <= {"files precise", "files listed", "edits"}


def test_a_fact_that_recall_does_not_bring_back_is_a_miss(
    probing: ModuleType, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(_: object, arguments: Json) -> str:
        assert arguments["query"]
        return "No stored text has all of these words."  # their echo would be the line of a name that stands alone

    # Nothing we can write makes the real recall miss a fact that is stored, and the counting of misses is what is
    # asked.
    monkeypatch.setattr(probing._Probe, "_recalled", nothing)

    shares = probed(probing, file).shares

    assert shares["facts by name"].hit == 0
    assert len(shares["facts by name"].missed) == shares["facts by name"].of > 0


def followed(probing: ModuleType, *messages: Json) -> Any:
    before, behind = body_start_and_end("m", {})
    request = OPENAI_CHAT.parse_request(before + b",".join(map(encode_json, messages)) + behind, ParseCache())
    truth = probing.Truth(DEFAULT_TOOL_ROLES)
    truth.follow(request.messages)
    return truth


@pytest.mark.parametrize(
    ("tool", "arguments", "changed"),
    [
        ("anything", {"path": "a.py", "new_str": "x"}, {"a.py"}),
        ("create", {"filename": "b.py"}, {"b.py"}),
        ("apply", {"input": "*** Begin Patch\n*** Update File: c.py\n*** End Patch"}, {"c.py"}),
        ("look", {"path": "a.py"}, set()),
    ],
)
def test_changed_files_are_known_by_the_shape_of_the_call(
    probing: ModuleType, tool: str, arguments: Json, changed: set[str]
) -> None:
    assert followed(probing, *did(1, tool, arguments, "ok")).files == changed
    assert followed(probing, *did(1, tool, arguments, "Error: no such file")).files == set()


def test_a_plan_is_known_by_the_shape_of_its_items_in_one_list_or_one_by_one(probing: ModuleType) -> None:
    as_list = followed(probing, *did(1, "any", {"plan": PLAN}, "ok"))
    one_by_one = followed(
        probing,
        *did(1, "New", {"subject": "Dig"}, "Task #1 created"),
        *did(2, "New", {"subject": "Plant"}, "Task #2 created"),
        *did(3, "Change", {"taskId": "1", "status": "completed"}, "Updated task #1"),
    )

    emptied = followed(probing, *did(1, "any", {"plan": PLAN}, "ok"), *did(2, "any", {"plan": []}, "ok"))
    beside = followed(probing, *did(1, "any", {"plan": PLAN}, "ok"), *did(2, "other", {"labels": []}, "ok"))
    assert (emptied.open, beside.open) == ([], as_list.open)
    assert (as_list.open, as_list.next) == (["Replace the parser", "Teach the printer commas"], ["Replace the parser"])
    assert (one_by_one.open, one_by_one.next) == (["Plant"], ["Plant"])


@pytest.mark.long
def test_the_script_prints_a_table_and_puts_it_into_a_page(file: Path, tmp_path: Path) -> None:
    mark = "<!-- printed by docs/probes.py -->"
    page = tmp_path / "page.md"
    page.write_text(f"before\n{mark}\nold\n{mark}\nbehind\n")
    command = [sys.executable, str(SCRIPT), str(file), "--set", "wake_at_tokens=0", "--write", str(page), "--jobs", "1"]

    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "| artifact | files the calls did change that are listed (recall) | 2 | 1.000 |" in done.stdout
    assert page.read_text() == f"before\n{mark}\n{done.stdout}{mark}\nbehind\n"


def test_what_is_no_recording_is_said_and_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')

    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "other.json")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "no `messages`" in done.stderr
