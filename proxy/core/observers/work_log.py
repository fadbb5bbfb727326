"""Tells what a call group did, in one line, and each edit in one: for the note that stands where the work was.

A line says what was called on what and how it ended, in the past tense. An edit says the file, the place, the old and
the new text in short.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from proxy.core.frames import direct_path, is_same_file
from proxy.core.observers.call_outcomes import call_failed, is_refused_by_user, output_of, words_of_refusal
from proxy.core.observers.command_outcomes import CommandOutcome, summary_line_of
from proxy.core.observers.commands import CommandRun, observe_commands
from proxy.core.observers.files import FileAction, observe_files
from proxy.core.observers.step import Step, ToolExecution, decode_json_or_text, texts_in
from proxy.core.observers.tool_roles import ToolRole, ToolRoles
from proxy.core.text import cut_code, cut_for_display

COMMAND_CHARACTERS = 80
ARGUMENT_CHARACTERS = 50
FAILURE_CHARACTERS = 70
CODE_CHARACTERS = 70
"""Characters of one side of an edit."""
MAX_EDITS_PER_CALL = 6
TELLING_CHARACTERS = 12
MAX_WRITTEN_TEXTS = 64
"""The newest texts that are followed: each edit is compared with all of them."""
MAX_EDIT_LENGTH = 20_000  # characters of one side that are compared

NO_NAMES: Mapping[str, str] = {}
REFUSED = "refused by the user"
ON_STASH = ", with your changes stashed"
_READ = "read "
_UNTOLD_ROLES = frozenset({ToolRole.PLAN, ToolRole.ITEM_CREATE, ToolRole.ITEM_UPDATE, ToolRole.GOAL})
"""The client's plan has frames of its own."""
_SESSION = re.compile(r'"(?:session|shell|bash|process)_?id"\s*:', re.IGNORECASE)
"""Names a command that runs already: without a text a call only waits for it."""
_VERBS: Mapping[FileAction, str] = {
    FileAction.READ: "read",
    FileAction.CREATED: "wrote",
    FileAction.MODIFIED: "edited",
    FileAction.DELETED: "deleted",
}


# --------------------------------------------------------------------------------------------------------------- steps
def step_line(step: Step, tool_roles: ToolRoles, *, away: bool = False, names: Mapping[str, str] = NO_NAMES) -> str:
    """What the calls of a group did, in order; empty if nothing is to be told. `away`: the changes of the working tree
    were stashed before. `names`: how files are told whose name another one has too."""
    done: list[str] = []
    for execution in step.executions:
        for text in _texts_of_call(execution, tool_roles, names, away=away):
            if done and done[-1].startswith(_READ) and text.startswith(_READ) and ": " not in done[-1] + text:
                if text.removeprefix(_READ) not in done[-1].removeprefix(_READ).split(", "):
                    done[-1] = f"{done[-1]}, {text.removeprefix(_READ)}"
            elif text not in done:
                done.append(text)
    return "; ".join(done)


def tells_of_work(step: Step, tool_roles: ToolRoles) -> bool:
    """Whether a call of the group did more than to write the client's plan."""
    return any(tool_roles.role_of(execution.call.name) not in _UNTOLD_ROLES for execution in step.executions)


def joined_lines(before: str, line: str) -> str:
    """Both lines as one, if both only read or are the same; else empty."""
    counted = _REPEATED.match(before)
    if line == (counted[1] if counted else before):
        return f"{line} ({int(counted[2]) + 1 if counted else 2} times)"
    if not all(text.startswith(_READ) and ";" not in text and ": " not in text for text in (before, line)):
        return ""
    names = dict.fromkeys((*before.removeprefix(_READ).split(", "), *line.removeprefix(_READ).split(", ")))
    return _READ + ", ".join(names)


_REPEATED = re.compile(r"(.*) \((\d+) times\)\Z", re.DOTALL)


