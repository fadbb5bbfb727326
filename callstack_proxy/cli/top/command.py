"""Reads the store of a data directory again and again, and shows what is in it until a key or Ctrl-C ends it. A proxy
that runs on it writes there with each request."""

from __future__ import annotations

import asyncio
import os
import re
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live

from callstack_proxy.cli.context import ConfigFile, DataDirectory, settings_at
from callstack_proxy.cli.output import output_width, print_line
from callstack_proxy.cli.store_access import opened_store
from callstack_proxy.cli.top.screen import TopView, now_ms, screen_lines
from callstack_proxy.management import find_by_id
from callstack_proxy.management.find_by_id import ConversationUnreadable
from callstack_proxy.management.views import conversations
from proxy.config import Config
from proxy.store import Store

MAX_CONVERSATIONS = 50
PIPE_WIDTH, PIPE_HEIGHT = 80, 40
"""Columns, unless COLUMNS says otherwise, and lines where the output is no terminal."""

UP, DOWN = "up", "down"
QUIT = "quit"
_NAMES = {b"q": QUIT, b"k": UP, b"j": DOWN, b"\x1b[A": UP, b"\x1b[B": DOWN, b"\x1bOA": UP, b"\x1bOB": DOWN}
_KEY = re.compile(rb"\x1b[\[O][A-Z]|.", re.DOTALL)
MAX_KEY_BYTES = 1024


def top(
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and print it.")] = False,
    config: ConfigFile = None,
    data: DataDirectory = None,
) -> None:
    """Watch conversations and their frames; arrows choose one, q ends it."""
    settings = settings_at(config, data)
    try:
        asyncio.run(_print_once(settings) if once or not sys.stdout.isatty() else _watch(settings, interval))
    except KeyboardInterrupt:
        return


async def _print_once(settings: Config) -> None:
    async with opened_store(settings) as store:
        for line in screen_lines(await _look(store, settings, ""), output_width() or PIPE_WIDTH, PIPE_HEIGHT):
            print_line(line.plain.rstrip())


async def _watch(settings: Config, interval: float) -> None:
    console = Console(highlight=False)
    chosen = ""
    async with opened_store(settings) as store:
        with keys() as next_key, Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                view = await _look(store, settings, chosen)
                live.update(Group(*screen_lines(view, console.width, console.height)), refresh=True)
                key = await asyncio.to_thread(next_key, interval)
                if key == QUIT:
                    return
                if key and view.rows:
                    step = {UP: -1, DOWN: 1}.get(key, 0)
                    at = max(0, min(view.chosen + step, len(view.rows) - 1))
                    chosen = view.rows[at]["id"] if at else ""


async def _look(store: Store, settings: Config, chosen: str) -> TopView:
    """`chosen` is the id of a conversation; empty for the newest one."""
    rows = await conversations.recent_conversation_rows(store, None, MAX_CONVERSATIONS)
    at = next((at for at, row in enumerate(rows) if row["id"] == chosen), 0)
    tree = ""
    if rows:
        try:
            ledger = await find_by_id.find_ledger(store, None, rows[at]["id"])
            tree = conversations.tree_text(ledger, conversations.path_state_of(ledger, names=settings.observed_tools))
        except ConversationUnreadable as error:
            tree = str(error)
    return TopView(rows, tree, at, now_ms())


# -------------------------------------------------------------------------------------------------------- single keys
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
    typed = os.read(descriptor, MAX_KEY_BYTES)
    names = [_NAMES[key] for key in _KEY.findall(typed) if key in _NAMES]
    return QUIT if QUIT in names or not typed else names[-1] if names else ""
