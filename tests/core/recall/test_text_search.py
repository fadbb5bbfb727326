"""Searching stored texts: every fact is found, in whole lines of the original, within one page."""

import json
import re
from random import Random
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.recall.pages import PageSize, pages_of
from proxy.core.recall.stored_texts import StoredPiece
from proxy.core.recall.text_search import (
    LINES_AROUND_HIT,
    MAX_PASSAGE_LINES,
    SearchHits,
    line_windows,
    pieces_with_all_words,
    search,
    search_closest,
)
from tests.core.forest import call, count

SIZE = PageSize(1_840, 7_840)


def said(text: str, entry: str = "e", role: str = "tool") -> StoredPiece:
    return StoredPiece("froot", entry, entry, "froot#1", role, "", text)


def called(name: str = "write", **arguments: object) -> StoredPiece:
    made = call("k", name, **arguments)
    return StoredPiece("froot", "c", "c", "froot#1", "assistant", f"call {name}", made.arguments, made)


def several(*texts: str) -> list[StoredPiece]:
    return [said(text, f"e{at}") for at, text in enumerate(texts)]


def found(pieces: list[StoredPiece], query: str) -> list[str]:
    return [p.text for p in search(pieces, query, count, SIZE).passages]


# ---------------------------------------------------------------------------------------------------------------- order
def test_words_as_they_were_written_come_before_other_spellings() -> None:
    pieces = several("the Port is open", "a PORT", "a report", "a port")

    assert found(pieces, "port") == ["a port", "a report", "a PORT", "the Port is open"]


def test_words_that_stand_together_come_before_words_apart() -> None:
    pieces = several("port number", "number of the port", "port   number")

    assert found(pieces, "port number") == ["port number", "port   number", "number of the port"]


def test_of_equal_texts_the_newest_is_given_once() -> None:
    """The same file, read twice."""
    pieces = several("x = 1", "other", "x = 1")

    assert [p.entry_ref for p in search(pieces, "x =", count, SIZE).passages] == ["e2"]


def test_a_text_too_long_for_a_page_comes_behind_those_that_fit() -> None:
    pieces = [called(content="needle " * 3_000), said("a needle")]

    assert found(pieces, "needle")[0] == "a needle"


def test_on_a_page_the_places_of_a_text_stand_in_the_order_of_its_lines() -> None:
    """A stretch of a line without breaks too; what fits best says where the text stands."""
    stretch = replace(said("a stretch of it", "e1"), lines="80, characters 1-15")
    late, early = (replace(said(f"lines {lines}", "e0"), lines=lines) for lines in ("900-920", "20-31"))
    other = replace(said("another text", "e2"), lines="5-9")

    (page,) = pages_of([late, stretch, other, early], SIZE, "n", count)

    assert [part.piece for part in page] == [early, late, stretch, other]


# ---------------------------------------------------------------------------------------------------------------- words
def test_quotes_around_a_query_only_hold_it_together() -> None:
    assert found(several('he said "no entry" twice'), '"no entry"') == ['he said "no entry" twice']


def test_arguments_are_found_as_they_read_and_given_as_they_are() -> None:
    """JSON escapes what a model knows without escapes."""
    piece = called(content='print("hello")\nexit()\n')

    assert found([piece], 'print("hello")') == [piece.text]
    assert found([piece], "write") == [piece.text]


def test_broken_arguments_are_searched_as_they_are() -> None:
    made = StoredPiece("f", "c", "c", "f#1", "assistant", "call x", '{"a": "\\', call("k", "x"))

    assert found([made], '"a"') == [made.text]


@pytest.mark.parametrize("query", ["", "   ", '""'])
def test_a_query_without_words_finds_nothing(query: str) -> None:
    assert search(several("x"), query, count, SIZE) == SearchHits((), 0)
    assert search_closest(several("x"), query, count, SIZE) == SearchHits((), 0)
    assert pieces_with_all_words(several("x"), query) == ()


def test_where_nothing_has_all_words_rare_words_tell_what_is_close() -> None:
    pieces = several("the login of the shop", "the shop", "the shop is open", "a shop")

    assert [p.text for p in search_closest(pieces, "shop login flow", count, SIZE).passages] == [
        "the login of the shop"
    ]


