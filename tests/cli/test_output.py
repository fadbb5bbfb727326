"""How lines and tables are fitted to the terminal."""

import pytest

from callstack_proxy.cli.output import align_columns, format_dollars, wrap_text
from proxy.core.text import cell_width, cut_at_word


def lines(text: str, width: int) -> list[str]:
    return list(wrap_text(text, width))


def test_a_long_line_goes_on_below_between_two_words() -> None:
    assert lines("one two three four", 10) == ["one two", "  three", "  four"]
    assert lines("short\n\nlines stay", 10) == ["short", "", "lines stay"]
    assert list(wrap_text("one two three four", None)) == ["one two three four"]


def test_what_goes_on_is_indented_as_its_line_is() -> None:
    assert lines("    one two three", 12) == ["    one two", "      three"]


def test_the_branches_of_a_tree_go_on_beside_what_goes_on() -> None:
    assert lines("│  ├─ ✓ Find the layout", 16) == ["│  ├─ ✓ Find the", "│  │    layout"]
    assert lines("│  └─ ✓ Find the layout", 16) == ["│  └─ ✓ Find the", "│       layout"]


def test_words_between_gaps_stay_together() -> None:
    assert lines("✓ completed  → in progress  ○ planned", 30) == ["✓ completed  → in progress", "  ○ planned"]


def test_the_words_of_a_mark_stay_together() -> None:
    assert lines("├─ ✓ A task [f1] request, put away", 31) == ["├─ ✓ A task [f1] request,", "│    put away"]
    assert lines("one two three brought back", 20) == ["one two three", "  brought back"]


def test_a_word_longer_than_the_line_stays_whole_to_be_copied() -> None:
    assert lines("see http://127.0.0.1:8787/v1 there", 12) == ["see", "  http://127.0.0.1:8787/v1", "  there"]


def test_wide_characters_take_two_cells() -> None:
    assert cell_width("請求書 e\u0301 📦") == 6 + 1 + 1 + 1 + 2
    assert cut_at_word("請求書を直す", 7) == "請求書…"
    assert [cell_width(line.partition("|")[0]) for line in align_columns([("請求書", "|"), ("rate", "|")])] == [8, 8]


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("Make the suite green", 20, "Make the suite green"),
        ("Make the suite green", 19, "Make the suite…"),
        ("Make the suite, then rest", 17, "Make the suite…"),
        ("reads logs/nightly-17.log", 23, "reads logs/nightly-17…"),
        ("incomprehensibilities", 10, "incompreh…"),
    ],
)
def test_a_text_is_cut_after_a_word_or_a_part_of_a_long_one(text: str, limit: int, cut: str) -> None:
    assert cut_at_word(text, limit) == cut


def test_a_text_in_a_table_goes_on_in_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    rows = [("port", "8787 is in use by another program"), ("data", "fine")]

    assert align_columns(rows) == ["port  8787 is in use by\n      another program", "data  fine"]
    assert align_columns(rows, cuts=True)[0] == "port  8787 is in use by…"


def test_amounts_that_stand_together_have_the_same_decimals() -> None:
    assert [format_dollars(amount) for amount in (0.05, 12.4, -0.05)] == ["$0.0500", "$12.40", "-$0.0500"]
    assert [format_dollars(amount, (12.4,)) for amount in (0.05, 12.4, -0.05, -0.001)] == [
        "$0.05", "$12.40", "-$0.05", "$0.00",
    ]  # fmt: skip
