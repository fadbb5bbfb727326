"""What does not work here is told until it does, and what was only asked wrongly is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.frames.path_state import PathEntry
from proxy.core.ledger.ledger import Entry, EntryKind
from proxy.core.ledger.messages import Call, Message
from proxy.core.observers.broken_tools import MAX_LINES, broken_lines, broken_tools
from proxy.core.observers.observe_step import DEFAULT_TOOL_ROLES

pytestmark = pytest.mark.rows("S0-55")

NO_FLAKE8 = "/usr/bin/python: No module named flake8"
NO_GREP = "ripgrep execution failed"
IMPORT_ERROR = "Traceback (most recent call last):\n  File ...\nImportError: cannot import name 'OneOf' from 'glom'"


def sh(command: str, result: str = "") -> tuple[str, dict[str, Any], str]:
    return "bash", {"command": command}, result


def grep(pattern: str, result: str) -> tuple[str, dict[str, Any], str]:
    return "grep", {"pattern": pattern}, result


def lines(*calls: tuple[str, dict[str, Any], str], told_from: int = 0) -> tuple[str, ...]:
    """What is told where the calls from `told_from` on leave the context."""
    entries: list[PathEntry] = []
    for number, (name, arguments, result) in enumerate(calls):
        call = Call(f"c{number}", name, json.dumps(arguments))
        for at, message in (
            (f"a{number}", Message("assistant", b"{}", "", "", (call,))),
            (f"r{number}", Message("tool", b"{}", "", result, answers=call.id)),
        ):
            entries.append(PathEntry(Entry(at, "", 1, EntryKind.MESSAGE, "main", message), "root", path_id=at))
    inside = frozenset(p.entry.id for p in entries[2 * told_from :])
    return broken_lines(broken_tools(entries, DEFAULT_TOOL_ROLES), inside)


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ([sh("python -m flake8 agate", NO_FLAKE8)], 'flake8: "No module named flake8"'),
        ([sh("pytest | tail -1; python -m flake8 .", f"393 passed\n{NO_FLAKE8}")], 'flake8: "No module named flake8"'),
        ([sh("hadolint Dockerfile", "sh: 1: hadolint: not found")], "hadolint: not found"),
        ([sh("rg x", "bash: line 12: rg: command not found")], "rg: command not found"),
        ([grep(word, NO_GREP) for word in "abcd"], f'grep: "{NO_GREP}" (4 of 4 calls)'),
        ([grep("a", NO_GREP)], f'grep: "{NO_GREP}"'),
        ([grep("a", NO_GREP), sh("grep -rn b src", "src/a.py:1: b")], f'grep: "{NO_GREP}"'),
        ([("websearch", {"q": word}, "Error: 401 Unauthorized") for word in "ab"],
         'websearch: "Error: 401 Unauthorized" (2 of 2 calls)'),
        ([sh("./tool.sh", "Chunk ID: c34c81\nProcess exited with code 2\nOutput:\nno licence")],
         './tool.sh: "no licence"'),
        ([sh('python -c "from glom import OneOf"', IMPORT_ERROR)],
         'python -c from glom import OneOf: "ImportError: cannot import name \'OneOf\' from \'glom\'"'),
    ],
)  # fmt: skip
def test_what_cannot_run_is_told(calls: list[tuple[str, dict[str, Any], str]], told: str) -> None:
    assert lines(*calls, sh("ls", "a.py")) == (told,)


@pytest.mark.parametrize(
    "calls",
    [
        [sh("python -m flake8 agate", NO_FLAKE8), sh("python -m flake8 agate", "")],
        [sh("python -m flake8 agate", NO_FLAKE8), sh("pip install flake8", "Successfully installed flake8-7")],
        [grep("a", NO_GREP), grep("b", "src/a.py:1: b")],
        [sh('python -c "import glom"', IMPORT_ERROR), sh('python -c "import glom"', "")],
        [sh("git push", "fatal: no upstream\n[exit code 128]"), sh("git push -u origin x", "done\n[exit code 0]")],
    ],
    ids=["runs now", "installed", "tool works again", "the same command passes", "another command of the kind"],
)
def test_it_goes_when_a_later_one_of_the_kind_succeeds(calls: list[tuple[str, dict[str, Any], str]]) -> None:
    assert lines(*calls) == ()


@pytest.mark.parametrize(
    "calls",
    [
        [("read", {"filePath": name}, f"Error: file {name} not found") for name in "abc"],
        [("edit", {"filePath": name}, "String to replace not found in file.") for name in "abc"],
        [("edit", {"filePath": name}, "The user doesn't want to proceed with this tool use.") for name in "abc"],
        [sh("pytest -q", "2 failed, 3 passed in 1s")],
        [sh("grep -n flake8 setup.cfg", ""), sh("cat nothing", "cat: nothing: No such file or directory")],
        [sh("cat log.txt", f"yesterday\n{NO_FLAKE8}")],
        [sh('python -c "import json; json.loads(1)"', "Traceback (most recent call last):\nTypeError: not int")],
        [grep("x", "src/a.py:3: ripgrep execution failed")],
        [sh("which python3 pytest", "/usr/bin/python3\n[exit code 1]")],
    ],
    ids=[
        "no such file",
        "no match",
        "a person",
        "a check that fails",
        "asked for nothing",
        "others' words",
        "code that is wrong",
        "found",
        "an answer",
    ],
)
def test_what_works_and_says_no_is_not_told(calls: list[tuple[str, dict[str, Any], str]]) -> None:
    assert lines(*calls) == ()


def test_only_a_few_lines_are_told_and_each_where_it_was_seen() -> None:
    programs = [sh(f"tool{number} .", f"sh: tool{number}: command not found") for number in range(9)]
    told = lines(*programs)

    assert len(told) == MAX_LINES
    assert told[-1].startswith("tool8: ")
    assert lines(*programs, sh("ls", "x"), told_from=9) == ()


def test_what_an_earlier_note_told_is_said_to_work_again() -> None:
    calls = [sh("python -m flake8 .", NO_FLAKE8), sh("ls", "x"), sh("python -m flake8 .", "")]

    assert lines(*calls, told_from=1) == ("flake8: works again",)
