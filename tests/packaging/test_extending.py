"""A stranger's package adds one of each kind: that of docs/extending.md, as pip installs it, and one that is broken."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Stocked, command, stock
from tests.forked_commands import environment

HOUSE = Path(__file__).resolve().parents[2]
GROUPS = ("sessions", "exports", "agents", "commands")


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> Stocked:
    return stock(tmp_path_factory.mktemp("stocked"))


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip has installed the package of the page."""
    source, installed = tmp_path_factory.mktemp("acme"), tmp_path_factory.mktemp("installed")
    page = (HOUSE / "docs" / "extending.md").read_text()
    for name, text in re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        (source / name).write_text(text)
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(installed)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return installed


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of which nothing loads, and which wants the name of a command of ours."""
    folder = tmp_path_factory.mktemp("broken")
    info = folder / "callstack_broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: callstack-broken\nVersion: 1.0\n")
    groups = "".join(f"[callstack.{group}]\nbroken = callstack_broken:ANY\n" for group in GROUPS)
    (info / "entry_points.txt").write_text(f"{groups}tree = callstack_broken:tree\n")
    (folder / "callstack_broken.py").write_text("import a_module_that_is_not_there")
    return folder


def run(stocked: Stocked, packages: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environ = environment(stocked.shell.home) | {
        "PYTHONPATH": f"{HOUSE}:{packages}",
        "PATH": f"{packages}:/usr/bin:/bin",
    }
    return subprocess.run(
        command(*words), cwd=stocked.shell.home, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.rows("X-74")
def test_a_strangers_package_adds_one_of_each_kind(stocked: Stocked, acme: Path) -> None:
    (acme / "acme").write_text("#!/bin/sh\n")
    (acme / "acme").chmod(0o755)
    log = acme / "log.jsonl"
    lines = [json.dumps({"asked": f"question {n}", "answered": "yes", "model": "gpt-5.4"}) for n in range(3)]
    log.write_text("\n".join(lines))
    data = ("--data", str(stocked.shell.data))

    overview, greeted = run(stocked, acme, "--help"), run(stocked, acme, "greet", "--name", "Ana")
    exported = run(stocked, acme, "export", "--format", "titles", *data)
    wrapped = run(stocked, acme, "wrap", "--dry-run", "acme")
    saved = run(stocked, acme, "savings", "--client", "acme", "--json", str(log))

    assert overview.stdout.splitlines()[-1].split() == ["others", "greet"]
    assert greeted.stdout == "Hello, Ana.\n"
    assert exported.stdout.startswith("Title "), exported.stderr
    assert "ACME_URL=http" in wrapped.stdout, wrapped.stderr
    assert json.loads(saved.stdout)["total"]["clients"] == {"Acme": 1}, saved.stderr


@pytest.mark.rows("X-74")
def test_a_broken_package_gets_one_line_and_breaks_nothing_of_ours(stocked: Stocked, broken: Path) -> None:
    data = ("--data", str(stocked.shell.data))
    looked = run(stocked, broken, "tree", *data)
    others = {
        "exports": run(stocked, broken, "export"),
        "agents": run(stocked, broken, "wrap", "--dry-run", "sh"),
        "sessions": run(stocked, broken, "savings", "--help"),
    }
    theirs = run(stocked, broken, "broken")

    taken = "note: tree of the package callstack-broken (callstack.commands) is left out: there is another tree\n"
    reason = "cannot be used: ModuleNotFoundError: No module named 'a_module_that_is_not_there'\n"
    assert (looked.returncode, looked.stderr) == (0, taken)
    for group, done in others.items():
        note = f"note: broken of the package callstack-broken (callstack.{group}) {reason}"
        assert (done.returncode, done.stderr) == (0, taken + note)
    assert (theirs.returncode, theirs.stderr) == (
        2,
        f"{taken}error: broken of the package callstack-broken (callstack.commands) {reason}",
    )
