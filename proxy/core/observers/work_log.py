"""Tells what a call group did, in one line, and each edit in one: for the note that stands where the work was.

A line says what was called on what and how it ended, in the past tense. An edit says the file, the place, the old and
the new text in short.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.core.definitions import language_of, place_of
from proxy.core.frames import direct_path, file_name_of, is_same_file
from proxy.core.observers.call_outcomes import (
    call_failed,
    is_refused_by_user,
    never_ran,
    output_of,
    was_left_out,
    words_of_refusal,
)
from proxy.core.observers.command_outcomes import CommandOutcome, is_working_program, summary_line_of
from proxy.core.observers.commands import CommandRun, command_lines_of, observe_commands
from proxy.core.observers.files import FileAction, files_in_patches, observe_files, texts_written_by_cat
from proxy.core.observers.shell import command_kind_of, parse_command_line
from proxy.core.observers.step import Step, ToolExecution, decode_json_or_text, texts_in
from proxy.core.observers.tool_roles import DEFAULT_TOOL_ROLES, ToolRole, ToolRoles
from proxy.core.text import cut_code, cut_for_display

COMMAND_CHARACTERS = 80
ARGUMENT_CHARACTERS = 50
FAILURE_CHARACTERS = 70
CODE_CHARACTERS = 70
"""Characters of one side of an edit."""
MAX_FILES_TOLD = 6  # of one call, in its line
NEW_LINE = "\n"
TELLING_CHARACTERS = 12
MAX_TEXTS_OF_FILE = 12
MAX_WRITTEN_TEXTS = 64
"""The newest texts that are followed: each edit is compared with all of them."""
MAX_EDIT_LENGTH = 20_000  # characters of one side that are compared
MAX_PLACED_CHANGES = 100
"""Changes of one patch whose places are looked for: 1,000 in one hunk took 0.3 s."""

NO_NAMES: Mapping[str, str] = {}
REFUSED = "refused by the user"
NOT_RUN = "not run"
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
    were stashed before. `names`: how files are told whose name another one has too. Of calls that the client left out
    because another one failed the first is named."""
    done: list[str] = []
    left_out = 0
    for execution in step.executions:
        for text in _texts_of_call(execution, tool_roles, names, away=away):
            left_out += text.endswith(NOT_RUN)
            if text.endswith(NOT_RUN) and left_out > 1:
                continue
            if done and done[-1].startswith(_READ) and text.startswith(_READ) and ": " not in done[-1] + text:
                if text.removeprefix(_READ) not in done[-1].removeprefix(_READ).split(", "):
                    done[-1] = f"{done[-1]}, {text.removeprefix(_READ)}"
            elif text not in done:
                done.append(text)
    if left_out > 1:
        done.append(f"{left_out - 1} more call{'s' if left_out > 2 else ''}: {NOT_RUN}")
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
        if any(kinds) and any(
            is_working_program(command) and not command_kind_of(command.words)
            for line in command_lines_of(execution, tool_roles)
            for command in parse_command_line(line)
        ):
            yield from filter(None, [_description_of(execution)])
        for at, run in enumerate(runs):
            place = (kinds[:at].count(run.kind), kinds.count(run.kind))
            yield _ending_text_of_run(run, execution, place) + (ON_STASH if run.kind and run.on_stash else "")
        return
    if execution.answered and not call_failed(execution):
        files = observe_files(Step("", (execution,)), tool_roles)
        if files:
            yield from (f"{_VERBS[file.action]} {_file_name(file.path, names)}" for file in files[:MAX_FILES_TOLD])
            if len(files) > MAX_FILES_TOLD:
                yield f"{_VERBS[files[-1].action]} {len(files) - MAX_FILES_TOLD} more"
            return
    argument = _argument_of(execution, tool_roles, names)
    if argument or not _SESSION.search(execution.call.arguments):
        yield f"{execution.call.name} {argument}".rstrip() + _ending_of(execution)


def _ending_text_of_run(run: CommandRun, execution: ToolExecution, place: tuple[int, int]) -> str:
    """`place`: the position among the runs of its kind, and how many these are."""
    command = _shown_command(run, execution)
    if execution.answered and is_refused_by_user(execution.result):
        return f"{command}: {REFUSED}"
    if run.outcome is CommandOutcome.UNKNOWN:
        return f"{command}: {NOT_RUN}" if never_ran(execution) else command
    at, alike = place
    if run.kind and (summary := summary_line_of(run.kind, run.outcome, execution, place=at, alike=alike)):
        return f"{command}: {run.outcome} ({cut_for_display(summary, FAILURE_CHARACTERS)})"
    return f"{command}: {run.outcome}"


