"""The commands `statusline` and `hook` as the table of commands has them, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from callstack_proxy.cli.statusline.ask_proxy import Options
from callstack_proxy.cli.statusline.hook import print_hook_answer
from callstack_proxy.cli.statusline.line import print_status_line

DataDirectory = Annotated[Path | None, typer.Option("--data", help="Directory of store and keys.")]


def statusline(
    shows_settings: Annotated[bool, typer.Option("--settings", help="What to paste into Claude Code or tmux.")] = False,
    data: DataDirectory = None,
) -> None:
    """Print one line for a status line: context, savings, working frame. Reads Claude Code's JSON on stdin."""
    print_status_line(_options(data, shows_settings=shows_settings))


def hook(
    shows_settings: Annotated[bool, typer.Option("--settings", help="What to paste into both clients.")] = False,
    data: DataDirectory = None,
) -> None:
    """Answer a hook of Claude Code or Codex: a session starts, is to be compacted, a turn ends. Reads its JSON on
    stdin."""
    print_hook_answer(_options(data, shows_settings=shows_settings))


def _options(data: Path | None, *, shows_settings: bool) -> Options:
    options = Options()
    options.data, options.shows_settings = str(data or ""), shows_settings
    return options
