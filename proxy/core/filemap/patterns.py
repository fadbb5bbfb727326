"""Finds symbols by regular expressions, one line at a time, in time proportional to the length of the file. It serves
languages without a grammar, and requests, which cannot wait for a parser. It does not know blocks, so it cannot tell
methods from functions, and it counts a definition inside a multi-line string."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from proxy.core.definitions import KEYWORDS, MAX_DEFINITION_LENGTH, PATTERNS, language_of
from proxy.core.filemap.contents import SeenFile
from proxy.core.filemap.symbols import FileSymbols, build_symbols


def symbols_by_patterns(files: Sequence[SeenFile]) -> list[FileSymbols]:
    """Symbols of each file; none for a language without patterns."""
    return [_symbols_of_file(file, PATTERNS.get(language_of(file.path), ())) for file in files]


_WORD = re.compile(r"[^\W\d]\w{1,79}")


def _symbols_of_file(file: SeenFile, patterns: Sequence[re.Pattern[str]]) -> FileSymbols:
    if not patterns:
        return FileSymbols()
    found: list[tuple[str, int]] = []
    uses: Counter[str] = Counter()
    for row, line in enumerate(file.lines):
        if not (head := line[:MAX_DEFINITION_LENGTH]) or head.isspace():
            continue
        match = next((match for pattern in patterns if (match := pattern.match(head))), None)
        if match and match[1] not in KEYWORDS:
            found.append((match[1], row))
        uses.update(_WORD.findall(head))
    return build_symbols(file, found, uses)
