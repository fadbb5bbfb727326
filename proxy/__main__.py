"""The command line: `callstack`, or `python -m proxy`. Runs a command of `proxy.cli` and turns an error of ours into
one message and an exit code: 2 for a request that is wrong, 1 for one that failed."""

from __future__ import annotations

import io
import logging
import sys
from typing import Annotated

import typer

from proxy import __version__
from proxy.cli import LazyCommands, print_error
from proxy.errors import BadRequest, InvalidConfiguration, NotFound, ProxyError

app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    add_completion=True,  # `callstack --install-completion` for bash, zsh, fish and PowerShell
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},  # of help; a narrower terminal has narrower lines
    help="A proxy for the OpenAI and Anthropic APIs that keeps an agent's context as a call stack of task frames.",
)


def _show_version(value: bool) -> None:  # noqa: FBT001 - the library calls it with the flag's value
    if value:
        typer.echo(f"callstack {__version__}")
        raise typer.Exit


@app.callback()
def callstack(
    version: Annotated[  # noqa: FBT002 - a flag
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A locale that cannot say "→" must not end a command.
            stream.reconfigure(errors="backslashreplace")
    # Commands print their own messages. Without a handler, `logging` would print bare warnings of the packages that
    # they use, such as "store write failed".
    logging.getLogger("proxy").addHandler(logging.NullHandler())
    try:
        app()
    except (BadRequest, InvalidConfiguration, NotFound) as error:
        print_error(str(error))
        sys.exit(2)
    except ProxyError as error:
        print_error(f"{error} ({error.code})")
        sys.exit(1)


if __name__ == "__main__":
    main()
