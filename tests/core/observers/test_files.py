"""S1-104, S0-16: files by the tools' arguments, confirmed by their results."""

import pytest

from proxy.core.frames.results import FileAccess
from proxy.core.observers import call_outcomes as results
from proxy.core.observers.call_outcomes import call_failed
from proxy.core.observers.files import (
    FileAction,
    ObservedFile,
    changed_paths_of,
    files_touched_by,
    observe_files,
    touched_file_labels,
)
from proxy.core.observers.observe_step import observe
from proxy.core.observers.step import ToolExecution
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES
from tests.core.forest import LedgerBuilder, call
from tests.core.observers.steps import done, raw, step
from tests.pace import within

READ, CREATED, MODIFIED, DELETED = FileAction.READ, FileAction.CREATED, FileAction.MODIFIED, FileAction.DELETED
PATCH = """*** Begin Patch
*** Add File: new.py
+x
*** Update File: old.py
*** Move to: moved.py
@@
*** Delete File: gone.py
"""


def seen(*all_done: ToolExecution) -> list[tuple[str, FileAction]]:
    return [(each.path, each.action) for each in observe_files(step(*all_done), DEFAULT_TOOL_ROLES) if each.is_certain]


def guessed(*all_done: ToolExecution) -> list[tuple[str, FileAction]]:
    return [
        (each.path, each.action) for each in observe_files(step(*all_done), DEFAULT_TOOL_ROLES) if not each.is_certain
    ]


@pytest.mark.rows("X-17")
@pytest.mark.parametrize(
    ("made", "files"),
    [
        (done("read", filePath="a.py"), [("a.py", READ)]),
        (done("write", "Wrote file successfully.", filePath="a.py", content="x"), [("a.py", CREATED)]),
        (done("edit", filePath="a.py", oldString="x", newString="y"), [("a.py", MODIFIED)]),
        (done("Write", "The file a.py has been updated.", file_path="a.py", content="x"), [("a.py", MODIFIED)]),
        (done("Edit", file_path="a.py", old_string="", new_string="x"), [("a.py", CREATED)]),
        (done("MultiEdit", file_path="a.py", edits=[{"old_string": "x", "new_string": "y"}]), [("a.py", MODIFIED)]),
        (done("NotebookEdit", notebook_path="a.ipynb", new_source="x"), [("a.ipynb", MODIFIED)]),
        (done("read_files", files=[{"path": "a.py"}, {"path": "b.py"}]), [("a.py", READ), ("b.py", READ)]),
        (done("editor", path="a.py", old_text="x", new_text="y"), [("a.py", MODIFIED)]),
        (done("editor", path="a.py", new_text="y"), [("a.py", CREATED)]),
        (done("edit", path="a.py", edits=[{"oldText": "x", "newText": "y"}]), [("a.py", MODIFIED)]),
        (done("edit_file", file_path="a.py", old_string="x", new_string="y"), [("a.py", MODIFIED)]),
        (done("str_replace_editor", command="view", path="a.py"), [("a.py", READ)]),
        (done("str_replace_editor", command="create", path="a.py", file_text="x"), [("a.py", CREATED)]),
        (done("str_replace_editor", command="insert", path="a.py"), [("a.py", MODIFIED)]),
        (done("delete_file", path="a.py"), [("a.py", DELETED)]),
        (done("move_file", source="a.py", destination="b.py"), [("a.py", DELETED), ("b.py", CREATED)]),
        (done("read", filePath=7), []),
        (raw("read", "not json"), []),
        (raw("write", '{"path": "a.py'), []),
        (done("search", path="a.py"), []),
        (done("TaskCreate", subject="look", description="around"), []),
    ],
)
def test_the_files_of_a_call_and_what_it_did_to_them(made: ToolExecution, files: list[tuple[str, FileAction]]) -> None:
    """X-17: one fixture per client."""
    assert seen(made) == files


@pytest.mark.parametrize(
    "made",
    [
        raw("apply_patch", PATCH),
        done("apply_patch", input=PATCH),
        done("shell", command=["apply_patch", PATCH]),
        done("exec_command", cmd=f"apply_patch <<'EOF'\n{PATCH}EOF"),
        done("some_tool", patch=PATCH),
    ],
)
def test_the_headers_of_a_patch_name_its_files_however_it_is_applied(made: ToolExecution) -> None:
    assert seen(made) == [
        ("new.py", CREATED),
        ("old.py", MODIFIED),
        ("old.py", DELETED),
        ("moved.py", CREATED),
        ("gone.py", DELETED),
    ]


