"""What one call with its result tells of the contents of files.

    Content    these lines of a file, or all of it
    Edited     a text in a file took the place of another
    Gone       a file was deleted, or moved to another path

The law: **only what did happen**: a call that failed tells nothing, and which file it was about is what the observers
of files say (`observe.files`). Of command lines only those are read that print one file, or a part of it, and do
nothing else.

What this module does not do: it keeps nothing; `contents` puts together what was told.

The lines of a file inside the result of a read.

Clients number the lines, put tags and fences around them, hang reminders and notes on the end. The law: **what is taken
for a number, a tag or a note is so by its form**, and for the whole of a result: lines are numbered where nearly all of
them are and the numbers count on; else the text is the content, as it is.

What this module does not do: it knows no client and no tool, and does not ask whether the read succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from proxy.core.observers.call_outcomes import failed, output_of, parts_of
from proxy.core.observers.commands import command_lines
from proxy.core.observers.files import How, files_seen
from proxy.core.observers.shell import commands_in
from proxy.core.observers.step import Done, Step, decoded, texts_in
from proxy.core.observers.tool_roles import Names, Role
from proxy.core.recall.unchanged_notes import WHOLE_ARGUMENTS, is_note

LONGEST = 65_536
"""Characters of a content that are looked at; of a file no more is kept."""
NEARLY_ALL = 0.8
NOTES = 4
"""Lines at either end of a result that may be the client's words."""

_NUMBER = re.compile(r" {0,9}(\d{1,7})(→|\t| ?\| ?|: ?)")
_TAG = re.compile(r"</?(?:path|type|content|file|file_content|document|result|output)\b[^<>]{0,400}>")
_FENCE = re.compile(r"(?:```|~~~)[\w+-]{0,20}$")
_NOTE = re.compile(
    r"""\W{0,8}(?: (?:showing|displaying|read|lines?|end\sof\sfile|file\s(?:has|is|was|content|truncated)|output|
                     content|use|\d[\d,]{0,9}\s(?:more\s)?(?:lines?|characters?)|here's\sthe\sresult)\b
          .{0,200} \b(?:lines?|offset|truncated|running|characters?)\b )""",
    re.IGNORECASE | re.VERBOSE,
)
_MORE = re.compile(r"\b(?:truncated|more\s(?:lines|characters)|offset|showing|displaying)\b", re.IGNORECASE)
_FROM = re.compile(r"\blines?\s(\d{1,7})\s?(?:-|to)\s?\d", re.IGNORECASE)
_REMINDER, _REMINDED = "<system-reminder>", "</system-reminder>"


class Shown(msgspec.Struct, frozen=True):
    """Lines of a file with their numbers. `whole`: nothing says that there is more of it."""

    numbers: tuple[int, ...]
    lines: tuple[str, ...]
    whole: bool


def lines_shown(result: str, first: int = 0) -> Shown:
    """The lines in the result of a read that was asked to begin at line `first`; 0: it asked for all of the file."""
    is_cut = len(result) > LONGEST
    text = _without_reminder(result[:LONGEST].replace("\r\n", "\n"))
    lines = text.split("\n")
    if numbered := _numbered(lines):
        numbers, content = numbered
        ends = lines[:NOTES] + lines[-NOTES:]
        more = any(_is_note(line) and _MORE.search(line) for line in ends)
        return Shown(numbers, content, not (first or is_cut or more or numbers[0] != 1))
    content, more = _bare(lines)
    told = next((int(match[1]) for line in lines[:NOTES] if _is_note(line) and (match := _FROM.search(line))), 0)
    start = max(told or first, 1)
    return Shown(tuple(range(start, start + len(content))), content, not (first or is_cut or more))


def _without_reminder(text: str) -> str:
    """Without what a client hangs on the end for the model."""
    while text.rstrip().endswith(_REMINDED) and (at := text.rfind(_REMINDER)) >= 0:
        text = text[:at].rstrip()
    return text


