"""The log of a running proxy on stderr: one line for each event, as text or JSON.

    text   [2026-01-31T12:00:00.123Z] [stack] info proxy.exchange request id=r1 status=full tokens_in=5120
    json   {"time": "2026-01-31T12:00:00.123Z", "level": "info", "logger": "proxy.exchange", "event": "request", ...}

A terminal gets short lines for requests, unless text is asked for. Text and JSON have the same fields, escaped and
shortened. Lines of level info may wait up to `FLUSH_DELAY_S` to be written together; anything graver is written at once
with all lines before it, so the order stays and only a killed process loses the lines of its last moment. A log that
nobody reads (a stopped pager or terminal, a supervisor that hangs) never stops the proxy: lines wait in memory, then
they are dropped and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import socket
import stat
import sys
import textwrap
import threading
import time
import traceback
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal, TextIO

import msgspec

from callstack_proxy.cli.output import escape_unsafe, format_dollars, one_line
from callstack_proxy.management.loggers import set_log_level
from callstack_proxy.management.reports import STATUS_MEANINGS, reason_meaning
from proxy.telemetry import LogFields, log_field, truncate_field

MAX_CAUSES = 5
"""Exceptions logged of one chain, the last one first."""
FIELD_PREFIX = "stack_"
"""Prefix of our fields, so that none collides with an attribute of a log record."""
COMBINED_FIELDS = "stack"
"""A field that holds all fields of its line as one mapping, by their own names. The line of a request has thirty
fields; adding each to the record costs as much as the rest of the line. `LogFields` are written as they are."""
FLUSH_DELAY_S = 0.02
"""How long an info line waits for others, in seconds. Each write releases the interpreter lock, and taking it back from
the thread that writes the store costs as much as the line: 16 us of CPU for each request under load. Formatting the
lines of one flush takes the event loop 0.3 ms at 1,700 requests a second."""
MAX_WAITING_BYTES = 1 << 20
"""Bytes of lines that wait for a reader before lines are dropped: some 2,000 requests."""
EXIT_WAIT_S = 1.0
"""How long the end of the process waits for a slow reader of the log, in seconds."""
MODEL_WIDTH, TOKENS_WIDTH = 16, 25
"""Characters of columns on a terminal."""
MIN_TERMINAL_WIDTH = 80
_EMPTY_RECORD = logging.makeLogRecord({})
_STANDARD_ATTRIBUTES = frozenset(vars(_EMPTY_RECORD)) | {"message", "asctime", "taskName"}


class MinimalLogRecord(logging.LogRecord):
    """A record with message and time only. No line shows thread, process, task or source location, and finding them
    costs as much as the line, so those attributes are those of an empty record."""

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


class LogWriter:
    """Writes pages of lines to a stream and never waits for its reader. What a pipe or a socket takes at once is
    written at once; the rest, and everything for a terminal, is left to a thread. Files are written to as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._descriptor = _blocking_descriptor(stream)
        self._waiting: deque[tuple[bytes, int]] = deque()
        """Pages that the thread has not written, each with the number of its lines."""
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._has_thread = False
        self.dropped_lines = 0

    def write(self, page: str, lines: int) -> None:
        if self._descriptor < 0:
            self._write_file(page, lines)
            return
        data = page.encode("utf-8", "backslashreplace")
        with self._changed:
            if not self._waiting:
                try:
                    data = data[_write_at_once(self._descriptor, data) :]
                except OSError:
                    self.dropped_lines += lines
                    return
            if data:
                self._leave_to_thread(data, lines)

    def wait_until_written(self, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, timeout_s)

    @property
    def is_waiting(self) -> bool:
        """Lines wait for the reader of the log."""
        return bool(self._waiting)

    def _write_file(self, page: str, lines: int) -> None:
        """Errors are not reported: there is nowhere to do that."""
        try:
            self._stream.write(page)
            self._stream.flush()
        except (OSError, ValueError):
            self.dropped_lines += lines

    def _leave_to_thread(self, data: bytes, lines: int) -> None:
        if self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
            self.dropped_lines += lines
            return
        self._waiting.append((data, lines))
        self._waiting_bytes += len(data)
        self._changed.notify_all()
        if not self._has_thread:
            self._has_thread = True
            threading.Thread(target=self._write_waiting, name="log", daemon=True).start()

    def _write_waiting(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                data, lines = self._waiting[0]
            lost = 0 if _write_all(self._descriptor, data) else lines
            with self._changed:
                self._waiting.popleft()
                self._waiting_bytes -= len(data)
                self.dropped_lines += lost
                self._changed.notify_all()


def _blocking_descriptor(stream: TextIO) -> int:
    """The descriptor of a stream whose reader can keep a writer waiting; -1 for files, `/dev/null` and streams without
    a descriptor."""
    try:
        descriptor = stream.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return -1
    can_block = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
    return descriptor if can_block else -1


def _write_at_once(descriptor: int, data: bytes) -> int:
    """Bytes of `data` that could be written without waiting. Raises OSError where the reader is gone."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):
        with socket.socket(fileno=os.dup(descriptor)) as log_socket:
            try:
                return log_socket.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return 0
    if not stat.S_ISFIFO(mode):
        return 0  # a terminal may take a part and make us wait for the rest
    writable, written = select.poll(), 0
    writable.register(descriptor, select.POLLOUT)
    # A pipe that says it can be written to takes so many bytes.
    while written < len(data) and writable.poll(0):
        written += os.write(descriptor, data[written : written + select.PIPE_BUF])
    return written


def _write_all(descriptor: int, data: bytes) -> bool:
    """Whether all was written, however long that took."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return False
    return True


class BufferedStreamHandler(logging.StreamHandler[TextIO]):
    """Writes lines together where an event loop runs, each by itself elsewhere. Records are formatted at that time,
    because many lines in a row cost half of what each costs between other work; so a logged value must not change."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._said: list[logging.LogRecord] = []
        self._writer = LogWriter(stream)
        self._reported_drops = 0

    @property
    def dropped_lines(self) -> int:
        """Lines that nobody has read: the log was full, or its reader gone."""
        return self._writer.dropped_lines

    def emit(self, record: logging.LogRecord) -> None:
        self._said.append(record)
        if record.levelno > logging.INFO or not (len(self._said) > 1 or self._schedule_flush()):
            self.flush()

    def flush(self) -> None:
        """Write all waiting lines."""
        self.acquire()
        try:
            said, self._said = self._said, []
            if page := "".join([self._format_line(record) for record in said]):
                self._writer.write(self._drop_notice() + page, len(said))
        finally:
            self.release()

    def close(self) -> None:
        """Wait a moment for a slow reader."""
        self._writer.wait_until_written(EXIT_WAIT_S)
        super().close()

    def _drop_notice(self) -> str:
        """A line that says how many lines are missing before it, once the log is read again."""
        missing = self._writer.dropped_lines - self._reported_drops
        if not missing or self._writer.is_waiting:
            return ""
        self._reported_drops += missing
        told = {"levelno": logging.WARNING, "levelname": "WARNING", "name": __name__, "msg": "log lines dropped"}
        return self._format_line(logging.makeLogRecord({**told, f"{FIELD_PREFIX}lines": missing}))

    def _format_line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + self.terminator
        except Exception:  # as the library's handlers do: a line that cannot be formatted is reported and dropped
            self.handleError(record)
            return ""

    def _schedule_flush(self) -> bool:
        """Whether a flush is scheduled; the first waiting line schedules it."""
        try:
            asyncio.get_running_loop().call_later(FLUSH_DELAY_S, self.flush)
        except RuntimeError:
            return False
        return True


class TextLogFormatter(logging.Formatter):
    """A record as one line without empty fields, and its traceback below."""

    def format(self, record: logging.LogRecord) -> str:
        fields = (f"{name}={_quoted(value)}" for name, value in _fields_of(record).items() if value != "")
        begins = (f"[{_timestamp(record)}]", "[stack]")  # S1-161
        said = [*begins, record.levelname.lower(), record.name, record.getMessage(), *fields]
        line = one_line(" ".join(said))
        return f"{line}\n{_trace(record.exc_info[1])}" if record.exc_info else line


class TerminalLogFormatter(TextLogFormatter):
    """For a person who watches: each request as a short line, a word explained where it first appears, all else as
    text.

        10:03:11  gpt-5.5     12,431 -> 9,102 tokens   saved $0.1200 so far   full
    """

    def __init__(self) -> None:
        super().__init__()
        self._saved: float | None = None
        """USD; None as long as a plan paid for everything."""
        self._explained: set[str] = set()

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, Any] = _fields_of(record)
        if record.getMessage() != "request" or record.exc_info or "status" not in fields:
            return super().format(record)
        if fields.get("paid_by") != "plan":
            self._saved = (self._saved or 0.0) + float(fields.get("saved") or 0.0)
        clock = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        word = str(fields["status"])
        reason = f" ({fields['reason']})" if fields.get("reason") else ""
        model = str(fields.get("model") or "-")[:MODEL_WIDTH]
        said = f"{clock}  {model:{MODEL_WIDTH}} {self._tokens(fields)}  {self._balance()}  {word}{reason}"
        return escape_unsafe(said) + self._explanations(word, str(fields.get("reason") or ""))

    def _tokens(self, fields: Mapping[str, Any]) -> str:
        if "tokens_in" not in fields:
            return " " * TOKENS_WIDTH
        return f"{fields['tokens_in']:>7,} -> {fields['tokens_sent']:>7,} tokens"

    def _balance(self) -> str:
        if self._saved is None:
            return "paid by a plan"
        word = "saved" if self._saved >= 0 else "lost"
        return f"{word} {format_dollars(abs(self._saved))} so far"

    def _explanations(self, status: str, reason: str) -> str:
        """What the words mean, below the first line that has them."""
        meanings = {status: STATUS_MEANINGS.get(status, ""), reason: reason and reason_meaning(reason)}
        new = {word: words for word, words in meanings.items() if words and word not in self._explained}
        self._explained.update(new)
        wrapper = textwrap.TextWrapper(MIN_TERMINAL_WIDTH, " " * 10, " " * 12)  # below the clock of a line
        return escape_unsafe("".join(f"\n{wrapper.fill(f'{word}: {words}')}" for word, words in new.items()))


class JsonLogFormatter(logging.Formatter):
    """A record as one JSON object on one line, in ASCII, so that nothing in it moves a cursor or ends the line. A
    traceback is the field `exception`."""

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
    """JSON in ASCII. msgspec writes nearly all lines in an eighth of the time; those with other characters are escaped
    by the slower library."""
    try:
        line = msgspec.json.encode(told)
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(told)
    return line.decode() if line.isascii() else json.dumps(told)


def _fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """The fields that the caller added, in order."""
    said = vars(record)
    together: Mapping[str, object] | None = said.get(COMBINED_FIELDS)
    if together is not None:
        return together
    return {name.removeprefix(FIELD_PREFIX): value for name, value in said.items() if name not in _STANDARD_ATTRIBUTES}


def _trace(error: BaseException | None) -> str:
    """Traceback and type of an exception, without its text, which may quote a message (`int("...")` does)."""
    told: list[str] = []
    while error is not None and len(told) < MAX_CAUSES:
        told.append(f"{''.join(traceback.format_tb(error.__traceback__))}{type(error).__qualname__}")
        error = error.__cause__ or error.__context__
    return "\nafter\n".join(told)


def _timestamp(record: logging.LogRecord) -> str:
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


@lru_cache(8)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


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


def configure_logging(level: str, form: Literal["auto", "text", "json"]) -> BufferedStreamHandler:
    """Write the log from `level` on to stderr; of libraries, from warning on."""
    handler = BufferedStreamHandler(sys.stderr)
    if form == "auto":
        handler.setFormatter(TerminalLogFormatter() if sys.stderr.isatty() else JsonLogFormatter())
    else:
        handler.setFormatter(TextLogFormatter() if form == "text" else JsonLogFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    set_log_level(level.upper())
    logging.setLogRecordFactory(MinimalLogRecord)
    logging._srcfile = None  # a documented switch of the library: source locations are not looked up
    return handler
