"""Reads which files the client's tools read, created, changed or removed. The path comes from the call's arguments; the
result must confirm it, so a failed or unanswered call yields nothing. Files that only a command line mentions are
marked unsure and are no artifacts. Paths stay as the call spelt them, but for `.` and `..` in
them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain, takewhile

import msgspec
from msgspec.structs import replace

from proxy.core.frames import (
    CHANGED,
    CHANGED_BY_COMMAND,
    READ,
    FileAccess,
    PathEntry,
    direct_path,
    is_same_file,
    one_spelling,
)
from proxy.core.ledger import Call, OpenCalls
from proxy.core.memo import RecentCache, TextCache
from proxy.core.observers.call_outcomes import batch_parts_of, call_failed
from proxy.core.observers.command_outcomes import CommandOutcome, outcomes_of_checks
from proxy.core.observers.commands import command_lines_of, tree_moves_of
from proxy.core.observers.shell import (
    IN_PLACE,
    MAX_CACHED_CHARACTERS,
    MAX_COMMAND_LINE_LENGTH,
    ShellCommand,
    command_kind_of,
    only_moves_tree,
    parse_command_line,
)
from proxy.core.observers.step import Step, ToolExecution, decode_json_or_text, lines_containing, steps_of, texts_in
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES, ToolRole, ToolRoles, ToolSpec

MAX_PATH_LENGTH = 400  # characters; a longer text is no path
MAX_FILES_PER_STEP = 200
MAX_OBSERVED_CHARACTERS = 4 * 1024 * 1024
"""Of calls and results whose files are remembered."""


class FileAction(StrEnum):
    READ = "read"
    CREATED = "created"
    MODIFIED = "modified"
    DELETED = "deleted"


class ObservedFile(msgspec.Struct, frozen=True):
    """A file and what was done to it; not certain where only a command line says so. `reported`: only git's report of
    the working tree names it, with so many changed lines, so it may have been changed before."""

    path: str
    action: FileAction
    is_certain: bool = True
    reported: str = ""


_observed = RecentCache[tuple[ToolExecution, ToolRoles], tuple[ObservedFile, ...]](MAX_OBSERVED_CHARACTERS)


def observe_files(step: Step, tool_roles: ToolRoles) -> tuple[ObservedFile, ...]:
    """What a step did to files, each pair of file and action once, in order."""
    files: dict[ObservedFile, None] = {}
    for execution in step.executions:
        files |= dict.fromkeys(_files_of_execution(execution, tool_roles))
    return tuple(files)[:MAX_FILES_PER_STEP]


def _files_of_execution(execution: ToolExecution, tool_roles: ToolRoles) -> tuple[ObservedFile, ...]:
    """Remembered: planning over a long history asks a dozen times of each call."""
    key = execution, tool_roles
    if (known := _observed.find(key)) is not None:
        return known
    read = _changes_before_a_check if call_failed(execution) else _files_of_call
    size = len(execution.call.arguments) + len(execution.result) + 1
    return _observed.keep(key, tuple(read(execution, tool_roles)), size)


def _files_of_call(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[ObservedFile]:
    spec = tool_roles.spec_of(execution.call.name)
    if spec is None:
        yield from _files_patched_by_unknown_tool(execution)
    elif spec.role is ToolRole.PATCH:
        yield from files_in_patches(texts_in(decode_json_or_text(execution.call.arguments)))
    elif spec.role is ToolRole.SHELL:
        yield from _files_in_commands(execution, tool_roles)
    elif spec.role in _ROLES_WITH_PATHS and isinstance(
        arguments := decode_json_or_text(execution.call.arguments), dict
    ):
        yield from _files_in_arguments(spec, arguments, execution.result)


def files_touched_by(call: Call, tool_roles: ToolRoles = DEFAULT_TOOL_ROLES) -> tuple[FileAccess, ...]:
    """The files that one call reads or changes for certain, by its arguments alone."""
    return tuple(_as_touched(file) for file in _files_of_call(ToolExecution(call, ""), tool_roles) if file.is_certain)


def iter_touched_files(
    path_entries: Iterable[PathEntry], tool_roles: ToolRoles = DEFAULT_TOOL_ROLES, *, shown: bool = False
) -> Iterator[tuple[PathEntry, FileAccess]]:
    """Files touched for certain, each with the path entry of its call, in the order of the confirming results; with
    `shown` also those that commands print. Call ids may be reused, so a result belongs to the newest call before it."""
    waiting = OpenCalls[tuple[PathEntry, Call]]()
    for path_entry in path_entries:
        message = path_entry.message
        if message is None:
            continue
        if message.answers and (answered := waiting.take(message.answers)):
            call_entry, call = answered
            execution = ToolExecution(call, message.text, path_entry.entry.id, failed=message.failed)
            yield from (
                (call_entry, _as_touched(file))
                for file in observe_files(Step("", (execution,)), tool_roles)
                if file.is_certain
                or (shown and file.action is FileAction.READ and not _searches(execution, tool_roles))
            )
        if message.calls:
            waiting.add((call.id, (path_entry, call)) for call in message.calls if not call.is_stack_call)


def _as_touched(file: ObservedFile) -> FileAccess:
    return FileAccess(file.path, READ if file.action is FileAction.READ else CHANGED)


def touched_files_of(
    path_entries: Iterable[PathEntry], tool_roles: ToolRoles = DEFAULT_TOOL_ROLES
) -> tuple[FileAccess, ...]:
    """Each file once, in the order of its first call; marked changed where any call changed it."""
    accesses = [touched for _, touched in iter_touched_files(path_entries, tool_roles)]
    spelled = one_spelling(touched.path for touched in accesses)
    how_by_path: dict[str, str] = {}
    for touched in accesses:
        path = spelled[touched.path]
        if path not in how_by_path or touched.how == CHANGED:
            how_by_path[path] = touched.how
    return tuple(FileAccess(path, how) for path, how in how_by_path.items())


def touched_file_labels(
    path_entries: Iterable[PathEntry], tool_roles: ToolRoles = DEFAULT_TOOL_ROLES, path: Sequence[PathEntry] = ()
) -> tuple[str, ...]:
    """Each touched file once, in order, with how: `src/a.py (changed)`; behind them those of which only a command line
    tells: `README.md (changed by command)`, `src/b.py (read)`. `path` are the entries around."""
    path_entries = tuple(path_entries)
    by_command: dict[str, None] = {}
    shown: dict[str, None] = {}
    files = [file for step in steps_of(path_entries) for file in observe_files(step, tool_roles)]
    before = changes_before(path_entries, path, tool_roles) if any(file.reported for file in files) else {}
    for file in without_earlier_changes(files, before):
        if file.action is FileAction.DELETED:
            by_command.pop(file.path, None)
        elif file.action is not FileAction.READ and not (file.is_certain or file.reported):
            by_command[file.path] = None
        elif file.action is FileAction.READ and not file.is_certain:
            shown[file.path] = None
    touched = touched_files_of(path_entries, tool_roles)
    changed = [each.path for each in touched if each.how == CHANGED]
    known = [each.path for each in touched] + list(by_command)
    others = [FileAccess(path, CHANGED_BY_COMMAND) for path in by_command if not _is_among(path, changed)]
    others += [FileAccess(path, READ) for path in shown if not _is_among(path, known)]
    return (*map(str, touched), *map(str, others))


def _is_among(path: str, known: Iterable[str]) -> bool:
    return any(is_same_file(path, each) for each in known)


def changed_paths_of(path_entries: Iterable[PathEntry], tool_roles: ToolRoles = DEFAULT_TOOL_ROLES) -> tuple[str, ...]:
    """Changed files, each once: a frame's artifacts."""
    return tuple(touched.path for touched in touched_files_of(path_entries, tool_roles) if touched.how == CHANGED)


