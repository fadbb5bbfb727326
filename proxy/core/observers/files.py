"""Which files the client's tools read, made, changed and took away (S0-16, S1-104).

The path is taken from the call, by the table of names; the result confirms it. The law: **what is listed for sure did
happen**: a call that failed, or was never answered, touched nothing, and what a command line says of files is told as
unsure and is no artifact.

What this module does not do: it makes no paths absolute and knows no directory; a path is as the call spelt it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from proxy.core.frames.path_state import Placed
from proxy.core.frames.results import CHANGED, READ, Touched
from proxy.core.ledger.messages import Call
from proxy.core.observers.call_outcomes import failed, parts_of
from proxy.core.observers.commands import command_lines
from proxy.core.observers.shell import Simple, commands_in
from proxy.core.observers.step import Done, Step, decoded, texts_in
from proxy.core.observers.tool_roles import NAMES, Known, Names, Role

LONGEST_PATH = 400
"""Characters; a longer text is no path."""
MOST = 200
"""Files of one step that are told."""


class How(StrEnum):
    """What was done to a file."""

    READ = "read"
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"


class FileSeen(msgspec.Struct, frozen=True):
    """A file and what was done to it; not `sure` where only a command line says so."""

    path: str
    how: How
    sure: bool = True


def files_seen(step: Step, names: Names) -> tuple[FileSeen, ...]:
    """What the calls of a step did to files, each file once for each thing done to it, in order."""
    found: dict[FileSeen, None] = {}
    for done in step.done:
        if not failed(done):
            found |= dict.fromkeys(_seen(done, names))
    return tuple(found)[:MOST]


def _seen(done: Done, names: Names) -> Iterator[FileSeen]:
    known = names.known(done.call.name)
    if known is None:
        yield from _patched_by_stranger(done)
    elif known.role is Role.PATCH:
        yield from patched(texts_in(decoded(done.call.arguments)))
    elif known.role is Role.SHELL:
        yield from _by_command(done, names)
    elif known.role in _BY_ARGUMENTS and isinstance(arguments := decoded(done.call.arguments), dict):
        yield from _by_arguments(known, arguments, done.result)


# ------------------------------------------------------------------------------------------------------ by what is
# stored
def touched_by(call: Call, names: Names = NAMES) -> tuple[Touched, ...]:
    """The files one call reads or changes, for sure, as far as the call alone tells; its result is not asked."""
    return tuple(_touched(seen) for seen in _seen(Done(call, ""), names) if seen.sure)


def touched_in(placed: Iterable[Placed], names: Names = NAMES) -> Iterator[tuple[Placed, Touched]]:
    """The files that the client's calls touched for sure, each with the round it was asked for in, in the order of the
    results that confirm it (S1-104). A call id may come again later, so a result answers the newest call before it."""
    waiting: dict[str, tuple[Placed, Call]] = {}
    for standing in placed:
        message = standing.round.spoken.message if standing.round else standing.entry.message
        if message is None:
            continue
        if message.answers in waiting:
            asked, call = waiting.pop(message.answers)
            done = Done(call, message.text, standing.entry.id, failed=message.failed)
            yield from ((asked, _touched(seen)) for seen in files_seen(Step("", (done,)), names) if seen.sure)
        waiting |= {call.id: (standing, call) for call in message.calls if not call.is_ours}


def _touched(seen: FileSeen) -> Touched:
    return Touched(seen.path, READ if seen.how is How.READ else CHANGED)


def files_of(placed: Iterable[Placed], names: Names = NAMES) -> tuple[Touched, ...]:
    """Each file once, in the order of its first call; changed where any call changed it."""
    found: dict[str, Touched] = {}
    for _, touched in touched_in(placed, names):
        if touched.path not in found or touched.how == CHANGED:
            found[touched.path] = touched
    return tuple(found.values())


def paths_of_calls(placed: Iterable[Placed], names: Names = NAMES) -> tuple[str, ...]:
    """Each file that the client's tools were called on, once, in order, with how: `src/a.py (changed)` (S0-16)."""
    return tuple(str(touched) for touched in files_of(placed, names))


def artifacts_of(placed: Iterable[Placed], names: Names = NAMES) -> tuple[str, ...]:
    """The paths of the files that were changed: what a frame made, as far as its calls tell."""
    return tuple(touched.path for touched in files_of(placed, names) if touched.how == CHANGED)


# ---------------------------------------------------------------------------------------------------------- by argument
_BY_ARGUMENTS = frozenset({Role.READ, Role.WRITE, Role.EDIT, Role.DELETE, Role.MOVE, Role.EDITOR})
_EDITOR: Mapping[str, How] = {"view": How.READ, "read": How.READ, "open": How.READ, "create": How.CREATED}
_HOW: Mapping[Role, How] = {Role.READ: How.READ, Role.WRITE: How.CREATED, Role.DELETE: How.DELETED}
_OVER = re.compile(r"\b(?:updated|overwr[io]tt?en?|overwrote|modified|replaced)\b", re.IGNORECASE)
_OLD_TEXT = ("old_string", "oldString", "oldText", "old_text", "old_str", "edits", "insert_line", "insert_after")
_NEW_TEXT = ("new_string", "newString", "newText", "new_text", "new_str")
_RESULT_HEAD = 400


