"""Symbols by the look of lines (S2-23), and what hostile lines cost."""

import pytest

from callstack_proxy.filemap.changes import MAX_CONTENT_LENGTH
from callstack_proxy.filemap.symbols import symbols_by_patterns
from proxy.core.definitions import PATTERNS, language_of
from tests.filemap.talks import seen
from tests.pace import within

LOOKS = {
    "a.py": (
        "class Cart(Base):\n    async def total(self) -> int:\n        return price(1)\nLIMIT = 3",
        "Cart total LIMIT",
    ),
    "a.js": (
        "export default function start() {\nclass Cart extends Base {\n  async total(a) {\n    if (a) {\n"
        "const add = (a) => a\nlet x = 1",
        "start Cart total add",
    ),
    "a.ts": (
        "export interface Item {\ntype Price = number\nexport const enum Kind {\n"
        "export const f = async (a: X): Y => {\n  private total(): number {\n  return total() {",
        "Item Price f total",
    ),
    "a.go": ("type Cart struct {\nfunc (c *Cart) Total() int {\nfunc New[T any]() {", "Cart Total New"),
    "a.rs": (
        "pub struct Cart {\nimpl Cart {\n    pub(crate) async fn total(&self) {\nmacro_rules! sum {",
        "Cart total",
    ),
    "a.java": (
        "public final class Cart extends Base {\n  private static Map<String, Integer> counts(int a) {\n"
        "    return total(1);\n  @Override public String toString() {",
        "Cart counts",
    ),
    "a.cs": ("internal sealed record Cart(int A);\n  public async Task<int> Total() {", "Cart Total"),
    "a.kt": ("data class Cart(val a: Int)\n  override fun total(): Int =\nfun Cart.add() {", "Cart total add"),
    "a.swift": ("public struct Cart {\n    func total() -> Int {", "Cart total"),
    "a.scala": ("case class Cart(a: Int)\n  def total: Int = 1", "Cart total"),
    "a.c": (
        "#define LIMIT 3\nstruct cart {\nstatic int total(struct cart *c)\n  return total(c);\nint only(void);",
        "LIMIT cart total",
    ),
    "a.cpp": ("class Cart : public Base {\nint Cart::total() const {", "Cart"),
    "a.rb": ("module Shop\n  class Cart\n    def self.total!\n    def add", "Shop Cart total! add"),
    "a.php": ("abstract class Cart {\n    public static function total() {", "Cart total"),
    "a.ex": ("defmodule Shop.Cart do\n  def total(a), do: 1\n  defp add(a)", "Cart total add"),
    "a.lua": ("local function total()\nfunction Cart:add()", "total add"),
    "a.sh": ("total() {\nfunction add {", "total add"),
}  # fmt: skip


@pytest.mark.rows("S2-23")
@pytest.mark.parametrize("path", LOOKS)
def test_definitions_are_known_by_the_look_of_their_lines(path: str) -> None:
    text, names = LOOKS[path]

    (symbols,) = symbols_by_patterns([seen(path, text)])

    found = [definition.name for definition in symbols.definitions]
    assert [name for name in names.split() if name not in found] == []
    assert "if" not in found
    assert "return" not in found


def test_a_definition_has_its_line_and_what_is_used_is_counted_without_it() -> None:
    (symbols,) = symbols_by_patterns([seen("a.py", "def total(cart):\n    return price(cart)\n\ntotal(1)", first=30)])

    (total,) = symbols.definitions
    assert (total.name, total.line, total.text) == ("total", 30, "def total(cart)")
    assert symbols.references == {"total": 1, "cart": 2, "price": 1, "def": 1, "return": 1}


def test_a_language_that_nobody_knows_has_no_symbols() -> None:
    for path in ("README.md", "Makefile", "data.json", "", "a.", ".py/x", "a.b/c"):
        assert not language_of(path)
        assert symbols_by_patterns([seen(path, "class Cart:")])[0].definitions == ()
    assert language_of("A.PY") == "python"


HOSTILE = {
    "one long line": "x" * MAX_CONTENT_LENGTH,
    "spaces": " " * MAX_CONTENT_LENGTH,
    "lines": "\n" * MAX_CONTENT_LENGTH,
    "brackets": "(" * MAX_CONTENT_LENGTH,
    "words": "public static final " * (MAX_CONTENT_LENGTH // 20),
    "words on lines": ("public static final abstract " * 10 + "\n") * (MAX_CONTENT_LENGTH // 300),
    "arguments": ("int a b c d e f(" + "a," * 140 + "\n") * (MAX_CONTENT_LENGTH // 300),
    "generic": ("export const a:" + "b<" * 140 + "\n") * (MAX_CONTENT_LENGTH // 300),
    "scopes": ("a " * 50 + "b::" * 66 + "\n") * (MAX_CONTENT_LENGTH // 300),
    "short lines": "a(\n" * (MAX_CONTENT_LENGTH // 3),
}


@pytest.mark.rows("S2-23")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_makes_a_pattern_slow(text: str) -> None:
    """Two seconds for all languages together is far from it: each takes some hundredths."""
    with within(2):
        for language in PATTERNS:
            ending = {"python": "py", "javascript": "js", "typescript": "ts", "rust": "rs", "csharp": "cs",
                      "kotlin": "kt", "ruby": "rb", "elixir": "ex", "shell": "sh"}.get(language, language)  # fmt: skip
            assert language_of(f"a.{ending}") == language
            symbols_by_patterns([seen(f"a.{ending}", text)])


@pytest.mark.rows("S2-23", "S0-55")
def test_methods_of_one_name_stand_behind_their_classes() -> None:
    text = "class A:\n    def size(self):\n        return 1\n\nclass B:\n    def size(self):\n    def name(self):"

    (symbols,) = symbols_by_patterns([seen("a.py", text)])

    assert [definition.text for definition in symbols.definitions] == [
        "class A",
        "A.size: def size(self)",
        "class B",
        "B.size: def size(self)",
        "def name(self)",
    ]
