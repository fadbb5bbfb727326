"""Splits command lines into commands. Quotes, `&&`, `|`, `;`, redirections and here-documents are understood;
substitutions and loops are not. Operators inside quotes are text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

MAX_COMMANDS_PER_LINE = 30
MAX_COMMAND_LINE_LENGTH = 4_000  # characters that are read

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r]+|\\\n)
      | (?P<joint>&&|\|\|?&?|;;?|\n|[()]|&(?![>\d]))
      | (?P<out>(?:\d|&)?>>?\|?(?:&\d)?|<<?<?)
      | (?P<word>(?:'[^']*'?|"(?:\\.|[^"\\])*"?|\\.|[^\s'"\\;&|<>()])+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?(?:\n\s*\2\s*(?:\n|$)|\Z)", re.DOTALL)
_QUOTED = re.compile(r"'([^']*)'?|\"((?:\\.|[^\"\\])*)\"?|\\(.)", re.DOTALL)
_ESCAPED = re.compile(r"\\([\"\\$`])")
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")


class ShellCommand(msgspec.Struct, frozen=True):
    """One command: its words without quotes and assignments, and the operator behind it (`&&`, `|`, `;`, ...)."""

    words: tuple[str, ...]
    output_files: tuple[str, ...] = ()  # behind `>` and `>>`
    operator: str = ""  # empty behind the last command

    @property
    def is_piped(self) -> bool:
        """Whether another command reads the output, which hides the exit code."""
        return self.operator.startswith("|") and self.operator != "||"


def parse_command_line(line: str) -> tuple[ShellCommand, ...]:
    """The commands of a line, in order. A command inside quotes (`bash -c "..."`) is a word of the outer one."""
    text = _HEREDOC.sub(r"\3\n", line[:MAX_COMMAND_LINE_LENGTH])
    found: list[ShellCommand] = []
    words: list[str] = []
    written: list[str] = []
    into = ""
    for kind, mark in _tokens(text):
        if len(found) >= MAX_COMMANDS_PER_LINE:
            return tuple(found[:MAX_COMMANDS_PER_LINE])
        if kind == "joint":
            found += _finish_command(words, written, mark)
            if not (words or written) and found and found[-1].operator == ")":
                found[-1] = replace(found[-1], operator=mark)
            words, written, into = [], [], ""
        elif kind == "out":
            into = "" if "&" in mark[1:] else mark
        elif kind == "word":
            if into:
                written += [_unquote(mark)] if ">" in into else []
                into = ""
            elif words or not _ASSIGNMENT.match(mark):
                words.append(_unquote(mark))
    return (*found, *_finish_command(words, written, ""))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        yield match.lastgroup or "", match[0]


def _finish_command(words: Sequence[str], written: Sequence[str], operator: str) -> list[ShellCommand]:
    return [ShellCommand(tuple(words), tuple(written), operator)] if words or written else []


def _unquote(token: str) -> str:
    return _QUOTED.sub(lambda m: m[1] if m[1] is not None else m[3] or _ESCAPED.sub(r"\1", m[2] or ""), token)
