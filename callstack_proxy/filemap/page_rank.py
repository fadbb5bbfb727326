"""Ranks files and definitions by references between them: personalised PageRank.

A file that uses a name refers to each file that defines it. The edge's weight is the square root of the number of uses,
shared among the defining files, so that a name defined everywhere says little. The rank that flows to a file is split
among its definitions by name. Walks restart at the files of the frame the map is for. The same files give the same
order: the number of rounds is fixed, and ties go by path and line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt

import msgspec

from callstack_proxy.filemap.contents import SeenFile
from callstack_proxy.filemap.symbols import Definition, FileSymbols
from proxy.core.frames import file_name_of

DAMPING = 0.85
ITERATIONS = 30
MIN_NAME_LENGTH = 3
PRIVATE_NAME_WEIGHT = 0.1  # weight of a name that begins with `_`
UNUSED_DEFINITION_WEIGHT = 0.01  # share of its file's rank: behind every used definition
MAX_DEFINING_FILES = 20  # a name defined in more files identifies nothing

ReferenceGraph = Mapping[int, Mapping[tuple[int, str], float]]  # from a file index to (file index, name), with a weight


class RankedFile(msgspec.Struct, frozen=True):
    """A file with its rank, and its definitions in line order, each with its own rank."""

    path: str
    is_complete: bool
    rank: float
    definitions: tuple[tuple[Definition, float], ...]


def rank_files(
    files: Sequence[SeenFile], symbols: Sequence[FileSymbols], focus: Mapping[str, float]
) -> tuple[RankedFile, ...]:
    """The files that define anything, highest rank first. `focus` weighs paths; it may name unknown ones."""
    edges = _build_graph(symbols)
    starts = [focus.get(file.path, 0.0) for file in files]
    ranks = page_rank(len(files), edges, starts)
    shares = _rank_by_target(edges, ranks)
    ranked = [
        RankedFile(
            file.path,
            file.is_complete,
            ranks[index],
            tuple(_rank_definitions(symbols[index], index, shares, ranks[index])),
        )
        for index, file in enumerate(files)
        if symbols[index].definitions
    ]
    return tuple(sorted(ranked, key=lambda each: (-round(each.rank, 12), each.path)))


def page_rank(count: int, edges: ReferenceGraph, starts: Sequence[float]) -> list[float]:
    """The rank of each of `count` files, 1 in sum. `starts` are restart weights, also used after a file without
    references; all zero means uniform."""
    if not count:
        return []
    whole = sum(starts)
    begin = [weight / whole for weight in starts] if whole > 0 else [1 / count] * count
    weights_out = {source: sum(targets.values()) for source, targets in edges.items()}
    ranks = list(begin)
    for _ in range(ITERATIONS):
        dangling_rank = sum(rank for index, rank in enumerate(ranks) if not weights_out.get(index))
        next_ranks = [(1 - DAMPING + DAMPING * dangling_rank) * weight for weight in begin]
        for source, targets in edges.items():
            for (target, _name), weight in targets.items():
                next_ranks[target] += DAMPING * ranks[source] * weight / weights_out[source]
        ranks = next_ranks
    return ranks


def mentioned_paths(text: str, files: Sequence[SeenFile], symbols: Sequence[FileSymbols]) -> Iterator[str]:
    """Paths of files that a text names, by file name or by a definition."""
    words_in_text = set(_WORDS.findall(text))
    for file, file_symbols in zip(files, symbols, strict=True):
        name = file_name_of(file.path)
        stem = name.partition(".")[0]
        by_file = name in text or (len(stem) >= MIN_NAME_LENGTH and stem in words_in_text)
        if by_file or any(
            d.name in words_in_text for d in file_symbols.definitions if _DISTINCTIVE_NAME.search(d.name)
        ):
            yield file.path


_WORDS = re.compile(r"\w{3,80}")
_DISTINCTIVE_NAME = re.compile(r"\w_\w|[a-z][A-Z]|^[A-Z][a-z]")
"""A name that is no common word: it has several parts, or a capital."""


def _build_graph(symbols: Sequence[FileSymbols]) -> ReferenceGraph:
    defining: dict[str, set[int]] = defaultdict(set)
    for index, file_symbols in enumerate(symbols):
        for definition in file_symbols.definitions:
            if len(definition.name) >= MIN_NAME_LENGTH:
                defining[definition.name].add(index)
    edges: dict[int, dict[tuple[int, str], float]] = {}
    for source, file_symbols in enumerate(symbols):
        edges_out: dict[tuple[int, str], float] = {}
        for name, times in sorted((file_symbols.references or {}).items()):
            targets = defining.get(name, set()) - {source}
            if not targets or len(defining[name]) > MAX_DEFINING_FILES or source in defining[name]:
                continue  # a name that a file defines itself means its own
            weight = sqrt(times) * (PRIVATE_NAME_WEIGHT if name.startswith("_") else 1.0) / len(defining[name])
            edges_out |= {(target, name): weight for target in sorted(targets)}
        if edges_out:
            edges[source] = edges_out
    return edges


def _rank_by_target(edges: ReferenceGraph, ranks: Sequence[float]) -> Mapping[tuple[int, str], float]:
    """Rank that flows to each (file, name)."""
    shares: dict[tuple[int, str], float] = defaultdict(float)
    for source, targets in edges.items():
        weight_out = sum(targets.values())
        for target, weight in targets.items():
            shares[target] += ranks[source] * weight / weight_out
    return shares


def _rank_definitions(
    file_symbols: FileSymbols, index: int, shares: Mapping[tuple[int, str], float], rank: float
) -> Iterator[tuple[Definition, float]]:
    """Each definition gets the rank of its name; of several with one name, the first gets it."""
    seen_names: set[str] = set()
    for definition in file_symbols.definitions:
        share = 0.0 if definition.name in seen_names else shares.get((index, definition.name), 0.0)
        seen_names.add(definition.name)
        factor = PRIVATE_NAME_WEIGHT if definition.name.startswith("_") else 1.0
        yield definition, share + rank * UNUSED_DEFINITION_WEIGHT * factor
