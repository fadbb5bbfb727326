"""The log of a running proxy: one event is one line, whatever somebody put into its fields."""

import asyncio
import io
import json
import logging
import os
import pty
import re
import select
import socket
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from callstack_proxy.cli.serve.log_output import (
    MAX_CAUSES,
    BufferedStreamHandler,
    JsonLogFormatter,
    MinimalLogRecord,
    TextLogFormatter,
)
from proxy.telemetry.log_fields import MAX_FIELD_CHARS

FORMS = pytest.mark.parametrize("form", [TextLogFormatter(), JsonLogFormatter()], ids=["text", "json"])


def logged(message: str, form: logging.Formatter | None = None, **fields: object) -> str:
    """What is written; with the exception that is being handled, where one is."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form or TextLogFormatter())
    log = logging.Logger("proxy.test")
    log.addHandler(handler)
    log.info(message, extra=fields, exc_info=sys.exc_info()[0] is not None)
    return stream.getvalue()


def test_an_event_is_one_line_with_its_fields_behind_it() -> None:
    line = logged("request", stack_id="r1", stack_reason="", stack_overhead_ms=1.23456789)

    assert line.endswith("Z] [stack] info proxy.test request id=r1 overhead_ms=1.23457\n")


def test_an_object_has_the_same_fields_with_their_types() -> None:
    fields = {"stack_id": "r1", "stack_reason": "", "stack_overhead_ms": 1.23456789, "stack_stream": True}
    told = json.loads(logged("request", JsonLogFormatter(), **fields, stack_calls={"stack": 2}, stack_events=["woken"]))

    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "info", "logger": "proxy.test", "event": "request", "id": "r1", "reason": "", "overhead_ms": 1.23457,
        "stream": True, "calls": {"stack": 2}, "events": ["woken"],
    }  # fmt: skip


@FORMS
def test_fields_that_come_together_are_told_as_if_each_came_by_itself(form: logging.Formatter) -> None:
    """The line of every request says them in one."""
    fields = {"id": "r1", "reason": "", "model": "x" * 1_000, "cost": 1.23456789, "stream": True, "calls": {"stack": 2}}
    together = logged("request", form, stack=fields)
    each = logged("request", form, **{f"stack_{name}": value for name, value in fields.items()})

    def but_its_time(line: str) -> str:
        return re.sub(r"\d{4}-\S+?Z", "", line)

    assert "1.23457" in together
    assert but_its_time(together) == but_its_time(each)


def test_lists_and_counts_are_read_in_text_too() -> None:
    line = logged("request", stack_calls={"stack": 2, "stack_recall": 1}, stack_events=["woken", "pushed f1"])

    assert line.endswith('calls="stack x2, stack_recall x1" events="woken, pushed f1"\n')


@pytest.mark.parametrize("args", [(), ("some", 3), ({"what": "words"},), ({},)])
def test_what_is_said_is_a_record_of_the_library_less_its_place(args: tuple[object, ...]) -> None:
    words = {0: "%d", 1: "%(what)s" if args and args[0] else "%s", 2: "%s %d"}[len(args)]
    said, theirs = (
        made("proxy.test", logging.INFO, "x.py", 7, words, args, None) for made in (MinimalLogRecord, logging.LogRecord)
    )

    assert said.getMessage() == theirs.getMessage()
    assert (said.name, said.levelno, said.levelname) == (theirs.name, theirs.levelno, theirs.levelname)
    assert 0 <= theirs.created - said.created < 60
    assert int(said.msecs) == int(said.created % 1 * 1000)
    assert (said.lineno, said.stack_info, said.exc_text) == (0, None, None)
    assert all(hasattr(said, name) for name in vars(theirs))


@FORMS
def test_an_exception_tells_where_and_what_kind_but_not_what_it_quotes(form: logging.Formatter) -> None:
    """A8: `int("...")` says its argument, and so may whatever else fails."""
    said = "canary-content"
    try:
        try:
            int(said)
        except ValueError as error:
            raise RuntimeError(said) from error
    except RuntimeError:
        told = logged("request failed", form)

    assert said not in told
    assert "ValueError" in told
    assert "test_journal.py" in told


@FORMS
def test_a_chain_of_exceptions_has_an_end(form: logging.Formatter) -> None:
    first = second = ValueError()
    for _ in range(100):
        second = ValueError()
        second.__cause__ = first
        first = second
    try:
        raise second
    except ValueError:
        assert logged("failed", form).count("ValueError") <= 2 * MAX_CAUSES


@FORMS
def test_a_field_forges_no_line_and_moves_no_cursor(form: logging.Formatter) -> None:
    """A11: what a client sends as a model's name, for one."""
    line = logged("request", form, stack_model="x\n2026 info proxy.app forged\x1b[2J\x9b2J\u2028\udcff")

    assert line.count("\n") == 1
    assert [letter for letter in "\x1b\x9b\u2028" if letter in line] == []