def _texts_of_call(
    execution: ToolExecution, tool_roles: ToolRoles, names: Mapping[str, str], *, away: bool
) -> Iterator[str]:
    role = tool_roles.role_of(execution.call.name)
    if role in _UNTOLD_ROLES:
        return
    if role is ToolRole.SHELL and (runs := observe_commands(Step("", (execution,)), tool_roles, away=away)):
        kinds = [run.kind for run in runs]
        for at, run in enumerate(runs):
            place = (kinds[:at].count(run.kind), kinds.count(run.kind))
            yield _text_of_run(run, execution, place)
        return
    if execution.answered and not call_failed(execution):
        files = observe_files(Step("", (execution,)), tool_roles)
        if files:
            yield from (f"{_VERBS[file.action]} {_file_name(file.path, names)}" for file in files[:MAX_EDITS_PER_CALL])
            return
    argument = _argument_of(execution, tool_roles)
    if argument or not _SESSION.search(execution.call.arguments):
        yield f"{execution.call.name} {argument}".rstrip() + _ending_of(execution)


def _text_of_run(run: CommandRun, execution: ToolExecution, place: tuple[int, int]) -> str:
    return _ending_text_of_run(run, execution, place) + (ON_STASH if run.kind and run.on_stash else "")


def _ending_text_of_run(run: CommandRun, execution: ToolExecution, place: tuple[int, int]) -> str:
    """`place`: the position among the runs of its kind, and how many these are."""
    command = cut_for_display(run.command, COMMAND_CHARACTERS)
    if execution.answered and is_refused_by_user(execution.result):
        return f"{command}: {REFUSED}"
    if run.outcome is CommandOutcome.UNKNOWN:
        return command
    at, alike = place
    if run.kind and (summary := summary_line_of(run.kind, run.outcome, execution, place=at, alike=alike)):
        return f"{command}: {run.outcome} ({cut_for_display(summary, FAILURE_CHARACTERS)})"
    return f"{command}: {run.outcome}"


def _file_name(path: str, names: Mapping[str, str] = NO_NAMES) -> str:
    return names.get(path) or path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def _argument_of(execution: ToolExecution, tool_roles: ToolRoles) -> str:
    """The argument that the tool is about, else the first text among them; of a long path the end."""
    arguments = decode_json_or_text(execution.call.arguments)
    spec = tool_roles.spec_of(execution.call.name)
    if isinstance(arguments, dict):
        given = [*(arguments.get(name) for name in (spec.arguments if spec else ())), *arguments.values()]
    else:
        given = [arguments]
    text = next((value.strip() for value in given if isinstance(value, str) and value.strip()), "")
    if len(text) <= ARGUMENT_CHARACTERS or "/" not in text or len(text.split()) > 1:
        return cut_for_display(text, ARGUMENT_CHARACTERS)
    border = text.find("/", len(text) - ARGUMENT_CHARACTERS)
    return f"…{text[border if border >= 0 else 1 - ARGUMENT_CHARACTERS :]}"


def _ending_of(execution: ToolExecution) -> str:
    if not execution.answered:
        return ": no result"
    if not call_failed(execution):
        return ""
    if is_refused_by_user(execution.result):
        return f": {REFUSED}"
    first = next((line for line in output_of(execution.result).splitlines() if line.strip()), "")
    return f": failed ({cut_for_display(re.sub(r'</?[a-z_]+>', '', first), FAILURE_CHARACTERS)})"


def refusals_of(step: Step, tool_roles: ToolRoles) -> tuple[str, ...]:
    """The calls of a group that the user refused with words of theirs, with these."""
    return tuple(
        f"The user refused {execution.call.name} {_argument_of(execution, tool_roles)}: {words}"
        for execution in step.executions
        if execution.answered and call_failed(execution) and (words := words_of_refusal(execution.result))
    )


# --------------------------------------------------------------------------------------------------------------- edits
_OLD_KEYS = ("old_string", "oldString", "oldText", "old_text", "old_str")
_NEW_KEYS = ("new_string", "newString", "newText", "new_text", "new_str", "new_source")
_CONTENT_KEYS = ("content", "file_text", "contents", "text")
_MODIFIERS = (
    "abstract async const data declare default export extern final friend global inline internal local open override "
    "partial private protected pub public sealed static synchronized unsafe virtual"
)
_PLACE = re.compile(
    rf"^(?:@@(?:[^@\n]*@@)?)?\s*(?:(?:{'|'.join(_MODIFIERS.split())})(?:\([\w:]+\))?\s+)*"
    r"(?:def|class|func|function|fn|impl|struct|interface|trait|enum|module)\*?\s+"
    r"(?:\([^)\n]{0,80}\)\s*)?(\w+)\b(?!\s*[,-])"
)
"""A line that begins a definition: words of a comment, and a function without a name, begin none."""
_COMMENT_STARTS = ("//", "#", "/*", "* ", "--", '"""')
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update) File: (.+)$")


