"""Real clients against the proxy as a process of its own, with the scripted provider behind it.

A client is installed once, in the folder `CALLSTACK_CLIENTS` names, and keeps to loopback: a proxy setting that leads
nowhere stands between it and the rest of the world. Without that folder, or where a registry does not answer, its
tests are skipped.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llm_test_provider import ScriptedProvider
from tests.clients import installing
from tests.clients.serving import AWAKE, Served, serve

HERE = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder carries the marker `clients`."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.clients)


@pytest.fixture(scope="session")
def kept() -> Path:
    """Where installed clients are kept."""
    folder = os.environ.get("CALLSTACK_CLIENTS")
    if not folder:
        pytest.skip("several hundred megabytes: set CALLSTACK_CLIENTS to a folder that may keep them")
    return Path(folder).expanduser().resolve()


@pytest.fixture
def npm(kept: Path) -> Callable[..., Path]:
    """Installs packages from npm; gives the folder that holds `node_modules`."""
    return lambda name, *packages: skip_if_absent(installing.npm, kept / name, packages)


@pytest.fixture
def pip(kept: Path) -> Callable[..., Path]:
    """Installs packages into an environment of their own; gives the environment's folder."""
    return lambda name, *packages: skip_if_absent(installing.pip, kept / name, packages)


def skip_if_absent(install: Callable[[Path, tuple[str, ...]], Path], folder: Path, packages: tuple[str, ...]) -> Path:
    """The folder, or a skipped test that says what the installer said."""
    try:
        return install(folder, packages)
    except installing.NotInstallable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    with ScriptedProvider() as running:
        yield running


@pytest.fixture
def proxy(provider: ScriptedProvider, tmp_path: Path) -> Iterator[Served]:
    """`callstack serve` with conversations awake from their first request."""
    with serve(provider.url, tmp_path / "data", *AWAKE) as served:
        yield served


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder for the client."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A fresh git repository with one file."""
    return make_repository(tmp_path / "repository")


def make_repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("A place for greetings.\n")
    author = ["-c", "user.name=tester", "-c", "user.email=tester@localhost"]
    git = shutil.which("git") or pytest.skip("git is not installed")
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "start"]):
        subprocess.run([git, *arguments], cwd=folder, check=True)
    return folder


@pytest.fixture
def attempt(home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a client to its end, cut off from everything but loopback; its exit code and what it printed."""
    return lambda command, folder, **extra: run_client(home, command, folder, **extra)


def run_client(home: Path, command: list[str], folder: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "HTTPS_PROXY": NOWHERE,
        "HTTP_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1,localhost",
        "NO_COLOR": "1",
        **extra,
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=CLIENT_LIMIT_S,
        check=False,
    )


@pytest.fixture
def run(attempt: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """The same for a client that must not fail; gives what it printed. A failure shows that."""

    def succeed(command: list[str], folder: Path, **extra: str) -> str:
        done = attempt(command, folder, **extra)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return succeed


CLIENT_LIMIT_S = 120
NOWHERE = "http://127.0.0.1:9"
"""The discard port of loopback, where nobody listens."""
