"""Tells which spellings of paths name one file: clients use absolute paths in one tool and relative ones in another."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

_ABSOLUTE = re.compile(r"/|~/|[A-Za-z]:/")
_INDIRECT = re.compile(r"(?:^|/)\.{1,2}(?:/|$)|[^:]//")
_ADDRESS = re.compile(r"\w[\w+.-]+://")


def direct_path(path: str) -> str:
    """The path without `.` and `..` in it, by its text alone; an address stays as it is."""
    plain = path.replace("\\", "/")
    if not _INDIRECT.search(plain) or _ADDRESS.match(plain):
        return path
    direct = posixpath.normpath(plain)
    return direct.replace("/", "\\") if "\\" in path and "/" not in path else direct


def file_name_of(path: str) -> str:
    """The last part of a path, with slashes of either kind; empty for a folder that ends with one."""
    return path.replace("\\", "/").rpartition("/")[2]


def is_same_file(one: str, other: str) -> bool:
    """Whether two paths match; clients use absolute and relative ones."""
    one, other = _plain(one), _plain(other)
    return one == other or one.endswith("/" + other) or other.endswith("/" + one)


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


_TEMPORARY = re.compile(
    r"(?:/private)?/(?:tmp|var/tmp|var/folders)/|\$\{?TMPDIR\b|.*/(?:local|windows)/temp/", re.IGNORECASE
)


def temporary_among(paths: Iterable[str]) -> frozenset[str]:
    """The paths in a temporary folder of the system; none where all of them are, because the project is there then.
    Where nothing but paths relative to the project stand beside them, it may be there, and those far below are its."""
    paths = frozenset(paths)
    temporary = frozenset(path for path in paths if _TEMPORARY.match(_plain(path)))
    if any(_ABSOLUTE.match(_plain(path)) for path in paths - temporary):
        return temporary
    near = frozenset(path for path in temporary if _TEMPORARY.sub("", _plain(path), count=1).count("/") < 2)
    return near if temporary != paths else frozenset()


def telling_names(paths: Iterable[str]) -> Mapping[str, str]:
    """For each path of which another file has the name too, as much of its end as tells the two apart: `a/x.py` and
    `b/x.py`; of one in a temporary folder all of it. A file with a name of its own is not in it."""
    paths = tuple(dict.fromkeys(paths))
    temporary = temporary_among(paths)
    spelled = one_spelling(paths)
    files = {path: _plain(spelled[path]).rstrip("/") for path in paths}
    ends = Counter(end for file in set(files.values()) for end in _ends_of(file))
    return {
        path: file if path in temporary else next((end for end in _ends_of(file) if ends[end] == 1), file)
        for path, file in files.items()
        if path in temporary or ends[file.rpartition("/")[2]] > 1
    }


def _ends_of(path: str) -> Iterator[str]:
    """`c`, `b/c`, `a/b/c` of `a/b/c`."""
    parts = path.split("/")
    return ("/".join(parts[-number:]) for number in range(1, len(parts) + 1))


def _plain(path: str) -> str:
    return direct_path(path).replace("\\", "/")
