"""One file has one name, however its calls spell it."""

import pytest

from proxy.core.frames import direct_path, is_same_file, one_spelling, telling_names, temporary_among


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("paths", "spelled"),
    [
        (["/repo/src/a.py", "src/a.py"], ["/repo/src/a.py"] * 2),
        (["src/a.py", "/repo/src/a.py", "./src/a.py"], ["/repo/src/a.py"] * 3),
        (["a.py", "./a.py"], ["a.py"] * 2),
        (["tests/x.py", "pkg/../tests/x.py", "./tests//x.py"], ["tests/x.py"] * 3),
        (["/repo/pkg/../tests/x.py", "tests/x.py", "pkg/./../tests/x.py"], ["/repo/pkg/../tests/x.py"] * 3),
        ([r"C:\repo\src\a.py", "src/a.py"], [r"C:\repo\src\a.py"] * 2),
        (["/repo/x/a.py", "/repo/y/a.py", "a.py"], ["/repo/x/a.py", "/repo/y/a.py", "a.py"]),
        (["/repo/x/a.py", "/repo/y/a.py", "y/a.py"], ["/repo/x/a.py", "/repo/y/a.py", "/repo/y/a.py"]),
        (["/repo/data.py", "a.py"], ["/repo/data.py", "a.py"]),
        (["src/a.py", "a.py"], ["src/a.py", "a.py"]),
    ],
)
def test_a_relative_path_is_the_only_absolute_one_that_ends_with_it(paths: list[str], spelled: list[str]) -> None:
    assert [one_spelling(paths)[path] for path in paths] == spelled


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("path", "direct"),
    [
        ("pkg/../tests/x.py", "tests/x.py"),
        ("./x.py", "x.py"),
        ("../x.py", "../x.py"),
        ("/repo//src/./a.py", "/repo/src/a.py"),
        (r"C:\repo\pkg\..\a.py", r"C:\repo\a.py"),
        ("src/.env", "src/.env"),
        ("src/", "src/"),
        ("https://a.example/b/../c", "https://a.example/b/../c"),
        ("", ""),
    ],
)
def test_a_path_without_detours_is_found_by_its_text(path: str, direct: str) -> None:
    assert direct_path(path) == direct


@pytest.mark.rows("S0-55")
def test_a_file_is_the_same_by_any_way_to_it() -> None:
    assert is_same_file("/repo/pkg/../tests/x.py", "tests/x.py")
    assert is_same_file("./tests/x.py", "pkg/../tests/x.py")
    assert not is_same_file("/pkg/../x.py", "/pkg/x.py")


@pytest.mark.rows("S0-55")
def test_a_file_in_a_temporary_folder_is_told_by_all_of_its_path() -> None:
    scratch = {
        "/tmp/scratch/check.py",
        "/private/var/folders/x/a.txt",
        "$TMPDIR/b",
        r"C:\Users\a\AppData\Local\Temp\c.py",
    }
    own = {"src/a.py", "tmp/d.py", "/repo/tmp/e.py", "/tmpfiles/f.py"}

    assert temporary_among(scratch | own) == scratch
    assert telling_names(scratch | own)["/tmp/scratch/check.py"] == "/tmp/scratch/check.py"
    assert (
        temporary_among({"/tmp/scratch/project/a.py", "/tmp/scratch/project/b.py"}) == frozenset()
    )  # the project is there
    assert temporary_among({"/tmp/scratch/all/project/src/a.py", "/tmp/scratch/b.py", "docs/c.md"}) == {
        "/tmp/scratch/b.py"
    }  # here too