# ------------------------------------------------------------------------------------------------------------- passages
def test_a_text_is_shown_whole_where_a_page_has_room() -> None:
    text = "".join(f"line {n} of the text\n" for n in range(100)) + "the needle\n"
    assert 300 < count(text) < SIZE.page_tokens

    assert found([said(text)], "needle") == [text]


def test_a_long_text_shows_the_lines_around_each_hit() -> None:
    lines = [f"line {n} of a long text\n" for n in range(2_000)]
    lines[100], lines[1_900] = "first needle\n", "second needle\n"

    passages = search([said("".join(lines))], "needle", count, SIZE).passages

    assert [p.text for p in passages] == ["".join(lines[96:105]), "".join(lines[1_896:1_905])]
    assert [p.lines for p in passages] == ["97-105", "1897-1905"]


def test_where_the_words_stand_together_lines_with_some_of_them_are_not_shown() -> None:
    lines = [f"port {n} of many\n" for n in range(2_000)]
    lines[1_000] = "the port number is 80\n"

    (passage,) = search([said("".join(lines))], "port number", count, SIZE).passages

    assert passage.text == "".join(lines[996:1_005])


def test_lines_end_only_where_a_line_feed_is() -> None:
    """What shows a line feed's cousins as borders would cut an original line in two."""
    lines = ["filler\n"] * 600
    lines[300] = "a\x0bb\u2028c\x85 needle \x0cd\r\n"

    (passage,) = search([said("".join(lines))], "needle", count, SIZE).passages

    assert passage.text == "".join(lines[296:305])


BODY = [f"    step_{n}()\n" for n in range(12)]
PYTHON = ["import os\n", "\n", "\n", "def pay(\n", "    cart,\n", ") -> int:\n", *BODY, "\n", "\n", "def ship():\n"]
GO = ["package a\n", "\n", "func Pay(c Cart) int {\n", *BODY, "}\n", "\n", "func Ship() {\n"]


@pytest.mark.parametrize("number", ["", "{:5}\t", "{}: "])
@pytest.mark.parametrize(("path", "lines", "first", "end"), [("a.py", PYTHON, 3, 18), ("a.go", GO, 2, 16)])
def test_a_short_function_around_a_hit_is_shown_whole(
    path: str, lines: list[str], first: int, end: int, number: str
) -> None:
    rest = [f"filler_{n} = {n}\n" for n in range(600)]
    numbered = [f"{number.format(n + 1)}{line}" for n, line in enumerate([*lines, *rest])]
    text = replace(said("".join(numbered)), source=f"read {path}", is_of_file=True)

    (passage,) = search([text], "step_5", count, SIZE).passages
    (other,) = search([replace(text, is_of_file=False)], "step_5", count, SIZE).passages

    assert passage.text == "".join(numbered[first:end])
    assert len(other.text.splitlines()) == 2 * LINES_AROUND_HIT + 1


def test_a_class_that_was_asked_for_by_name_is_shown_whole_and_not_for_a_word_in_it() -> None:
    body = [f"    word_{n}x = {n}\n" for n in range(80)]
    lines = ["x = 1\n"] * 300 + ["class Morsel(dict):\n", *body, "\n"] + ["y = 1\n"] * 300
    text = replace(said("".join(lines)), source="read a.py", is_of_file=True)

    (named,) = search([text], "class Morsel", count, SIZE).passages
    (inner,) = search([text], "word_60x", count, SIZE).passages

    assert named.text.endswith("class Morsel(dict):\n" + "".join(body))
    assert len(inner.text.splitlines()) == 2 * LINES_AROUND_HIT + 1


def test_of_a_long_function_the_lines_around_a_hit_are_shown() -> None:
    lines = ["def pay():\n", *(f"    step_{n}x()\n" for n in range(700))]
    text = replace(said("".join(lines)), source="read a.py", is_of_file=True)

    (passage,) = search([text], "step_20x", count, SIZE).passages

    assert passage.text == "".join(lines[21 - LINES_AROUND_HIT : 22 + LINES_AROUND_HIT])


def test_of_a_wide_function_the_lines_around_a_hit_are_shown() -> None:
    lines = ["def pay():\n", *(f"    step_{n}x({'amount, ' * 12})\n" for n in range(30)), *["x = 1\n"] * 300]
    text = replace(said("".join(lines)), source="read a.py", is_of_file=True)

    (passage,) = search([text], "step_20x", count, SIZE).passages

    assert passage.text == "".join(lines[21 - LINES_AROUND_HIT : 22 + LINES_AROUND_HIT])