def _shown_command(run: CommandRun, execution: ToolExecution) -> str:
    """A command in short; a script of several lines by what its call says of it, if it does."""
    is_script = not run.kind and len(run.command) > COMMAND_CHARACTERS and r"\n" in execution.call.arguments
    described = _description_of(execution) if is_script else ""
    return described or cut_for_display(_ERRORS_REDIRECTED.sub("", run.command), COMMAND_CHARACTERS)


def _description_of(execution: ToolExecution) -> str:
    arguments = decode_json_or_text(execution.call.arguments)
    described = _first_text(arguments, ("description",)) if isinstance(arguments, dict) else ""
    return described and f'{execution.call.name} "{cut_for_display(described, COMMAND_CHARACTERS)}"'


_ERRORS_REDIRECTED = re.compile(r"(?<! ) +2> ?(?:&1|/dev/null)")


def _file_name(path: str, names: Mapping[str, str] = NO_NAMES) -> str:
    return names.get(path) or file_name_of(path.rstrip("/\\")) or path


def _argument_of(execution: ToolExecution, tool_roles: ToolRoles, names: Mapping[str, str] = NO_NAMES) -> str:
    """The argument that the tool is about, else the first text among them; of a long path the end, and of a patch the
    names of its files."""
    if patched := dict.fromkeys(file.path for file in files_in_patches(_patches_in(execution, tool_roles))):
        return cut_for_display(", ".join(_file_name(path, names) for path in patched), ARGUMENT_CHARACTERS)
    arguments = decode_json_or_text(execution.call.arguments)
    spec = tool_roles.spec_of(execution.call.name)
    if isinstance(arguments, dict):
        about = ("description",) if "prompt" in arguments else ()  # before the kind of a subagent
        given = [*(arguments.get(name) for name in (spec.arguments if spec else about)), *arguments.values()]
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
    if was_left_out(execution.result):
        return f": {NOT_RUN}"
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
_COMMENT_STARTS = ("//", "#", "/*", "* ", "--", '"""')
_PROSE = (".md", ".mdx", ".markdown", ".rst", ".adoc")  # a line with such a mark is a heading or an item
_WORDS = re.compile(r"\w+")
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update) File: (.+)$")


class FileTexts:
    """The texts of files that the calls of these steps showed or wrote: what stands around an edit is told by them."""

    def __init__(self, steps: Iterable[Step] = (), tool_roles: ToolRoles = DEFAULT_TOOL_ROLES) -> None:
        self._steps, self._tool_roles = steps, tool_roles

    def place_of(self, path: str, old: Sequence[str], new: Sequence[str], changed: int) -> str:
        """The place of line `changed` of the lines `new`, which were `old` before: as these lines tell, or as a text of
        the file does that has one of them once, if that tells more. Empty where nobody knows."""
        language, written = language_of(path), NEW_LINE.join(new)
        places = [place_of(new, changed, language)]
        for text in self._texts.get(_spelled_in(self._texts, path), ()):
            for block in filter(None, (NEW_LINE.join(old), written)):
                above, found, below = text.partition(block)
                if found and block not in below:
                    lines = f"{above}{written}".split(NEW_LINE)
                    places.append(place_of(lines, above.count(NEW_LINE) + changed, language))
        return max(reversed(places), key=len)

    @cached_property
    def _texts(self) -> dict[str, list[str]]:
        """The newest texts of each file, oldest first, without line numbers; one more after each edit of the last."""
        texts: dict[str, list[str]] = {}
        for execution in (execution for step in self._steps for execution in step.executions):
            for path, old, new in () if call_failed(execution) else _texts_told_by(execution, self._tool_roles):
                known = texts.setdefault(_spelled_in(texts, path), [])
                if not old or (known and old in known[-1]):
                    known.append(known[-1].replace(old, new, 1) if old else new)
                    del known[:-MAX_TEXTS_OF_FILE]
        return texts


def _spelled_in(paths: Mapping[str, object], path: str) -> str:
    """The first of `paths` that names the same file, else the path itself. Most are spelled alike, or have another
    name: to compare them as paths takes long."""
    if path in paths:
        return path
    name = _file_name(path)
    return next((known for known in paths if known.endswith(name) and is_same_file(known, path)), path)


_LINE_NUMBER = re.compile(r"^ {0,9}\d{1,7}(?:→|\t| ?\| ?|: ?)", re.MULTILINE)


