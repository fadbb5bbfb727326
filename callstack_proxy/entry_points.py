"""What the program finds by entry points of packages: readers of session logs, export formats, agents, commands.

    [project.entry-points."callstack.exports"]
    titles = "their_package.titles:TITLES"

Ours stand in pyproject.toml like those of any other package. What another package declares never stops the program:
where it does not load, or has a name that is taken, it is left out, and one warning says why.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Literal, TypeVar

from proxy.errors import InvalidConfiguration

Group = Literal["callstack.sessions", "callstack.exports", "callstack.agents", "callstack.commands"]
Kind = TypeVar("Kind")
NAME = "callstack-proxy"
PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
logger = logging.getLogger(__name__)


@cache
def entry_points(group: Group) -> Mapping[str, EntryPoint]:
    """The entry points of a group by their names: ours, then those of other packages. Nothing of them is imported."""
    installed = sorted(metadata.entry_points(group=group))
    # A checkout need not be installed, and where it is, it may have changed since.
    ours = _of_checkout(group) or [one for one in installed if is_ours(one)]
    found = {one.name: one for one in sorted(ours)}
    for one in installed:
        if not is_ours(one) and found.setdefault(one.name, one) is not one:
            warn_once(f"{_described(one)} is left out: there is another {one.name}")
    return found


def load(entry_point: EntryPoint, read: Callable[[object], Kind]) -> Kind:
    """What `read` makes of the value behind an entry point. Raises InvalidConfiguration where that of another package
    fails, in whatever way."""
    try:
        return read(entry_point.load())
    except (Exception, SystemExit) as error:
        if is_ours(entry_point):
            raise
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidConfiguration(f"{_described(entry_point)} cannot be used: {words}") from error


def load_all(group: Group, kind: type[Kind]) -> dict[str, Kind]:
    """The values of a group by their names, without those that cannot be used."""
    found = {}
    for name, entry_point in entry_points(group).items():
        try:
            found[name] = load(entry_point, lambda value: _require_kind(value, kind))
        except InvalidConfiguration as error:
            warn_once(str(error))
    return found


def is_ours(entry_point: EntryPoint) -> bool:
    return entry_point.value.startswith(f"{__package__}.")


@cache
def warn_once(words: str) -> None:
    logger.warning("%s", words)


def _of_checkout(group: Group) -> list[EntryPoint]:
    """Ours by the pyproject.toml beside this package; none where the package was installed."""
    if not PYPROJECT.is_file():
        return []
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8")).get("project", {})
    declared = project.get("entry-points", {}).get(group, {}) if project.get("name") == NAME else {}
    return [EntryPoint(name, value, group) for name, value in declared.items()]


def _require_kind(value: object, kind: type[Kind]) -> Kind:
    if not isinstance(value, kind):
        raise TypeError(f"it is no {kind.__name__}")
    return value


def _described(entry_point: EntryPoint) -> str:
    """Such as `titles of the package their-package (callstack.exports)`."""
    package = entry_point.dist.name if entry_point.dist else "?"
    return f"{entry_point.name} of the package {package} ({entry_point.group})"