def edit_lines(step: Step, tool_roles: ToolRoles, names: Mapping[str, str] = NO_NAMES) -> tuple[str, ...]:
    """The edits of a group that were made, in order: `parser.py, parse: old -> new`. `names` as in `step_line`."""
    lines: list[str] = []
    for execution in step.executions:
        if execution.answered and not call_failed(execution):
            lines += list(_edits_of_call(execution, tool_roles, names))[:MAX_EDITS_PER_CALL]
    return tuple(lines)


def _edits_of_call(execution: ToolExecution, tool_roles: ToolRoles, names: Mapping[str, str]) -> Iterator[str]:
    for patch in _patches_in(execution, tool_roles):
        yield from _edits_of_patch(patch, names)
    for path, old, new, is_whole in _replacements_in(execution, tool_roles):
        name = _file_name(path, names)
        if is_whole:
            lines = len(new.splitlines())
            yield f"{name}: written whole, {lines} line{'s' if lines != 1 else ''}"
        else:
            yield _edit_text(name, old, new)


class _Replacement(NamedTuple):
    """An edit of a file. `old` is empty where `new` was added somewhere, and where the file was written whole."""

    path: str
    old: str
    new: str
    is_whole: bool = False


def _patches_in(execution: ToolExecution, tool_roles: ToolRoles) -> tuple[str, ...]:
    role = tool_roles.role_of(execution.call.name)
    if "*** Begin Patch" not in execution.call.arguments or role not in (None, ToolRole.PATCH, ToolRole.SHELL):
        return ()
    return tuple(text for text in texts_in(decode_json_or_text(execution.call.arguments)) if "*** " in text)