@pytest.mark.rows("S1-104")
@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("printf 'x' > a.txt", [("a.txt", MODIFIED)]),
        ("cat <<'EOF' > a.txt\nrm b.txt\nEOF", [("a.txt", MODIFIED)]),
        ("make 2>&1 | tee -a log.txt", [("log.txt", MODIFIED)]),
        ("mv a.py b.py && rm -rf c.py", [("a.py", DELETED), ("b.py", CREATED), ("c.py", DELETED)]),
        ("sed -i 's/a > b/c/' a.py", [("a.py", MODIFIED)]),
        ("sed -i -e 's/a/b/' a.py", [("a.py", MODIFIED)]),
        ("sed -i '' 's/f()/g(x)/g' a.py", [("a.py", MODIFIED)]),
        ("git mv a.py b.py", [("a.py", DELETED), ("b.py", CREATED)]),
        ("touch 'my file.txt'", [("my file.txt", CREATED)]),
        ("grep 'a > b' x.py 2>/dev/null", []),
        ("make 2>&1 all", []),
        ("awk '$1 > 2' x.txt", []),
        ("cat a.py", [("a.py", READ)]),
    ],
)
def test_a_command_line_is_believed_but_not_for_sure(command: str, files: list[tuple[str, FileAction]]) -> None:
    """S1-104: redirects, tee, mv, rm are of low confidence."""
    assert guessed(done("bash", command=command)) == files
    assert seen(done("bash", command=command)) == []


NOTE = "done\n[This command modified 2 files you've previously read: src/a.py, docs/b.md. Call Read before editing.]"
STAT = " src/a.py | 12 +++---\n logo.png | Bin 0 -> 9 bytes\n .../deep/c.py | 2 +-\n 3 files changed, 9 insertions(+)"


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("command", "result", "files"),
    [
        ("make codegen", NOTE, ["src/a.py", "docs/b.md"]),
        ("make codegen; git diff --stat", STAT, ["src/a.py", "logo.png"]),
        ("make codegen && git diff --stat HEAD -- src docs", STAT, ["src/a.py", "logo.png"]),
        ("git diff --stat", STAT, []),
        ("git diff --stat && python tools/gen.py", STAT, []),
        ("python -m pytest -q | tail -3; git diff --stat", STAT, []),
        ("cd src && git diff --stat HEAD", STAT, []),
        ("git diff --stat main...HEAD", STAT, []),
        ("git log --stat", STAT, []),
        ("echo 'a | 2 +-'", " a | 2 +-", []),
        ("perl -pi -e 's/a/b/' src/a.py", "", ["src/a.py"]),
        ("sed -E -i.bak 's/a/b/' src/a.py", "", ["src/a.py"]),
        ("perl -e 'print 1' src/a.py", "", []),
        ("sed -i 's/a/b/' a.py && python -m pytest -q 2>&1 | tail -2", "FAILED t.py::x\n1 failed, 3 passed", ["a.py"]),
        ("cat >> t.py <<'X'\nx\nX\npython -m pytest -q", "Exit code 1\n1 failed in 2s", ["t.py"]),
        ("sed -i 's/a/b/' a.py && python -m pytest -q", "Exit code 2\nsed: can't read a.py: No such file", []),
        ("sed -i 's/a/b/' a.py && python -m pytest -q", "The user doesn't want to proceed with this tool use.", []),
        ("for f in *.py; do sed -i 's/a/b/' $f; done", "", []),
    ],
)
def test_changes_by_the_shell_are_seen_where_the_client_or_git_says_so(
    command: str, result: str, files: list[str]
) -> None:
    assert [path for path, _ in guessed(done("bash", result, command=command))] == files
    assert seen(done("bash", result, command=command)) == []


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("script", "files"),
    [
        ('io.open("CHANGELOG", "w", encoding="utf-8").write(text)', ["CHANGELOG"]),
        ("with open('a.py', 'a') as f: f.write('x')", ["a.py"]),
        ("Path('src/a.py').write_text(text)", ["src/a.py"]),
        ('p = pathlib.Path("a.py")\ns = p.read_text()\np.write_text(s)', ["a.py"]),
        ("p='a.py'; s=open(p).read()\nopen(p,'w').write(s)", ["a.py"]),
        ('text = open("a.py").read(); open(name, "w").write(text)', []),
        ('print(open("a.py", "r").read())', []),
        ('(Path("out") / "a.txt").write_text(text)', []),
        ('Path("a.md").with_suffix(".html").write_text(text)', []),
        ('p = "a.py"\n(root / p).write_text(p)', []),
        ('p = "a.py"\nPath(p).write_text(p)', ["a.py"]),
    ],
)
def test_a_script_of_python_changes_the_files_that_it_writes(script: str, files: list[str]) -> None:
    """Seen live: what such a script had changed was in no note, and its old text stood there as that of the file."""
    for start in ("python - <<'P'", "cd x && python3 <<P"):
        command = f"{start}\nimport io\n{script}\nP\nmake"
        assert [path for path, _ in guessed(done("bash", command=command))] == files
    assert guessed(done("bash", command=f"cat <<'P'\n{script}\nP\nmake")) == []


