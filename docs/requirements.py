"""Prints the table of requirements: what each row asks for, where in the code it is, and which tests show it.

    python docs/requirements.py            write docs/requirements.md
    python docs/requirements.py --check    print what is wrong with the table, and exit with 1 if anything is

`docs/requirements.toml` has the rows. Tests name the rows that they show with `@pytest.mark.rows("X-01")` on a test, or
with `pytestmark` on a module. The script reads tests as syntax trees and runs none of them. A row without a test needs
a reason, and a row with a test may have none. Whether a test really shows its row is for the reader to judge.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[1]
DATA = "docs/requirements.toml"
PAGE = "docs/requirements.md"
MARK = "pytest.mark.rows"
SHOWN = 3
"""Tests that the page names for a row. Search the tests for the row's id to find all of them."""
OUTSIDE = (
    "tests/scenarios/",
    "tests/requirements/",
    "tests/crash/",
    "tests/wire/",
    "tests/cli/",
    "tests/management/api/",
)
"""Folders of tests that use the product as its users do."""

SECTIONS = {
    "X": "Foundations: what a proxy must first find out by itself",
    "S0": "Frames: the call stack of an agent",
    "S1": "State, budgets, tools, autonomy, and the block",
    "S2": "Branches, what is kept, time, and search",
    "S3": "Small views, loops, crashes",
    "S4": "One turn: streaming, overflow, pruning, queue, cancelling",
    "C": "Where the sources disagree, and the reading that was followed",
    "D": "Defects of the originals that are not repeated",
}
"""The tables of `docs/requirements.toml` in the order of the page, with their headings."""

OPENING = """\
# Requirements

Everything that this project set out to have. A row says what is required, in which module to begin reading, and which
tests show it: at most three, first those that use the product as its users do, and of them those that show
little else. Search `tests/` for the id to find the others. A row without a test has a reason.

`docs/requirements.py` prints this page from `docs/requirements.toml` and from the marks of the tests. To change
it, change those, then run

    python docs/requirements.py
"""


@dataclass(frozen=True)
class Row:
    """A row of the table. `where` is a path in the project, or empty; `but` says what differs from a reader's
    expectation; `why` says why there is no test."""

    what: str
    where: str = ""
    but: str = ""
    why: str = ""


@dataclass(frozen=True)
class Test:
    """A test, or all tests of a file if `name` is empty, with the ids of the rows that it shows."""

    file: str
    name: str
    shows: tuple[str, ...]


def rows_in(text: str) -> dict[str, dict[str, Row]]:
    """The rows of each section, by id, in the order of the file. Raises TypeError for a key that no row has."""
    return {
        section: {name: Row(**told) for name, told in rows.items()} for section, rows in tomllib.loads(text).items()
    }


def tests_in(house: Path) -> Iterator[Test]:
    """Every test with its marks, in the order of file names."""
    for file in sorted(house.glob("tests/**/test_*.py")):
        tree = ast.parse(file.read_text())
        where = file.relative_to(house).as_posix()
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
                yield Test(where, "", tuple(_ids(ast.walk(statement.value))))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield Test(where, node.name, tuple(_ids(node.decorator_list)))


def _ids(marks: Iterable[ast.AST]) -> Iterator[str]:
    for mark in marks:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARK:
            yield from (str(each.value) if isinstance(each, ast.Constant) else ast.unparse(each) for each in mark.args)


def by_row(tests: Iterable[Test]) -> dict[str, list[Test]]:
    """The tests of each row: first those in `OUTSIDE`, and of them those with the fewest rows."""
    found: dict[str, list[Test]] = defaultdict(list)
    for test in tests:
        for row in test.shows:
            found[row].append(test)
    return {row: sorted(shown, key=_telling) for row, shown in found.items()}


def _telling(test: Test) -> tuple[bool, int, str, str]:
    return not test.file.startswith(OUTSIDE), len(test.shows), test.file, test.name


def printed(sections: Mapping[str, Mapping[str, Row]], shown: Mapping[str, Sequence[Test]]) -> str:
    """The text of the page."""
    lines = [OPENING.rstrip()]
    for section, rows in sections.items():
        lines += ["", f"## {section}. {SECTIONS[section]}", "", "| id | what | where | shown by |", "|---|---|---|---|"]
        lines += [_line(name, row, shown.get(name, ())) for name, row in rows.items()]
    return "\n".join(lines) + "\n"


def _line(name: str, row: Row, tests: Sequence[Test]) -> str:
    where = f"`{row.where}`" if row.where else ""
    what = f"{row.what}. But: {row.but}" if row.but else row.what
    named = "<br>".join(f"`{test.file}`" + (f" {test.name}" if test.name else "") for test in tests[:SHOWN])
    return f"| {name} | {what} | {where} | {named or f'no test: {row.why}'} |"


def faults(house: Path, sections: Mapping[str, Mapping[str, Row]], tests: Sequence[Test], page: str) -> Iterator[str]:
    """What is wrong with the table, as sentences."""
    rows = {name: row for section in sections.values() for name, row in section.items()}
    shown = by_row(tests)
    for section in sections.keys() - SECTIONS.keys():
        yield f"{DATA}: section {section} has no heading; add it to SECTIONS."
    for test in tests:
        for name in test.shows:
            if name not in rows:
                yield f"{test.file} {test.name}: marked with {name}, which is no row of {DATA}."
    for name, row in rows.items():
        if name not in shown and not row.why:
            yield f"{DATA}: {name} has no test; mark one with it, or say why there is none."
        if name in shown and row.why:
            yield f"{DATA}: {name} has a test, {shown[name][0].name}; take out why there was none."
        if row.where and not (house / row.where).exists():
            yield f"{DATA}: {name} is said to be in {row.where}, which does not exist."
        if not row.where and not row.why:
            yield f"{DATA}: {name} does not say where it is."
    if not (sections.keys() - SECTIONS.keys()) and page != printed(sections, shown):
        yield f"{PAGE} is not what the rows and the tests say; run `python docs/requirements.py`."


def main(arguments: Sequence[str], house: Path = HOUSE) -> int:
    """Return the exit code: 1 if `--check` found something wrong."""
    parser = argparse.ArgumentParser(description="Prints the table of requirements.")
    parser.add_argument("--check", action="store_true", help="write nothing, and say what is wrong")
    asked = parser.parse_args(arguments)
    sections = rows_in((house / DATA).read_text())
    tests = list(tests_in(house))
    if not asked.check:
        (house / PAGE).write_text(printed(sections, by_row(tests)))
        return 0
    found = list(faults(house, sections, tests, (house / PAGE).read_text()))
    sys.stderr.write("".join(f"{fault}\n" for fault in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
