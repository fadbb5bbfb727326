"""A process of its own that reads code by tree-sitter: a list of texts comes in as JSON, for each a line goes out.

    in     [[language, text], ...]
    out    {"defined": [[name, row], ...], "used": {name: times}}   or null, where a text could not be read

The law: **it knows nothing of the proxy and imports nothing of it**: it is run by its path, may be killed at any
moment and may crash, and what it had told by then stands. Texts that are code to nobody keep a parser busy for a long
time; where the library asks whether to go on, it is told no after `TEXT_S`, and where it does not ask, whoever began
this process ends it.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

MAX_SECONDS_PER_TEXT = 0.25
"""CPU seconds that one text may take; usual code of 64 KB takes a fiftieth of that."""
PARSER_CHUNK_BYTES = 4_096
"""Bytes that are handed to a parser at a time: only then it asks whether to go on."""
MAX_NAME_BYTES = 320
"""Bytes."""
WorkerSymbols = dict[str, Any]

MAX_TOP_LEVEL_DEPTH = 3
"""How deep a value may stand that counts as a definition of its file: an exported one is two levels below the top."""
NODES_PER_TIME_CHECK = 512
"""Nodes of a tree between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """What nodes of a grammar mean: `module` and `function` say where it is; `defines` are kinds whose field `name` is
    a definition, `values` kinds with the field that is one where they stand at the top or hold a function, `uses` kinds
    that are names."""

    module: str
    function: str
    definition_kinds: frozenset[str]
    value_kinds: Mapping[str, str]
    name_kinds: frozenset[str]


def build_grammar_spec(module: str, function: str, defines: str, values: Mapping[str, str], uses: str) -> GrammarSpec:
    return GrammarSpec(module, function, frozenset(defines.split()), values, frozenset(uses.split()))


_SCRIPT_DEFINITIONS = "function_declaration generator_function_declaration method_definition class_declaration "
_TYPESCRIPT_DEFINITIONS = (
    _SCRIPT_DEFINITIONS + "abstract_class_declaration interface_declaration type_alias_declaration enum_declaration "
    "function_signature method_signature abstract_method_signature"
)
_VALUE_DEFINITIONS = {"variable_declarator": "name"}
_SCRIPT_NAMES = "identifier property_identifier private_property_identifier shorthand_property_identifier"
_TYPESCRIPT_NAMES = f"{_SCRIPT_NAMES} type_identifier"
_NAMES = "identifier type_identifier field_identifier"
FUNCTION_KINDS = frozenset({"arrow_function", "function_expression"})
GRAMMARS: Mapping[str, GrammarSpec] = {
    "python": build_grammar_spec(
        "tree_sitter_python", "language", "function_definition class_definition", {"assignment": "left"}, "identifier"
    ),
    "javascript": build_grammar_spec(
        "tree_sitter_javascript", "language", _SCRIPT_DEFINITIONS, _VALUE_DEFINITIONS, _SCRIPT_NAMES
    ),
    "typescript": build_grammar_spec(
        "tree_sitter_typescript", "language_typescript", _TYPESCRIPT_DEFINITIONS, _VALUE_DEFINITIONS, _TYPESCRIPT_NAMES
    ),
    "tsx": build_grammar_spec(
        "tree_sitter_typescript", "language_tsx", _TYPESCRIPT_DEFINITIONS, _VALUE_DEFINITIONS, _TYPESCRIPT_NAMES
    ),
    "go": build_grammar_spec(
        "tree_sitter_go",
        "language",
        "function_declaration method_declaration type_spec",
        {"const_spec": "name"},
        _NAMES,
    ),
    "rust": build_grammar_spec(
        "tree_sitter_rust",
        "language",
        "function_item function_signature_item struct_item enum_item union_item trait_item type_item mod_item "
        "const_item static_item macro_definition",
        {},
        _NAMES,
    ),
    "java": build_grammar_spec(
        "tree_sitter_java",
        "language",
        "class_declaration interface_declaration enum_declaration record_declaration annotation_type_declaration "
        "method_declaration constructor_declaration",
        {},
        "identifier type_identifier",
    ),
}
"""The grammars by language."""