def _replacements_in(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[_Replacement]:
    """The edits that the arguments of a call are; a patch is none."""
    if tool_roles.role_of(execution.call.name) not in (ToolRole.EDIT, ToolRole.WRITE, ToolRole.EDITOR):
        return
    arguments = decode_json_or_text(execution.call.arguments)
    changed = [f for f in observe_files(Step("", (execution,)), tool_roles) if f.action is not FileAction.READ]
    if not changed or not isinstance(arguments, dict):
        return
    path = changed[0].path
    listed = arguments.get("edits")
    for record in (arguments, *(listed if isinstance(listed, list) else ())):
        if isinstance(record, dict):
            old, new = _first_text(record, _OLD_KEYS), _first_text(record, _NEW_KEYS)
            if old or new:
                yield _Replacement(path, old, new)
    if whole := _first_text(arguments, _CONTENT_KEYS):
        yield _Replacement(path, "", whole, is_whole=True)


class WrittenText(msgspec.Struct, frozen=True):
    """What an edit wrote into a file, as far as later edits left it."""

    path: str
    text: str


def written_texts(steps: Iterable[Step], tool_roles: ToolRoles) -> tuple[WrittenText, ...]:
    """The texts that the edits of these steps left in the files, each with the later edits inside it, in the order of
    their newest change. A text is left out where nobody knows what became of it: a command changed the file later, or
    something was added to it at a place that the call does not tell."""
    written: list[WrittenText] = []
    for step in steps:
        for execution in step.executions:
            if not execution.answered or call_failed(execution):
                continue
            patches = _patches_in(execution, tool_roles)
            made = [*_replacements_in(execution, tool_roles)]
            made += (each for patch in patches for each in _replacements_of_patch(patch))
            for each in made:
                written = _with_replacement(written, each)[-MAX_WRITTEN_TEXTS:]
            if patches or not made:
                unknown = {FileAction.DELETED} if made else {*FileAction} - {FileAction.READ}
                files = observe_files(Step("", (execution,)), tool_roles)
                written = _without_files(written, [file.path for file in files if file.action in unknown])
    return tuple(written)


def _without_files(written: list[WrittenText], paths: Sequence[str]) -> list[WrittenText]:
    return [each for each in written if not any(is_same_file(each.path, path) for path in paths)] if paths else written


def _with_replacement(written: list[WrittenText], made: _Replacement) -> list[WrittenText]:
    """The texts after one more edit."""
    path, old, new, _ = made
    if not old:
        staying = _without_files(written, [path])
        return [*staying, WrittenText(path, new)] if made.is_whole else staying
    here = [each for each in written if is_same_file(each.path, path)]
    if around := next((each for each in here if old in each.text), None):
        left, new = [around], around.text.replace(old, new)
    else:
        telling = _telling_lines(old)
        left = [each for each in here if telling & _telling_lines(each.text)]
    staying = [each for each in written if each not in left]
    return [*staying, WrittenText(path, new)] if new.strip() else staying


def _telling_lines(text: str) -> set[str]:
    """Lines long enough to say where they stand: braces are everywhere."""
    return {stripped for line in text.splitlines() if len(stripped := line.strip()) >= TELLING_CHARACTERS}


def _replacements_of_patch(text: str) -> Iterator[_Replacement]:
    path, is_new = "", False
    old: list[str] = []
    new: list[str] = []
    for line in (*text[: 4 * MAX_EDIT_LENGTH].splitlines(), "@@"):
        if line.startswith(("@@", "*** ")) and (old or new):
            if path and old != new:
                yield _Replacement(path, "" if is_new else "\n".join(old), "\n".join(new), is_new)
            old, new = [], []
        if header := _PATCHED_FILE.match(line):
            path, is_new = direct_path(header[1].strip()), line.startswith("*** Add")
        elif line.startswith("*** "):
            path = path if line.startswith(("*** End of File", "*** Move to")) else ""
        elif not line.startswith("@@"):
            old += [line[1:]] if not line.startswith("+") else []
            new += [line[1:]] if not line.startswith("-") else []


def _first_text(record: Mapping[str, object], keys: Iterable[str]) -> str:
    return next((value for key in keys if isinstance(value := record.get(key), str) and value), "")


def _edit_text(name: str, old: str, new: str) -> str:
    before, after = old[:MAX_EDIT_LENGTH].splitlines(), new[:MAX_EDIT_LENGTH].splitlines()
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    tail = 0
    while tail < min(len(before), len(after)) - same and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    gone, come = before[same : len(before) - tail], after[same : len(after) - tail]
    return _described(name, _place_in(before[: same + 1] + after[same : same + 1]), gone, come)


def _described(name: str, place: str, gone: Sequence[str], come: Sequence[str]) -> str:
    where = f"{name}, {place}" if place else name
    stayed = {line.strip() for line in gone} & {line.strip() for line in come}
    old, new = (_code_in([line for line in lines if line.strip() not in stayed]) for lines in (gone, come))
    if old and new:
        return f"{where}: {old} -> {new}"
    return (
        f"{where}: added {new}" if new else f"{where}: removed {old}" if old else f"{where}: {_rearranged(gone, come)}"
    )


def _rearranged(gone: Sequence[str], come: Sequence[str]) -> str:
    """What an edit did that left the words of its lines as they were."""
    before, after = ([line.strip() for line in lines if line.strip()] for lines in (gone, come))
    if before != after:
        return f"the same lines in other places or numbers: {_code_in(come)}"
    return f"other blanks around {_code_in(come)}" if after else "blank lines"


def _code_in(lines: Sequence[str]) -> str:
    """The first line with code, and how many more there are."""
    written = [line.strip() for line in lines if line.strip()]
    code = [line for line in written if not line.startswith(_COMMENT_STARTS)] or written
    if not code:
        return ""
    more = f" (and {len(code) - 1} more line{'s' if len(code) > 2 else ''})" if len(code) > 1 else ""
    return cut_code(code[0], CODE_CHARACTERS) + more


def _place_in(lines: Sequence[str]) -> str:
    return next((found[1] for line in reversed(lines) if (found := _PLACE.match(line))), "")


def _edits_of_patch(text: str, names: Mapping[str, str]) -> Iterator[str]:
    name, place = "", ""
    gone: list[str] = []
    come: list[str] = []
    for line in (*text[: 4 * MAX_EDIT_LENGTH].splitlines(), "@@"):
        if line.startswith(("@@", "*** ", " ")) and (gone or come):
            if name:
                yield _described(name, place, gone, come)
            gone, come = [], []
        if header := _PATCHED_FILE.match(line):
            name, place = _file_name(direct_path(header[1].strip()), names), ""
        elif line.startswith("*** "):
            name = name if line.startswith(("*** End of File", "*** Move to")) else ""
        elif line.startswith("-"):
            gone.append(line[1:])
        elif line.startswith("+"):
            come.append(line[1:])
        else:
            place = _place_in([line]) or ("" if line.startswith("@@") else place)  # a hunk may stand anywhere
