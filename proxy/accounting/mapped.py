"""Files that are mapped into memory, and pages of them that are not needed any more.

A vocabulary inside a library is read once, and 31 MB of the library's file stay with the process for ever. The law:
**only what can be read again is given back**: of a mapping that holds a single page of its own (something was written
to it) nothing is. A page that is needed after all comes back by itself.

What this module does not do: it gives back no memory that Python or a library has asked for.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MADV_DONTNEED = 4
"""`MADV_DONTNEED` of Linux."""

_MAPPING = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) .*?(?: (/.*))?$")


def release_mapped_pages(path: Path) -> None:
    """Give back the pages of this file; without Linux, or where it does not say what is mapped, nothing happens."""
    if sys.platform != "linux":
        return
    advise = ctypes.CDLL(None).madvise
    with suppress(OSError):
        for start, end in _unmodified_mappings(path.resolve()):
            advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_DONTNEED)


def _unmodified_mappings(path: Path) -> Iterator[tuple[int, int]]:
    """First address and end of each mapping of the file that may not be written to and never was."""
    found: tuple[int, int] | None = None
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if mapping := _MAPPING.match(line):
            start, end, rights, file = mapping.groups()
            found = (int(start, 16), int(end, 16)) if file == str(path) and "w" not in rights else None
        elif found and line.split() == ["Anonymous:", "0", "kB"]:
            yield found
