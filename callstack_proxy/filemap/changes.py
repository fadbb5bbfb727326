"""Reads from one call and its result what they say about file contents: lines read or written, edits, removals. A
failed call yields nothing, and of command lines only those that print one file or a part of it are read. Line numbers,
tags, fences and notes that clients add to a read are recognised by their form over the whole result; otherwise the text
is the content as it stands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from proxy.core.observers import (
    FileAction,
    Step,
    ToolExecution,
    ToolRole,
    ToolRoles,
    batch_parts_of,
    call_failed,
    command_lines_of,
    decode_json_or_text,
    observe_files,
    output_of,
    parse_command_line,
    texts_in,
)
from proxy.core.recall import WHOLE_FILE_ARGUMENTS, is_unchanged_note

MAX_CONTENT_LENGTH = 65_536  # characters of one content that are examined and kept
MIN_NUMBERED_SHARE = 0.8
MAX_NOTE_LINES = 4  # lines at either end of a result that may be the client's words

_LINE_NUMBER = re.compile(r" {0,9}(\d{1,7})(→|\t| ?\| ?|: ?)")
_TAG = re.compile(r"</?(?:path|type|content|file|file_content|document|result|output)\b[^<>]{0,400}>")
_FENCE = re.compile(r"(?:```|~~~)[\w+-]{0,20}$")
_NOTE = re.compile(
    r"""\W{0,8}(?: (?:showing|displaying|read|lines?|end\sof\sfile|file\s(?:has|is|was|content|truncated)|output|
                     content|use|\d[\d,]{0,9}\s(?:more\s)?(?:lines?|characters?)|here's\sthe\sresult)\b
          .{0,200} \b(?:lines?|offset|truncated|running|characters?)\b )""",
    re.IGNORECASE | re.VERBOSE,
)
_TRUNCATION_NOTE = re.compile(r"\b(?:truncated|more\s(?:lines|characters)|offset|showing|displaying)\b", re.IGNORECASE)
_LINE_RANGE = re.compile(r"\blines?\s(\d{1,7})\s?(?:-|to)\s?\d", re.IGNORECASE)
_REMINDER_START, _REMINDER_END = "<system-reminder>", "</system-reminder>"


class FileLines(msgspec.Struct, frozen=True):
    """Lines of a file with their numbers. `is_complete`: nothing says that the file has more."""

    numbers: tuple[int, ...]
    lines: tuple[str, ...]
    is_complete: bool


def parse_read_result(result: str, first: int = 0) -> FileLines:
    """The lines in the result of a read that began at line `first`; 0 means that the whole file was asked for."""
    is_cut = len(result) > MAX_CONTENT_LENGTH
    text = _without_reminder(result[:MAX_CONTENT_LENGTH].replace("\r\n", "\n"))
    lines = text.split("\n")
    if numbered := _strip_line_numbers(lines):
        numbers, content = numbered
        ends = lines[:MAX_NOTE_LINES] + lines[-MAX_NOTE_LINES:]
        has_more = any(_is_note(line) and _TRUNCATION_NOTE.search(line) for line in ends)
        return FileLines(numbers, content, not (first or is_cut or has_more or numbers[0] != 1))
    content, has_more = _strip_wrapping(lines)
    stated_start = next(
        (int(match[1]) for line in lines[:MAX_NOTE_LINES] if _is_note(line) and (match := _LINE_RANGE.search(line))), 0
    )
    start = max(stated_start or first, 1)
    return FileLines(tuple(range(start, start + len(content))), content, not (first or is_cut or has_more))


def _without_reminder(text: str) -> str:
    while text.rstrip().endswith(_REMINDER_END) and (start := text.rfind(_REMINDER_START)) >= 0:
        text = text[:start].rstrip()
    return text


def _strip_line_numbers(lines: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]] | None:
    """Numbers, and lines without them; None where the lines are not numbered. Lines between two consecutive numbers
    belong to the client, not to the file."""
    numbers: list[int] = []
    content: list[str] = []
    separator = ""
    for line in lines:
        match = _LINE_NUMBER.match(line)
        if match is None or (separator and match[2].strip(" ") != separator):
            continue
        number = int(match[1])
        if numbers and number != numbers[-1] + 1:
            continue
        separator = match[2].strip(" ")
        numbers.append(number)
        content.append(line[match.end() :])
    content_lines = [line for line in lines if line.strip() and not _is_wrapping(line)]
    if not numbers or len(numbers) < MIN_NUMBERED_SHARE * len(content_lines):
        return None
    return tuple(numbers), tuple(content)


def _strip_wrapping(lines: Sequence[str]) -> tuple[tuple[str, ...], bool]:
    """The content without tags, fences and notes around it, and whether a note says that the file has more."""
    start, end, has_more = 0, len(lines), False
    while start < min(end, MAX_NOTE_LINES) and _is_wrapping(lines[start]):
        has_more = has_more or bool(_is_note(lines[start]) and _TRUNCATION_NOTE.search(lines[start]))
        start += 1
    while 0 < start < min(end, 2 * MAX_NOTE_LINES) and not lines[start].strip("- "):
        start += 1  # what parts a note from the content
    lowest = max(start, len(lines) - MAX_NOTE_LINES)
    wrapped = [index for index in range(lowest, end) if _is_wrapping(lines[index])]
    if wrapped and not any(lines[index].strip() for index in range(wrapped[0], end) if index not in wrapped):
        has_more = has_more or any(
            _is_note(lines[index]) and _TRUNCATION_NOTE.search(lines[index]) for index in wrapped
        )
        end = wrapped[0]
    return tuple(lines[start:end]), has_more


def _is_wrapping(line: str) -> bool:
    stripped = line.strip()
    return bool(_TAG.match(stripped) or _FENCE.match(stripped) or _is_note(stripped))


def _is_note(line: str) -> bool:
    return len(line) <= 2 * 200 and _NOTE.match(line) is not None


START_LINE_ARGUMENTS = ("offset", "start_line", "line_start", "startLine", "start", "view_range")
"""The line at which a read begins."""
RANGE_ARGUMENTS = (*START_LINE_ARGUMENTS, "limit", "end_line", "line_end", "endLine", "end", "lines", "page", "pages")
OLD_TEXT_ARGUMENTS = ("old_string", "oldString", "oldText", "old_text", "old_str")
NEW_TEXT_ARGUMENTS = ("new_string", "newString", "newText", "new_text", "new_str")
REPLACE_ALL_ARGUMENTS = ("replace_all", "replaceAll")
INSERT_POSITION_ARGUMENTS = ("insert_line", "insert_after")
MAX_EDITS = 200


class FileContent(msgspec.Struct, frozen=True):
    path: str
    file_lines: FileLines


class FileEdit(msgspec.Struct, frozen=True):
    """`new` replaced `old`, everywhere or once. With an empty `old` the place is unknown."""

    path: str
    old: str
    new: str
    replaces_all: bool = False


class FileRemoval(msgspec.Struct, frozen=True):
    """The file no longer exists here; `to` is its new path if it was moved."""

    path: str
    moved_to: str = ""


FileChange = FileContent | FileEdit | FileRemoval


def file_changes_of(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[FileChange]:
    if call_failed(execution):
        return
    spec = tool_roles.spec_of(execution.call.name)
    role = spec.role if spec else None
    arguments = decode_json_or_text(execution.call.arguments)
    if role is ToolRole.SHELL and "*** " not in execution.call.arguments:
        yield from _printed_contents(execution, tool_roles)
        return
    files = [file for file in observe_files(Step("", (execution,)), tool_roles) if file.is_certain]
    if role is ToolRole.MOVE:
        if len(files) > 1:
            yield FileRemoval(files[0].path, files[-1].path)
    elif role in (None, ToolRole.PATCH, ToolRole.SHELL):
        yield from (change for text in texts_in(arguments) for change in parse_patch(text))
    elif isinstance(arguments, dict):
        if len(files) == 1:
            yield from _changes_of_file(files[0].path, files[0].action, arguments, execution.result)
        else:
            yield from _contents_of_files({file.path for file in files}, execution.result)


def _changes_of_file(path: str, how: FileAction, arguments: Mapping[str, object], result: str) -> Iterator[FileChange]:
    if how is FileAction.READ:
        text = _content_in_result(path, result)
        if not is_unchanged_note(text):
            yield FileContent(path, parse_read_result(text, _requested_start_line(arguments)))
    elif how is FileAction.DELETED:
        yield FileRemoval(path)
    elif whole := _first_string(arguments, WHOLE_FILE_ARGUMENTS):
        yield _whole_content(path, whole)
    else:
        edits = list(_edits_in_arguments(path, arguments))
        is_made = how is FileAction.CREATED and len(edits) == 1 and not edits[0].old
        yield from [_whole_content(path, edits[0].new)] if is_made else edits


def _contents_of_files(paths: set[str], result: str) -> Iterator[FileChange]:
    """The contents of a read of several files, where the result says which content is whose."""
    for part in batch_parts_of(result):
        path, content = part.get("query"), part.get("result")
        if isinstance(path, str) and path in paths and isinstance(content, str):
            yield FileContent(path, parse_read_result(content))


def _content_in_result(path: str, result: str) -> str:
    """The content in a result that is a list of records."""
    for part in batch_parts_of(result):
        content = part.get("result")
        if part.get("query") == path and isinstance(content, str):
            return content
    return result


def _requested_start_line(arguments: Mapping[str, object]) -> int:
    """The line a read begins at, from 1; 0 where the whole file is asked for."""
    if not any(arguments.get(name) is not None for name in RANGE_ARGUMENTS):
        return 0
    for name in START_LINE_ARGUMENTS:
        value = arguments.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10_000_000:
            return value
    return 1


def _whole_content(path: str, text: str) -> FileContent:
    lines = tuple(text[:MAX_CONTENT_LENGTH].replace("\r\n", "\n").split("\n"))
    return FileContent(path, FileLines(tuple(range(1, len(lines) + 1)), lines, len(text) <= MAX_CONTENT_LENGTH))


def _edits_in_arguments(path: str, arguments: Mapping[str, object]) -> Iterator[FileEdit]:
    listed = arguments.get("edits")
    for edit in listed[:MAX_EDITS] if isinstance(listed, list) else [arguments]:
        if isinstance(edit, Mapping) and (new := _first_string(edit, NEW_TEXT_ARGUMENTS)) is not None:
            is_insertion = any(edit.get(name) is not None for name in INSERT_POSITION_ARGUMENTS)
            old = "" if is_insertion else _first_string(edit, OLD_TEXT_ARGUMENTS) or ""
            everywhere = any(edit.get(name) is True for name in REPLACE_ALL_ARGUMENTS)
            yield FileEdit(path, old, new, everywhere)


def _first_string(arguments: Mapping[str, object], names: Sequence[str]) -> str | None:
    return next((value for name in names if isinstance(value := arguments.get(name), str)), None)


_PATCH_HEADER = re.compile(r"\*\*\* (?:(Add|Update|Delete) File|(Move) to): (.{1,400})$")


def parse_patch(text: str) -> Iterator[FileChange]:
    if "*** " not in text:
        return
    path, verb = "", ""
    old: list[str] = []
    new: list[str] = []
    for line in [*text[: 4 * MAX_CONTENT_LENGTH].replace("\r\n", "\n").split("\n"), "*** End Patch"]:
        header = _PATCH_HEADER.match(line)
        if header or line.startswith(("@@", "*** ")):
            yield from _change_of_hunk(path, verb, old, new)
            old, new = [], []
        if header and header[2]:
            yield FileRemoval(path, header[3].strip())
            path = header[3].strip()
        elif header:
            verb, path = header[1], header[3].strip()
            if verb == "Delete":
                yield FileRemoval(path)
        elif line[:1] in ("-", " ", "+") and path and not line.startswith("*** "):
            old += [line[1:]] if line[0] != "+" else []
            new += [line[1:]] if line[0] != "-" else []


def _change_of_hunk(path: str, verb: str, old: list[str], new: list[str]) -> Iterator[FileChange]:
    if verb == "Add" and new:
        yield _whole_content(path, "\n".join(new))
    elif verb == "Update" and (old or new):
        yield FileEdit(path, "\n".join(old), "\n".join(new))


_SED_RANGE = re.compile(r"(\d{1,7})(?:,\d{1,7})?p$")
_OPTION = re.compile(r"-{1,2}[\w=-]{0,20}$")


def _printed_contents(execution: ToolExecution, tool_roles: ToolRoles) -> Iterator[FileContent]:
    """Contents printed by `cat FILE`, `nl FILE`, `head -n 40 FILE` or `sed -n 10,40p FILE`, alone or behind `cd DIR
    &&`."""
    for line in command_lines_of(execution, tool_roles):
        commands = [command for command in parse_command_line(line) if command.words[:1] != ("cd",)]
        if len(commands) != 1 or commands[0].is_piped or commands[0].output_files or "<" in line:
            continue
        program, *rest = commands[0].words or ("",)
        first, path = _start_line_and_path(program.rpartition("/")[2], rest)
        if path:
            yield FileContent(path, parse_read_result(output_of(execution.result), first))


def _start_line_and_path(program: str, words: Sequence[str]) -> tuple[int, str]:
    """The first printed line (0: all of them) and the file; an empty path where the command does something else."""
    operands = [word for word in words if not _OPTION.match(word)]
    if program in ("cat", "nl") and len(operands) == 1:
        return 0, operands[0]
    if program == "head":
        files = [word for word in operands if not word.isdecimal()]
        return (1, files[0]) if len(files) == 1 and "-c" not in words else (0, "")
    if program == "sed" and "-n" in words and len(operands) == len(("10,40p", "FILE")):
        match = _SED_RANGE.match(operands[0])
        return (int(match[1]), operands[1]) if match else (0, "")
    return 0, ""
