"""Files as far as they were seen: what calls and results tell of them, laid over each other."""

from typing import Any

import pytest

from callstack_proxy.filemap.changes import MAX_CONTENT_LENGTH
from callstack_proxy.filemap.contents import MAX_FILES, MAX_UNPLACED_TEXTS, newest_files
from tests.filemap.talks import Files

FIVE = "one\ntwo\nthree\nfour\nfive"
PATCH = """*** Begin Patch
*** Add File: new.py
+def made():
+    return 1
*** Update File: shop.py
@@
 one
-two
+TWO
+more
 three
*** Delete File: gone.py
*** End Patch"""


def read() -> Files:
    return Files().done("read", FIVE, path="shop.py")


@pytest.mark.rows("S2-23")
def test_the_newest_content_wins() -> None:
    files = read().done("write", path="shop.py", content="all\nnew")

    assert files.lines("shop.py") == {1: "all", 2: "new"}
    assert files.files["shop.py"].is_complete


@pytest.mark.rows("S2-23")
def test_parts_are_put_together_by_their_line_numbers() -> None:
    files = Files().done("read", "10\tten\n11\televen", path="a.py", offset=10, limit=2)
    files.done("read", "11\tELEVEN\n12\ttwelve", path="a.py", offset=11, limit=2).done(
        "read", "1\tone", path="a.py", limit=1
    )

    assert files.lines("a.py") == {1: "one", 10: "ten", 11: "ELEVEN", 12: "twelve"}
    assert not files.files["a.py"].is_complete


@pytest.mark.parametrize(
    "arguments",
    [
        {"oldString": "two", "newString": "2\n2.5"},
        {"old_string": "two", "new_string": "2\n2.5"},
        {"edits": [{"oldText": "two", "newText": "2\n2.5"}]},
    ],
)
def test_an_edit_is_made_where_its_old_text_stands_and_moves_what_is_below(arguments: dict[str, Any]) -> None:
    files = read().done("edit", path="shop.py", **arguments)

    assert files.lines("shop.py") == {1: "one", 2: "2", 3: "2.5", 4: "three", 5: "four", 6: "five"}


def test_an_edit_moves_parts_further_below_too() -> None:
    files = Files().done("read", "1\tone\n2\ttwo", path="a.py", limit=2).done("read", "9\tnine", path="a.py", offset=9)

    files.done("edit", path="a.py", oldString="two", newString="2\n2.5")

    assert files.lines("a.py") == {1: "one", 2: "2", 3: "2.5", 10: "nine"}


def test_everywhere_means_everywhere_and_otherwise_once() -> None:
    for everywhere, wanted in ((True, "b b"), (False, "b a")):
        files = Files().done("read", "a a", path="x.py")
        assert files.done("edit", path="x.py", old_string="a", new_string="b", replace_all=everywhere).lines(
            "x.py"
        ) == {1: wanted}


def test_what_is_put_into_a_file_that_was_never_read_is_kept_without_a_place() -> None:
    files = Files().done("edit", path="far.py", old_string="old", new_string="def put():\n    pass")
    assert files.loose("far.py") == ["def put():", "    pass"]
    files.done("edit", path="far.py", old_string="pass", new_string="return 2")
    assert files.loose("far.py") == ["def put():", "    return 2"]
    files.done("str_replace_editor", command="insert", path="far.py", insert_line=3, new_str="x = 1")
    assert files.loose("far.py") == ["def put():", "    return 2", "x = 1"]


def test_a_patch_makes_changes_and_takes_away() -> None:
    files = read().done("read", "bye", path="gone.py").raw("apply_patch", PATCH)

    assert files.lines("new.py") == {1: "def made():", 2: "    return 1"}
    assert files.lines("shop.py") == {1: "one", 2: "TWO", 3: "more", 4: "three", 5: "four", 6: "five"}
    assert "gone.py" not in files.files


@pytest.mark.parametrize("name", ["exec_command", "shell"])
def test_a_patch_on_a_command_line_is_one_too(name: str) -> None:
    files = read().done(name, command=f"apply_patch <<'EOF'\n{PATCH}\nEOF")

    assert files.lines("shop.py")[2] == "TWO"


def test_a_file_that_moved_is_known_by_its_new_path() -> None:
    files = read().done("move_file", source="shop.py", destination="market.py")
    assert (list(files.files), files.lines("market.py")[1]) == (["market.py"], "one")
    assert list(files.done("delete_file", path="market.py").files) == []


