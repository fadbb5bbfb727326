"""Decides whether a call failed, from the text of its result. A result counts as a failure only if it says so of
itself: at its beginning, in an exit code, in a field made for that, or by the client's own flag. Content of a file or
of a command's output that mentions errors does not count; `commands.py` reads test and compiler output."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from proxy.core.memo import TextCache, late_pattern
from proxy.core.observers.step import ToolExecution, decode_json_or_text
from proxy.core.word_lists import read_table, with_parts

MAX_ERROR_TEXT_LENGTH = 4_000  # characters; a longer text that begins like an error message is the content of something
MAX_REFUSAL_LENGTH = 300
"""Characters; in shorter texts `not found` anywhere in the first line is the tool's own message."""
MAX_JSON_LENGTH = 100_000  # characters
MAX_ERROR_RECORD_FIELDS = 4  # a record with more fields and an `error` among them is about something else
MAX_CACHED_CHARACTERS = 2 << 20
"""Characters of all results whose judgement is cached: every observer asks for it. Long results are not cached."""
MAX_CACHED_RESULT_LENGTH = 16_384


class _Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The expressions of `call_outcomes.toml`, which says of each what it is for."""

    error: str
    left_out: str
    refused_edit: str
    refused_by_user: str
    parts: dict[str, str]


_WORDS = read_table(__package__, "call_outcomes.toml", _Words)
_ERROR_START, _LEFT_OUT, _REFUSES_EDIT, _REFUSED_BY_USER = (
    late_pattern(with_parts(expression, _WORDS.parts), re.IGNORECASE | re.VERBOSE)
    for expression in (_WORDS.error, _WORDS.left_out, _WORDS.refused_edit, _WORDS.refused_by_user)
)
_ERROR_TAG = late_pattern(r"<(?:tool_use_error|tool_error|error)>", re.IGNORECASE)
_ERROR_PREFIX = late_pattern(r"^(?:observation:|output:|\[?stderr\]?:?|❌|✗|✘|\W)*\s*", re.IGNORECASE)
_REFUSAL = late_pattern(
    r"\b(?:not found|does not exist|doesn't exist|no such file|no such task|unknown (?:task|id|tool)|unsupported call|"
    r"not a valid|is required|must be|permission denied)\b",
    re.IGNORECASE,
)
_EXIT_CODE_LINE = late_pattern(
    r"""^\W*(?: (?:\w+\s){0,4}? exit(?:ed)? \s (?:with\s)? (?:code|status) \s*[:=]?\s*
            | <(?:return_?code|exit_?code)>\s* )
        (-?\d{1,9}) (?:</\w+>)? \W*$""",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_EXIT_CODE_FIELD = late_pattern(r'^\s*\{\s*"(?:return_?code|exit_?code)"\s*:\s*(-?\d{1,9})\b', re.IGNORECASE)
_EXIT_CODE_WINDOW = 300  # characters at either end of a result where an exit code may have its own line
_EXIT_CODE_KEYS = ("exit_code", "exitCode", "returncode", "returnCode", "return_code", "exit_status")


def call_failed(execution: ToolExecution) -> bool:
    """Whether the result or the client says that the call failed. False for a call without a result."""
    if execution.failed or not execution.answered or never_ran(execution):
        return True
    if len(execution.result) > MAX_CACHED_RESULT_LENGTH:
        return is_failure_text(execution.result)
    is_refused_edit = _cached_refuses_edit(execution.result) and _EDIT_ARGUMENTS.search(execution.call.arguments)
    return bool(is_refused_edit) or _cached_is_failure_text(execution.result)


def never_ran(execution: ToolExecution) -> bool:
    """Whether the result says that the tool itself failed, before it began with what the call asks for, or that the
    client left the call out."""
    return execution.result.startswith(f"{execution.call.name} failed:") or was_left_out(execution.result)


def was_left_out(text: str) -> bool:
    """Whether a client says that it did not make a call because one beside it failed: that says nothing of this one."""
    return len(text) <= MAX_REFUSAL_LENGTH and _LEFT_OUT.match(text) is not None


def is_failure_text(text: str) -> bool:
    code = exit_code(text)
    if code is not None:
        return code != 0
    head = text[:MAX_ERROR_TEXT_LENGTH].strip()
    if _ERROR_TAG.match(head):
        return True
    if head[:1] in ("{", "[") and (reports_failure := is_failure_record(text)) is not None:
        return reports_failure
    if len(text) > MAX_ERROR_TEXT_LENGTH:
        return False
    if _ERROR_START.match(_ERROR_PREFIX.sub("", head, count=1)):
        return True
    first = head.partition("\n")[0]
    return len(head) <= MAX_REFUSAL_LENGTH and bool(_REFUSAL.search(first)) and not _DIFF_START.match(first)


_cached_is_failure_text = TextCache(is_failure_text, MAX_CACHED_CHARACTERS)


_EDIT_ARGUMENTS = late_pattern(
    r'\*\*\* Begin Patch|<<<<<<< SEARCH|"(?:old_?(?:string|str|text|content)|edits|diff|patch)"\s*:'
    r'|"search"\s*:\s*"(?:[^"\\]|\\.)*+"\s*,\s*"repl',
    re.IGNORECASE,
)
_MAKES_EDIT = late_pattern(
    r"(?<!not )(?<!not be )(?<!not been )(?<!n't )(?<!n't be )(?<!n't been )\b"
    r"(?:updated|applied|replaced|success\w*|created|written|wrote|saved|done|(?<!be )edited(?!\ssince))\b"
    r"|\A\W*(?:changed|made)\s\d",
    re.IGNORECASE,
)
_DIFF_START = late_pattern(r"[-+]{1,3}\s|@@|diff\s")
_CODE_START = late_pattern(r"[-+@{\[`\s]|[1-9]|diff\s")
_TAG = late_pattern(r"</?[a-z_]+>")


def _refuses_edit(text: str) -> bool:
    """Whether the first line says so, as the result of an edit: the text to replace is not there, or the file was not
    read before. Code and diffs say nothing."""
    lines = (line for line in _TAG.sub("", text[:MAX_REFUSAL_LENGTH]).splitlines() if line.strip())
    first = next(lines, "")
    return bool(not _CODE_START.match(first) and _REFUSES_EDIT.search(first) and not _MAKES_EDIT.search(first))


_cached_refuses_edit = TextCache(_refuses_edit, MAX_CACHED_CHARACTERS)


_WORDS_OF_USER = late_pattern(
    r"\b(?:user\s(?:said|says|wrote)|feedback|user's\s(?:reason|message|words))\b[^:\n]{0,40}:\s*(?P<words>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_END_OF_WORDS = late_pattern(r"</?[a-z_]+>|\n\s*\n(?:Note|\[|<)")


def is_refused_by_user(text: str) -> bool:
    """Whether a result says that the user did not allow the call."""
    return _REFUSED_BY_USER.match(text[:MAX_REFUSAL_LENGTH]) is not None


def words_of_refusal(text: str) -> str:
    """What the user said when they did not allow a call, on one line; empty if they said nothing."""
    if not is_refused_by_user(text) or not (said := _WORDS_OF_USER.search(text[:MAX_ERROR_TEXT_LENGTH])):
        return ""
    parts = (part.strip() for part in _END_OF_WORDS.split(said["words"]))
    return " ".join(next(filter(None, parts), "").split())


def exit_code(text: str) -> int | None:
    """The exit code in a line of its own near either end, or in a field; None without one."""
    if field := _EXIT_CODE_FIELD.match(text[:_EXIT_CODE_WINDOW]):
        return int(field[1])
    ends = (text[:_EXIT_CODE_WINDOW], text[-_EXIT_CODE_WINDOW:])
    for end in ends[: 1 if len(text) <= _EXIT_CODE_WINDOW else 2]:
        if _mentions_exit_code(end) and (match := _EXIT_CODE_LINE.search(end)):
            return int(match[1])
    return None


def _mentions_exit_code(text: str) -> bool:
    """A cheap pre-check: the expression restarts at every line and takes five times as long to find nothing."""
    small = text.lower()
    return "exit" in small or "return_code" in small or "returncode" in small


def is_failure_record(text: str) -> bool | None:
    """Whether a JSON record reports a failure, of itself or of each of its parts. None if the text is no record."""
    if len(text) > MAX_JSON_LENGTH:
        return None
    value = decode_json_or_text(text)
    if isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
        return all(_is_failed_record(part) for part in value)
    return _is_failed_record(value) if isinstance(value, Mapping) else None


_OUTPUT_KEYS = ("output", "result", "stdout", "stderr", "error")


_HEADER = late_pattern(
    r"(?:(?:Chunk ID|Wall time|Exit code|Process exited with code|Process running with session ID|Original token count"
    r"|Total output lines)\b[^\n]*\n)+Output:(?:\n|\Z)"
)
"""What Codex writes above the output of a command, since 2025."""
_HEADER_CHARACTERS = 1_000


def output_of(text: str) -> str:
    """A command's output without the record that a client wraps around it, or the lines that it writes above."""
    if header := _HEADER.match(text[:_HEADER_CHARACTERS]):
        return text[header.end() :]
    if text[:1] not in ("{", "[") or len(text) > MAX_JSON_LENGTH:
        return text
    value = decode_json_or_text(text)
    records = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Mapping)]
    printed = [
        output for record in records for key in _OUTPUT_KEYS if isinstance(output := record.get(key), str) and output
    ]
    return "\n".join(printed) or text


def batch_parts_of(text: str) -> tuple[Mapping[str, object], ...]:
    """The records of a result that answers several questions in one call; empty otherwise."""
    if text[:1] != "[" or len(text) > MAX_JSON_LENGTH:
        return ()
    value = decode_json_or_text(text)
    if not isinstance(value, list) or not all(isinstance(part, Mapping) and "success" in part for part in value):
        return ()
    return tuple(value)


def _is_failed_record(record: Mapping[str, object]) -> bool:
    if any(record.get(key) is False for key in ("success", "ok")):
        return True
    if any(record.get(key) is True for key in ("is_error", "isError")):
        return True
    codes = [code for key in _EXIT_CODE_KEYS if isinstance(code := record.get(key), int) and not isinstance(code, bool)]
    if codes:
        return codes[0] != 0
    return bool(record.get("error")) and len(record) <= MAX_ERROR_RECORD_FIELDS
