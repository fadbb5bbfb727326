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

from proxy.config import Config
from proxy.core.context import block_of
from proxy.core.filemap import RankedFile, build_file_map, fit_to_budget, render_file_map
from proxy.core.frames import Frame, PathState
from proxy.core.ledger import Ledger
from proxy.core.text import CountTokens
from proxy.core.tools import ContextInfo, FrameBlockBudgets, compaction_state_of, cut_with_remainder, measure_context
from proxy.errors import NotFound
from proxy.exchange import block_format_for, tool_settings
from proxy.management.treesitter import installed_languages, symbols_by_grammar
from proxy.management.views.lookup import thread_tips
from proxy.management.views.schemas import UsageView


class BudgetsView(TypedDict):
    total: int
    ancestors: int
    siblings: int
    current: int


class ContextView(TypedDict):
    """The line of the active frame. `changed` are budgets that the configuration sets otherwise than they come;
    `block_tokens` is null where no block was told; `siblings` of the `finished` frames beside the path fit into it.
    `window` is that of the model's row of prices; `read` and `write` are what a cached and a written token cost of a
    fresh one; `usage` is what the provider said of the newest round."""

    conversation: str
    frame: str
    title: str
    budgets: BudgetsView
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
    usage: UsageView | None


class BlockPreview(TypedDict):
    """The block of the active frame: as it was `told`, or as it would be. `more` characters were cut off."""

    frame: str
    told: bool
    text: str
    more: int


class CompactionsView(TypedDict):
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


class FrameSummaryView(TypedDict):
    """What a frame came to, or has so far."""

    frame: str
    title: str
    status: str
    results: str | None
    artifacts: list[str]
    decisions: list[str]


def context_view(ledger: Ledger, path_state: PathState, config: Config, now: int, count: CountTokens) -> ContextView:
    """Raises UnknownFrame where nothing was begun."""
    found = measure_context(_require_active_frame(path_state), tool_settings(config).budgets, now, count)
    model = _newest_model(ledger, path_state)
    tariff = config.tariff_of(model)
    return {
        "conversation": ledger.conversation.id,
        "frame": found.frame.id,
        "title": found.frame.title,
        "budgets": budgets_view(found.budgets),
        "changed": list(found.changed_budgets),
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
        "usage": _usage_view(found),
    }


def budgets_view(budgets: FrameBlockBudgets) -> BudgetsView:
    return {
        "total": budgets.total,
        "ancestors": budgets.ancestors,
        "siblings": budgets.siblings,
        "current": budgets.current,
    }


def _usage_view(found: ContextInfo) -> UsageView | None:
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


def _require_active_frame(path_state: PathState) -> PathState:
    if not path_state.tree.active:
        raise NotFound("No frame was begun here yet.")
    return path_state


def _newest_model(ledger: Ledger, path_state: PathState) -> str:
    """The upstream's name for the model that was asked last on this path."""
    tip = ledger.entries.get(path_state.tip)
    thread = ledger.threads.get(tip.thread) if tip else None
    return thread.model if thread else next((ledger.threads[name].model for name in thread_tips(ledger)), "")


def block_preview(frame: str, block: str, most: int, *, told: bool) -> BlockPreview:
    """At most `most` characters of the frame's block."""
    return {"frame": frame, "told": told, "text": cut_with_remainder(block, most), "more": max(0, len(block) - most)}


def active_block(
    ledger: Ledger, path_state: PathState, config: Config, now: int, count: CountTokens
) -> tuple[str, bool]:
    """The block of the active frame, and whether it was told. One that would be told has no mark of its conversation,
    which only the running proxy can give it. Raises UnknownFrame."""
    tree = _require_active_frame(path_state).tree
    if tree.active_frame.opening and tree.active_frame.opening.block:
        return tree.active_frame.opening.block, True
    block = block_of(
        block_format_for(config, _newest_model(ledger, path_state)),
        path_state,
        tree,
        tree.active,
        nonce="",
        now=now,
        budgets=tool_settings(config).budgets,
        count=count,
        session=ledger.conversation.id,
    )
    return block, False


def compactions_view(path_state: PathState) -> CompactionsView:
    found = asdict(compaction_state_of(path_state.tree))
    return cast(CompactionsView, {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()})


def frame_summary_view(frame: Frame) -> FrameSummaryView:
    return {
        "frame": frame.id,
        "title": frame.title,
        "status": str(frame.status),
        "results": frame.results or None,
        "artifacts": list(frame.artifacts),
        "decisions": list(frame.decisions),
    }


class SymbolView(TypedDict):
    """A definition; `line` is null where only an edit told of it, `text` the line it stands on."""

    name: str
    line: int | None
    text: str
    rank: float


class SeenFileView(TypedDict):
    """`whole`: all of the file was seen, as far as anybody said."""

    path: str
    whole: bool
    rank: float
    symbols: list[SymbolView]


class SeenFilesView(TypedDict):
    """The files with the highest rank first, with those of their symbols that fit the budget; `seen` counts all files.
    `text` is the same as a block tells it, in so many `tokens`; `grammars` are the languages that are not read by
    patterns."""

    conversation: str
    frame: str
    seen: int
    files: list[SeenFileView]
    budget: int
    tokens: int
    text: str
    grammars: list[str]


def seen_files_view(
    ledger: Ledger, path_state: PathState, config: Config, budget: int, count: CountTokens
) -> SeenFilesView:
    """The map for the active frame of a path, in at most `budget` tokens. It waits for the grammars, up to some
    seconds."""
    tree = path_state.tree
    mapped = build_file_map(path_state, tree, tree.active, symbols_by_grammar, config.observed_tools)
    files = fit_to_budget(mapped.files, mapped.seen_count, budget, count)
    text = render_file_map(files, mapped.seen_count)
    return {
        "conversation": ledger.conversation.id,
        "frame": tree.active,
        "seen": mapped.seen_count,
        "files": [_file_view(file) for file in files],
        "budget": budget,
        "tokens": count(text),
        "text": text,
        "grammars": list(installed_languages()),
    }


def _file_view(file: RankedFile) -> SeenFileView:
    return {
        "path": file.path,
        "whole": file.is_complete,
        "rank": file.rank,
        "symbols": [
            {"name": each.name, "line": each.line or None, "text": each.text, "rank": rank}
            for each, rank in file.definitions
        ],
    }
