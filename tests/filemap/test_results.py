"""The lines of a file inside the result of a read, in the forms in which clients are known to send them."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from callstack_proxy.filemap.changes import MAX_CONTENT_LENGTH, parse_read_result

CODE = ("def one():", "    return 1", "", "def two():")
TABBED = "\n".join(f"{n}\t{line}" for n, line in enumerate(CODE, 1))
ARROWS = "\n".join(f"{n:>6}→{line}" for n, line in enumerate(CODE, 1))
COLONS = "\n".join(f"{n}: {line}" for n, line in enumerate(CODE, 1))
BARS = "\n".join(f"{n} | {line}" for n, line in enumerate(CODE, 1))
BARE = "\n".join(CODE)
REMINDER = "\n\n<system-reminder>\nDo not improve it.\n</system-reminder>\n"


@pytest.mark.rows("S2-23")
@pytest.mark.parametrize(
    "result",
    [
        BARE,
        TABBED,
        ARROWS,
        BARS,
        ARROWS.replace("\n", "\r\n"),
        ARROWS + REMINDER,
        TABBED + REMINDER + REMINDER,
        f"<path>src/a.py</path>\n<type>file</type>\n<content>\n{COLONS}\n\n(End of file - total 4 lines)\n</content>",
        f"<file>\n{COLONS}\n</file>",
        f"<content>\n{BARE}\n</content>",
        f"```python\n{BARE}\n```",
        f"Here's the result of running `cat -n` on src/a.py:\n{TABBED}",
    ],
)
def test_what_a_client_puts_around_a_file_is_not_taken_for_its_content(result: str) -> None:
    shown = parse_read_result(result)

    assert shown.lines == CODE
    assert shown.numbers == (1, 2, 3, 4)
    assert shown.is_complete


@pytest.mark.parametrize(
    ("result", "first", "numbers"),
    [
        ("   40→def one():\n   41→    return 1", 40, (40, 41)),
        ("40: def one():\n41:     return 1", 0, (40, 41)),
        ("def one():\n    return 1", 40, (40, 41)),
        ("def one():\n    return 1", 1, (1, 2)),
        ("def one():\n    return 1\n[98 more lines in file. Use offset=3 to continue.]", 0, (1, 2)),
        ("def one():\n    return 1\n\n... (102 more lines not shown. Use offset=3 to continue reading)", 0, (1, 2, 3)),
        ("Showing lines 1-2 of 300 total lines.\n\n---\n\ndef one():\n    return 1", 0, (1, 2)),
        ("Showing lines 41-42 of 300 total lines.\n\n---\n\ndef one():\n    return 1", 40, (41, 42)),
        ("1\tdef one():\n2\t    return 1\n(File has more lines. Use 'offset' to read beyond line 2)", 0, (1, 2)),
    ],
)
def test_a_part_of_a_file_is_known_to_be_one(result: str, first: int, numbers: tuple[int, ...]) -> None:
    shown = parse_read_result(result, first)

    assert shown.lines[:2] == ("def one():", "    return 1")
    assert shown.numbers == numbers
    assert not shown.is_complete


@pytest.mark.parametrize(
    "text",
    [
        "1: one\n1: two\n1: three\n7: four",
        "10: ten\nnothing\n20: twenty\nnothing\nnothing",
        "# Notes\n\n1. first\n2. second",
        "<html>\n<body>\n</body>\n</html>",
    ],
)
def test_what_only_looks_like_a_number_is_content(text: str) -> None:
    assert parse_read_result(text).lines == tuple(text.split("\n"))


def test_of_a_result_without_an_end_the_beginning_is_looked_at() -> None:
    """One line of 10 MB, and as many lines of nothing."""
    for text in ("x" * 10_000_000, "\n" * 10_000_000, "1\t" * 5_000_000, "<system-reminder>" * 500_000):
        shown = parse_read_result(text)

        assert sum(map(len, shown.lines)) <= MAX_CONTENT_LENGTH
        assert not shown.is_complete


PIECES = some.sampled_from(
    ["1", "2", "\n", "\t", "→", " | ", ": ", " ", "x", "<file>", "</content>", "```", "---", "Showing lines 3-4 of 9",
     "<system-reminder>", "</system-reminder>", "(End of file - total 5 lines)", "\r", "\x00", "\ud800", "é"]
)  # fmt: skip


@given(some.lists(PIECES, max_size=60).map("".join), some.integers(0, 100))
def test_whatever_a_result_is_its_lines_have_numbers_that_rise(text: str, first: int) -> None:
    shown = parse_read_result(text, first)

    assert len(shown.numbers) == len(shown.lines)
    assert list(shown.numbers) == sorted(set(shown.numbers))
    assert not any("\n" in line for line in shown.lines)
