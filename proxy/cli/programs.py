"""`callstack provider`: a scripted model on a real port."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated

import typer

from proxy.errors import InvalidConfiguration
from proxy.testing.cli import DEFAULT_PORT, run_provider
from proxy.testing.scenario import ScenarioError


def provider(
    scenario: Annotated[Path, typer.Argument(help="What the model says, as YAML.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = DEFAULT_PORT,
) -> None:
    """Serve a scripted model until Ctrl-C."""
    try:
        run_provider(scenario, host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise InvalidConfiguration(str(error)) from None
        told = f"port: {port} on {host} is in use; stop the program that has it, or choose another with --port"
        raise InvalidConfiguration(told) from None
    except ScenarioError as error:
        raise InvalidConfiguration(str(error)) from None
