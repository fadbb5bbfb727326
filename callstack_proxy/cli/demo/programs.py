"""The commands `provider`, a scripted model on a port, and `demo`, the scripted agent session."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Annotated

import typer

from callstack_proxy.cli.context import AsJson
from callstack_proxy.cli.demo import DemoOptions, run_demo
from llm_test_provider.cli import DEFAULT_PORT, run_provider
from llm_test_provider.scenario import ScenarioError
from llm_test_provider.strict_profiles import PROFILES
from proxy.errors import InvalidConfiguration


def provider(
    scenario: Annotated[Path, typer.Argument(help="What the model says, as YAML.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = DEFAULT_PORT,
    strict: Annotated[str | None, typer.Option(help=f"Refuse what this one refuses: {', '.join(PROFILES)}.")] = None,
) -> None:
    """Serve a scripted model until Ctrl-C."""
    if strict is not None and strict not in PROFILES:
        raise InvalidConfiguration(f"strict: {strict!r} is no profile; use one of {', '.join(PROFILES)}")
    try:
        run_provider(scenario, host, port, strict=strict)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise InvalidConfiguration(str(error)) from None
        told = f"port: {port} on {host} is in use; stop the program that has it, or choose another with --port"
        raise InvalidConfiguration(told) from None
    except ScenarioError as error:
        raise InvalidConfiguration(str(error)) from None


DEFAULTS = DemoOptions()


def demo(
    data: Annotated[Path | None, typer.Option("--data", help="Keep the data here; default: nowhere.")] = None,
    delay: Annotated[float, typer.Option(min=0, help="Seconds between two requests.")] = DEFAULTS.delay_s,
    shows_all: Annotated[bool, typer.Option("--all", help="A row for each request, and the whole tree.")] = False,
    as_json: AsJson = False,
) -> None:
    """Play a scripted agent session and show what it saves."""
    raise typer.Exit(run_demo(DemoOptions(data, delay, as_json, shows_all)))
