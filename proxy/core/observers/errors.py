"""The errors that results told of, and how they ended.

An error here is a name or a line that a later reader would look for: the exception, the failing test, the compiler's
message. The law: **only a result that went wrong has errors**; a file that speaks of errors has none.

What this module does not do: it explains nothing and links no error to its cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from proxy.core.observers.call_outcomes import failed, output_of
from proxy.core.observers.commands import Ran, State, commands_seen
from proxy.core.observers.step import Done, Step, ends_of, lines_with
from proxy.core.observers.tool_roles import NAMES, Names, Role

MOST = 4
"""Errors of one step."""
LONGEST = 160
"""Characters of an error's line."""

_TOLD = re.compile(
    r"""^[ \t]*(?:E[ \t]+)?(?:[\w.]+\.)?\w*(?:Error|Exception|Panic)\b:?[ \t]*[^\n]*   # FileNotFoundError: ...
      | ^[^\n]{0,200}?\berror[ ](?:TS|CS|C)\d{3,5}\b[^\n]*                            # a.ts(1,2): error TS2739: ...
      | ^error(?:\[\w+\])?:[^\n]+ | ^[^\s:]+:\d+(?::\d+)?:[ ](?:fatal[ ])?error:[^\n]+  # compilers
      | ^[ \t]*---[ ]FAIL:[^\n]+ | ^FAILED[ ][^\n]+ | ^[ \t]*✘[^\n]+ | ^[ \t]*●[ ][^\n]+  # tests
      | ^(?:fatal|panic):[^\n]+
      | ^[^\n]{0,100}:[ ](?:No[ ]such[ ]file[ ]or[ ]directory|command[ ]not[ ]found|Permission[ ]denied)
    """,
    re.MULTILINE | re.VERBOSE,
)
_MARKS = ("error", "exception", "panic", "fail", "fatal", "✘", "●", "no such file", "not found", "permission denied")
_SOURCE_LINE = re.compile(r"^\s*(?:raise|throw|except|catch|return|import|from|class|def)\b")
_TAG = re.compile(r"</?[a-z_]+>")
_EXIT_LINE = re.compile(r"^\W*(?:\w+\s){0,4}?exit(?:ed)?\s(?:with\s)?(?:code|status)\W*-?\d+\W*$", re.IGNORECASE)
_NUMBERS = re.compile(r"\d+|0x[0-9a-f]+")


class ErrorSeen(msgspec.Struct, frozen=True):
    """An error on one line, and the kind of the command it arose in: test, lint, build, types, or empty."""

    line: str
    kind: str = ""


def errors_seen(step: Step, names: Names = NAMES) -> tuple[ErrorSeen, ...]:
    """The distinct errors of a step's results, in order; lines that differ in numbers alone are one."""
    found: dict[str, ErrorSeen] = {}
    for done in step.done:
        for error in _told(done, names):
            found.setdefault(_NUMBERS.sub("0", error.line), error)
    return tuple(found.values())[:MOST]


def ending(error: ErrorSeen, probes: Mapping[str, bool]) -> str:
    """How an error ended, by the last state of its kind: `fixed`, `still failing`, or empty where nothing says."""
    if error.kind not in probes:
        return ""
    return "fixed" if probes[error.kind] else "still failing"


def _told(done: Done, names: Names) -> Iterator[ErrorSeen]:
    if not done.answered:
        return
    ran = commands_seen(Step("", (done,)), names) if names.role(done.call.name) is Role.SHELL else ()
    if not _went_wrong(done, ran):
        return
    kind = next((each.kind for each in ran if each.kind), "")
    text = ends_of(output_of(done.result))
    marked = lines_with(text, _MARKS)
    lines = [line for match in _TOLD.finditer(marked) if not _SOURCE_LINE.match(line := match[0])]
    if not lines and failed(done):
        lines = _telling_line(text, last=bool(ran))
    for line in lines:
        shown = " ".join(_TAG.sub("", line).split())
        yield ErrorSeen(shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…", kind)


def _went_wrong(done: Done, ran: tuple[Ran, ...]) -> bool:
    return any(each.state is State.FAILED for each in ran) if ran else failed(done)


def _telling_line(text: str, *, last: bool) -> list[str]:
    """What a tool says of its own failure, the exit code apart: first of all, a command at last."""
    lines = [line for line in text.splitlines() if line.strip() and not _EXIT_LINE.match(line)]
    return lines[-1:] if last else lines[:1]
