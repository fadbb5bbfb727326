"""The command `statusline` as the table of commands has it, with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from callstack_proxy.cli.statusline.line import Options, print_status_line


def statusline(
    shows_settings: Annotated[bool, typer.Option("--settings", help="What to paste into Claude Code or tmux.")] = False,
    data: Annotated[Path | None, typer.Option("--data", help="Directory of store and keys.")] = None,
) -> None:
    """Print one line for a status line: context, savings, working frame. Reads Claude Code's JSON on stdin."""
    options = Options()
    options.data, options.shows_settings = str(data or ""), shows_settings
    print_status_line(options)