def test_what_failed_or_says_nothing_is_no_content() -> None:
    files = read()
    files.done("read", "Error: no such file", path="shop.py")
    files.done("read", "File unchanged since your last read. Refer to that earlier result.", path="shop.py")
    files.done("edit", "Error: old_string not found", path="shop.py", old_string="one", new_string="1")
    files.done("bash", "shop.py: something", command="grep -rn something .")

    assert files.lines("shop.py")[1] == "one"
    assert list(files.files) == ["shop.py"]


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("cat shop.py", 1),
        ("cd src && cat shop.py", 1),
        ("sed -n '3,4p' shop.py", 3),
        ("head -n 2 shop.py", 1),
        (["bash", "-lc", "cat shop.py"], 1),
    ],
)
def test_a_command_that_only_prints_a_file_is_a_read(command: object, first: int) -> None:
    assert Files().done("shell", "def a():\n    pass", command=command).lines("shop.py") == {
        first: "def a():",
        first + 1: "    pass",
    }


@pytest.mark.parametrize(
    "command",
    ["cat a.py b.py", "cat a.py | wc", "cat > a.py", "cat <<EOF\nx\nEOF", "sed -n /x/p a.py", "sed -i s/a/b/ a.py",
     "tail -3 a.py", "head -c 3 a.py", "cat a.py; ls", "cat", "wc a.py"],
)  # fmt: skip
def test_any_other_command_tells_no_content(command: str) -> None:
    assert Files().done("bash", "def a():\n    pass", command=command).files == {}


def test_a_read_of_several_files_says_which_content_is_whose() -> None:
    parts = '[{"query":"a.py","result":"1 | x = 1","success":true},{"query":"b.py","result":"gone","success":false}]'
    files = Files().done("read_files", parts, files=[{"path": "a.py"}, {"path": "b.py"}])
    assert {path: files.lines(path) for path in files.files} == {"a.py": {1: "x = 1"}}
    assert Files().done("read_many_files", "x = 1\ny = 2", paths=["a.py", "b.py"]).files == {}


def test_both_forms_of_a_path_are_one_file() -> None:
    files = (
        Files()
        .done("read", FIVE, path="/workspace/src/shop.py")
        .done("edit", path="src/shop.py", old_string="one", new_string="1")
    )

    assert list(files.files) == ["/workspace/src/shop.py"]
    assert files.lines("/workspace/src/shop.py")[1] == "1"


def test_no_file_and_no_number_of_files_is_kept_without_a_bound() -> None:
    files = Files()
    for n in range(MAX_FILES + 5):
        files.done("write", path=f"dir/f{n}.py", content="x = 1")
    files.done("write", path="big.py", content="x" * 10_000_000)
    for n in range(MAX_UNPLACED_TEXTS + 5):
        files.done("edit", path="loose.py", old_string=f"no {n}", new_string=f"line {n}")

    seen = files.files
    assert len(seen) == MAX_FILES
    assert sum(map(len, seen["big.py"].lines)) <= MAX_CONTENT_LENGTH
    assert not seen["big.py"].is_complete
    assert len(seen["loose.py"].lines) == MAX_UNPLACED_TEXTS
    assert [file.path for file in newest_files(files.contents.files, 2_000)] == ["loose.py"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("read", "not json"),
        ("read", "[1, 2]"),
        ("read", '{"path": 7}'),
        ("read", '{"path": "a.py", "offset": "x", "view_range": [null]}'),
        ("write", '{"path": "a.py", "content": {"a": 1}}'),
        ("edit", '{"path": "a.py", "edits": [1, null, {"oldText": 3}]}'),
        ("edit", '{"path": "a.py", "edits": "x"}'),
        ("apply_patch", "*** Update File: \n@@\n-x"),
        ("apply_patch", "*** Move to: b.py\n+x"),
        ("move_file", '{"source": "a.py"}'),
        ("bash", '{"command": "sed -n \'99999999p\' a.py"}'),
        ("bash", '{"command": {"a": []}}'),
    ],
)
def test_arguments_that_make_no_sense_tell_nothing_and_break_nothing(name: str, arguments: str) -> None:
    for result in ("ok", '[{"success": true}]', "", "\ud800"):
        contents = Files().raw(name, arguments, result).contents
        assert all(len(file.numbers) == len(file.lines) for file in contents.files)
