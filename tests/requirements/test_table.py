"""The table of requirements is what rows and tests say, it has every row that was asked for, and its script tells of
whatever is wrong with it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

HOUSE = Path(__file__).resolve().parents[2]
ASKED = HOUSE.parent / "shared" / "REQUIREMENTS.md"
ROWS = """
[X]
X-01 = { what = "Conversations are known", where = "proxy/known.py" }
X-02 = { what = "They begin", where = "proxy/known.py", but = "not by themselves" }
X-03 = { what = "They end", why = "later" }
"""
TESTS = """
import pytest

pytestmark = pytest.mark.rows("X-02")


@pytest.mark.rows("X-01")
def test_a_conversation_is_known():
    pass
"""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(HOUSE / "docs"))
    return importlib.import_module("requirements")


@pytest.fixture
def house(tmp_path: Path, table: ModuleType) -> Path:
    """A small project of three rows, one module, and one file of tests, whose page is printed."""
    for path, text in (
        ("docs/requirements.toml", ROWS),
        ("proxy/known.py", ""),
        ("tests/scenarios/test_known.py", TESTS),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert table.main([], tmp_path) == 0
    return tmp_path


def test_the_table_holds(table: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """Every mark is a row, every row has a test or a reason, every module is there, and the page is the newest."""
    code = table.main(["--check"])

    assert (code, capsys.readouterr().err) == (0, "")


@pytest.mark.skipif(not ASKED.exists(), reason="the list of what was asked for is not beside this project")
def test_every_row_that_was_asked_for_stands_in_the_table(table: ModuleType) -> None:
    asked = re.findall(r"^\| ((?:X|S\d)-\d+[a-z]?|[CD]\d+[a-z]?) \|", ASKED.read_text(), re.MULTILINE)
    rows = {name for section in table.rows_in((HOUSE / table.DATA).read_text()).values() for name in section}

    assert len(asked) > 300
    assert [name for name in asked if name not in rows] == []


def test_a_row_names_its_module_its_tests_and_its_reason(house: Path) -> None:
    page = (house / "docs/requirements.md").read_text()

    assert (
        "| X-01 | Conversations are known | `proxy/known.py` "
        "| `tests/scenarios/test_known.py` test_a_conversation_is_known |"
    ) in page
    assert "| They begin. But: not by themselves | `proxy/known.py` | `tests/scenarios/test_known.py` |" in page
    assert "| X-03 | They end |  | no test: later |" in page


def test_tests_from_outside_come_first_and_then_those_that_show_little_else(table: ModuleType) -> None:
    unit = table.Test("tests/stack/test_a.py", "test_unit", ("X-01",))
    broad = table.Test("tests/scenarios/test_b.py", "test_broad", ("X-01", "X-02"))
    narrow = table.Test("tests/scenarios/test_c.py", "test_narrow", ("X-01",))

    assert table.by_row([unit, broad, narrow])["X-01"] == [narrow, broad, unit]


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        ("docs/requirements.toml", ', why = "later"', "", "X-03 has no test; mark one with it, or say why"),
        ("docs/requirements.toml", ', why = "later"', ', where = "proxy/known.py"', "X-03 has no test"),
        ("docs/requirements.toml", 'known", where', 'known", why = "later", where', "X-01 has a test, test_a_conv"),
        ("docs/requirements.toml", "proxy/known.py", "proxy/gone.py", "in proxy/gone.py, which does not exist"),
        ("docs/requirements.toml", 'known", where = "proxy/known.py"', 'known"', "X-01 does not say where it is"),
        ("docs/requirements.toml", "[X]", "[Y]", "section Y has no heading"),
        ("docs/requirements.toml", "They begin", "They start", "requirements.md is not what the rows and the tests"),
        ("docs/requirements.md", "Conversations", "Chats", "requirements.md is not what the rows and the tests say"),
        ("tests/scenarios/test_known.py", '"X-01"', '"X-09"', "marked with X-09, which is no row"),
        ("tests/scenarios/test_known.py", '"X-01"', "*IDS", "marked with *IDS, which is no row"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(
    table: ModuleType, house: Path, capsys: pytest.CaptureFixture[str], path: str, old: str, new: str, told: str
) -> None:
    assert table.main(["--check"], house) == 0
    text = (house / path).read_text()
    assert old in text
    (house / path).write_text(text.replace(old, new))

    assert table.main(["--check"], house) == 1
    assert told in capsys.readouterr().err


@pytest.fixture
def prove(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(HOUSE / "docs"))
    return importlib.import_module("prove")


def test_all_that_is_listed_can_be_broken_and_has_a_test(prove: ModuleType) -> None:
    changes = prove.listed_changes(HOUSE)

    assert [str(change) for change in changes if not change.tests] == []
    for change in changes:
        source = (HOUSE / change.path).read_text()
        broken = change.changed(source)
        assert broken != source, str(change)
        compile(broken, change.path, "exec")


def test_a_condition_becomes_its_opposite_where_its_function_reads_it(prove: ModuleType) -> None:
    source = "class A:\n    def b(self, é):\n        x = é and self.c(\n            x)\n        return x\n"

    assert prove.negated_source(source, "A.b", "é and self.c(x)") == (
        "class A:\n    def b(self, é):\n        x = (not (é and self.c(\n            x)))\n        return x\n"
    )
    with pytest.raises(LookupError, match="no condition 'y' in a function"):
        prove.negated_source(source, "A.b", "y")
