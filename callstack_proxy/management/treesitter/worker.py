"""The child process that parses code with tree-sitter. It reads a JSON list and writes one line per text:

    in     [[language, text], ...]
    out    {"defined": [[name, row], ...], "used": {name: times}}   or null for a text that cannot be read

It runs by its path and imports nothing of the proxy. It may crash or be killed at any moment; lines already written
stay valid. Parsing of one text stops after `MAX_SECONDS_PER_TEXT` where the library allows it; otherwise the parent
kills this process.
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
"""CPU seconds; usual code of 64 KB takes a fiftieth of that."""
PARSER_CHUNK_BYTES = 4_096
"""The parser checks for cancellation only between chunks."""
MAX_NAME_BYTES = 320
WorkerSymbols = dict[str, Any]

MAX_TOP_LEVEL_DEPTH = 3
"""Deeper values are no definitions of the file; an exported value is two levels below the top."""
NODES_PER_TIME_CHECK = 512
"""Nodes visited between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class GrammarSpec:
    """What the node kinds of a grammar mean. `definition_kinds` define their field `name`; `value_kinds` define the
    given field at top level or if the value is a function; `name_kinds` are names."""

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


class _TimeLimitExceeded(Exception):
    pass


def main() -> None:
    for language, text in json.load(sys.stdin.buffer):
        sys.stdout.write(json.dumps(parse_symbols(language, text.encode("utf-8", "replace"))) + "\n")
        sys.stdout.flush()


def parse_symbols(language: str, text: bytes) -> WorkerSymbols | None:
    """Defined names with their rows (from 0) and used names with counts; None if the text cannot be read."""
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
    """Walks the tree instead of running a query: a query takes time by the square of the depth, and stopping one
    crashes (tree-sitter 0.26.1)."""
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
    """Nodes with their depth, parents first."""
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
    """The node with the name that `node` defines; None if it defines none."""
    if kind in kinds.definition_kinds:
        return node.child_by_field_name("name")
    if kind not in kinds.value_kinds:
        return None
    value = node.child_by_field_name("value")
    if depth > MAX_TOP_LEVEL_DEPTH and (value is None or value.type not in FUNCTION_KINDS):
        return None
    return node.child_by_field_name(kinds.value_kinds[kind])


def _node_name(text: bytes, node: Any) -> str:
    """Empty if the text is too long for a name."""
    start, end = node.start_byte, node.end_byte
    return text[start:end].decode("utf-8", "replace") if end - start <= MAX_NAME_BYTES else ""


@cache
def _parser_factory(language: str) -> Callable[[], Any] | None:
    """None if the grammar is not installed or does not fit the library."""
    kinds = GRAMMARS[language]
    try:
        # Imported here: each of them is optional.
        library = importlib.import_module("tree_sitter")
        grammar = library.Language(getattr(importlib.import_module(kinds.module), kinds.function)())
    except (ImportError, OSError, AttributeError, TypeError, ValueError):
        return None
    return lambda: library.Parser(grammar)


if __name__ == "__main__":
    main()
