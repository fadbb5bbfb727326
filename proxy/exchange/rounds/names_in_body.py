"""Reads what a body names, without the rest of it: its model, and the earlier answer that it goes on from.

A parser holds the interpreter for as long as it reads: 75 to 150 ms for 60 MB, in whichever thread. So a long body is
read by a child process. Run by its path, this file is that process: it reads a body from standard input and writes the
two names as a JSON list. It imports nothing of the proxy, so that it starts in 50 ms.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from contextlib import suppress

import msgspec

NamesInBody = tuple[str | None, str]
"""The model and the earlier answer; None and "" where a body names none."""

CHILD_TIMEOUT_S = 20.0
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class _NamedMembers(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw(b"null")
    previous_response_id: msgspec.Raw = msgspec.Raw(b"null")


def read_names(body: bytes) -> NamesInBody:
    """The names, read here."""
    try:
        found = msgspec.json.decode(body, type=_NamedMembers)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return _read_loosely(body)
    return _text_in(found.model), _text_in(found.previous_response_id) or ""


def read_names_in_child(body: bytes) -> NamesInBody | None:
    """The names, read by another process; blocks meanwhile. None where there is no process to be had."""
    if not sys.executable:
        return None
    command = [sys.executable, "-P", __file__]  # -P: beside it lie modules that are named like others
    try:
        child = subprocess.Popen(  # noqa: S603  our own file, with our own interpreter
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    limit = threading.Timer(CHILD_TIMEOUT_S, child.kill)
    limit.start()
    try:
        with child:
            return _answer_of(child, body)
    except (OSError, ValueError):
        return None
    finally:
        limit.cancel()


def _answer_of(child: subprocess.Popen[bytes], body: bytes) -> NamesInBody:
    """Raises OSError and ValueError where the child ended early."""
    if child.stdin is None or child.stdout is None:
        raise ValueError("a child without pipes")
    # One write lets go of the interpreter until the child has read all of it; Popen.communicate takes 4 KB at a time.
    child.stdin.write(body)
    child.stdin.close()
    model, previous = json.loads(child.stdout.read())
    return model, previous


def _text_in(value: msgspec.Raw) -> str | None:
    """None for what is no text, or none that can be decoded."""
    try:
        return msgspec.json.decode(value, type=str)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def _read_loosely(body: bytes) -> NamesInBody:
    """As many servers read: with a byte order mark, in UTF-16, with half of a surrogate pair."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None, ""
    named = found if isinstance(found, dict) else {}
    model, previous = (
        name if isinstance(name := named.get(key), str) and not _HALF_PAIR.search(name) else None
        for key in ("model", "previous_response_id")
    )
    return model, previous or ""


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(read_names(sys.stdin.buffer.read())))
