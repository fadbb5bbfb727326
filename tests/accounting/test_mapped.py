"""Pages of mapped files: given back, and what was written stays."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.accounting.mapped import release_mapped_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is mapped and takes it back")

SIZE = 64 * mmap.PAGESIZE
READ_ONLY = 1
"""`PROT_READ`."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "vocabulary"
    file.write_bytes(b"x" * SIZE)
    return file


@pytest.fixture
def mapping(path: Path) -> Iterator[mmap.mmap]:
    """The file as a library has its data: a copy of its own as soon as it writes."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        yield mapped


def protect(mapping: mmap.mmap) -> None:
    """From now on it may only be read."""
    at = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(mapping)))
    assert ctypes.CDLL(None).mprotect(at, ctypes.c_size_t(SIZE), READ_ONLY) == 0


def resident(path: Path) -> int:
    """KB of the file that are in this process's memory."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    return sum(int(next(x for x in lines if x.startswith("Rss:")).split()[1]) for line in lines if str(path) in line)


def test_what_was_read_is_given_back_and_can_be_read_again(path: Path, mapping: mmap.mmap) -> None:
    protect(mapping)
    assert mapping[:] == b"x" * SIZE
    assert resident(path) == SIZE // 1024

    release_mapped_pages(path)

    assert resident(path) == 0
    assert mapping[:] == b"x" * SIZE


def test_a_mapping_that_was_written_to_stays_also_when_it_may_only_be_read_now(path: Path, mapping: mmap.mmap) -> None:
    mapping[:4] = b"ours"
    protect(mapping)

    release_mapped_pages(path)

    assert mapping[:4] == b"ours"
    assert resident(path) > 0


def test_a_file_that_is_not_mapped_is_nobodys_trouble(path: Path) -> None:
    release_mapped_pages(path)

    assert resident(path) == 0
