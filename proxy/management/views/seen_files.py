"""The map of the files that a conversation has seen, for people (S2-23 to S2-25).

It is what a frame block would tell of them, whether the configuration has it told to a model or not. The law: **it is
drawn anew each time**, from what is stored; nothing of it is kept.
"""

from __future__ import annotations

from typing_extensions import TypedDict

from proxy.config.model import Config
from proxy.core.filemap import file_map
from proxy.core.filemap.ranking import Ranked
from proxy.core.filemap.render import as_text, chosen
from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import Ledger
from proxy.core.text import Count
from proxy.management.treesitter import grammar_symbols, languages


class SymbolTold(TypedDict):
    """A definition; `line` is null where only an edit told of it, `text` the line it stands on."""

    name: str
    line: int | None
    text: str
    rank: float


class SeenFileTold(TypedDict):
    """`whole`: all of the file was seen, as far as anybody said."""

    path: str
    whole: bool
    rank: float
    symbols: list[SymbolTold]


class SeenFilesTold(TypedDict):
    """The files with the highest rank first, with those of their symbols that fit the budget; `seen` counts all files.
    `text` is the same as a block tells it, in so many `tokens`; `grammars` are the languages that are not read by
    patterns."""

    conversation: str
    frame: str
    seen: int
    files: list[SeenFileTold]
    budget: int
    tokens: int
    text: str
    grammars: list[str]


def seen_files(ledger: Ledger, story: Story, config: Config, budget: int, count: Count) -> SeenFilesTold:
    """The map for the active frame of a path, in at most `budget` tokens. It waits for the grammars, up to some
    seconds."""
    tree = story.tree
    mapped = file_map(story, tree, tree.active, grammar_symbols, config.observed_tools)
    files = chosen(mapped.files, mapped.seen, budget, count)
    text = as_text(files, mapped.seen)
    return {
        "conversation": ledger.conversation.id,
        "frame": tree.active,
        "seen": mapped.seen,
        "files": [_told(file) for file in files],
        "budget": budget,
        "tokens": count(text),
        "text": text,
        "grammars": list(languages()),
    }


def _told(file: Ranked) -> SeenFileTold:
    return {
        "path": file.path,
        "whole": file.whole,
        "rank": file.rank,
        "symbols": [
            {"name": each.name, "line": each.line or None, "text": each.shown, "rank": rank}
            for each, rank in file.definitions
        ],
    }
