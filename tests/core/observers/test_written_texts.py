"""What the edits of some steps left in the files, word for word."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.ledger.messages import Call
from proxy.core.observers import DEFAULT_TOOL_ROLES, FileTexts, written_texts
from proxy.core.observers.step import Step, ToolExecution
from proxy.core.observers.work_log import edit_lines
from tests.pace import within

LIMIT = "def limit(calls):\n    return calls < 10"


def step(name: str, arguments: dict[str, Any] | str, result: str = "ok") -> Step:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Step("", (ToolExecution(Call("c1", name, written), result),))


def edit(old: str, new: str, path: str = "src/a.py", result: str = "ok") -> Step:
    return step("edit", {"filePath": path, "oldString": old, "newString": new}, result)


def texts_after(*steps: Step) -> list[tuple[str, str]]:
    return [(each.path, each.text) for each in written_texts(steps, DEFAULT_TOOL_ROLES)]


REPORT = " src/a.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)"
PRINTS = "python - <<'E'\nimport a\nprint(a.limit([]))\nE\ntrue"
WRITES = PRINTS.replace("print", "fix.main")
WRITTEN = [("src/a.py", "\n\nBURST = 3")]
ADDED = "cat >> src/a.py <<'E'\n\n\nBURST = 3\nE\npytest -q"
FIRST = edit("pass", LIMIT)
MOVED_ON = "*** Begin Patch\n*** Delete File: ./src/a.py\n*** Add File: b.py\n+b = 1\n*** End Patch"


@pytest.mark.rows("S0-54")
@pytest.mark.parametrize(
    ("later", "left"),
    [
        ((), [("src/a.py", LIMIT)]),
        ((edit("10", "20"),), [("src/a.py", LIMIT.replace("10", "20"))]),
        ((edit("a", "b", "src/b.py"),), [("src/a.py", LIMIT), ("src/b.py", "b")]),
        ((edit("10", "20", result="Error: no match"),), [("src/a.py", LIMIT)]),
        ((edit("import os", "import sys"),), [("src/a.py", LIMIT), ("src/a.py", "import sys")]),
        ((edit(f"import os\n{LIMIT}", "import os"),), [("src/a.py", "import os")]),
        ((edit("    return calls < 10\n\nBURST = 3", "    return True"),), [("src/a.py", "    return True")]),
        ((edit(LIMIT, ""),), []),
        ((step("write", {"filePath": "src/a.py", "content": "X = 1\n"}),), [("src/a.py", "X = 1\n")]),
        ((step("bash", {"command": "sed -i s/10/20/ src/a.py"}),), []),
        ((step("bash", {"command": "sed -i s/10/20/ /repo/src/a.py"}),), []),
        ((edit("10", "20", "/repo/src/a.py"),), [("/repo/src/a.py", LIMIT.replace("10", "20"))]),
        ((edit("", "import os"),), []),
        ((step("bash", {"command": "rg x; sed -n 1,9p b.py; git diff --stat"}, REPORT),), [("src/a.py", LIMIT)]),
        ((step("bash", {"command": "make fmt; git diff --stat"}, REPORT),), []),
        ((step("bash", {"command": f"{PRINTS}; git diff --stat"}, REPORT),), [("src/a.py", LIMIT)]),
        ((step("bash", {"command": f"{WRITES}; git diff --stat"}, REPORT),), []),
        ((step("bash", {"command": ADDED}),), [("src/a.py", LIMIT), ("src/a.py", "\n\nBURST = 3")]),
        ((step("bash", {"command": ADDED.replace("cat >> src/a.py <<'E'", "cd x && cat <<'E' >src/a.py")}),), WRITTEN),
        ((step("bash", {"command": f"{ADDED}; sed -i s/3/4/ src/a.py"}),), []),
        ((step("bash", {"command": ADDED.replace("'E'", "E")}),), []),
        ((step("bash", {"command": ADDED.replace("src/a.py", "/tmp/$X/a.py")}),), [("src/a.py", LIMIT)]),
        ((step("bash", {"command": ADDED.replace("cat", "cat head.py -")}),), []),
        (
            (
                step(
                    "apply_patch",
                    "*** Begin Patch\n*** Delete File: ./src/a.py\n*** Add File: b.py\n+b = 1\n*** End Patch",
                ),
            ),
            [("b.py", "b = 1")],
        ),
        ((step("bash", {"command": "pytest -q"}), step("read", {"filePath": "src/a.py"})), [("src/a.py", LIMIT)]),
    ],
)
def test_a_text_is_what_later_edits_left_of_it(later: tuple[Step, ...], left: list[tuple[str, str]]) -> None:
    """Or none, where nobody knows what became of it."""
    assert texts_after(FIRST, *later) == left


@pytest.mark.rows("S0-54")
def test_a_patch_leaves_each_of_its_hunks_and_a_call_each_of_its_edits() -> None:
    patch = (
        "*** Begin Patch\n*** Update File: src/a.py\n@@ class A\n a = 1\n-b = 2\n+b = 3\n@@\n-c = 4\n+c = 5\n"
        "*** Add File: src/n.py\n+n = 1\n*** End Patch"
    )
    edits = {
        "file_path": "src/b.py",
        "edits": [{"old_string": "x", "new_string": "y"}, {"old_string": "v", "new_string": "w"}],
    }

    assert texts_after(step("apply_patch", patch), step("MultiEdit", edits)) == [
        ("src/a.py", "a = 1\nb = 3"),
        ("src/a.py", "c = 5"),
        ("src/n.py", "n = 1"),
        ("src/b.py", "y"),
        ("src/b.py", "w"),
    ]


@pytest.mark.rows("S0-54", "S0-55")
def test_a_text_of_a_method_is_told_with_its_class() -> None:
    file = "class A:\n    def size(self):\n        return 1\n\nclass B:\n    def size(self):\n        return 2\n"
    steps = [
        step("read", {"filePath": "src/a.py"}, file),
        edit("    def size(self):\n        return 2", "    def size(self):\n        return 3"),
    ]

    (written,) = written_texts(steps, DEFAULT_TOOL_ROLES, FileTexts(steps, DEFAULT_TOOL_ROLES))

    assert written.place == "B.size"


def test_a_patch_of_thousands_of_changes_is_told_at_once() -> None:
    """Each looked for its place in all lines above: 0.8 s for 60 KB."""
    patch = "\n".join(["*** Begin Patch", "*** Update File: a.py", *["+a", " b = 1"] * 6_000, "*** End Patch"])
    work = step("apply_patch", {"input": patch})

    with within(0.1):
        told = edit_lines(work, DEFAULT_TOOL_ROLES, texts=FileTexts((work,)))

    assert set(told) == {"a.py: added a"}
    assert len(told) == 6_000


def test_edits_of_many_files_are_told_at_once() -> None:
    """Each file was compared with all others, as paths: 2 s."""
    steps = [edit("a", "b", f"src/{number}.py") for number in range(600)]

    with within(0.3):
        texts = FileTexts(steps)
        told = [edit_lines(each, DEFAULT_TOOL_ROLES, texts=texts) for each in steps]

    assert told[599] == ("599.py: a -> b",)


def test_a_command_of_many_redirections_is_read_at_once() -> None:
    """A digit may end one file or begin the next redirection: 40 of them took days."""
    hostile = step("bash", {"command": f"cat <<'E' {'>11' * 40} !\nx\nE"})

    with within(0.1):
        told = edit_lines(hostile, DEFAULT_TOOL_ROLES)

    assert told == ()