@FORMS
def test_a_field_has_an_end(form: logging.Formatter) -> None:
    assert len(logged("request", form, stack_model="x" * 10_000)) < MAX_FIELD_CHARS + 150


# ------------------------------------------------------------------------------------------------------------- together
class Written(io.StringIO):
    """What was written, each write by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.written = asyncio.Event()

    def write(self, text: str) -> int:
        self.writes.append(text)
        self.written.set()
        return super().write(text)


@pytest.fixture
def stream() -> Written:
    return Written()


@pytest.fixture
def log(stream: Written) -> logging.Logger:
    log = logging.Logger("proxy.test")
    log.addHandler(BufferedStreamHandler(stream))
    return log


async def test_news_is_written_together_and_soon(log: logging.Logger, stream: Written) -> None:
    for number in range(3):
        log.info("line %d", number)
    assert stream.writes == []

    await asyncio.wait_for(stream.written.wait(), 10)

    assert stream.writes == ["line 0\nline 1\nline 2\n"]


async def test_what_is_graver_is_written_at_once_with_all_before_it(log: logging.Logger, stream: Written) -> None:
    log.info("first")
    log.warning("second")
    written = list(stream.writes)
    log.info("third")
    log.handlers[0].flush()

    assert written == ["first\nsecond\n"]
    assert stream.getvalue() == "first\nsecond\nthird\n"


def test_without_a_loop_nothing_waits(log: logging.Logger, stream: Written) -> None:
    log.info("first")
    log.info("second")

    assert stream.writes == ["first\n", "second\n"]


async def test_what_a_thread_says_stays_behind_what_waits(log: logging.Logger, stream: Written) -> None:
    await asyncio.to_thread(log.info, "at once")
    log.info("of the loop")
    await asyncio.to_thread(log.info, "of the thread")
    await asyncio.to_thread(log.warning, "a warning")

    assert stream.writes == ["at once\n", "of the loop\nof the thread\na warning\n"]


async def test_what_waits_is_written_at_the_end(log: logging.Logger, stream: Written) -> None:
    log.info("last words")
    logging.shutdown([weakref.ref(log.handlers[0])])

    assert stream.writes == ["last words\n"]


async def test_a_line_that_cannot_be_made_costs_no_other(
    log: logging.Logger, stream: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    log.info("first")
    log.info("%d", "no number")
    log.warning("third")

    assert stream.writes == ["first\nthird\n"]
    assert "Logging error" in capsys.readouterr().err


async def test_a_stream_that_is_gone_stops_nobody(log: logging.Logger, stream: Written) -> None:
    stream.close()

    log.warning("nobody reads this")


# -------------------------------------------------------------------------------------------------------- nobody reads
WAIT_S = 20


@contextmanager
def unread(kind: str) -> Iterator[tuple[TextIO, int]]:
    """A stream that nobody reads, and the descriptor from which it could be read."""
    if kind == "pipe":
        reads, writes = os.pipe()
    elif kind == "terminal":
        reads, writes = pty.openpty()
    else:
        one, other = socket.socketpair()
        reads, writes = one.detach(), other.detach()
    with os.fdopen(writes, "w") as stream:
        yield stream, reads
    os.close(reads)


def read_until(descriptor: int, word: bytes) -> bytes:
    """What can be read up to this word; fails where it does not come."""
    read = b""
    while word not in read:
        assert select.select([descriptor], [], [], WAIT_S)[0], f"{word!r} did not come"
        read += os.read(descriptor, 65536)
    return read


@pytest.mark.parametrize("kind", ["pipe", "terminal", "socket"])
def test_a_log_that_nobody_reads_keeps_nobody_waiting_and_counts_what_is_lost(kind: str) -> None:
    """What was kept is there in order once somebody reads, and a line says how many are missing."""
    with unread(kind) as (stream, reads):
        handler = BufferedStreamHandler(stream)
        log = logging.Logger("proxy.test")
        log.addHandler(handler)
        for number in range(3_000):
            log.warning("line %d %s.", number, "x" * 1_000)
        lost = handler.dropped_lines
        kept = b""
        while handler._writer.is_waiting:
            kept += os.read(reads, 65536) if select.select([reads], [], [], 0.05)[0] else b""
        log.warning("read again")
        kept += read_until(reads, b"read again")

        numbers = [int(word) for word in re.findall(rb"line (\d+) x", kept)]
        assert 0 < lost < 3_000
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 3_000 - lost
        assert b"log lines dropped" in kept
        log.removeHandler(handler)


def test_a_reader_that_is_gone_costs_only_the_lines() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as stream:
        handler = BufferedStreamHandler(stream)
        handler.emit(logging.makeLogRecord({"levelno": logging.WARNING, "msg": "to nobody"}))

        assert handler.dropped_lines == 1
