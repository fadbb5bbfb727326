"""Definitions in source code, by the form of a line: their names, and in what they stand. It serves languages without a
grammar, and requests, which cannot wait for a parser. What a line stands in is told by indentation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from proxy.core.memo import late_pattern
from proxy.core.word_lists import read_table, with_parts

MAX_DEFINITION_LENGTH = 300
"""Characters of a line that are matched."""
MAX_LINES_UP = 4_000
"""Lines above an edit that are looked at."""


def place_of(lines: Sequence[str], at: int, language: str) -> str:
    """The definition that line `at` is, behind those around it, as far as `lines` tell: "Invoice.to_dict"."""
    names = [defined_in(lines[at], language)]
    indent = indent_of(lines[at])
    for line in reversed(lines[max(0, at - MAX_LINES_UP) : at]):
        if not indent or "." in names[0]:
            break
        if line.strip() and indent_of(line) < indent and not _BETWEEN.match(line):
            indent = indent_of(line)
            names.insert(0, defined_in(line, language))
    return ".".join(filter(None, names))


def defined_in(line: str, language: str) -> str:
    """The name that the line defines, behind the owner that it names itself, "Store.Save" of Go. Empty where it defines
    nothing."""
    head = line[:MAX_DEFINITION_LENGTH]
    patterns = PATTERNS.get(language, _ANY_LANGUAGE)[: 1 if language == "python" else None]  # a constant is no place
    if language == "rust" and (found := _IMPL.match(head)):
        return found[1]
    match = next((match for pattern in patterns if (match := pattern.match(head))), None)
    if match is None or match[1] in KEYWORDS:
        return ""
    before, behind = head[: match.start(1)], head[match.end(1) :]
    if not before.strip() and _ARGUMENTS.search(behind):
        return ""  # a call with a block, as `it("adds", function () {`
    owner = _OWNER.search(before)
    named = next(filter(None, owner.groups()), "") if owner else ""
    return f"{named}.{match[1]}" if named and named != "self" else match[1]


def indent_of(line: str) -> int:
    """Blanks in front of a line."""
    return len(line) - len(line.lstrip())


_BETWEEN = late_pattern(
    r"\s*(?:[)\]}]|\{\s*$|namespace\b|(?:public|private|protected|internal|signals|slots)(?:\s\w+)?:\s*$|#|//|/\*|\*|--|@)"
)
"""A line that may stand further left than what is around it goes on."""
_ARGUMENTS = late_pattern(r"[\"'`]|\bfunction\b")
_OWNER = late_pattern(r"\(\s*(?:\w+\s+)?\*?\s*(\w+)(?:\[[^\]]*\])?\s*\)\s*$|\b(\w+)(?:::~?|[.:])$")
"""The receiver of Go, and what stands before the name in C++, Lua, Kotlin and Elixir."""
_IMPL = late_pattern(
    r"\s*(?:unsafe\s+)?impl\b(?:<[^{\n]*?(?<!-)>)?\s+(?:[^{\n]*?\bfor\s+)?"
    r"(?:&(?:'\w+\s+)?(?:mut\s+)?)?(?:dyn\s+)?(?:\w+::)*(\w+)"
)
_ANY_LANGUAGE = (
    late_pattern(
        r"\s*(?:(?:abstract|async|const|data|declare|default|export|extern|final|friend|global|inline|internal|local|open"
        r"|override|partial|private|protected|pub|public|sealed|static|synchronized|unsafe|virtual)(?:\([\w:]+\))?\s+)*"
        r"(?:def|class|func|function|fn|impl|struct|interface|trait|enum|module)\*?\s+"
        r"(?:\([^)\n]{0,80}\)\s*)?(\w+)\b(?!\s*[,-])"
    ),
)
"""Where the language is not known. Words of a comment, and a function without a name, begin no definition."""


def language_of(path: str) -> str:
    """The language by file extension; empty where unknown."""
    return LANGUAGE_BY_EXTENSION.get(path.rpartition(".")[2].casefold() if "." in path.rpartition("/")[2] else "", "")


_KEYWORDS = (
    "await case catch class def do elif else for foreach function if lock match new return sizeof super "
    "switch this throw try typeof unless until using while with yield"
)
KEYWORDS = frozenset(_KEYWORDS.split())
"""They look like method names."""


class _Language(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    extensions: str
    patterns: tuple[str, ...]


class _Definitions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: dict[str, str]
    languages: dict[str, _Language]


_DEFINITIONS = read_table(__package__, "definitions.toml", _Definitions)
PATTERNS: Mapping[str, tuple[re.Pattern[str], ...]] = {
    name: tuple(late_pattern(with_parts(pattern, _DEFINITIONS.parts)) for pattern in language.patterns)
    for name, language in _DEFINITIONS.languages.items()
}
LANGUAGE_BY_EXTENSION: Mapping[str, str] = {
    ending: name for name, language in _DEFINITIONS.languages.items() for ending in language.extensions.split()
}