def _texts_told_by(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[tuple[str, str, str]]:
    """Paths with the old and the new text; without an old one the new is all that is known."""
    made = list(_replacements_in(execution, tool_roles))
    made += (each for patch in _patches_in(execution, tool_roles) for each in _replacements_of_patch(patch))
    yield from ((each.path, each.old, each.new) for each in made if each.old or each.is_whole)
    files = [] if made else observe_files(Step("", (execution,)), tool_roles)
    if len(files) == 1 and files[0].action is FileAction.READ and files[0].is_certain:
        yield files[0].path, "", _LINE_NUMBER.sub("", output_of(execution.result).replace("\r\n", NEW_LINE))


NO_TEXTS = FileTexts()


def edit_lines(
    step: Step, tool_roles: ToolRoles, names: Mapping[str, str] = NO_NAMES, texts: FileTexts = NO_TEXTS
) -> tuple[str, ...]:
    """The edits of a group that were made, in order: `parser.py, Parser.parse: old -> new`. `names` as in `step_line`;
    `texts` tell the places of edits that do not do so themselves."""
    lines: list[str] = []
    for execution in step.executions:
        if execution.answered and not call_failed(execution):
            lines += _edits_of_call(execution, tool_roles, names, texts)
    return tuple(lines)


def _edits_of_call(
    execution: ToolExecution, tool_roles: ToolRoles, names: Mapping[str, str], texts: FileTexts
) -> Iterator[str]:
    for patch in _patches_in(execution, tool_roles):
        yield from _edits_of_patch(patch, names, texts)
    for each in _replacements_in(execution, tool_roles):
        if each.is_whole:
            lines = len(each.new.splitlines())
            yield f"{_file_name(each.path, names)}: written whole, {lines} line{'s' if lines != 1 else ''}"
        else:
            yield _edit_text(each.path, each.old, each.new, names, texts)


class _Replacement(NamedTuple):
    """An edit of a file. `old` is empty where `new` was added somewhere, and where the file was written whole."""

    path: str
    old: str
    new: str
    is_whole: bool = False
    is_at_end: bool = False


def _patches_in(execution: ToolExecution, tool_roles: ToolRoles) -> tuple[str, ...]:
    role = tool_roles.role_of(execution.call.name)
    if "*** Begin Patch" not in execution.call.arguments or role not in (None, ToolRole.PATCH, ToolRole.SHELL):
        return ()
    return tuple(text for text in texts_in(decode_json_or_text(execution.call.arguments)) if "*** " in text)


def _replacements_in(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[_Replacement]:
    """The edits that the arguments of a call are, or its here-documents; a patch is none."""
    for path, text, is_whole in texts_written_by_cat(execution, tool_roles):
        yield _Replacement(path, "", text, is_whole, not is_whole)
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
    """What an edit wrote into a file, as far as later edits left it, and the definition that it stands in or begins."""

    path: str
    text: str
    place: str = ""


def written_texts(steps: Iterable[Step], tool_roles: ToolRoles, texts: FileTexts = NO_TEXTS) -> tuple[WrittenText, ...]:
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
    return tuple(replace(each, place=_place_of_text(each, texts)) for each in written)


def _place_of_text(written: WrittenText, texts: FileTexts) -> str:
    """Empty where the text begins at the left: then it tells itself."""
    lines = written.text.split(NEW_LINE)
    first = _first_code(lines)
    return texts.place_of(written.path, lines, lines, first) if lines[first][:1].isspace() else ""


def _without_files(written: list[WrittenText], paths: Sequence[str]) -> list[WrittenText]:
    return [each for each in written if not any(is_same_file(each.path, path) for path in paths)] if paths else written


def _with_replacement(written: list[WrittenText], made: _Replacement) -> list[WrittenText]:
    """The texts after one more edit."""
    path, old, new, _, is_at_end = made
    if not old:
        staying = written if is_at_end else _without_files(written, [path])
        return [*staying, WrittenText(path, new)] if made.is_whole or is_at_end else staying
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


def _edit_text(path: str, old: str, new: str, names: Mapping[str, str], texts: FileTexts) -> str:
    before, after = old[:MAX_EDIT_LENGTH].splitlines(), new[:MAX_EDIT_LENGTH].splitlines()
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    tail = 0
    while tail < min(len(before), len(after)) - same and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    gone, come = before[same : len(before) - tail], after[same : len(after) - tail]
    place = _place_of_change(path, before, after, same, come, texts)
    return _described(_file_name(path, names), place, gone, come)


def _place_of_change(  # noqa: PLR0913  an edit, and what is known of its file
    path: str, before: Sequence[str], after: Sequence[str], same: int, come: Sequence[str], texts: FileTexts
) -> str:
    """The place of the first line with code that an edit wrote, else of the one that it took away."""
    if any(line.strip() for line in come):
        return texts.place_of(path, before, after, same + _first_code(come))
    return texts.place_of(path, after, before, same + _first_code(before[same:])) if before[same:] else ""


def _first_code(lines: Sequence[str]) -> int:
    return next((at for at, line in enumerate(lines) if line.strip()), 0)


def _described(name: str, place: str, gone: Sequence[str], come: Sequence[str]) -> str:
    comments = () if name.casefold().endswith(_PROSE) else _COMMENT_STARTS
    old_lines, new_lines = ([line.strip() for line in lines if line.strip()] for lines in (gone, come))
    if not set(old_lines).isdisjoint(new_lines):
        both = Counter(old_lines) & Counter(new_lines)
        old_lines, new_lines = ([*(Counter(lines) - both).elements()] for lines in (old_lines, new_lines))
    before = _code_first(old_lines, comments)
    after = _code_first(new_lines, comments, "".join(before[:1]))
    if before and _code_in(before) == _code_in(after):  # they differ behind the cut
        before, after = _from_difference(before, after)
    old, new = _code_in(before), _code_in(after)
    owner, _, own = place.rpartition(".")
    if not old and re.search(rf"\b{own}\b", new):
        place = owner  # what was added names itself
    where = f"{name}, {place}" if place else name
    if old and new:
        return f"{where}: {old} -> {new}"
    return (
        f"{where}: added {new}" if new else f"{where}: removed {old}" if old else f"{where}: {_rearranged(gone, come)}"
    )


def _from_difference(old: Sequence[str], new: Sequence[str]) -> tuple[list[str], list[str]]:
    """Both sides, their first lines from some words before the place where these differ."""
    same = next((at for at, (a, b) in enumerate(zip(old[0], new[0], strict=False)) if a != b), len(old[0]))
    start = max(old[0].rfind(" ", 0, max(0, same - CODE_CHARACTERS // 3)) + 1, same - CODE_CHARACTERS // 2)
    return [f"…{old[0][start:]}", *old[1:]], [f"…{new[0][start:]}", *new[1:]]


def _rearranged(gone: Sequence[str], come: Sequence[str]) -> str:
    """What an edit did that left the words of its lines as they were."""
    before, after = ([line.strip() for line in lines if line.strip()] for lines in (gone, come))
    if before != after:
        return f"the same lines in other places or numbers: {_code_in(_code_first(come))}"
    return f"other blanks around {_code_in(_code_first(come))}" if after else "blank lines"


def _code_in(lines: Sequence[str]) -> str:
    """The first of these lines, and how many more there are."""
    more = f" (and {len(lines) - 1} more line{'s' if len(lines) > 2 else ''})" if len(lines) > 1 else ""
    return cut_code(lines[0], CODE_CHARACTERS) + more if lines else ""


def _code_first(lines: Iterable[str], comments: tuple[str, ...] = _COMMENT_STARTS, replaced: str = "") -> Sequence[str]:
    """The lines with text: comments and decorators behind the others, and first the one that has most words of the
    `replaced` one."""
    words = set(_WORDS.findall(replaced))
    written = filter(None, map(str.strip, lines))
    return sorted(
        written,
        key=lambda each: (
            not _WORDS.search(each),
            each.startswith((*comments, "@")),
            -len(words & set(_WORDS.findall(each))),
        ),
    )


def _edits_of_patch(text: str, names: Mapping[str, str], texts: FileTexts) -> Iterator[str]:
    path, header = "", list[str]()
    above: list[str] = []
    gone: list[str] = []
    come: list[str] = []
    found = 0
    for line in (*text[: 4 * MAX_EDIT_LENGTH].splitlines(), "@@"):
        if line.startswith(("@@", "*** ", " ")) and (gone or come):
            if path and found >= MAX_PLACED_CHANGES:
                yield _described(_file_name(path, names), "", gone, come)
            elif path:
                found += 1
                place = _place_of_change(path, [*above, *gone], [*above, *come], len(above), come, texts)
                place = place or place_of((*header, " ..."), len(header), language_of(path))
                yield _described(_file_name(path, names), place, gone, come)
            above, gone, come = [*above, *come] if found < MAX_PLACED_CHANGES else [], [], []
        if patched := _PATCHED_FILE.match(line):
            path, header, above = direct_path(patched[1].strip()), [], []
        elif line.startswith("*** "):
            path = path if line.startswith(("*** End of File", "*** Move to")) else ""
        elif line.startswith("@@"):  # a hunk may stand anywhere
            header, above = [_HUNK.sub("", line)], []
        elif line.startswith("-"):
            gone.append(line[1:])
        elif line.startswith("+"):
            come.append(line[1:])
        else:
            above.append(line[1:])


_HUNK = re.compile(r"@@(?:[^@]*@@)?\s*")