_ROLES_WITH_PATHS = frozenset(
    {ToolRole.READ, ToolRole.WRITE, ToolRole.EDIT, ToolRole.DELETE, ToolRole.MOVE, ToolRole.EDITOR}
)
_ACTION_BY_EDITOR_COMMAND: Mapping[str, FileAction] = {
    "view": FileAction.READ,
    "read": FileAction.READ,
    "open": FileAction.READ,
    "create": FileAction.CREATED,
}
_ACTION_BY_ROLE: Mapping[ToolRole, FileAction] = {
    ToolRole.READ: FileAction.READ,
    ToolRole.WRITE: FileAction.CREATED,
    ToolRole.DELETE: FileAction.DELETED,
}
_OVERWRITTEN = re.compile(r"\b(?:updated|overwr[io]tt?en?|overwrote|modified|replaced)\b", re.IGNORECASE)
_OLD_TEXT_ARGUMENTS = (
    "old_string",
    "oldString",
    "oldText",
    "old_text",
    "old_str",
    "edits",
    "insert_line",
    "insert_after",
)
_NEW_TEXT_ARGUMENTS = ("new_string", "newString", "newText", "new_text", "new_str")
_RESULT_HEAD = 400


def _files_in_arguments(spec: ToolSpec, arguments: Mapping[str, object], result: str) -> Iterator[ObservedFile]:
    if spec.role is ToolRole.MOVE:
        paths = [path for name in spec.arguments if (path := _clean_path(arguments.get(name)))]
        if len(paths) > 1:
            yield ObservedFile(paths[0], FileAction.DELETED)
            yield ObservedFile(paths[-1], FileAction.CREATED)
        return
    refused = {_clean_path(part.get("query")) for part in batch_parts_of(result) if part.get("success") is False}
    for path in dict.fromkeys(_paths_in_arguments(arguments, spec.arguments)):
        if path not in refused:
            yield ObservedFile(path, _action_of(spec.role, arguments, result))


