"""What the scripts of this folder share: play recordings, print a table of the outcomes, and put it into a page.

A `Script` is one value, made in the script that measures; its `run` is the whole command line. A file that cannot be
played is reported, and the others are played all the same. Exit code 0: all were played; 1: some file could
not be; 2: none was.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, TypeVar

from callstack_proxy.config_sources import load_config, parse_assignments
from callstack_proxy.management.loggers import set_log_level
from callstack_proxy.replay.files import recording_files_in
from callstack_proxy.replay.recording import Recording
from callstack_proxy.replay.recording_formats import read_recordings
from callstack_proxy.replay.services import PATH, TENANT, ReplayServices
from proxy.config.model import Config
from proxy.core.ledger.ledger import Ledger
from proxy.errors import ProxyError
from proxy.exchange import HeldReply, Services
from proxy.exchange import pipeline as exchange
from proxy.exchange.rounds import ClientRequest

T = TypeVar("T")
"""The outcome of one recording."""
Play = Callable[[Recording, Config], Coroutine[Any, Any, T]]
"""Plays a recording to its end. It must be a function of a module, because it is sent to other processes."""


@dataclass(frozen=True)
class Script(Generic[T]):
    """One script. `name` is its path as users type it, `about` is a line on what it does."""

    name: str
    about: str
    play: Play[T]
    table: Callable[[Sequence[T]], Iterable[str]]
    details: Callable[[Iterable[T]], Iterable[str]]
    detailed: str
    """What `details` shows, as help text."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Keys of proxy.yaml that differ from the defaults, unless the user sets them."""

    @property
    def mark(self) -> str:
        """The line that is in a page twice, with the table between."""
        return f"<!-- printed by {self.name} -->"

    def run(self, arguments: Sequence[str]) -> int:
        """Play the files that `arguments` name, print the table, and return the exit code."""
        asked = self._parser().parse_args(arguments)
        config = load_config({**self.settings, **parse_assignments(asked.set)})
        files = recording_files_in(asked.files)
        one = partial(of_file, self.play, config=config, model=asked.model)
        with ProcessPoolExecutor(max(1, asked.jobs), get_context("spawn")) as pool:
            results = list(pool.map(one, files))
        done = [each for result in results if not isinstance(result, str) for each in result]
        failed = [result for result in results if isinstance(result, str)]
        told = list(self.table(done)) if done else []
        if asked.write and done:
            asked.write.write_text(written(asked.write.read_text(), self.mark, told))
        lines = [*told, *(self.details(done) if asked.details else ())]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stderr.write("".join(f"{line}\n" for line in failed))
        return (1 if done else 2) if failed or not done else 0

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(description=self.about)
        parser.add_argument("files", nargs="+", type=Path, help="recordings, or folders of them")
        parser.add_argument("--model", default="", help="as if it were this model: its prices, cache and window")
        parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of proxy.yaml")
        parser.add_argument("--write", type=Path, help="a page with two marks, to put the table between them")
        parser.add_argument("--details", action="store_true", help=self.detailed)
        parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="files played at once")
        return parser


def of_file(play: Play[T], file: Path, config: Config, model: str = "") -> list[T] | str:
    """The outcomes of all recordings of a file, or an error text. `model`, if any, replaces the recorded one."""
    set_log_level(logging.CRITICAL)
    try:
        return [asyncio.run(play(one, config)) for one in read_recordings(file, model=model, dialect="chat")]
    except ProxyError as error:
        return str(error)


async def ledgers_after(recording: Recording, replay: ReplayServices, services: Services) -> list[Ledger]:
    """What the store of `replay` has of all conversations once the recording was played to its end."""
    for number, step in enumerate(recording.steps, 1):
        replay.clock.advance_to(step.at_ms)
        replay.provider.expect(step)
        client_request = ClientRequest(f"r{number:08d}", TENANT, "POST", PATH, b"", list(step.headers), step.body)
        await exchange.handle(services, client_request, HeldReply())
    known = await replay.store.conversations(TENANT, limit=len(recording.steps) + 1)
    loaded = [await replay.store.load(TENANT, one.id) for one in known]
    return [ledger for ledger in loaded if ledger is not None]


def written(page: str, mark: str, lines: Iterable[str]) -> str:
    """`page` with these lines between its marks. Raises ValueError if the page has no marks."""
    before, opening, rest = page.partition(mark)
    _, closing, behind = rest.partition(mark)
    if not opening or not closing:
        raise ValueError(f"the page has no two lines {mark}")
    return "\n".join([f"{before}{mark}", *lines, f"{mark}{behind}"])
