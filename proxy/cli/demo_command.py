"""`callstack demo`: the agent session that ships with us, against the provider that ships with us."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.cli.context import AsJson
from proxy.cli.demo import DemoOptions, run_demo

DEFAULTS = DemoOptions()


def demo(
    data: Annotated[Path | None, typer.Option("--data", help="Keep the data here; default: nowhere.")] = None,
    delay: Annotated[float, typer.Option(min=0, help="Seconds between two requests.")] = DEFAULTS.delay_s,
    as_json: AsJson = False,
) -> None:
    """Play a scripted agent session and show what it saves."""
    raise typer.Exit(run_demo(DemoOptions(data, delay, as_json)))
