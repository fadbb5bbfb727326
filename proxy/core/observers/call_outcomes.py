"""How a call ended, as far as its result tells.

Results are free text, so this is a judgement, and a conservative one. The law: **a result is an error when it says so
of itself**: at its beginning, in an exit code, or in a field made for it; or when the client says so beside it. What a
file or a command's output merely contains is no error.

What this module does not do: it does not read the output of tests and compilers; `commands` does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from proxy.core.observers.step import Done, decoded

LONGEST_ERROR = 4_000
"""Characters: a text longer than this that begins like an error message is the content of something."""
LONGEST_REFUSAL = 300
"""Characters: a text in which `not found` stands anywhere in the first line and still is what the tool says of
itself."""
LONGEST_RECORD = 100_000
"""Characters of a result that is decoded as JSON."""
FEW_FIELDS = 4
"""A record of more fields that has an `error` among them is about something else."""
REMEMBERED = 1_024
"""Results of which the judgement is remembered: each observer asks for it, and all of them again where the work leaves
the line. Of longer ones than `LONG` (characters) it is not, so that no forgotten conversation is held by them."""
LONG = 16_384

_MARKED = re.compile(r"<(?:tool_use_error|tool_error|error)>", re.IGNORECASE)
_PREFIX = re.compile(r"^(?:observation:|output:|\[?stderr\]?:?|❌|✗|✘|\W)*\s*", re.IGNORECASE)
_ERROR = re.compile(
    r"""(?: [\w.]*(?:error|exception)\s*(?:\[[^\]\n]*\])?\s*[:!]
          | error\s(?:executing|running|editing|reading|writing|creating|calling|invoking|applying|deleting|while)\b
          | traceback\s\(most\srecent\scall\slast\)
          | (?:fatal|failure|failed|tool\sfailed|command\sfailed)\s*:
          | (?:the\s)?(?:tool|command|edit|patch|execution)\s(?:execution\s)?(?:failed|errored|timed\sout)\b
          | failed\sto\s | unable\sto\s | could\snot\s | couldn't\s | cannot\s | can't\s
          | no\sreplacement\swas\s | string\sto\sreplace\snot\sfound
          | invalid\s(?:arguments?|parameters?|input|patch|tool|path)\b
          | permission\sdenied | access\sdenied | operation\snot\spermitted
          | (?:(?:request|tool\scall|tool\suse)\s)?(?:was\s)?(?:interrupted|aborted|cancell?ed|rejected|denied)\b
          | (?:the\s)?user\s(?:doesn't\swant|does\snot\swant|rejected|denied|declined|cancell?ed|aborted|interrupted)\b
        )""",
    re.IGNORECASE | re.VERBOSE,
)
_REFUSED = re.compile(
    r"\b(?:not found|does not exist|doesn't exist|no such file|no such task|unknown (?:task|id|tool)|unsupported call|"
    r"not a valid|is required|must be|permission denied)\b",
    re.IGNORECASE,
)
_EXIT = re.compile(
    r"""^\W*(?: (?:\w+\s){0,4}? exit(?:ed)? \s (?:with\s)? (?:code|status) \s*[:=]?\s*
            | <(?:return_?code|exit_?code)>\s* )
        (-?\d{1,9}) (?:</\w+>)? \W*$""",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_EXIT_FIELD = re.compile(r'^\s*\{\s*"(?:return_?code|exit_?code)"\s*:\s*(-?\d{1,9})\b', re.IGNORECASE)
_EXIT_ENDS = 300
"""Characters at either end of a result in which its exit code may stand, in a line of its own."""
_CODES = ("exit_code", "exitCode", "returncode", "returnCode", "return_code", "exit_status")


def failed(done: Done) -> bool:
    """Whether the result or the client says that the call went wrong. A call without an answer did nothing that is
    known."""
    if done.failed or not done.answered:
        return True
    return _told_before(done.result) if len(done.result) <= LONG else tells_failure(done.result)


def tells_failure(text: str) -> bool:
    """Whether a result says of itself that its call went wrong."""
    code = exit_code(text)
    if code is not None:
        return code != 0
    head = text[:LONGEST_ERROR].strip()
    if _MARKED.match(head):
        return True
    if head[:1] in ("{", "[") and (said := record_failed(text)) is not None:
        return said
    if len(text) > LONGEST_ERROR:
        return False
    if _ERROR.match(_PREFIX.sub("", head, count=1)):
        return True
    return len(head) <= LONGEST_REFUSAL and bool(_REFUSED.search(head.partition("\n")[0]))


_told_before = lru_cache(REMEMBERED)(tells_failure)


def exit_code(text: str) -> int | None:
    """The exit code a result names in a line of its own near either end, or in a field; None where there is none."""
    if field := _EXIT_FIELD.match(text[:_EXIT_ENDS]):
        return int(field[1])
    ends = (text[:_EXIT_ENDS], text[-_EXIT_ENDS:])
    for end in ends[: 1 if len(text) <= _EXIT_ENDS else 2]:
        if _speaks_of_ending(end) and (found := _EXIT.search(end)):
            return int(found[1])
    return None


def _speaks_of_ending(text: str) -> bool:
    """Looked for first: the expression begins anew at every line, and takes five times as long to find nothing."""
    small = text.lower()
    return "exit" in small or "return_code" in small or "returncode" in small


def record_failed(text: str) -> bool | None:
    """Whether a result that is a record says so: of itself, or of each of its parts. None for what is no record."""
    if len(text) > LONGEST_RECORD:
        return None
    value = decoded(text)
    if isinstance(value, list) and value and all(isinstance(part, Mapping) for part in value):
        return all(_says_failed(part) for part in value)
    return _says_failed(value) if isinstance(value, Mapping) else None


_OUTPUTS = ("output", "result", "stdout", "stderr", "error")


def output_of(text: str) -> str:
    """What a command printed, where a client wraps that in a record; else the result as it is."""
    if text[:1] not in ("{", "[") or len(text) > LONGEST_RECORD:
        return text
    value = decoded(text)
    records = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, Mapping)]
    printed = [said for record in records for key in _OUTPUTS if isinstance(said := record.get(key), str) and said]
    return "\n".join(printed) or text


def parts_of(text: str) -> tuple[Mapping[str, object], ...]:
    """The parts of a result that answers several questions in one call, each a record; empty where it is no such."""
    if text[:1] != "[" or len(text) > LONGEST_RECORD:
        return ()
    value = decoded(text)
    if not isinstance(value, list) or not all(isinstance(part, Mapping) and "success" in part for part in value):
        return ()
    return tuple(value)


def _says_failed(record: Mapping[str, object]) -> bool:
    if any(record.get(key) is False for key in ("success", "ok")):
        return True
    if any(record.get(key) is True for key in ("is_error", "isError")):
        return True
    codes = [code for key in _CODES if isinstance(code := record.get(key), int) and not isinstance(code, bool)]
    if codes:
        return codes[0] != 0
    return bool(record.get("error")) and len(record) <= FEW_FIELDS