def _numbered(lines: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """Numbers and lines without them; None where the lines are not numbered. What stands between two numbers that
    count on is none of the file's."""
    numbers: list[int] = []
    content: list[str] = []
    joint = ""
    for line in lines:
        match = _NUMBER.match(line)
        if match is None or (joint and match[2].strip(" ") != joint):
            continue
        number = int(match[1])
        if numbers and number != numbers[-1] + 1:
            continue
        joint = match[2].strip(" ")
        numbers.append(number)
        content.append(line[match.end() :])
    told = [line for line in lines if line.strip() and not _is_around(line)]
    if not numbers or len(numbers) < NEARLY_ALL * len(told):
        return None
    return tuple(numbers), tuple(content)


def _bare(lines: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """A content without the tags, fences and notes around it, and whether a note says that there is more of it."""
    start, end, more = 0, len(lines), False
    while start < min(end, NOTES) and _is_around(lines[start]):
        more = more or bool(_is_note(lines[start]) and _MORE.search(lines[start]))
        start += 1
    while 0 < start < min(end, 2 * NOTES) and not lines[start].strip("- "):
        start += 1  # what parts a note from the content
    lowest = max(start, len(lines) - NOTES)
    noted = [at for at in range(lowest, end) if _is_around(lines[at])]
    if noted and not any(lines[at].strip() for at in range(noted[0], end) if at not in noted):
        more = more or any(_is_note(lines[at]) and _MORE.search(lines[at]) for at in noted)
        end = noted[0]
    return tuple(lines[start:end]), more


def _is_around(line: str) -> bool:
    stripped = line.strip()
    return bool(_TAG.match(stripped) or _FENCE.match(stripped) or _is_note(stripped))


def _is_note(line: str) -> bool:
    return len(line) <= 2 * 200 and _NOTE.match(line) is not None


FIRST_ARGUMENTS = ("offset", "start_line", "line_start", "startLine", "start", "view_range")
"""Arguments that say at which line a read begins."""
PART_ARGUMENTS = (*FIRST_ARGUMENTS, "limit", "end_line", "line_end", "endLine", "end", "lines", "page", "pages")
OLD_ARGUMENTS = ("old_string", "oldString", "oldText", "old_text", "old_str")
NEW_ARGUMENTS = ("new_string", "newString", "newText", "new_text", "new_str")
ALL_ARGUMENTS = ("replace_all", "replaceAll")
PLACES = ("insert_line", "insert_after")
MOST_EDITS = 200


class Content(msgspec.Struct, frozen=True):
    """Lines of a file that were read or written."""

    path: str
    shown: Shown


class Edited(msgspec.Struct, frozen=True):
    """`new` stands where `old` stood, everywhere or at one place; an empty `old` tells no place."""

    path: str
    old: str
    new: str
    everywhere: bool = False


class Gone(msgspec.Struct, frozen=True):
    """The file is no longer there; `to` is where it was moved to, if it was."""

    path: str
    to: str = ""


Change = Content | Edited | Gone


def changes_of(done: Done, names: Names) -> Iterator[Change]:
    """What a call tells, in order."""
    if failed(done):
        return
    known = names.known(done.call.name)
    role = known.role if known else None
    arguments = decoded(done.call.arguments)
    if role is Role.SHELL and "*** " not in done.call.arguments:
        yield from _printed(done, names)
        return
    seen = [each for each in files_seen(Step("", (done,)), names) if each.sure]
    if role is Role.MOVE:
        if len(seen) > 1:
            yield Gone(seen[0].path, seen[-1].path)
    elif role in (None, Role.PATCH, Role.SHELL):
        yield from (change for text in texts_in(arguments) for change in patch_changes(text))
    elif isinstance(arguments, dict):
        if len(seen) == 1:
            yield from _of_one(seen[0].path, seen[0].how, arguments, done.result)
        else:
            yield from _of_several({each.path for each in seen}, done.result)


def _of_one(path: str, how: How, arguments: Mapping[str, object], result: str) -> Iterator[Change]:
    if how is How.READ:
        text = _said_of(path, result)
        if not is_note(text):
            yield Content(path, lines_shown(text, _first_asked(arguments)))
    elif how is How.DELETED:
        yield Gone(path)
    elif whole := _text(arguments, WHOLE_ARGUMENTS):
        yield _written(path, whole)
    else:
        edits = list(_edits(path, arguments))
        is_made = how is How.CREATED and len(edits) == 1 and not edits[0].old
        yield from [_written(path, edits[0].new)] if is_made else edits


def _of_several(paths: set[str], result: str) -> Iterator[Change]:
    """A read of several files tells which content is whose, or it tells nothing."""
    for part in parts_of(result):
        path, said = part.get("query"), part.get("result")
        if isinstance(path, str) and path in paths and isinstance(said, str):
            yield Content(path, lines_shown(said))


def _said_of(path: str, result: str) -> str:
    """The content in a result that is a list of records."""
    for part in parts_of(result):
        said = part.get("result")
        if part.get("query") == path and isinstance(said, str):
            return said
    return result


def _first_asked(arguments: Mapping[str, object]) -> int:
    """The line a read begins at, from 1; 0 where it asks for the whole file."""
    if not any(arguments.get(name) is not None for name in PART_ARGUMENTS):
        return 0
    for name in FIRST_ARGUMENTS:
        value = arguments.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10_000_000:
            return value
    return 1


def _written(path: str, text: str) -> Content:
    lines = tuple(text[:LONGEST].replace("\r\n", "\n").split("\n"))
    return Content(path, Shown(tuple(range(1, len(lines) + 1)), lines, len(text) <= LONGEST))


def _edits(path: str, arguments: Mapping[str, object]) -> Iterator[Edited]:
    listed = arguments.get("edits")
    for each in listed[:MOST_EDITS] if isinstance(listed, list) else [arguments]:
        if isinstance(each, Mapping) and (new := _text(each, NEW_ARGUMENTS)) is not None:
            placed = any(each.get(name) is not None for name in PLACES)
            old = "" if placed else _text(each, OLD_ARGUMENTS) or ""
            everywhere = any(each.get(name) is True for name in ALL_ARGUMENTS)
            yield Edited(path, old, new, everywhere)


def _text(arguments: Mapping[str, object], names: Sequence[str]) -> str | None:
    return next((value for name in names if isinstance(value := arguments.get(name), str)), None)


# ------------------------------------------------------------------------------------------------------------- patches
_HEADER = re.compile(r"\*\*\* (?:(Add|Update|Delete) File|(Move) to): (.{1,400})$")


def patch_changes(text: str) -> Iterator[Change]:
    """What a patch does, file by file: hunks of context, removed and added lines."""
    if "*** " not in text:
        return
    path, verb = "", ""
    old: list[str] = []
    new: list[str] = []
    for line in [*text[: 4 * LONGEST].replace("\r\n", "\n").split("\n"), "*** End Patch"]:
        header = _HEADER.match(line)
        if header or line.startswith(("@@", "*** ")):
            yield from _hunk(path, verb, old, new)
            old, new = [], []
        if header and header[2]:
            yield Gone(path, header[3].strip())
            path = header[3].strip()
        elif header:
            verb, path = header[1], header[3].strip()
            if verb == "Delete":
                yield Gone(path)
        elif line[:1] in ("-", " ", "+") and path and not line.startswith("*** "):
            old += [line[1:]] if line[0] != "+" else []
            new += [line[1:]] if line[0] != "-" else []


def _hunk(path: str, verb: str, old: list[str], new: list[str]) -> Iterator[Change]:
    if verb == "Add" and new:
        yield _written(path, "\n".join(new))
    elif verb == "Update" and (old or new):
        yield Edited(path, "\n".join(old), "\n".join(new))


# ------------------------------------------------------------------------------------------------------------ commands
_RANGE = re.compile(r"(\d{1,7})(?:,\d{1,7})?p$")
_OPTION = re.compile(r"-{1,2}[\w=-]{0,20}$")


def _printed(done: Done, names: Names) -> Iterator[Content]:
    """`cat FILE`, `nl FILE`, `head -n 40 FILE`, `sed -n 10,40p FILE`, alone or behind `cd DIR &&`."""
    for line in command_lines(done, names):
        commands = [each for each in commands_in(line) if each.words[:1] != ("cd",)]
        if len(commands) != 1 or commands[0].piped or commands[0].written or "<" in line:
            continue
        program, *rest = commands[0].words or ("",)
        first, path = _asked_of(program.rpartition("/")[2], rest)
        if path:
            yield Content(path, lines_shown(output_of(done.result), first))


def _asked_of(program: str, words: Sequence[str]) -> tuple[int, str]:
    """At which line a command begins to print (0: it prints all), and which file; no path where it does another
    thing."""
    named = [word for word in words if not _OPTION.match(word)]
    if program in ("cat", "nl") and len(named) == 1:
        return 0, named[0]
    if program == "head":
        files = [word for word in named if not word.isdecimal()]
        return (1, files[0]) if len(files) == 1 and "-c" not in words else (0, "")
    if program == "sed" and "-n" in words and len(named) == len(("10,40p", "FILE")):
        match = _RANGE.match(named[0])
        return (int(match[1]), named[1]) if match else (0, "")
    return 0, ""
