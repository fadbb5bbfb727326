"""Puts a client from a package registry into a folder, once.

The versions are named where the tests are; nothing here knows a registry, the installers bring their own settings.
Its one law: a folder counts as installed only when the installer said so, so a run that was cut short is repeated.
"""

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

INSTALL_LIMIT_S = 600
DONE = "installed.json"


class NotInstallable(Exception):
    """The client cannot be had here; says why."""


def npm(folder: Path, packages: tuple[str, ...]) -> Path:
    """`folder` with these packages in its `node_modules`. Raises NotInstallable."""
    program = shutil.which("npm")
    if program is None:
        raise NotInstallable("npm is not installed")
    options = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    return once(folder, packages, [[program, "install", "--prefix", str(folder), *options, *packages]])


def pip(folder: Path, packages: tuple[str, ...]) -> Path:
    """`folder` as an environment of its own with these packages. Raises NotInstallable."""
    create = [sys.executable, "-m", "venv", str(folder)]
    install = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile", *packages]
    return once(folder, packages, [create, install])


def once(folder: Path, packages: tuple[str, ...], commands: list[list[str]]) -> Path:
    """Runs the commands unless they have run for the same packages; an older or broken folder is made anew.

    Tests that run side by side ask for the same folder: the second waits for the first.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return installed(folder, packages, commands)


def installed(folder: Path, packages: tuple[str, ...], commands: list[list[str]]) -> Path:
    """What `once` does when nobody else is at it."""
    note = folder / DONE
    if note.is_file() and json.loads(note.read_text()) == list(packages):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in commands:
        attempt(command)
    note.write_text(json.dumps(packages))
    return folder


def attempt(command: list[str]) -> None:
    """Runs one installer. Raises NotInstallable with the end of what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise NotInstallable(f"{command[0]}: {reason}") from reason
    if done.returncode:
        raise NotInstallable(f"{' '.join(command)}: {(done.stderr or done.stdout)[-800:]}")
