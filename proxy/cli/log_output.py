"""The log of a running proxy on stderr: one line an event, to be read or to be searched.

    text   [2026-01-31T12:00:00.123Z] [stack] info proxy.exchange request id=r1 status=full tokens_in=5120
    json   {"time": "2026-01-31T12:00:00.123Z", "level": "info", "logger": "proxy.exchange", "event": "request", ...}

The fields are the same. They are made harmless and short here; message content and keys are not logged by whoever
calls. The log does not know colour, nor files: whoever keeps it pipes it.

The law: **only news may wait, and it waits at most `WAIT_S`**. What is graver is written at once, with all before it;
so the order stays, and only a process that is killed from outside takes the news of its last moment with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TextIO

import msgspec

from proxy.cli.output import one_line
from proxy.telemetry import LogFields, log_field, truncate_field

MAX_CAUSES = 5
"""Exceptions told of one chain, the last one first."""
FIELD_PREFIX = "stack_"
"""What our fields begin with, so that none has the name of one of the library's."""
COMBINED_FIELDS = "stack"
"""The field that holds all others of its line as one mapping, by their own names: for the line of every request, in
which thirty fields, each put into the record and found there again, cost as much as all the rest. A `Plain` one is
written as it is."""
FLUSH_DELAY_S = 0.02
"""How long a line of news waits for others, in seconds. Each write lets go of the interpreter, and to get it back from
the thread that writes to the store costs as much as the line: 16 us of CPU for each request under load. A page is as
long as the event loop then works on it: 0.3 ms at 1,700 requests a second."""
_EMPTY_RECORD = logging.makeLogRecord({})
_STANDARD_ATTRIBUTES = frozenset(vars(_EMPTY_RECORD)) | {"message", "asctime", "taskName"}


class MinimalLogRecord(logging.LogRecord):
    """What was said, and when. Of threads, processes, tasks and places in the source no line tells anything, and to
    find them costs as much as the line: they are what they are in a record that knows nothing."""

    def __init__(
        self, name: str, level: int, pathname: str, lineno: int, msg: object, args: Any, exc_info: Any, *_: object
    ) -> None:
        self.name, self.msg, self.exc_info = name, msg, exc_info
        self.args = args[0] if args and len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
        self.levelno, self.levelname = level, logging.getLevelName(level)
        self.created = time.time()
        self.msecs = self.created % 1 * 1000

    def __getattr__(self, name: str) -> object:
        return getattr(_EMPTY_RECORD, name)


class BufferedStreamHandler(logging.StreamHandler[TextIO]):
    """Writes lines together where an event loop sees to it, each by itself elsewhere. What was said is put into words
    only then: many lines in a row cost half of what each costs between other work. So nobody changes a value that was
    said."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._said: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record)
        if record.levelno > logging.INFO or not (len(self._said) > 1 or self._schedule_flush()):
            self.flush()

    def flush(self) -> None:
        """Everything that waits. Where the stream is gone there is nobody to tell."""
        self.acquire()
        try:
            said, self._said = self._said, []
            if page := "".join([self._format_line(record) for record in said]):
                self.stream.write(page)
                self.stream.flush()
        except (OSError, ValueError):
            pass
        finally:
            self.release()

    def _format_line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + self.terminator
        except Exception:  # as every handler of the library: a line that cannot be made is told of, and costs no more
            self.handleError(record)
            return ""

    def _schedule_flush(self) -> bool:
        """Whether somebody will: the first line of a page sees to it."""
        try:
            asyncio.get_running_loop().call_later(FLUSH_DELAY_S, self.flush)
        except RuntimeError:
            return False
        return True


class TextLogFormatter(logging.Formatter):
    """A record as one line, less what is empty, and a traceback below it where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        fields = (f"{name}={_quoted(value)}" for name, value in _fields_of(record).items() if value != "")
        begins = (f"[{_timestamp(record)}]", "[stack]")  # S1-161
        said = [*begins, record.levelname.lower(), record.name, record.getMessage(), *fields]
        line = one_line(" ".join(said))
        return f"{line}\n{_trace(record.exc_info[1])}" if record.exc_info else line


class JsonLogFormatter(logging.Formatter):
    """A record as one JSON object on one line, in ASCII: nothing in it moves a cursor or ends the line. A traceback is
    its field `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields = _fields_of(record)
        told |= fields if isinstance(fields, LogFields) else {name: log_field(value) for name, value in fields.items()}
        if record.exc_info:
            told["exception"] = _trace(record.exc_info[1])
        return _ascii_json(told)


def _ascii_json(told: dict[str, object]) -> str:
    """JSON in ASCII. Nearly all lines are that already, and msgspec writes them in an eighth of the time; what it
    cannot say, or says in other letters, is escaped."""
    try:
        line = msgspec.json.encode(told)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(told)
    return line.decode() if line.isascii() else json.dumps(told)


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """What whoever logged has added, in that order."""
    said = vars(record)
    together: Mapping[str, object] | None = said.get(COMBINED_FIELDS)
    if together is not None:
        return together
    return {name.removeprefix(FIELD_PREFIX): value for name, value in said.items() if name not in _STANDARD_ATTRIBUTES}


def _trace(error: BaseException | None) -> str:
    """Where it was raised and of which type it is. What an exception says may quote a message (`int("...")` does)."""
    told: list[str] = []
    while error is not None and len(told) < MAX_CAUSES:
        told.append(f"{''.join(traceback.format_tb(error.__traceback__))}{type(error).__qualname__}")
        error = error.__cause__ or error.__context__
    return "\nafter\n".join(told)


def _timestamp(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


@lru_cache(8)
def _second(compaction_input: int) -> str:
    return datetime.fromtimestamp(compaction_input, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _quoted(value: object) -> str:
    text = truncate_field(_value_text(value))
    return f'"{text}"' if " " in text or not text else text


def _value_text(value: object) -> str:
    match value:
        case str():
            return value
        case float():
            return f"{value:.6g}"
        case dict():
            return ", ".join(f"{name} x{count}" for name, count in value.items())
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def configure_logging(level: str, form: Literal["auto", "text", "json"]) -> None:
    """From now on, what is logged at `level` and above goes to stderr. Libraries are heard from warning on."""
    handler = BufferedStreamHandler(sys.stderr)
    is_text = sys.stderr.isatty() if form == "auto" else form == "text"
    handler.setFormatter(TextLogFormatter() if is_text else JsonLogFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("proxy").setLevel(level.upper())
    logging.setLogRecordFactory(MinimalLogRecord)
    logging._srcfile = None  # one of the switches that the library's own manual names: nobody looks for the place