class _TimeLimitExceeded(Exception):
    """Reading a text took too long."""


def main() -> None:
    """Read standard input, answer on standard output."""
    for language, text in json.load(sys.stdin.buffer):
        sys.stdout.write(json.dumps(parse_symbols(language, text.encode("utf-8", "replace"))) + "\n")
        sys.stdout.flush()


def parse_symbols(language: str, text: bytes) -> WorkerSymbols | None:
    """What a text defines, by its rows from 0, and which names it uses; None where it cannot be read."""
    parser = _parser_factory(language) if language in GRAMMARS else None
    if parser is None:
        return None
    end = time.thread_time() + MAX_SECONDS_PER_TEXT

    def too_long(*_: object) -> bool:
        return time.thread_time() >= end

    try:
        tree = parser().parse(lambda at, _point: text[at : at + PARSER_CHUNK_BYTES], progress_callback=too_long)
        return _collect_symbols(text, tree, GRAMMARS[language], too_long)
    except (ValueError, _TimeLimitExceeded):  # the library says ValueError where it was stopped
        return None


def _collect_symbols(text: bytes, tree: Any, kinds: GrammarSpec, too_long: Callable[[], bool]) -> WorkerSymbols:
    """The symbols in a tree. It is walked, and not searched by a query: that takes time by the square of the depth, and
    stopping one crashes (tree-sitter 0.26.1)."""
    defined: list[tuple[str, int]] = []
    used: Counter[str] = Counter()
    for number, (node, depth) in enumerate(_walk_nodes(tree.walk())):
        if not number % NODES_PER_TIME_CHECK and too_long():
            raise _TimeLimitExceeded
        kind = node.type
        if kind in kinds.name_kinds:
            used[_node_name(text, node)] += 1
        elif (name := _defined_name_node(node, kind, depth, kinds)) is not None and name.type in kinds.name_kinds:
            defined.append((_node_name(text, name), name.start_point[0]))
    del used[""]
    return {"defined": [each for each in defined if each[0]], "used": used}


def _walk_nodes(cursor: Any) -> Iterator[tuple[Any, int]]:
    """The nodes of a tree with their depth, a parent before its children."""
    depth = 0
    while True:
        yield cursor.node, depth
        if cursor.goto_first_child():
            depth += 1
            continue
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return
            depth -= 1


def _defined_name_node(node: Any, kind: str, depth: int, kinds: GrammarSpec) -> Any:
    """The node of the name that a node defines, None where it defines none."""
    if kind in kinds.definition_kinds:
        return node.child_by_field_name("name")
    if kind not in kinds.value_kinds:
        return None
    value = node.child_by_field_name("value")
    if depth > MAX_TOP_LEVEL_DEPTH and (value is None or value.type not in FUNCTION_KINDS):
        return None
    return node.child_by_field_name(kinds.value_kinds[kind])


def _node_name(text: bytes, node: Any) -> str:
    """Empty for what is longer than a name."""
    start, end = node.start_byte, node.end_byte
    return text[start:end].decode("utf-8", "replace") if end - start <= MAX_NAME_BYTES else ""


@cache
def _parser_factory(language: str) -> Callable[[], Any] | None:
    """What makes a parser; None where the grammar is not installed, or of a kind that the library cannot read."""
    kinds = GRAMMARS[language]
    try:
        # Imported here: each of them is optional.
        library = importlib.import_module("tree_sitter")
        known = library.Language(getattr(importlib.import_module(kinds.module), kinds.function)())
    except (ImportError, OSError, AttributeError, TypeError, ValueError):
        return None
    return lambda: library.Parser(known)


if __name__ == "__main__":
    main()
