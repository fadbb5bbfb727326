"""Tells which spellings of paths name one file: clients use absolute paths in one tool and relative ones in another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_ABSOLUTE = re.compile(r"/|~/|[A-Za-z]:/")


def one_spelling(paths: Iterable[str]) -> Mapping[str, str]:
    """For each path the spelling to use among `paths`: the first one of the same path, and for a relative path the
    absolute one that ends with it, if exactly one does."""
    first: dict[str, str] = {}
    spelled = {path: first.setdefault(_plain(path), path) for path in paths}
    by_name: dict[str, list[str]] = {}
    for plain in first:
        if _ABSOLUTE.match(plain):
            by_name.setdefault(plain.rpartition("/")[2], []).append(plain)
    for path in spelled if by_name else ():
        plain = _plain(path)
        if not _ABSOLUTE.match(plain):
            matching = [whole for whole in by_name.get(plain.rpartition("/")[2], ()) if whole.endswith(f"/{plain}")]
            if len(matching) == 1:
                spelled[path] = first[matching[0]]
    return spelled


def _plain(path: str) -> str:
    return path.replace("\\", "/").removeprefix("./")
