"""`callstack wrap` as a process, around an agent that does what its arguments say."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llm_test_provider import ScriptedProvider, says
from tests.cli.conftest import command
from tests.forked_commands import FinishedCommand, environment, run_command

FAKE_AGENT = Path(__file__).with_name("fake_agent.py")
PATIENCE_S = 30


@dataclass
class Wrapping:
    """A folder with a home, a project, programs, and the data of the proxy; `agent` names the fake one. `started` are
    the processes that a test began."""

    folder: Path
    provider: ScriptedProvider
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def install(self, name: str) -> None:
        """Puts the fake agent under a name on the PATH."""
        program = self.folder / "bin" / name
        program.write_text(f"#!{sys.executable}\n{FAKE_AGENT.read_text()}")
        program.chmod(0o755)

    def environ(self, **extra: str) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return environment(self.home) | {"PATH": path, "OPENAI_API_KEY": "sk-login"} | extra

    def options(self) -> tuple[str, ...]:
        return ("--data", str(self.data), "--upstream", self.provider.url)

    def run(self, *words: str, **extra: str) -> FinishedCommand:
        """What the fake agent is to do, done; without a terminal."""
        return self.run_wrap(*self.options(), "agent", "--", *words, **extra)

    def run_wrap(self, *words: str, **extra: str) -> FinishedCommand:
        """`callstack wrap WORDS` to its end."""
        return run_command(("wrap", *words), self.project, self.environ(**extra))

    def run_command(self, *words: str) -> FinishedCommand:
        """`callstack WORDS` to its end."""
        return run_command(words, self.project, self.environ())

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """The same as `run`, going on."""
        return self.start_command("wrap", *self.options(), "agent", "--", *words)

    def start_command(self, *words: str) -> "subprocess.Popen[str]":
        """`callstack WORDS` in a process group of its own, which the fixture ends."""
        process = subprocess.Popen(
            command(*words),
            cwd=self.project,
            env=self.environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        self.started.append(process)
        return process

    def server(self, data: Path | None = None) -> dict[str, Any]:
        """What the proxy on a data directory, or one that was killed there, says of itself."""
        found: dict[str, Any] = json.loads(((data or self.data) / "server.json").read_text())
        return found


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until_ended(pid: int) -> None:
    """Returns once a process is gone."""
    until(lambda: not is_running(pid))


def line_of(process: "subprocess.Popen[str]") -> str:
    """The next line of its stdout."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        running.when(lambda _: True, says("All done."), loop=True)
        yield running


@pytest.fixture
def wrapping(tmp_path: Path, provider: ScriptedProvider) -> Iterator[Wrapping]:
    made = Wrapping(tmp_path, provider)
    for folder in (made.home, made.project, tmp_path / "bin"):
        folder.mkdir()
    made.install("agent")
    yield made
    for process in made.started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
    for note in made.data.rglob("server.json"):
        until_ended(made.server(note.parent)["pid"])
