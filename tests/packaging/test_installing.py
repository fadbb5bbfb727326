"""The wheel and the sdist as other people install them: with pip, uvx and pipx, each into a new environment with the
newest dependencies of the index. What is installed plays the demo.

The installers come from `installers.lock`. They take packages from where pip takes them on this machine; where they do
not install, the tests are skipped.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

HOUSE = Path(__file__).resolve().parents[2]
LOCK = Path(__file__).with_name("installers.lock")
LIMIT_S = 600
DEMO_REQUESTS = 73


def run(command: list[object], folder: Path, **environment: str) -> str:
    """What the command printed. It finds nothing of this environment, and nothing of this repository."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    ours = str(Path(sys.executable).parent)
    clean["PATH"] = os.pathsep.join(place for place in clean["PATH"].split(os.pathsep) if place != ours)
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=folder, env=clean | environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
    return done.stdout


def make_environment(folder: Path) -> Path:
    """The programs of a new environment."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=LIMIT_S)
    return folder / "bin"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this tree."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "-d", folder], HOUSE)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("*.whl"))


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    return next(dist.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `uvx` and `pipx`."""
    folder = make_environment(tmp_path_factory.mktemp("installers"))
    command = [folder / "pip", "install", "--quiet", "--require-hashes", "-r", LOCK]
    try:
        run(command, folder)
    except (AssertionError, subprocess.TimeoutExpired) as reason:
        pytest.skip(f"uv and pipx do not install here: {reason}")
    return folder


@pytest.fixture(scope="module")
def index() -> Mapping[str, str]:
    """The package index of pip's settings, as uv wants to be told; empty where pip has no setting."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return {"UV_DEFAULT_INDEX": done.stdout.strip()} if done.returncode == 0 else {}


def assert_demo_was_played(printed: str) -> None:
    played = json.loads(printed)
    assert len(played["requests"]) == DEMO_REQUESTS
    assert played["total"]["tokens_sent"] < played["total"]["tokens_in"] / 4
    assert played["total"]["cost"] < played["total"]["cost_untouched"] / 2


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with ZipFile(wheel) as files:
        metadata = next(name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        said = message_from_string(files.read(metadata).decode())

    assert said["Name"] == "callstack-proxy"
    assert said["Description-Content-Type"] == "text/markdown"
    assert said["License-Expression"] == "Apache-2.0"
    assert said["Summary"]


def test_uvx_runs_the_wheel(wheel: Path, installers: Path, index: Mapping[str, str], tmp_path: Path) -> None:
    places = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_PYTHON_DOWNLOADS": "never", **index}
    command = [installers / "uvx", "--python", sys.executable, "--from", wheel, "callstack", "demo", "--json"]

    assert_demo_was_played(run(command, tmp_path, **places))


def test_pipx_runs_the_sdist(sdist: Path, installers: Path, tmp_path: Path) -> None:
    places = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    command = [installers / "pipx", "run", "--python", sys.executable, "--spec", sdist, "callstack", "demo", "--json"]

    assert_demo_was_played(run(command, tmp_path, **places))


def test_pip_installs_the_wheel(wheel: Path, tmp_path: Path) -> None:
    programs = make_environment(tmp_path / "environment")
    run([programs / "pip", "install", "--quiet", wheel], tmp_path)

    assert shutil.which("callstack", path=str(programs))
    assert_demo_was_played(run([programs / "callstack", "demo", "--json"], tmp_path))
