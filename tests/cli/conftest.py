"""Commands on a store that was written record by record."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.store.sql import open_store
from tests.forked_commands import FinishedCommand, environment, run_command
from tests.management.api.small_ledger import ESCAPES, Written, written


def command(*words: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "callstack_proxy", *words]


@dataclass(frozen=True)
class Shell:
    """`callstack` in a directory of its own; `data` is where the store lies."""

    home: Path
    data: Path

    def run(self, *words: str, typed: str = "", env: dict[str, str] | None = None) -> FinishedCommand:
        return run_command(words, self.home, environment(self.home) | (env or {}), typed)

    def on_data(self, name: str, *words: str, typed: str = "") -> FinishedCommand:
        return self.run(name, *words, "--data", str(self.data), typed=typed)

    def python(self, program: str) -> str:
        """What a fresh interpreter prints."""
        words = [sys.executable, "-c", program]
        done = subprocess.run(words, cwd=self.home, env=environment(self.home), capture_output=True, check=True)
        return done.stdout.decode().strip()

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command(*words),
            cwd=self.home,
            env=environment(self.home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Nothing stored yet."""
    return Shell(tmp_path, tmp_path / "data")


@dataclass(frozen=True)
class Stocked:
    """A store with two conversations; the title of the newer one tries to fool a terminal."""

    shell: Shell
    older: Written
    newer: Written


def stock(folder: Path) -> Stocked:
    async def fill() -> tuple[Written, Written]:
        store = open_store("sqlite", folder / "data")
        await store.start()
        made = await written(store, "key-ours", "a"), await written(store, "local", "b", f"Title {ESCAPES}")
        await store.close()
        return made

    return Stocked(Shell(folder, folder / "data"), *asyncio.run(fill()))


@pytest.fixture(scope="session")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Stocked:
    """Shared by all tests that only look."""
    return stock(tmp_path_factory.mktemp("stocked"))


@pytest.fixture
def own_stock(tmp_path: Path) -> Stocked:
    """For tests that change something."""
    return stock(tmp_path)


@pytest.fixture
def started(shell: Shell) -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts commands that run until they are stopped, and stops them."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str) -> "subprocess.Popen[str]":
        running.append(shell.start(*words))
        return running[-1]

    yield start
    for process in running:
        process.terminate()
        process.communicate(timeout=30)
