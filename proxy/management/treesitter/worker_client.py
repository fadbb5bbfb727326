"""Symbols of seen files as grammars read them, by tree-sitter, where it is installed (S2-23).

    pip install 'callstack-proxy[map]'

The law: **a parser never runs in this process**. There are texts of a few kilobytes that keep one busy for seconds
without a chance to stop it, and a library in C can crash. So a child reads the files (`reader`), for as long as it is
given; what it has not told by then, and languages whose grammar is not installed, are read by the patterns of
`stack.filemap`. It is for people who ask for a map: what is told to a model, in the middle of a request, is read by
patterns alone.

What this package does not do: it keeps nothing of what it read, and ranks nothing.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import msgspec

from proxy.core.filemap import FileSymbols, SeenFile, build_symbols, language_of, symbols_by_patterns
from proxy.management.treesitter.worker import GRAMMARS

WORKER_TIMEOUT_S = 3.0
"""Seconds for the files of one map, the start of the child among them; usual ones take some tenths."""
WORKER_PATH = Path(__file__).with_name("worker.py")
_worker_lock = Lock()
"""Held while a child runs: there is one at a time, and whoever comes meanwhile has the patterns."""


class _WorkerAnswer(msgspec.Struct):
    """A line of the child."""

    defined: list[tuple[str, int]]
    used: dict[str, int]


def symbols_by_grammar(files: Sequence[SeenFile]) -> list[FileSymbols]:
    """The symbols of files: by a grammar where there is one, else by patterns. An argument for `file_map`; it waits."""
    known = installed_languages()
    mine = [file for file in files if language_of(file.path) in known]
    read = dict(zip((file.path for file in mine), _read_with_worker(mine), strict=False))
    return [_choose_better(file, read.get(file.path)) for file in files]


def _choose_better(file: SeenFile, read: FileSymbols | None) -> FileSymbols:
    """What a grammar made of a file. It may miss what stands in a part that is cut in the middle: then patterns see
    more."""
    if read is not None and file.is_complete:
        return read
    seen = symbols_by_patterns([file])[0]
    return seen if read is None or len(seen.definitions) > len(read.definitions) else read


def installed_languages() -> tuple[str, ...]:
    """The languages that a grammar is installed for."""
    if find_spec("tree_sitter") is None:
        return ()
    return tuple(language for language, kinds in GRAMMARS.items() if find_spec(kinds.module) is not None)


def _read_with_worker(files: Sequence[SeenFile]) -> list[FileSymbols | None]:
    """What the child tells of the files, one after the other, as far as it comes; None where it could not read one."""
    if not files or not sys.executable or not _worker_lock.acquire(blocking=False):
        return []
    try:
        asked = [(language_of(file.path), "\n".join(file.lines).encode("utf-8", "replace").decode()) for file in files]
        answered = _run_worker(msgspec.json.encode(asked))
    except OSError:  # no process to be had
        return []
    finally:
        _worker_lock.release()
    return [_decode_answer(file, line) for file, line in zip(files, answered.splitlines(), strict=False)]


def _run_worker(asked: bytes) -> bytes:
    """What the child wrote before it ended, or was ended. Raises OSError."""
    command = [sys.executable, "-P", str(WORKER_PATH)]  # -P: beside it lie modules that are named like others
    with subprocess.Popen(  # noqa: S603  our own file, with our own interpreter
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            return child.communicate(asked, WORKER_TIMEOUT_S)[0]
        except subprocess.TimeoutExpired:
            child.kill()
            return child.communicate()[0]


def _decode_answer(file: SeenFile, line: bytes) -> FileSymbols | None:
    try:
        read = msgspec.json.decode(line, type=_WorkerAnswer | None)
    except msgspec.DecodeError:  # half a line
        return None
    if read is None or not all(0 <= row < len(file.lines) for _, row in read.defined):
        return None
    used = {**dict.fromkeys((name for name, _ in read.defined), 1), **read.used}
    return build_symbols(file, read.defined, used)
