"""Single keys from the terminal, without waiting for a line."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

UP, DOWN, QUIT = "up", "down", "quit"
_NAMES = {b"q": QUIT, b"k": UP, b"j": DOWN, b"\x1b[A": UP, b"\x1b[B": DOWN, b"\x1bOA": UP, b"\x1bOB": DOWN}
_KEY = re.compile(rb"\x1b[\[O][A-Z]|.", re.DOTALL)
MAX_BYTES = 1024


@contextmanager
def keys() -> Iterator[Callable[[float], str]]:
    """A function that waits so many seconds for keys and returns the name of the last one, empty for none or others;
    `QUIT` where the terminal is gone. Where stdin is no terminal it only waits."""
    descriptor = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else -1
    if descriptor < 0:
        yield lambda seconds: _wait(seconds)
        return
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield lambda seconds: _read(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(seconds: float) -> str:
    select.select([], [], [], seconds)
    return ""


def _read(descriptor: int, seconds: float) -> str:
    ready, _, _ = select.select([descriptor], [], [], seconds)
    if not ready:
        return ""
    typed = os.read(descriptor, MAX_BYTES)
    names = [_NAMES[key] for key in _KEY.findall(typed) if key in _NAMES]
    return QUIT if QUIT in names or not typed else names[-1] if names else ""
