"""All observers together: no input makes one raise, none takes long, and on captured sessions they are right."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.ledger.messages import Call
from proxy.core.observers import observe
from proxy.core.observers.files import FileAction, ObservedFile
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES, Step, StepObservations, ToolExecution
from proxy.core.observers.plan import ItemStatus, MirroredItem, reconcile_plan
from proxy.core.observers.turns import continues_turn
from proxy.dialects import ANTHROPIC_MESSAGES, OPENAI_CHAT, OPENAI_RESPONSES, ParseCache
from tests.core.observers.steps import done, step
from tests.pace import slowness

CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "captures"
LIMIT_MS = 5.0
"""A step is to cost well under a millisecond on a free core; a shared machine gets some air."""

anything = st.text(st.characters(exclude_categories=()), max_size=60)
value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | anything,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(anything, inner, max_size=4),
    max_leaves=8,
)
KEYS = (
    "todos plan checklist path file_path files command cmd commands id taskId subject status content edits source "
    "destination objective"
)
keys = st.sampled_from(KEYS.split())
arguments = anything | st.dictionaries(keys, value, max_size=5).map(json.dumps)
calls = st.builds(Call, st.just("c"), st.sampled_from(sorted(DEFAULT_TOOL_ROLES.tools)) | anything, arguments)
results = anything | value.map(json.dumps)


@given(anything, st.lists(st.builds(ToolExecution, calls, results, st.just("e"), st.booleans()), max_size=3))
def test_no_step_makes_an_observer_raise(said: str, all_done: list[ToolExecution]) -> None:
    """Bad input."""
    seen = observe(Step(said, tuple(all_done)))

    assert all(file.path for file in seen.files)
    for plan in seen.plan:
        reconcile_plan((), plan)


mirrored = st.builds(
    MirroredItem,
    st.sampled_from(["f1", "f2", "f3"]),
    st.sampled_from("abc"),
    st.sampled_from(["A", "A b", "c"]),
    st.sampled_from(ItemStatus),
)
lists = st.lists(
    st.fixed_dictionaries(
        {
            "content": st.sampled_from(["A", "a", "A b", "A b c", "c d"]),
            "status": st.sampled_from(["pending", "in_progress", "completed", "x"]),
        },
        optional={"id": st.sampled_from(["a", "b", "1"])},
    ),
    max_size=6,
)


@pytest.mark.rows("S1-76")
@given(st.lists(mirrored, max_size=5, unique_by=lambda each: each.frame), lists)
def test_a_list_touches_each_item_at_most_once(known: list[MirroredItem], todos: list[dict[str, str]]) -> None:
    """S1-76: what is planned is new and distinct, what is removed was live, and the rest is one of the known."""
    (plan,) = observe(step(done("todowrite", todos=todos))).plan
    changes = reconcile_plan(known, plan)

    assert len(set(changes.planned)) == len(changes.planned)
    moved = [*changes.entered, *changes.paused, *changes.completed, *changes.removed]
    assert len(set(moved)) == len(moved)
    assert all(each in known or each in changes.planned for each in moved)
    assert all(each.status in {ItemStatus.PLANNED, ItemStatus.IN_PROGRESS} for each in changes.removed)


@given(anything, anything, anything)
def test_no_message_makes_the_continuation_test_raise(before: str, closing: str, text: str) -> None:
    assert continues_turn(before, closing, text) in (True, False)


HARD = {
    "source": "def f(x):\n    return x  # error: none\n" * 1_500,
    "spaces": " " * 50_000,
    "dashes": "-" * 50_000,
    "slashes": "a/" * 25_000,
    "dots": ("." * 80 + "\n") * 620,
    "quotes": '"' * 50_000,
    "brackets": "[" * 50_000,
    "colons": "a:1:" * 12_500,
}


@pytest.mark.parametrize("name", HARD)
def test_a_step_with_a_large_result_is_looked_at_in_bounded_time(name: str) -> None:
    text = HARD[name]
    steps = [
        step(done("bash", text, command="cd app && pytest -q | tail")),
        step(done("read", text, path="a.py")),
        step(done("write", "ok", path="a.py", content=text)),
        step(done("Checklist", "ok", checklist=text)),
        step(said=text),
    ]

    def took(one: Step) -> float:
        start = time.thread_time()
        observe(one)
        return (time.thread_time() - start) * 1_000

    assert max(min(took(one) for _ in range(5)) for one in steps) < LIMIT_MS * slowness()


@pytest.mark.parametrize("name", HARD)
def test_a_long_message_is_judged_in_bounded_time(name: str) -> None:
    def took() -> float:
        start = time.thread_time()
        continues_turn(HARD[name], HARD[name], HARD[name])
        return (time.thread_time() - start) * 1_000

    assert min(took() for _ in range(5)) < 4 * LIMIT_MS * slowness()


# ------------------------------------------------------------------------------------------------------------- captures
SESSIONS = sorted(CAPTURES.glob("*/*.jsonl"))
KNOWN = ParseCache()
WRITING = {"write": "filePath", "edit": "filePath", "Write": "file_path", "Edit": "file_path"}
WRITING |= {"write_file": "", "edit_file": "file_path"}


READERS = {"/chat/completions": OPENAI_CHAT, "/messages": ANTHROPIC_MESSAGES, "/responses": OPENAI_RESPONSES}


def results_in(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Tool results of a captured request in any of the three wire formats: id of the call, as the script has it, and
    text."""
    reader = next((dialect for end, dialect in READERS.items() if record["path"].endswith(end)), None)
    if reader is not None and record["body"]:
        asked = reader.parse_request(json.dumps(record["body"]).encode(), KNOWN)
        yield from ((m.answers.replace("toolu_", "call_"), m.text) for m in asked.messages if m.answers)