@pytest.mark.rows("S0-55")
def test_scripts_without_an_end_are_read_once() -> None:
    """Here-documents without their last line: a shell takes all that follows for the script."""
    command = "python <<P\n" * 3_000 + "open('a.py', 'w')"
    with within(0.5):
        assert ("a.py", FileAction.MODIFIED) in guessed(done("bash", command=command))


def test_a_shell_in_a_script_is_looked_into() -> None:
    """Codex' code mode: JavaScript that calls the shell."""
    script = 'const r = await tools.exec_command({"cmd": "printf \'x\\\\n\' > notes.txt"});\ntext(r.output);'
    assert guessed(raw("exec", script, "Script completed")) == [("notes.txt", MODIFIED)]


FAILURES = [
    "Error: old_string not found in a.py",
    "ERROR:\nNo replacement was performed, old_str `x` did not appear verbatim.",
    "<tool_use_error>File has not been read yet.</tool_use_error>",
    "Exit code 1\ncat: a.py: No such file",
    "Chunk ID: 1\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\n",
    "x\n\n[Command failed with exit code 1]",
    '{"returncode": 1, "output": ""}',
    '{"success": false, "error": "no such file"}',
    '[{"query": "a.py", "result": "", "error": "gone", "success": false}]',
    "Failed to write a.py",
    "OBSERVATION:\nError: no such file",
    "Task not found",
    "The user doesn't want to proceed with this tool use.",
    "[Request interrupted by user]",
    "FileNotFoundError: [Errno 2] No such file or directory: 'a.py'",
    "Could not find the text to replace",
]
CONTENTS = [
    "",
    "ok",
    "File created successfully at: a.py",
    "     1\timport errors\n     2\traise ValueError('Error: x')",
    "def f():\n    return 'failed to open'",
    "# Error handling\n\nErrors are values.",
    "Errors are handled in errors.py",
    "exit status 0",
    "5 passed\n\n[Command succeeded with exit code 0]",
    '{"name": "app", "error": null}',
    "<path>a.py</path>\n<content>\nraise Error\n</content>",
    "The process exits with exit code 1 when the file is missing; see the manual.",
    "Error: " + "a log line that goes on and on\n" * 400,
]


@pytest.mark.rows("S1-104")
@pytest.mark.parametrize("result", FAILURES)
def test_a_call_that_failed_touched_nothing(result: str) -> None:
    """S1-104: a failed write is not listed."""
    assert call_failed(done("write", result, path="a.py"))
    assert seen(done("write", result, path="a.py")) == []


@pytest.mark.parametrize("result", CONTENTS)
def test_a_content_that_mentions_an_error_is_none(result: str) -> None:
    assert not call_failed(done("read", result, path="a.py"))


def test_a_result_is_looked_at_once_however_often_it_is_asked_about() -> None:
    told = "Error: nothing like it was told before"
    misses = results._cached_is_failure_text.misses

    assert all(call_failed(done("read", told, path=path)) for path in ("a.py", "b.py", "c.py"))
    assert results._cached_is_failure_text.misses == misses + 1


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ("x" * results.MAX_CACHED_RESULT_LENGTH + " and more", False),
        ("x" * results.MAX_CACHED_RESULT_LENGTH + "\n[exit code 3]", True),
    ],
)
def test_no_long_result_is_held_by_what_is_remembered_of_it(told: str, wrong: bool) -> None:
    held = len(results._cached_is_failure_text)

    assert call_failed(done("read", told, path="a.py")) is wrong
    assert len(results._cached_is_failure_text) == held


def test_a_call_that_was_never_answered_is_not_listed() -> None:
    assert seen(done("write", "", path="a.py", answered=False)) == []


def test_of_several_files_asked_for_in_one_call_only_those_that_came_are_listed() -> None:
    came = '[{"query":"a.py","result":"x","success":true},{"query":"b.py","result":"","error":"gone","success":false}]'
    assert seen(done("read_files", came, files=[{"path": "a.py"}, {"path": "b.py"}])) == [("a.py", READ)]


