"""The lines of a file inside the result of a read.

Clients number the lines, put tags and fences around them, hang reminders and notes on the end. The law: **what is taken
for a number, a tag or a note is so by its form**, and for the whole of a result: lines are numbered where nearly all of
them are and the numbers count on; else the text is the content, as it is.

What this module does not do: it knows no client and no tool, and does not ask whether the read succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

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
