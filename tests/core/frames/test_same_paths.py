"""One file has one name, however its calls spell it."""

import pytest

from proxy.core.frames import one_spelling


@pytest.mark.rows("S0-55")
@pytest.mark.parametrize(
    ("paths", "spelled"),
    [
        (["/repo/src/a.py", "src/a.py"], ["/repo/src/a.py"] * 2),
        (["src/a.py", "/repo/src/a.py", "./src/a.py"], ["/repo/src/a.py"] * 3),
        (["a.py", "./a.py"], ["a.py"] * 2),
        ([r"C:\repo\src\a.py", "src/a.py"], [r"C:\repo\src\a.py"] * 2),
        (["/repo/x/a.py", "/repo/y/a.py", "a.py"], ["/repo/x/a.py", "/repo/y/a.py", "a.py"]),
        (["/repo/x/a.py", "/repo/y/a.py", "y/a.py"], ["/repo/x/a.py", "/repo/y/a.py", "/repo/y/a.py"]),
        (["/repo/data.py", "a.py"], ["/repo/data.py", "a.py"]),
        (["src/a.py", "a.py"], ["src/a.py", "a.py"]),
    ],
)
def test_a_relative_path_is_the_only_absolute_one_that_ends_with_it(paths: list[str], spelled: list[str]) -> None:
    assert [one_spelling(paths)[path] for path in paths] == spelled
