"""The session of `callstack demo`, played once into a store: its ids, times and prices are the same in every run.

The proxy runs in a thread, with a clock that the agent moves and with ids that are counted. What the demo prints is
kept for every width and for both of its forms.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from unittest.mock import patch

from rich.console import Console

from callstack_proxy.cli.demo.agent import Agent, AgentAnswer
from callstack_proxy.cli.demo.proxy_process import ProxyProcess
from callstack_proxy.cli.demo.run import DemoOptions, run_demo
from callstack_proxy.cli.demo.screen import Screen
from callstack_proxy.config_sources import load_config
from proxy.accounting.o200k import load_o200k
from tests.harness import RunningProxy, Stage

STARTED_MS = 1_795_075_200_000
"""ms since the epoch of the first request: 2026-11-19 08:00 UTC."""
UNDERLINE = re.compile(r"^ *[~^]+\n", re.MULTILINE)
BETWEEN_REQUESTS_MS = 20_000
"""Short enough for the prompt cache of the provider to last."""


@dataclass
class Clock:
    """The time of the proxy in ms since the epoch."""

    now: int = STARTED_MS

    def __call__(self) -> int:
        return self.now


class CountedIds:
    """Stands in for the module `secrets` where the proxy draws ids: the same ones in every run."""

    def __init__(self) -> None:
        self._drawn: Counter[int] = Counter()

    def token_bytes(self, size: int) -> bytes:
        self._drawn[size] += 1
        return sha256(f"{size}/{self._drawn[size]}".encode()).digest()[:size]

    def token_hex(self, size: int) -> str:
        return self.token_bytes(size).hex()


class ProxyInThread(ProxyProcess):
    """What the demo asks its proxy for, from one in this process."""

    def __init__(self, upstream: str, data: Path, settings: Mapping[str, object]) -> None:
        super().__init__(upstream, data, settings)
        config = load_config({"upstream": upstream, "data": str(data), **settings}, {})
        self._running = RunningProxy(config, cast("Stage", None))  # only its completion requests ask for one

    def __enter__(self) -> Self:
        self._running.start()
        self.clients = f"http://127.0.0.1:{self._running.port}/v1"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.leave()


class ManyScreens:
    """Every form of the demo's screen at once."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self._printed = {(width, whole): io.StringIO() for width in widths for whole in (False, True)}
        self._screens = [
            Screen(Console(file=file, width=width, highlight=False), shows_all=whole)
            for (width, whole), file in self._printed.items()
        ]

    def __getattr__(self, name: str) -> Callable[..., None]:
        def each(*values: Any) -> None:
            for screen in self._screens:
                getattr(screen, name)(*values)

        return each

    def printed(self) -> dict[tuple[int, bool], str]:
        return {form: file.getvalue() for form, file in self._printed.items()}


def play_demo(folder: Path, widths: tuple[int, ...]) -> dict[tuple[int, bool], str]:
    """Plays the session into `folder/data`. Returns what the demo prints, by width and by whether it shows all."""
    screens = ManyScreens(widths)
    load_o200k()  # or the first requests are counted by an estimate
    with _same_in_every_run(), patch("callstack_proxy.cli.demo.run.Screen", lambda *_, **__: screens), chdir(folder):
        assert run_demo(DemoOptions(Path("data"), delay_s=0)) == 0, screens.printed()
    return screens.printed()


@contextmanager
def _same_in_every_run() -> Iterator[None]:
    clock = Clock()

    class SteadyAgent(Agent):
        def ask(self) -> AgentAnswer:
            clock.now += BETWEEN_REQUESTS_MS
            return super().ask()

        def run_calls(self, reply: AgentAnswer) -> None:
            """Later Pythons underline the failed expression in a traceback."""
            before = len(self.messages)
            super().run_calls(reply)
            for message in self.messages[before:]:
                message["content"] = UNDERLINE.sub("", message["content"])

    with ExitStack() as patches:
        for name, value in {
            "proxy.server.app.now_ms": clock,
            "proxy.server.app.secrets": CountedIds(),
            "proxy.store.database.migrate.secrets": CountedIds(),
            "callstack_proxy.cli.demo.run.Agent": SteadyAgent,
            "callstack_proxy.cli.demo.run.ProxyProcess": ProxyInThread,
        }.items():
            patches.enter_context(patch(name, value))
        yield
