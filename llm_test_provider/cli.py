"""The provider as a program: `callstack provider SCENARIO.yaml --port N`.

`run_provider` serves one scenario until it is interrupted, says first where it listens and then one line per request.
The command line that calls it is `callstack_proxy/__main__.py`'s; `python -m llm_test_provider` is the same without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from llm_test_provider.provider import ScriptedProvider
from llm_test_provider.scenario import load
from llm_test_provider.script import ReceivedRequest

DEFAULT_PORT = 8901


def run_provider(
    scenario_path: Path,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    say: Callable[[str], None] | None = None,
    strict: str | None = None,
) -> None:
    """Serve a scenario until Ctrl-C. Port 0 takes a free one; `strict` is a name of `PROFILES`. Raises ScenarioError,
    OSError."""
    console = Console(highlight=False, soft_wrap=True, markup=False)
    try:
        asyncio.run(serve(scenario_path, host, port, say or console.print, strict))
    except KeyboardInterrupt:
        return


async def serve(
    scenario_path: Path, host: str, port: int, say: Callable[[str], None], strict: str | None = None
) -> None:
    """The same inside a running event loop; runs until it is cancelled."""
    scenario = load(scenario_path)
    provider = ScriptedProvider(
        models=scenario.models,
        host=host,
        port=port,
        script=scenario.script,
        on_finish=lambda received: say(line_of(received)),
        remember=False,
        strict=strict or scenario.strict,
    )
    async with provider:
        say(f"scripted provider on {provider.url}  ({scenario.script.scripted} answers in {scenario_path.name})")
        await asyncio.get_running_loop().create_future()


def line_of(received: ReceivedRequest) -> str:
    """One request in one line: number, what was asked, what it cost, what became of it."""
    words = [f"{received.number:>4}", received.method, received.path, str(received.status or "raw")]
    if received.chat and isinstance(received.body, dict):
        streamed = "streamed" if received.body.get("stream") is True else "whole"
        words.append(f"{received.body.get('model')}  {len(received.messages)} messages  {streamed}")
    if received.usage:
        usage = received.usage
        words.append(f"{usage.prompt} in ({usage.cached} cached, {usage.written} written)  {usage.completion} out")
    if received.left_at is not None:
        words.append("client left")
    return "  ".join(words)
