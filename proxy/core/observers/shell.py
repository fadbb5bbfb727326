"""Splits command lines into commands, and tells tests, linters, builds and type checkers by the words of a command.

Quotes, `&&`, `|`, `;`, redirections and here-documents are understood; substitutions and loops are not. Operators
inside quotes are text. Git commands that only move the working tree are known too: putting changes away, bringing them
back or undoing them is no edit, and a check that runs while they are away says nothing of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from proxy.core.memo import TextCache, late_pattern
from proxy.core.word_lists import read_table, with_parts

MAX_COMMANDS_PER_LINE = 30
MAX_COMMAND_LINE_LENGTH = 4_000  # characters that are read
MAX_CACHED_CHARACTERS = 256 * 1024  # of parsed lines: each observer of a step asks for the same one
MAX_KIND_LENGTH = 200  # characters of a command that are looked at
TEST, LINT, BUILD, TYPES = "test", "lint", "build", "types"

_TOKEN = late_pattern(
    r"""(?P<blank>[ \t\r]+|\\\n)
      | (?P<joint>&&|\|\|?&?|;;?|\n|[()]|&(?![>\d]))
      | (?P<out>(?:\d|&)?>>?\|?(?:&\d)?|<<?<?)
      | (?P<word>(?:'[^']*'?|"(?:\\.|[^"\\])*"?|\\.|[^\s'"\\;&|<>()])+)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_HEREDOC = late_pattern(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?(?:\n\s*\2\s*(?:\n|$)|\Z)", re.DOTALL)
_QUOTED = late_pattern(r"'([^']*)'?|\"((?:\\.|[^\"\\])*)\"?|\\(.)", re.DOTALL)
_ESCAPED = late_pattern(r"\\([\"\\$`])")
_ASSIGNMENT = late_pattern(r"^[A-Za-z_]\w*=")


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
    return _commands_of(line[:MAX_COMMAND_LINE_LENGTH])


def _parse(line: str) -> tuple[ShellCommand, ...]:
    text = _HEREDOC.sub(r"\3\n", line)
    found: list[ShellCommand] = []
    words: list[str] = []
    written: list[str] = []
    into = ""
    for match in _TOKEN.finditer(text):
        kind, mark = match.lastgroup, match[0]
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


_commands_of = TextCache(_parse, MAX_CACHED_CHARACTERS)


def _finish_command(words: Sequence[str], written: Sequence[str], operator: str) -> list[ShellCommand]:
    return [ShellCommand(tuple(words), tuple(written), operator)] if words or written else []


def _unquote(token: str) -> str:
    return _QUOTED.sub(lambda m: m[1] if m[1] is not None else m[3] or _ESCAPED.sub(r"\1", m[2] or ""), token)


# --------------------------------------------------------------------------------------------------------------- kinds
_WRAPPER_PREFIX = late_pattern(
    r"""^(?: (?:sudo|time|nohup|env|command|exec|npx|bunx|uvx|xvfb-run|winpty|stdbuf\s-\w+)\s+
          | timeout\s+(?:-\S+\s+)*\S+\s+
          | [A-Za-z_]\w*=\S*\s+
          | (?:uv|poetry|pipenv|pdm|hatch|rye|conda|pixi)\s+run\s+(?:-\S+\s+)*
          | (?:pnpm|yarn|npm|bun)\s+(?:exec|dlx|x)\s+(?:--\s+)?
          | bundle\s+exec\s+
          | (?:\S*/)?(?:python|pypy|py)[\d.]*\s+(?:-(?:[XWu]\S*|\d[\d.]*)\s+)*-m\s+
          | (?:\S*/)?(?:node_modules/\.bin|bin|\.venv/bin|venv/bin)/
          | \./ )""",
    re.VERBOSE,
)


class KindOfCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Regular expressions of one kind, as `checks.toml` has them."""

    failure: str
    success: str
    command: str = ""


class _Checks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: dict[str, str]
    any: KindOfCheck
    kinds: dict[str, KindOfCheck]


CHECKS = read_table(__package__, "checks.toml", _Checks)
_KIND_PATTERNS = {
    name: late_pattern("".join(with_parts(kind.command, CHECKS.parts).split())) for name, kind in CHECKS.kinds.items()
}


def command_kind_of(words: tuple[str, ...]) -> str:
    """The kind of a command by its words: test, lint, build, types, or empty."""
    text = _without_wrappers(" ".join(words)[:MAX_KIND_LENGTH])
    return next((kind for kind, pattern in _KIND_PATTERNS.items() if pattern.match(text)), "")


def _without_wrappers(text: str) -> str:
    for _ in range(4):
        shorter = _WRAPPER_PREFIX.sub("", text, count=1)
        if shorter == text:
            break
        text = shorter
    return text


def covers(later: str, earlier: str) -> bool:
    """Whether a check runs again all that an earlier one ran: it names the same, or folders around it, or less, which
    is all of it."""
    checked = _words_that_narrow(earlier)
    return all(
        any(word == each or each.startswith((f"{word}/", f"{word}::")) for each in checked)
        for word in _words_that_narrow(later)
    )


def _words_that_narrow(command: str) -> list[str]:
    words = _without_wrappers(command).split()
    named = [word for word in words if "=" in word or not (word.startswith("-") or word.isdecimal())]
    return [word.removesuffix("...").rstrip("/") for word in named]


_INTERPRETERS = late_pattern(r"(?:python|node|ruby|perl|php|deno|bun|npx|uv|npm|pnpm|yarn|cargo|go|git|docker)[\d.]*")
"""Programs that run others: what is run is their first word too."""
_CODE_FLAGS = frozenset(["-c", "-e"])


def family_of(command: ShellCommand) -> str:
    """What commands of one kind share, wherever they run: the program, of one that runs others what that runs, of code
    in the line all."""
    program, *rest = [word.rpartition("/")[2] for word in command.words[:2]] or [""]
    if program == "git":
        return f"git {_git_command(command.words)[0]}"
    if not _INTERPRETERS.fullmatch(program):
        return program
    return " ".join((program, *(command.words[1:] if rest and rest[0] in _CODE_FLAGS else rest)))


# ------------------------------------------------------------------------------------------------------- working tree
_STASH_PUTS_AWAY = frozenset(["push", "save"])
_STASH_BRINGS_BACK = frozenset(["pop", "apply", "branch"])
_STASH_DROPS = frozenset(["drop", "clear"])
_NOTHING_STASHED = "No local changes to save"
_OPTIONS_WITH_VALUE = frozenset(["-C", "-c", "--git-dir", "--work-tree"])


class TreeMove(msgspec.Struct, frozen=True):
    """What one git command does to the changes of the working tree: puts them away, brings them back, drops what was
    put away, commits them, or undoes those of `undone` (paths, `.` for all)."""

    puts_away: bool = False
    brings_back: bool = False
    drops: bool = False
    commits: bool = False
    undone: tuple[str, ...] = ()

    def leaves_away(self, result: str, *, away: bool) -> bool:
        """Whether changes are stashed after it."""
        if self.brings_back or self.drops:
            return False
        return away or (self.puts_away and _NOTHING_STASHED not in result)


def tree_move_of(command: ShellCommand) -> TreeMove | None:
    """None for a command that leaves the working tree as it is, or is not git's."""
    name, rest = _git_command(command.words)
    first = rest[0] if rest else ""
    if name == "stash":
        return TreeMove(
            puts_away=first in _STASH_PUTS_AWAY or first[:1] in ("", "-"),
            brings_back=first in _STASH_BRINGS_BACK,
            drops=first in _STASH_DROPS,
        )
    if name == "commit":
        return TreeMove(commits=True)
    if name == "reset":
        return TreeMove(undone=(".",)) if "--hard" in rest and _is_of_head(rest) else TreeMove()
    if name == "checkout":
        named = rest[rest.index("--") + 1 :] if "--" in rest else [word for word in rest if word == "."]
        return TreeMove(undone=tuple(named) if _is_of_head(rest[: rest.index("--")] if "--" in rest else rest) else ())
    if name == "restore":
        of_index_only = any(word in ("--staged", "-S") for word in rest) and not any(
            word in ("--worktree", "-W") for word in rest
        )
        from_elsewhere = any(word.startswith(("--source", "-s")) for word in rest)
        named = [word for word in rest if not word.startswith("-")]
        return TreeMove(undone=() if of_index_only or from_elsewhere else tuple(named))
    return TreeMove() if name == "switch" else None


def only_moves_tree(command: ShellCommand) -> bool:
    """Whether a command makes no change of its own, but puts files of the working tree into another known state."""
    move = tree_move_of(command)
    return move is not None and not move.commits


_SHELL_WORDS = frozenset(["do", "then", "else", "{", "!", "time", "sudo", "command"])
_CHANGING = frozenset(["mv", "cp", "rm", "patch", "truncate", "install", "ln", "unlink"])
IN_PLACE = late_pattern(r"-(?!-)[a-zA-Z]*i|--in-place")
_OUTSIDE = ("/dev/", "/tmp/")  # noqa: S108  nothing is written there
_GIT_CHANGES = frozenset(["apply", "am", "revert", "cherry-pick", "merge", "rebase", "rm", "mv"])


def changes_files(command: ShellCommand) -> bool:
    """Whether a command by its words puts files into another state: `sed -i`, `patch`, `mv`, a redirection, git."""
    words = command.words
    while words and words[0] in _SHELL_WORDS:
        words = words[1:]
    program = words[0].rpartition("/")[2] if words else ""
    if program in ("sed", "gsed", "perl") and any(IN_PLACE.match(word) for word in words[1:]):
        return True
    if program in _CHANGING or any(not path.startswith(_OUTSIDE) for path in command.output_files):
        return True
    if program == "git":
        move = tree_move_of(replace(command, words=words))
        return _git_command(words)[0] in _GIT_CHANGES or (move is not None and not move.commits)
    return False


def changed_around(commands: Sequence[ShellCommand]) -> list[tuple[bool, bool]]:
    """For each command of a line whether another one changes files before it, and whether one does behind it."""
    changing = [at for at, command in enumerate(commands) if changes_files(command)]
    first, last = (changing[0], changing[-1]) if changing else (len(commands), -1)
    return [(first < at, at < last) for at in range(len(commands))]


def away_at_each(commands: Sequence[ShellCommand], result: str, *, away: bool) -> list[bool]:
    """For each command of a line, and last for what follows it, whether the changes were stashed then. `away`: they
    were before the line."""
    flags = []
    for command in commands:
        flags.append(away)
        if move := tree_move_of(command):
            away = move.leaves_away(result, away=away)
    return [*flags, away]


def _git_command(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The subcommand and its words, without git's own options; empty for other programs."""
    if not words or words[0].rpartition("/")[2] != "git":
        return "", ()
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _OPTIONS_WITH_VALUE else 1
    return (words[at], words[at + 1 :]) if at < len(words) else ("", ())


def _is_of_head(words: Sequence[str]) -> bool:
    """Whether no other revision is named."""
    return all(word.startswith("-") or word in ("HEAD", ".") for word in words)
