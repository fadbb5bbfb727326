"""What is on the line of a conversation and what has left it, as the stack tools tell it, for people (S1-112, S1-113,
S1-116, S1-117).

Tokens are as they were counted when each message came; those of our own texts (a block, a trace, an output told in
other words) are counted as the budgets are, by whoever asks.

The map of the files that a conversation has seen, for people (S2-23 to S2-25).

It is what a frame block would tell of them, whether the configuration has it told to a model or not. The law: **it is
drawn anew each time**, from what is stored; nothing of it is kept.
"""

from __future__ import annotations

from typing import cast

from msgspec.structs import asdict
from typing_extensions import TypedDict

from proxy.config.model import Config
from proxy.core.context.block_format import block_of
from proxy.core.filemap import file_map
from proxy.core.filemap.ranking import Ranked
from proxy.core.filemap.render import as_text, chosen
from proxy.core.frames.path_state import Story
from proxy.core.frames.tree import Frame
from proxy.core.ledger.ledger import Ledger
from proxy.core.text import Count
from proxy.core.tools.base import Budgets
from proxy.core.tools.context_tools import Context, compactions_of, context_of, cut
from proxy.errors import UnknownFrame
from proxy.exchange.resolver import tool_settings
from proxy.exchange.thread.block_format import form_of
from proxy.management.treesitter import grammar_symbols, languages
from proxy.management.views.lookup import thread_tips
from proxy.management.views.schemas import UsageTold


class BudgetsTold(TypedDict):
    total: int
    ancestors: int
    siblings: int
    current: int


class ContextTold(TypedDict):
    """The line of the active frame. `changed` are budgets that the configuration sets otherwise than they come;
    `block_tokens` is null where no block was told; `siblings` of the `finished` frames beside the path fit into it.
    `window` is that of the model's row of prices; `read` and `write` are what a cached and a written token cost of a
    fresh one; `usage` is what the provider said of the newest round."""

    conversation: str
    frame: str
    title: str
    budgets: BudgetsTold
    changed: list[str]
    block_tokens: int | None
    ancestors: int
    siblings: int
    finished: int
    planned: int
    entries: int
    tokens: int
    window: int
    read: float
    write: float
    usage: UsageTold | None


class Preview(TypedDict):
    """The block of the active frame: as it was `told`, or as it would be. `more` characters were cut off."""

    frame: str
    told: bool
    text: str
    more: int


class CompactionsTold(TypedDict):
    """Ids of frames. `returned` stand as the result of their call, `folded` and `parted` as a trace; `ended` are over
    and leave as soon as that pays, `wanted` were asked back, `completing` are subagents whose result is awaited.
    `trims`: how often the line was cut because it did not fit."""

    returned: list[str]
    folded: list[str]
    parted: list[str]
    trims: int
    ended: list[str]
    wanted: list[str]
    completing: list[str]


class SummaryTold(TypedDict):
    """What a frame came to, or has so far."""

    frame: str
    title: str
    status: str
    results: str | None
    artifacts: list[str]
    decisions: list[str]


def context_told(ledger: Ledger, story: Story, config: Config, now: int, count: Count) -> ContextTold:
    """Raises UnknownFrame where nothing was begun."""
    found = context_of(_begun(story), tool_settings(config).budgets, now, count)
    model = _model(ledger, story)
    tariff = config.tariff_of(model)
    return {
        "conversation": ledger.conversation.id,
        "frame": found.frame.id,
        "title": found.frame.title,
        "budgets": budgets_told(found.budgets),
        "changed": list(found.changed),
        "block_tokens": count(found.block) if found.block else None,
        "ancestors": found.ancestors,
        "siblings": found.siblings,
        "finished": found.finished,
        "planned": found.planned,
        "entries": found.entries,
        "tokens": found.tokens,
        "window": tariff.window,
        "read": tariff.read,
        "write": tariff.write,
        "usage": _usage(found),
    }


def budgets_told(budgets: Budgets) -> BudgetsTold:
    return {
        "total": budgets.total,
        "ancestors": budgets.ancestors,
        "siblings": budgets.siblings,
        "current": budgets.current,
    }


def _usage(found: Context) -> UsageTold | None:
    if found.usage is None:
        return None
    told = found.usage
    return {
        "input": told.input,
        "output": told.output,
        "cached": told.cached,
        "written": told.written,
        "written_long": told.written_long,
    }


def _begun(story: Story) -> Story:
    if not story.tree.active:
        raise UnknownFrame("No frame was begun here yet.")
    return story


def _model(ledger: Ledger, story: Story) -> str:
    """The upstream's name for the model that was asked last on this path."""
    tip = ledger.entries.get(story.tip)
    thread = ledger.threads.get(tip.thread) if tip else None
    return thread.model if thread else next((ledger.threads[name].model for name in thread_tips(ledger)), "")


def preview(frame: str, block: str, most: int, *, told: bool) -> Preview:
    """At most `most` characters of the frame's block."""
    return {"frame": frame, "told": told, "text": cut(block, most), "more": max(0, len(block) - most)}


def block_of_active(ledger: Ledger, story: Story, config: Config, now: int, count: Count) -> tuple[str, bool]:
    """The block of the active frame, and whether it was told. One that would be told has no mark of its conversation,
    which only the running proxy can give it. Raises UnknownFrame."""
    tree = _begun(story).tree
    if tree.current.opening and tree.current.opening.block:
        return tree.current.opening.block, True
    block = block_of(
        form_of(config, _model(ledger, story)),
        story,
        tree,
        tree.active,
        nonce="",
        now=now,
        budgets=tool_settings(config).budgets,
        count=count,
        session=ledger.conversation.id,
    )
    return block, False


def compactions_told(story: Story) -> CompactionsTold:
    found = asdict(compactions_of(story.tree))
    return cast(CompactionsTold, {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()})


def summary_told(frame: Frame) -> SummaryTold:
    return {
        "frame": frame.id,
        "title": frame.title,
        "status": str(frame.status),
        "results": frame.results or None,
        "artifacts": list(frame.artifacts),
        "decisions": list(frame.decisions),
    }


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
