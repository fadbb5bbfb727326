"""Definitions in source code, by the form of a line: their names, and in what they stand. It serves languages without a
grammar, and requests, which cannot wait for a parser. What a line stands in is told by indentation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from proxy.core.memo import late_pattern

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


def _line_start(words: str, min_count: int = 0) -> str:
    """The beginning of a line: indentation, then any of these words, in any order."""
    return rf"[ \t]{{0,60}}(?:(?:{words})[ \t]{{1,4}}){{{min_count},6}}"


_MODIFIERS = (
    "public|private|protected|internal|static|final|abstract|override|virtual|async|synchronized|default|suspend|open|"
    "inline|sealed|partial|readonly|data|export|declare|unsafe|extern|const|mutating|indirect|fileprivate|case|implicit"
)
_NAME = r"([^\W\d]\w{0,79})"
_TYPE_DEFINITION = (
    _line_start(_MODIFIERS)
    + r"(?:class|interface|enum|record|struct|object|trait|protocol|extension|actor|namespace|@interface)[ \t]{1,4}"
    + _NAME
)
_C_TYPE = (
    r"(?:typedef[ \t]{1,4})?(?:struct|class|enum|union|namespace)[ \t]{1,4}" + _NAME + r"[ \t]{0,4}(?:[:{].{0,200})?$"
)
_C_FUNCTION = (
    r"[^\W\d][\w \t*&:<>,]{0,120}?[ \t*&](?:\w{1,60}::){0,4}~?" + _NAME + r"[ \t]{0,2}\([^;{}]{0,200}\{?[ \t]{0,4}$"
)
_METHOD = _line_start(_MODIFIERS, min_count=1) + r"(?:[\w<>\[\],.?]{1,80}[ \t]{1,4}){0,3}" + _NAME + r"[ \t]{0,2}\("
_SCRIPT_DEFINITION = (
    _line_start("export|default|declare|abstract|async")
    + r"(?:function[ \t]{0,2}\*?|class|interface|type|enum|namespace)[ \t]{1,4}([\w$]{1,80})"
)
_SCRIPT_VALUE = (
    r"(?:[ \t]{0,60}(?:export[ \t]{1,4})?(?:const|let|var)[ \t]{1,4}([\w$]{1,80})[ \t]{0,4}(?::[^=]{1,120})?=[ \t]{0,4}"
    r"(?:async[ \t]{0,4})?(?:function\b|\(|[\w$]{1,80}[ \t]{0,4}=>))"
)
_SCRIPT_METHOD = (
    r"[ \t]{1,60}(?:(?:public|private|protected|static|async|readonly|override|get|set)[ \t]{1,4}){0,4}[#*]?"
    r"([\w$]{1,80})[ \t]{0,2}\([^;=]{0,200}\)[ \t]{0,2}(?::[^={;]{1,100})?\{[ \t]{0,4}$"
)


def _patterns(*patterns: str) -> tuple[re.Pattern[str], ...]:
    return tuple(map(late_pattern, patterns))


_SCRIPT_PATTERNS = _patterns(_SCRIPT_DEFINITION, _SCRIPT_VALUE, _SCRIPT_METHOD)
_C_PATTERNS = _patterns(_C_TYPE, rf"#[ \t]{{0,8}}define[ \t]{{1,8}}{_NAME}", _C_FUNCTION)
# Fmt: skip.
PATTERNS: Mapping[str, tuple[re.Pattern[str], ...]] = {
    "python": _patterns(
        rf"[ \t]{{0,60}}(?:async[ \t]{{1,4}})?(?:def|class)[ \t]{{1,4}}{_NAME}", r"([A-Z][A-Z0-9_]{2,79})[ \t]{0,2}[:=]"
    ),
    "javascript": _SCRIPT_PATTERNS,
    "typescript": _SCRIPT_PATTERNS,
    "tsx": _SCRIPT_PATTERNS,
    "go": _patterns(rf"func[ \t]{{1,4}}(?:\([^)]{{0,120}}\)[ \t]{{0,4}})?{_NAME}", rf"type[ \t]{{1,4}}{_NAME}"),
    "rust": _patterns(
        r"[ \t]{0,60}(?:pub(?:\([^)]{0,40}\))?[ \t]{1,4})?(?:(?:async|unsafe|const|default)[ \t]{1,4}){0,3}"
        rf"(?:fn|struct|enum|trait|type|mod|union|static|macro_rules!)[ \t]{{1,4}}{_NAME}"
    ),
    "java": _patterns(_TYPE_DEFINITION, _METHOD),
    "csharp": _patterns(_TYPE_DEFINITION, _METHOD),
    "kotlin": _patterns(_TYPE_DEFINITION, _line_start(_MODIFIERS) + rf"fun[ \t]{{1,4}}(?:[\w<>.]{{1,80}}\.)?{_NAME}"),
    "scala": _patterns(_TYPE_DEFINITION, _line_start(_MODIFIERS) + rf"def[ \t]{{1,4}}{_NAME}"),
    "swift": _patterns(_TYPE_DEFINITION, _line_start(_MODIFIERS) + rf"func[ \t]{{1,4}}{_NAME}"),
    "c": _C_PATTERNS,
    "cpp": _C_PATTERNS,
    "ruby": _patterns(r"[ \t]{0,60}(?:def[ \t]{1,4}(?:self\.)?|class[ \t]{1,4}|module[ \t]{1,4})(\w{1,80}[?!]?)"),
    "php": _patterns(
        _line_start("abstract|final|public|private|protected|static|readonly")
        + rf"(?:function|class|interface|trait|enum)[ \t]{{1,4}}&?{_NAME}"
    ),
    "elixir": _patterns(r"[ \t]{0,60}(?:defmodule|defmacro|defp?)[ \t]{1,4}(?:\w{1,80}\.){0,8}(\w{1,80}[?!]?)"),
    "lua": _patterns(rf"[ \t]{{0,60}}(?:local[ \t]{{1,4}})?function[ \t]{{1,4}}(?:\w{{1,60}}[.:]){{0,4}}{_NAME}"),
    "shell": _patterns(
        r"[ \t]{0,60}(?:function[ \t]{1,4})?([^\W\d][\w-]{0,79})[ \t]{0,2}\([ \t]{0,2}\)",
        r"[ \t]{0,60}function[ \t]{1,4}([\w-]{1,80})",
    ),
}

_EXTENSIONS_BY_LANGUAGE = {
    "python": "py pyi pyw",
    "javascript": "js jsx mjs cjs",
    "typescript": "ts mts cts vue svelte",
    "tsx": "tsx",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "csharp": "cs",
    "kotlin": "kt kts",
    "scala": "scala sc",
    "swift": "swift",
    "c": "c h",
    "cpp": "cc cpp cxx hh hpp hxx",
    "ruby": "rb rake",
    "php": "php",
    "elixir": "ex exs",
    "lua": "lua",
    "shell": "sh bash zsh",
}
LANGUAGE_BY_EXTENSION: Mapping[str, str] = {
    ending: language for language, all_of in _EXTENSIONS_BY_LANGUAGE.items() for ending in all_of.split()
}