def _by_arguments(known: Known, arguments: Mapping[str, object], result: str) -> Iterator[FileSeen]:
    if known.role is Role.MOVE:
        paths = [path for name in known.arguments if (path := _path(arguments.get(name)))]
        if len(paths) > 1:
            yield FileSeen(paths[0], How.DELETED)
            yield FileSeen(paths[-1], How.CREATED)
        return
    refused = {part.get("query") for part in parts_of(result) if part.get("success") is False}
    for path in dict.fromkeys(_paths(arguments, known.arguments)):
        if path not in refused:
            yield FileSeen(path, _how(known.role, arguments, result))


def _how(role: Role, arguments: Mapping[str, object], result: str) -> How:
    how = _HOW.get(role, How.MODIFIED)
    if role is Role.EDITOR:
        command = arguments.get("command")
        how = _EDITOR.get(command, How.MODIFIED) if isinstance(command, str) else How.MODIFIED
    elif role is Role.EDIT and _replaces_nothing(arguments):
        how = How.CREATED
    if how is How.CREATED and _OVER.search(result[:_RESULT_HEAD]):
        return How.MODIFIED
    return how


def _replaces_nothing(arguments: Mapping[str, object]) -> bool:
    """An edit that puts a text in place of none makes the file."""
    return any(arguments.get(name) for name in _NEW_TEXT) and not any(arguments.get(name) for name in _OLD_TEXT)


def _paths(arguments: Mapping[str, object], names: Sequence[str]) -> Iterator[str]:
    """A path, a list of paths, or a list of records with a path each."""
    for name in names:
        value = arguments.get(name)
        for item in value if isinstance(value, list) else [value]:
            if path := _path(item):
                yield path
            elif isinstance(item, dict):
                yield from (path for inner in names if (path := _path(item.get(inner))))


def _path(value: object) -> str:
    """Empty for what can be none."""
    if not isinstance(value, str) or len(value) > LONGEST_PATH or "\n" in value:
        return ""
    return value.strip()


# ------------------------------------------------------------------------------------------------------------- by patch
_HEADER = re.compile(r"\*\*\* (?:(Add|Update|Delete) File|(Move) to): ([^\n\r\"'\\]{1,400})")
_PATCHED: Mapping[str, How] = {"Add": How.CREATED, "Update": How.MODIFIED, "Delete": How.DELETED}
_BEGIN = "*** Begin Patch"


def patched(texts: Iterable[str]) -> Iterator[FileSeen]:
    """The files that the headers of patches name; a move takes the file away and makes the other."""
    for text in texts:
        before = ""
        for verb, moved, named in _HEADER.findall(text):
            path = named.strip()
            if moved and before:
                yield FileSeen(before, How.DELETED)
            yield FileSeen(path, How.CREATED if moved else _PATCHED[verb])
            before = path


def _patched_by_stranger(done: Done) -> Iterator[FileSeen]:
    """A tool nobody knows whose argument is a patch applies it."""
    if _BEGIN in done.call.arguments:
        texts = texts_in(decoded(done.call.arguments))
        yield from patched(text for text in texts if text.lstrip().startswith(_BEGIN))


# ------------------------------------------------------------------------------------------------------ by command line
def _by_command(done: Done, names: Names) -> Iterator[FileSeen]:
    if "*** " in done.call.arguments:
        arguments = decoded(done.call.arguments)
        if "apply_patch" in done.call.arguments or _BEGIN in done.call.arguments:
            yield from patched(texts_in(arguments))
    for line in command_lines(done, names):
        if "apply_patch" not in line:
            for command in commands_in(line):
                yield from (FileSeen(path, how, sure=False) for path, how in _by_words(command) if _plausible(path))


def _by_words(command: Simple) -> Iterator[tuple[str, How]]:
    """What one command of a line does to files, as far as its words tell: `>`, `tee`, `mv`, `cp`, `rm`, `touch`,
    `sed -i`."""
    yield from ((path, How.MODIFIED) for path in command.written)
    program, *rest = command.words or ("",)
    named = [word for word in rest if not word.startswith("-")]
    name = program.rpartition("/")[2]
    if name == "git" and named[:1] in (["rm"], ["mv"]):
        name, named = named[0], named[1:]
    if name == "tee":
        yield from ((path, How.MODIFIED) for path in named)
    elif name == "touch":
        yield from ((path, How.CREATED) for path in named)
    elif name in {"rm", "unlink"}:
        yield from ((path, How.DELETED) for path in named)
    elif name in {"mv", "cp"} and len(named) > 1:
        yield from ((path, How.DELETED) for path in named[:-1] if name == "mv")
        yield named[-1], How.CREATED
    elif name == "sed" and any(word.startswith(("-i", "--in-place")) for word in rest):
        yield from ((path, How.MODIFIED) for path in _behind_script(rest, named))


def _behind_script(words: Sequence[str], named: Sequence[str]) -> Sequence[str]:
    """The files of a `sed`: its first word is the script, unless `-e` or `-f` brought it."""
    brought = [at + 1 for at, word in enumerate(words) if word in ("-e", "-f")]
    if not brought:
        return named[1:]
    return [word for at, word in enumerate(words) if at not in brought and not word.startswith("-")]


def _plausible(path: str) -> bool:
    return bool(path) and len(path) <= LONGEST_PATH and not path.startswith(("/dev/", "&", "$(")) and "\n" not in path
