"""The project the demo's agent works on: a small billing system with a rounding bug, kept as real files.

`files/project` is the project as the agent finds it, `files/written` the files the agent adds, each at its later path.
All of it runs. The logs complain about an invoice exactly where the buggy code in `billing/totals.py` makes it wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

FILES = files("callstack_proxy.cli.demo") / "files"


def read_project_file(path: str) -> str:
    """A file of the project as the agent finds it."""
    return (FILES / "project" / path).read_text(encoding="utf-8")


def read_written_file(path: str) -> str:
    """A file that the agent adds to the project."""
    return (FILES / "written" / path).read_text(encoding="utf-8")


def write_project(folder: Path) -> None:
    """Copy the project into a folder that exists."""
    for path, source in _files_below(FILES / "project"):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")


def _files_below(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_file():
            yield prefix + entry.name, entry
        elif entry.name != "__pycache__":  # an installer compiles what it installs
            yield from _files_below(entry, f"{prefix}{entry.name}/")
