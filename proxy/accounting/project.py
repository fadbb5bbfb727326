"""Which work belongs to a project: what agents did in its folder, or below it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath, PureWindowsPath

NO_PROJECT = "(not told)"
"""Stands for the folder of agents that tell none."""


def is_in_project(folder: str, names: Collection[str]) -> bool:
    """Whether work in `folder` belongs to the project whose folder has one of these `names`; all does without any."""
    if not folder:
        return not names or NO_PROJECT in names
    path = PureWindowsPath(folder) if "\\" in folder else PurePosixPath(folder)
    return not names or any(path.is_relative_to(name) for name in names)
