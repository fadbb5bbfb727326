"""Symbols of seen files by tree-sitter grammars, if installed.

Parsing runs in a child process with a time limit: a few kilobytes can keep a parser busy for seconds, and a C library
can crash. Files that the child did not finish, or without a grammar, are read by the patterns of `filemap`. Used
only for people who ask for a map; models get pattern-based maps.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

import msgspec

from callstack_proxy.filemap import FileSymbols, SeenFile, build_symbols, language_of, symbols_by_patterns
from callstack_proxy.management.treesitter.worker import GRAMMARS

WORKER_TIMEOUT_S = 3.0
"""Seconds for all files of one map, including the start of the child; usually some tenths."""
WORKER_PATH = Path(__file__).with_name("worker.py")
_worker_lock = Lock()
"""Only one child runs at a time; concurrent callers use patterns."""


class _WorkerAnswer(msgspec.Struct):
    defined: list[tuple[str, int]]
    used: dict[str, int]


def symbols_by_grammar(files: Sequence[SeenFile]) -> list[FileSymbols]:
    """Symbols by grammar where possible, else by patterns. Blocks for up to `WORKER_TIMEOUT_S`."""
    languages = installed_languages()
    parseable = [file for file in files if language_of(file.path) in languages]
    symbols = dict(zip((file.path for file in parseable), _read_with_worker(parseable), strict=False))
    return [_choose_better(file, symbols.get(file.path)) for file in files]


def _choose_better(file: SeenFile, by_grammar: FileSymbols | None) -> FileSymbols:
    """A grammar may miss definitions in a file with a cut; then the reader that found more definitions wins."""
    if by_grammar is not None and file.is_complete:
        return by_grammar
    by_patterns = symbols_by_patterns([file])[0]
    return (
        by_patterns if by_grammar is None or len(by_patterns.definitions) > len(by_grammar.definitions) else by_grammar
    )


def installed_languages() -> tuple[str, ...]:
    if find_spec("tree_sitter") is None:
        return ()
    return tuple(language for language, kinds in GRAMMARS.items() if find_spec(kinds.module) is not None)


def _read_with_worker(files: Sequence[SeenFile]) -> list[FileSymbols | None]:
    """Symbols of the first files, in order, as far as the child got; None for a file it could not read."""
    if not files or not sys.executable or not _worker_lock.acquire(blocking=False):
        return []
    try:
        request = [
            (language_of(file.path), "\n".join(file.lines).encode("utf-8", "replace").decode()) for file in files
        ]
        output = _run_worker(msgspec.json.encode(request))
    except OSError:  # no process to be had
        return []
    finally:
        _worker_lock.release()
    return [_decode_answer(file, line) for file, line in zip(files, output.splitlines(), strict=False)]


def _run_worker(request: bytes) -> bytes:
    """The child's output until it ended or was killed. Raises OSError."""
    command = [sys.executable, "-P", str(WORKER_PATH)]  # -P: beside it lie modules that are named like others
    with subprocess.Popen(  # noqa: S603  our own file, with our own interpreter
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            return child.communicate(request, WORKER_TIMEOUT_S)[0]
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
