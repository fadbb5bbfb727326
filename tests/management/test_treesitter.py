"""Symbols as grammars read them, in a process of their own (S2-23): what they find, and that nothing ever waits for it.

No mocks: the child is a real one, except where a test needs an interpreter that is not there.
"""

import subprocess
import sys
import time

import pytest

from callstack_proxy.filemap.symbols import symbols_by_patterns
from callstack_proxy.management.treesitter import worker as reader
from callstack_proxy.management.treesitter import worker_client as grammars
from callstack_proxy.management.treesitter.worker_client import installed_languages, symbols_by_grammar
from proxy.core.definitions import language_of
from tests.filemap.talks import seen

INSTALLED = pytest.mark.skipif(
    not installed_languages(), reason="no grammar is installed: pip install 'callstack-proxy[map]'"
)
CODE = {
    "a.py": (
        'LIMIT = 3\nclass Cart(Base):\n    """def no_definition():"""\n'
        "    async def total(self):\n        return price(1)",
        "LIMIT Cart total",
        "price",
    ),
    "a.js": ("export const add = (a) => a\nclass Cart { total() { return price(1) } }\n"
             "function f() { const inner = 1 }",
             "add Cart total f", "price"),
    "a.ts": ("interface Item { total(): Price }\ntype Price = number\n"
             "abstract class Cart implements Item {}\nenum Kind { A }",
             "Item total Price Cart Kind", "Price"),
    "a.tsx": ("export const View = () => <Panel title={name} />", "View", "Panel"),
    "a.go": ("package a\nconst Limit = 3\ntype Cart struct{}\nfunc (c *Cart) Total() int { return price(1) }",
             "Limit Cart Total", "price"),
    "a.rs": ("pub struct Cart;\nimpl Cart { fn total(&self) -> u8 { price(1) } }\ntrait Sum { fn sum(&self); }",
             "Cart total Sum sum", "price"),
    "A.java": ("record Cart(int a) {}\nclass Shop { Shop() {} int total(Cart c) { return price(c); } }",
               "Cart Shop total", "price"),
}  # fmt: skip


@INSTALLED
@pytest.mark.rows("S2-23")
@pytest.mark.parametrize("path", CODE)
def test_a_grammar_finds_definitions_and_what_is_used(path: str) -> None:
    text, names, used = CODE[path]
    if language_of(path) not in installed_languages():
        pytest.skip(f"no grammar of {language_of(path)} is installed")

    (symbols,) = symbols_by_grammar([seen(path, text)])

    assert list(dict.fromkeys(definition.name for definition in symbols.definitions)) == names.split()
    assert used in (symbols.references or {})
    assert "no_definition" not in (symbols.references or {})


@INSTALLED
def test_a_part_of_a_file_is_read_as_far_as_it_makes_sense() -> None:
    (symbols,) = symbols_by_grammar(
        [seen("a.py", "        return 1\n\n    def total(self):\n        return (", first=40)]
    )

    assert [(d.name, d.line) for d in symbols.definitions] == [("total", 42)]


@pytest.mark.rows("S2-23")
def test_what_has_no_grammar_is_read_by_patterns() -> None:
    files = [seen("a.rb", "def total"), seen("README.md", "# Read me"), seen("a.py", "def total(): pass")]

    assert [[d.name for d in symbols.definitions] for symbols in symbols_by_grammar(files)] == [
        ["total"],
        [],
        ["total"],
    ]
    assert reader.parse_symbols("ruby", b"def total") is None


@INSTALLED
@pytest.mark.rows("S2-23")
def test_code_that_keeps_a_parser_busy_does_not_keep_anybody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is a text that asks for most of a minute and can be stopped, the second for seconds and cannot."""
    stoppable, endless = seen("a.java", "a<" * 30_000), seen("b.py", "adef /*" * 3_400)
    after = seen("c.py", "def total(): pass")
    monkeypatch.setattr(grammars, "WORKER_TIMEOUT_S", 1.0)  # it is waited for to the end
    began = time.monotonic()

    symbols = symbols_by_grammar([stoppable, after, endless])

    assert time.monotonic() - began < grammars.WORKER_TIMEOUT_S + 5
    assert symbols[1].definitions[0].name == "total"
    assert symbols[2] == symbols_by_patterns([endless])[0]


@INSTALLED
@pytest.mark.parametrize(
    "text", ["(" * 60_000, "- " * 30_000, "x" * 60_000, "\n" * 60_000, "\ud800\x00", "é" * 30_000, ""]
)
def test_hostile_texts_are_read_or_not_and_break_nothing(text: str) -> None:
    """Deep nesting, one line, nothing but lines, halves of characters."""
    files = [seen(f"a.{ending}", text) for ending in ("py", "ts", "rs", "java")]

    assert [symbols.definitions for symbols in symbols_by_grammar(files)] == [(), (), (), ()]


@INSTALLED
def test_what_was_told_before_the_end_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that is ended, or crashes, in the middle of a line."""
    line = b'{"defined": [["told", 0]], "used": {}}\n'
    for answered in (line + b'{"defi', line + b"null\n", line + b'{"defined": [["x", 99]], "used": {}}'):
        # A child ends in the middle of a line when it likes, and never when a test wants it to.
        monkeypatch.setattr(grammars, "_run_worker", lambda _asked, told=answered: told)
        first, second = symbols_by_grammar([seen("a.py", "x"), seen("b.py", "def total(): pass")])

        assert [d.name for d in first.definitions] == ["told"]
        assert [d.name for d in second.definitions] == ["total"]


@pytest.mark.parametrize("program", ["", "/nowhere/python"])
def test_without_an_interpreter_there_are_patterns(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(sys, "executable", program)  # this test runs in an interpreter that knows where it lies

    (symbols,) = symbols_by_grammar([seen("a.py", "def total(): pass")])

    assert [d.name for d in symbols.definitions] == ["total"]


def test_no_parser_is_loaded_into_the_process_that_asks() -> None:
    """Not at the start of a proxy, and not for a map: a library in C may crash."""
    program = (
        "import sys, proxy.server.app, callstack_proxy.management.treesitter.worker_client as g; "
        "from tests.filemap.talks import seen; g.symbols_by_grammar([seen('a.py', 'def f(): pass')]); "
        "print([m for m in sys.modules if m.startswith('tree_')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)

    assert done.stdout.strip() == "[]"