def _action_of(role: ToolRole, arguments: Mapping[str, object], result: str) -> FileAction:
    how = _ACTION_BY_ROLE.get(role, FileAction.MODIFIED)
    if role is ToolRole.EDITOR:
        command = arguments.get("command")
        how = (
            _ACTION_BY_EDITOR_COMMAND.get(command, FileAction.MODIFIED)
            if isinstance(command, str)
            else FileAction.MODIFIED
        )
    elif role is ToolRole.EDIT and any(map(arguments.get, _NEW_TEXT_ARGUMENTS)):
        # An edit that replaces an empty text creates the file.
        how = how if any(map(arguments.get, _OLD_TEXT_ARGUMENTS)) else FileAction.CREATED
    if how is FileAction.CREATED and _OVERWRITTEN.search(result[:_RESULT_HEAD]):
        return FileAction.MODIFIED
    return how


def _paths_in_arguments(arguments: Mapping[str, object], names: Sequence[str]) -> Iterator[str]:
    """From a path, a list of paths, or a list of records with a path each."""
    for name in names:
        value = arguments.get(name)
        for item in value if isinstance(value, list) else [value]:
            if path := _clean_path(item):
                yield path
            elif isinstance(item, dict):
                yield from (path for inner in names if (path := _clean_path(item.get(inner))))


def _clean_path(value: object) -> str:
    """Empty if the value cannot be a path."""
    if not isinstance(value, str) or len(value) > MAX_PATH_LENGTH or "\n" in value:
        return ""
    return direct_path(value.strip())


_PATCH_HEADER = re.compile(r"\*\*\* (?:(Add|Update|Delete) File|(Move) to): ([^\n\r\"'\\]{1,400})")
_ACTION_BY_PATCH_VERB: Mapping[str, FileAction] = {
    "Add": FileAction.CREATED,
    "Update": FileAction.MODIFIED,
    "Delete": FileAction.DELETED,
}
_PATCH_BEGIN = "*** Begin Patch"


def files_in_patches(texts: Iterable[str]) -> Iterator[ObservedFile]:
    """Files named in the headers of patches; a move removes one file and creates the other."""
    for text in texts:
        before = ""
        for verb, moved, named in _PATCH_HEADER.findall(text):
            path = direct_path(named.strip())
            if moved and before:
                yield ObservedFile(before, FileAction.DELETED)
            yield ObservedFile(path, FileAction.CREATED if moved else _ACTION_BY_PATCH_VERB[verb])
            before = path