def test_each_file_is_told_once_for_each_thing_done_to_it() -> None:
    made = [done("edit", path="a.py", oldText="x")] * 3
    assert observe_files(step(*made, done("read", path="a.py")), DEFAULT_TOOL_ROLES) == (
        ObservedFile("a.py", MODIFIED),
        ObservedFile("a.py", READ),
    )


# ---------------------------------------------------------------------------------------------------- by what is stored
@pytest.mark.rows("S0-16")
def test_each_path_of_a_frame_is_listed_once_in_order_and_changed_beats_read() -> None:
    """S0-16."""
    talk = LedgerBuilder()
    talk.client("user", "go")
    made = (
        call("1", "read", filePath="a.py"),
        call("2", "read", filePath="b.py"),
        call("3", "edit", filePath="a.py"),
        call("4", "read", filePath="a.py"),
        call("5", "stack_recall", ref="x", path="c.py"),
        call(
            "6", "exec_command", cmd="sed -i s/a/b/ a.py README.md && mv t.md n.md && touch gone && rm gone; cat s.md"
        ),
    )
    talk.model(("", made))
    for number in "12346":
        talk.client("tool", "done", answers=number)

    by_command = ("README.md (changed by command)", "n.md (changed by command)", "s.md (read)")
    assert touched_file_labels(talk.story.entries) == ("a.py (changed)", "b.py (read)", *by_command)
    assert changed_paths_of(talk.story.entries) == ("a.py",)


@pytest.mark.rows("S1-104", "D10")
def test_a_stored_write_counts_once_its_result_confirms_it() -> None:
    """S1-104: failed and unanswered calls are no artifacts; a call id that comes again is another call."""
    talk = LedgerBuilder()
    talk.client("user", "go")
    talk.model(("", (call("1", "write", path="a.py"), call("2", "write", path="b.py"))))
    talk.client("tool", "Error: disk full", answers="1")
    talk.model(("", (call("1", "write", path="c.py"),)))
    talk.client("tool", "ok", answers="1")

    assert changed_paths_of(talk.story.entries) == ("c.py",)


def test_the_files_of_a_call_alone_are_those_it_names_for_sure() -> None:
    assert files_touched_by(call("1", "editor", path="a.py", old_text="x")) == (FileAccess("a.py", "changed"),)
    assert files_touched_by(call("1", "str_replace_editor", command="view", path="a.py")) == (
        FileAccess("a.py", "read"),
    )
    assert files_touched_by(call("1", "bash", command="cat a.py > b.py")) == ()


@pytest.mark.parametrize(
    ("line", "result", "read"),
    [
        ("cd app && sed -n '1,80p' src/a.py; echo --; head -n 20 b.md", "text", ["src/a.py", "b.md"]),
        ("cd docs/api && sed -n 2p ../a.md && grep -n total ../../src/b.py", "text", ["docs/a.md", "src/b.py"]),
        ("cat a.py b.py | grep -n total | head -5 && nl -ba c.go | sed -n 3,9p", "text", ["a.py", "b.py", "c.go"]),
        ("rg -n 'def total' -A 3 src/a.py && tail -40 log.txt", "text", ["src/a.py", "log.txt"]),
        ("git log | head -5; rg total src; grep -rn total src/a.d; cat *.py; cat $F", "text", []),
        ("cat a.py > b.py; cat c.py | wc -l; cat d.py | python3 -", "text", []),
        ("awk 'NR>=10 && NR<=40' a.py; awk '{print $1}' b.csv", "text", ["a.py"]),
        ("cat a.py || cat b.py; cat c.py 2>/dev/null || true", "text", []),
        ("cat a.py; cat b.py", "x = 1\ncat: b.py: No such file or directory", ["a.py"]),
        ("cat a.py", "", []),
    ],
)
def test_a_file_that_a_command_shows_was_read(line: str, result: str, read: list[str]) -> None:
    shown = [path for path, how in guessed(done("bash", result, command=line)) if how is READ]
    assert shown == read


@pytest.mark.parametrize(
    "line",
    [
        "cat << 'A' " + "<<'A' >a " * 21_000,
        "cat <<'E' > a.py " * 11_000,
        "cat <<'E' ;" * 16_000,
        "python3 - <<'EOF'\n" + "open('a/b.py','w').write('x')\nfoo = Path('src/x.py')\n" * 3_800 + "EOF\n",
    ],
    ids=["redirections", "cats", "many cats", "script"],
)
def test_a_long_command_is_read_once_by_all_who_ask(line: str) -> None:
    """One of 190 KB held the event loop for 100 ms: nine observers asked for its commands, and each read them anew."""
    execution = done("bash", "ok", command=line)
    with within(0.15):
        for _ in range(9):
            observe(step(execution), DEFAULT_TOOL_ROLES)
