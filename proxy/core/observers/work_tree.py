"""Reads the git commands that only move the working tree. Putting changes away, bringing them back or undoing them is
no edit, and a check that runs while they are away says nothing of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.core.observers.shell import ShellCommand

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


def away_at_each(commands: Sequence[ShellCommand], result: str, *, away: bool) -> list[bool]:
    """For each command of a line, and last for what follows it, whether the changes were stashed then. `away`: they
    were before the line."""
    flags = []
    for command in commands:
        flags.append(away)
        if move := tree_move_of(command):
            away = (away or (move.puts_away and _NOTHING_STASHED not in result)) and not (
                move.brings_back or move.drops
            )
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