def session(path: Path) -> Iterator[tuple[dict[str, Any], ToolExecution]]:
    """Each call of the scripted model that was answered, as the script made it and as the observers get it."""
    asked: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        for ident, text in results_in(record):
            if (made := asked.pop(ident, None)) is not None:
                wire = made["args"] if isinstance(made["args"], str) else json.dumps(made["args"])
                yield made, ToolExecution(Call(ident, made["name"], wire), text, ident)
        asked |= {call["id"]: call for call in (record.get("answer") or {}).get("calls") or []}


def truth_of(made: dict[str, Any], result: str) -> set[str]:
    """The file a scripted call changed: its argument, or the one file that every script writes by the shell."""
    arguments = made["args"]
    if result.startswith("Error"):
        return set()
    if isinstance(arguments, str):
        return (
            {"notes.txt"}
            if "File: notes.txt" in arguments or "> notes.txt" in arguments or "sed -i" in arguments
            else set()
        )
    if (name := WRITING.get(made["name"])) is not None:
        return {next(arguments[key] for key in (name, "file_path", "path") if key in arguments)}
    commands = json.dumps([arguments.get(key) for key in ("command", "cmd", "commands")])
    return {"notes.txt"} if "> notes.txt" in commands or "sed -i" in commands else set()


@pytest.mark.rows("S2-17", "S2-22")
@pytest.mark.skipif(not SESSIONS, reason="the captured sessions are not beside this checkout")
@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_precision_and_recall_of_artifacts_are_one_on_captured_sessions(path: Path) -> None:
    """S2-17: the exact list of files, call by call; for sure where a tool's argument or a patch names them."""
    for made, one in session(path):
        changed = [file for file in observe(step(one)).files if file.action is not FileAction.READ]
        by_tool = made["name"] in WRITING or made["name"] == "apply_patch"

        assert {file.path for file in changed} == truth_of(made, one.result)
        assert all(file.is_certain is by_tool for file in changed)


@pytest.mark.rows("S3-05", "S1-76")
@pytest.mark.skipif(not SESSIONS, reason="the captured sessions are not beside this checkout")
def test_what_captured_sessions_read_planned_and_ran_is_seen() -> None:
    """S3-05, S1-76: the script reads two files, keeps a plan of three items, and one command fails."""
    every = [(made, observe(step(one))) for path in SESSIONS for made, one in session(path)]

    def of(name: str) -> list[StepObservations]:
        return [seen for made, seen in every if made["name"] == name]

    assert {file for seen in of("read") for file in seen.files} == {
        ObservedFile(f"/workspace/{name}", FileAction.READ) for name in ("README.md", "calc.py")
    }
    assert all(
        len(seen.plan) == 1 for name in ("todowrite", "update_plan", "write_todos", "TaskCreate") for seen in of(name)
    )
    broken = [
        seen.commands
        for made, seen in every
        if "cat no_such_file" in json.dumps(made["args"]) and made["name"] != "exec"
    ]
    assert broken
    assert all(ran.outcome == "failed" for commands in broken for ran in commands)