def _files_patched_by_unknown_tool(execution: ToolExecution) -> Iterator[ObservedFile]:
    """An unknown tool with a patch as an argument applies it."""
    if _PATCH_BEGIN in execution.call.arguments:
        texts = texts_in(decode_json_or_text(execution.call.arguments))
        yield from files_in_patches(text for text in texts if text.lstrip().startswith(_PATCH_BEGIN))


def _files_in_commands(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[ObservedFile]:
    if "*** " in execution.call.arguments:
        arguments = decode_json_or_text(execution.call.arguments)
        if "apply_patch" in execution.call.arguments or _PATCH_BEGIN in execution.call.arguments:
            yield from files_in_patches(texts_in(arguments))
    for line in command_lines_of(execution, tool_roles):
        if "apply_patch" not in line:
            commands = parse_command_line(line)
            yield from _changes_by_words(change for each in commands for change in _file_actions_of_command(each))
            yield from _changes_by_words(
                (path, FileAction.MODIFIED) for path in _written_by_scripts(line[:MAX_SCRIPT_LENGTH])
            )
            yield from _changes_by_words((path, FileAction.READ) for path in _files_shown(commands, execution.result))
            by_client, by_git = _paths_reported(line, commands, execution.result)
            yield from _changes_by_words((path, FileAction.MODIFIED) for path in by_client)
            for path, lines in by_git.items():
                yield from _changes_by_words([(path, FileAction.MODIFIED)], lines)


def _changes_before_a_check(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[ObservedFile]:
    """What the commands in front of a check changed in a call that failed because of the check."""
    if tool_roles.role_of(execution.call.name) is not ToolRole.SHELL:
        return
    for line in command_lines_of(execution, tool_roles):
        commands = parse_command_line(line)
        checks = outcomes_of_checks(commands, execution)
        if not checks or checks[0][2] is CommandOutcome.UNKNOWN:
            continue  # it may never have run
        changes = (
            change for each in commands[: commands.index(checks[0][0])] for change in _file_actions_of_command(each)
        )
        yield from _changes_by_words(changes)


def _changes_by_words(changes: Iterable[tuple[str, FileAction]], reported: str = "") -> Iterator[ObservedFile]:
    for path, how in changes:
        if _is_plausible_path(path):
            yield ObservedFile(direct_path(path), how, is_certain=False, reported=reported)


def _file_actions_of_command(command: ShellCommand) -> Iterator[tuple[str, FileAction]]:
    """What one command does to files, by its words: `>`, `tee`, `mv`, `cp`, `rm`, `touch`, `sed -i`, `perl -pi`."""
    yield from ((path, FileAction.MODIFIED) for path in command.output_files)
    program, *rest = command.words or ("",)
    named = [word for word in rest if word and not word.startswith("-")]
    name = program.rpartition("/")[2]
    if name == "git" and named[:1] in (["rm"], ["mv"]):
        name, named = named[0], named[1:]
    if name == "tee":
        yield from ((path, FileAction.MODIFIED) for path in named)
    elif name == "touch":
        yield from ((path, FileAction.CREATED) for path in named)
    elif name in {"rm", "unlink"}:
        yield from ((path, FileAction.DELETED) for path in named)
    elif name in {"mv", "cp"} and len(named) > 1:
        yield from ((path, FileAction.DELETED) for path in named[:-1] if name == "mv")
        yield named[-1], FileAction.CREATED
    elif name in {"sed", "gsed", "perl"} and any(IN_PLACE.match(word) for word in rest):
        yield from ((path, FileAction.MODIFIED) for path in _sed_files(rest, named))


_SHOWS_FILES = frozenset(["cat", "head", "tail", "nl", "sed", "less", "more", "bat"])
_SEARCHES_FILES = frozenset(["grep", "egrep", "fgrep", "rg", "ag"])
_SHOWS_INPUT = _SHOWS_FILES | _SEARCHES_FILES | frozenset(["jq", "sort", "uniq", "cut", "awk"])
_RECURSIVE = re.compile(r"-(?!-)[a-zA-Z]*[rR]|--recursive")
_NOT_SHOWN = ("no such file", "is a directory", "permission denied")


def _files_shown(commands: Sequence[ShellCommand], result: str) -> Iterator[str]:
    """The files whose text the commands of a line print: `cat a.py b.py`, `sed -n 1,80p a.py | head`, `rg name a.py`.
    None of a command that `||` joins to another one: nobody knows which of them ran."""
    refused = lines_containing(result, _NOT_SHOWN)
    before = folder = ""
    for at, command in enumerate(commands if result.strip() else ()):
        folder = posixpath.join(folder, *command.words[1:2]) if command.words[:1] == ("cd",) else folder
        readers = commands[at + 1 : at + 1 + sum(1 for _ in takewhile(lambda each: each.is_piped, commands[at:]))]
        pipeline = (command, *readers)
        if (
            "||" not in (before, pipeline[-1].operator)
            and not any(each.output_files for each in pipeline)
            and all(_program_of(each) in _SHOWS_INPUT for each in readers)
        ):
            named = (path for path in _files_named_to_show(command) if path not in refused)
            yield from (posixpath.join(folder, path) if path.startswith("../") else path for path in named)
        before = command.operator


def _files_named_to_show(command: ShellCommand) -> Sequence[str]:
    """Of a search only a single file; a number belongs to an option."""
    program, rest = _program_of(command), command.words[1:]
    named = [word for word in rest if word and word[0] not in "-+" and not word.isdecimal()]
    if program in _SEARCHES_FILES:
        is_one = len(named) == 2 and "." in named[1].rpartition("/")[2].strip(".")
        return named[1:] if is_one and not any(map(_RECURSIVE.match, rest)) else ()
    if program == "sed":
        return () if any(map(IN_PLACE.match, rest)) else _sed_files(rest, named)
    if program == "awk":  # a script that only chooses lines
        return named[1:] if named and named[0].lstrip().startswith("NR") else ()
    return named if program in _SHOWS_FILES else ()


def _searches(execution: ToolExecution, tool_roles: ToolRoles) -> bool:
    commands = chain.from_iterable(map(parse_command_line, command_lines_of(execution, tool_roles)))
    return any(_program_of(command) in _SEARCHES_FILES for command in commands)


def _program_of(command: ShellCommand) -> str:
    return command.words[0].rpartition("/")[2] if command.words else ""


MAX_SCRIPT_LENGTH = 64 * 1024  # characters of a command line in which scripts are looked for
MAX_CACHED_SCRIPTS = 1024 * 1024
"""Characters of command lines of which is known what their scripts write: it is asked for several times."""
_SCRIPT_BEGIN = re.compile(r"\bpython[\d.]*(?: -)? *<<-? *(['\"]?)(\w+)\1[^\n]*\n")
_NAMED_PATH = re.compile(r"""^ *(\w+) *= *(?:[\w.]*Path\()?["']([^"'\n]+)["']\)?(?= *(?:;|$))""", re.MULTILINE)
_NAME = r"""(\b\w{1,80}|"[^"\n]{1,400}"|'[^'\n]{1,400}')"""
_WRITTEN = re.compile(
    rf"""(?<![\w.])(?:io\.|codecs\.)?open\({_NAME},[ ]*["'][wax]
      | (?:\bPath\({_NAME}\)|(?<![\w.])(\w{{1,80}}))\.write_(?:text|bytes)\(""",
    re.VERBOSE,
)
"""A path that is made of several parts has no name of its own: `(root / "a.py").write_text(...)`."""


_WRITTEN_BY_CAT = re.compile(
    r"""(?:^|[;&][ ]*)cat (?=[^\n]*<<[ ]*(['"])(?P<end>\w+)\1)
        (?=[^\n]*?(?<![\d&>])(?P<into>>>?)[ ]*(?P<path>[\w./~+@-]+)(?![^\s;&|<>]))
        (?:[ ]*(?:<<[ ]*['"]\w+['"]|\d?>>?[ ]*[\w./~+@&-]++))++ [ ]*(?:[;&|][^\n]*)?\n (?P<text>.*?) ^(?P=end)$""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


def texts_written_by_cat(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[tuple[str, str, bool]]:
    """Path and text of each here-document that `cat` puts into a file, and whether that is the whole file; none of a
    command line that may change files in other ways too."""
    for line in command_lines_of(execution, tool_roles):
        if "<<" in line and not any(_works_by_itself(command, line) for command in parse_command_line(line)):
            yield from _written_by_cat(line[:MAX_COMMAND_LINE_LENGTH])


def _find_written_by_cat(line: str) -> Iterator[tuple[str, str, bool]]:
    for found in _WRITTEN_BY_CAT.finditer(line):
        yield direct_path(found["path"]), found["text"].removesuffix("\n"), found["into"] == ">"


_written_by_cat = TextCache(lambda line: tuple(_find_written_by_cat(line)), MAX_CACHED_CHARACTERS)


def _find_written_by_scripts(command_line: str) -> Iterator[str]:
    """Files that a Python script in a here-document writes, by a literal or a variable that holds one."""
    for script in _scripts_in(command_line):
        paths = dict(_NAMED_PATH.findall(script))
        for names in _WRITTEN.findall(script):
            name = "".join(names)
            yield name[1:-1] if name[0] in "\"'" else paths.get(name, "")


_written_by_scripts = TextCache(
    lambda lines: tuple(dict.fromkeys(_find_written_by_scripts(lines)))[:MAX_FILES_PER_STEP], MAX_CACHED_SCRIPTS
)


def _scripts_in(command_line: str) -> Iterator[str]:
    """One without its last line goes on to the end, as for a shell."""
    if "<<" not in command_line:
        return
    text, at = f"{command_line}\n", 0
    while begun := _SCRIPT_BEGIN.search(text, at):
        at = text.find(f"\n{begun[2]}\n", begun.end() - 1)
        yield text[begun.end() : at]
        if at < 0:
            return


_CLIENT_NOTE = re.compile(r"\[This command (?:modified|created|deleted|changed) \d+ files?\b([^\]\n]{0,2000})\]")
_PATH_IN_NOTE = re.compile(r"[\w./~+@-]*[\w/-]\.\w{1,8}\b|[\w.~+@-]+/[\w./+@-]*\w")
_STAT_LINE = re.compile(r"^ (?:\S.*\S|\S) +\| +(?:\d+ [+-]+|Bin .*|\d+)$", re.MULTILINE)
_MAX_REPORT_LENGTH = 6_000  # characters of a report that are read
WHOLE_TREE = ""
"""Stands among the files of a report for the whole working tree."""


def _paths_reported(line: str, commands: Sequence[ShellCommand], result: str) -> tuple[list[str], Mapping[str, str]]:
    """Files that the client reports as changed by its note behind a command, and those that git does by a `git diff
    --stat` of the working tree behind a command of the same line that is no check, with the number of changed lines.
    Alone it shows what was changed at any time before, and between two revisions what others changed. What git only put
    away, brought back or undid is no change."""
    by_client: list[str] = []
    by_git: Mapping[str, str] = {}
    works = [_works_by_itself(command, line) for command in commands]
    if any(map(only_moves_tree, commands)) and not any(works):
        return by_client, by_git
    if "[This command " in result:
        by_client += (path for note in _CLIENT_NOTE.findall(result) for path in _PATH_IN_NOTE.findall(note))
    by_git, report_at = _report_of_git(commands, result)
    return by_client, by_git if any(works[:report_at]) else {}


def _report_of_git(commands: Sequence[ShellCommand], result: str) -> tuple[Mapping[str, str], int]:
    """The files in a `git diff --stat` of the working tree with the number of changed lines, and the position of that
    command; `WHOLE_TREE` is among them where no path is named. A word is no revision if all the files are below it."""
    for at, command in enumerate(commands):
        words = command.words
        if words[:2] == ("git", "diff") and any(word.startswith("--stat") for word in words):
            rows = [row for row in _STAT_LINE.findall(result[:_MAX_REPORT_LENGTH]) if " => " not in row]
            cells = (row.rpartition(" | ") for row in rows if not row.startswith(" ..."))
            counted = {path.strip(): lines.split()[0] for path, _, lines in cells}
            before_paths = takewhile("--".__ne__, words[2:])
            named = {word.rstrip("/") for word in before_paths if word != "HEAD" and not word.startswith("-")}
            if not named:
                return (counted if "--" in words else {WHOLE_TREE: "", **counted}), at
            if all(any(f"{file}/".startswith(f"{name}/") for name in named) for file in counted):
                return counted, at
    return {}, 0


def without_earlier_changes(files: Iterable[ObservedFile], before: Mapping[str, str]) -> Iterator[ObservedFile]:
    """`files` without those of which git's report says nothing new: they are in `changes_before` as changed, or with
    the same number of lines. `reported` is empty where the report is known to tell of a later change."""
    for file in files:
        known = before if file.reported else {}
        counted = [lines for path, lines in known.items() if path and is_same_file(path, file.path)]
        if not (counted or WHOLE_TREE in known):
            yield file
        elif not counted or counted[-1] not in ("", file.reported):
            yield replace(file, reported="")


def changes_before(own: Sequence[PathEntry], path: Sequence[PathEntry], tool_roles: ToolRoles) -> Mapping[str, str]:
    """Files that were changed in the entries of `path` before `own` since the last commit, each with the number of
    lines that a later report of git counts in it, else empty; `WHOLE_TREE` where git reported on all files."""
    known: Mapping[str, str] = {}
    for step in steps_of(takewhile(lambda p: p.entry.seq < own[0].entry.seq, path)):
        known = changes_after(known, step, tool_roles)
    return known


def changes_after(known: Mapping[str, str], step: Step, tool_roles: ToolRoles) -> Mapping[str, str]:
    """What `changes_before` tells behind one more step."""
    seen = {file.path: "" for file in observe_files(step, tool_roles) if file.action is not FileAction.READ}
    for execution in step.executions:
        commands = [c for line in command_lines_of(execution, tool_roles) for c in parse_command_line(line)]
        seen |= _report_of_git(commands, execution.result)[0]
    is_committed = any(move.commits for move, _ in tree_moves_of(step, tool_roles))
    return {} if is_committed else {file: lines for file, lines in known.items() if file not in seen} | seen


_READER_NAMES = "git cd echo cat ls head tail true grep egrep fgrep rg ag wc nl diff cmp which type pwd stat file tree"
_READERS = frozenset(f"{_READER_NAMES} sort uniq cut tr jq date printf sleep test du export set".split())
_MAY_WRITE = re.compile(
    r"\b(?:open|os|io|shutil|subprocess|pathlib|Path|main|run)\b|writ|save|dump|system|exec|generate", re.IGNORECASE
)
"""Words without which a script in a here-document only prints."""


def _may_change_files(words: Sequence[str]) -> bool:
    program = words[0].rpartition("/")[2] if words else ""
    only_prints = program == "sed" and not any(word.startswith(("-i", "--in-place")) for word in words)
    return bool(words) and program not in _READERS and not only_prints


def _works_by_itself(command: ShellCommand, line: str) -> bool:
    """Whether a command of `line` may have changed files: mostly no check does, and no script that only prints."""
    if not _may_change_files(command.words) or command_kind_of(command.words):
        return False
    scripts = tuple(_scripts_in(line)) if command.words[1:] in ((), ("-",)) else ()
    return not scripts or any(map(_MAY_WRITE.search, scripts))


def _sed_files(words: Sequence[str], named: Sequence[str]) -> Sequence[str]:
    """The files of a `sed`; the first word is the script unless `-e` or `-f` gives it (`-pe` in perl)."""
    brought = [at + 1 for at, word in enumerate(words) if re.fullmatch(r"-[a-zA-Z]*[ef]", word)]
    if not brought:
        return named[1:]
    return [word for at, word in enumerate(words) if at not in brought and not word.startswith("-")]


_EXPANDED = re.compile(r"[$`*?{}<>|]")
"""Characters that the shell replaces: the name is not known."""


def _is_plausible_path(path: str) -> bool:
    return (
        bool(path)
        and len(path) <= MAX_PATH_LENGTH
        and not path.startswith(("/dev/", "&"))
        and not _EXPANDED.search(path)
        and "\n" not in path
    )