def test_a_number_that_a_line_of_code_begins_with_is_no_number_of_the_line() -> None:
    table = ["def names():\n", "    return {\n", *(f'        {n}: "name_{n}x",\n' for n in range(20)), "    }\n"]
    text = replace(said("".join([*table, *["x = 1\n"] * 600])), source="read a.py", is_of_file=True)

    (passage,) = search([text], "name_9x", count, SIZE).passages

    assert passage.text == "".join(table)


@pytest.mark.parametrize(
    "lines", [["needle\n", " " * 100_000 + "x\n"], [f"{'  ' * (n % 40)}need needle\n" for n in range(20_000)]]
)
def test_definitions_are_found_in_time_that_does_not_grow_with_the_square_of_a_text(lines: list[str]) -> None:
    text = replace(said("".join(lines)), source="read a.ts", is_of_file=True)
    began = process_time()

    assert search([text], "needle", lambda text: len(text) // 4, SIZE).passages

    assert process_time() - began < 3


@given(st.lists(st.integers(0, 4_000), min_size=1, max_size=300), st.integers(0, 299))
def test_windows_hold_every_hit_once_and_are_bounded(lengths: list[int], step: int) -> None:
    hits = list(range(0, len(lengths), 1 + step % 7))

    shown = list(line_windows(hits, lengths))

    covered = [line for first, last in shown for line in range(first, last)]
    assert set(hits) <= set(covered)
    assert covered == sorted(set(covered))
    assert all(0 < last - first <= MAX_PASSAGE_LINES for first, last in shown)


def test_long_lines_are_shown_alone() -> None:
    lines = [f"{n} " + "wide " * 300 + "\n" for n in range(50)]
    lines[20] = "needle " + lines[20]

    (passage,) = search([said("".join(lines))], "needle", count, SIZE).passages

    assert (passage.text, passage.lines) == (lines[20], "21")


def test_a_single_line_that_one_call_may_give_is_whole() -> None:
    text = json.dumps({"content": "word " * 5_000 + "needle"})
    assert SIZE.page_tokens < count(text) < SIZE.single_text_tokens

    assert found([said(text)], "needle") == [text]


def test_of_a_line_no_call_may_give_the_stretch_around_the_hit_is_shown() -> None:
    text = "word " * 50_000 + "needle" + " word" * 50_000

    (passage,) = search([said(text)], "needle", count, SIZE).passages

    assert "needle" in passage.text
    assert passage.text in text
    assert count(passage.text) <= SIZE.page_tokens
    assert passage.lines == f"1, characters {text.index(passage.text) + 1}-" + str(
        text.index(passage.text) + len(passage.text)
    )


# ------------------------------------------------------------------------------------------------------------- property
FILLERS = ("the", "value", "of", '"', "\\", "= {", "\t", "größe", "→", "is", "wide " * 80)


def name(chance: Random) -> str:
    """A path, an identifier, a number, an error or something quoted, each unlike all others."""
    word = "".join(chance.choices("abcdefgh", k=6))
    made = (
        f"src/{word}/{word}.py",
        f"{word}_{word}",
        str(chance.randrange(10**6)),
        f"{word.title()}Error",
        f'"{word} {word}"',
    )
    return chance.choice(made)


def line(chance: Random) -> str:
    said = [name(chance) if chance.random() < 0.2 else chance.choice(FILLERS) for _ in range(chance.randrange(1, 12))]
    return " ".join(said)


@pytest.mark.rows("S0-09")
@pytest.mark.parametrize("seed", range(30))
def test_every_name_is_found_in_a_whole_line_of_the_original(seed: int) -> None:
    """S0-09: what left the context is found by what it names, whatever the texts around it."""
    chance = Random(seed)
    texts = ["\n".join(line(chance) for _ in range(chance.randrange(1, 200))) for _ in range(10)]
    pieces = [*several(*texts), called(content=texts[0][:4_000])]
    originals = {line for text in texts for line in text.split("\n")} | {p.text for p in pieces}
    names = {word for text in texts for word in re.findall(r"[\w/.]{4,}|\"\w+ \w+\"", text)}

    for sought in chance.sample(sorted(names), 10):
        shown = [line for p in search(pieces, sought, count, SIZE).passages[:5] for line in p.text.split("\n")]

        assert any(sought in line for line in shown)
        assert set(shown) - {""} <= originals
