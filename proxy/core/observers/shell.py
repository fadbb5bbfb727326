"""Command lines, cut into the commands they are made of.

A rough reading: quotes, `&&`, `|`, `;`, redirections and here-documents are understood, substitutions and loops are
not. The law: **bounded and never wrong about quotes**: what stands inside them is no operator.

What this module does not do: it knows no command and runs none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

MOST = 30
"""Commands of a line that are told apart."""
LONGEST = 4_000
"""Characters of a command line that are read."""

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n)
      | (?P<joint>&&|\|\|?&?|;;?|\n|[()]|&(?![>\d]))
      | (?P<out>(?:\d|&)?>>?\|?(?:&\d)?|<<?<?)
      | (?P<word>(?:'[^']*'?|"(?:\\.|[^"\\])*"?|\\.|[^\s'"\\;&|<>()])+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?(?:\n\s*\2\s*(?:\n|$)|\Z)", re.DOTALL)
_QUOTED = re.compile(r"'([^']*)'?|\"((?:\\.|[^\"\\])*)\"?|\\(.)", re.DOTALL)
_ESCAPED = re.compile(r"\\([\"\\$`])")
_ASSIGNED = re.compile(r"^[A-Za-z_]\w*=")


class Simple(msgspec.Struct, frozen=True):
    """One command: its words without quotes and assignments, where its output goes, and whether another command takes
    that output or hides its exit code."""

    words: tuple[str, ...]
    written: tuple[str, ...] = ()
    """Files named behind `>` and `>>`."""
    piped: bool = False


def commands_in(line: str) -> tuple[Simple, ...]:
    """The commands of a line, in order. A command inside quotes (`bash -c "..."`) is a word of the one outside."""
    text = _DOCUMENT.sub(r"\3\n", line[:LONGEST])
    found: list[Simple] = []
    words: list[str] = []
    written: list[str] = []
    into = ""
    for kind, mark in _tokens(text):
        if len(found) >= MOST:
            return tuple(found[:MOST])
        if kind == "joint":
            found += _closed(words, written, piped=mark.startswith("|") and mark != "||")
            words, written, into = [], [], ""
        elif kind == "out":
            into = "" if "&" in mark[1:] else mark
        elif kind == "word":
            if into:
                written += [_bare(mark)] if ">" in into else []
                into = ""
            elif words or not _ASSIGNED.match(mark):
                words.append(_bare(mark))
    return (*found, *_closed(words, written, piped=False))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        yield match.lastgroup or "", match[0]


def _closed(words: Sequence[str], written: Sequence[str], *, piped: bool) -> list[Simple]:
    return [Simple(tuple(words), tuple(written), piped)] if words or written else []


def _bare(token: str) -> str:
    """A word as the command gets it."""
    return _QUOTED.sub(lambda m: m[1] if m[1] is not None else m[3] or _ESCAPED.sub(r"\1", m[2] or ""), token)
