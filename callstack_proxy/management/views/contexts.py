"""What is in the context of a conversation, what has left it, and the map of the files that it has seen. Message tokens
were counted when each message arrived; texts of ours are counted by the given counter. The file map is computed anew
each time."""

from __future__ import annotations

from typing import Annotated

from typing_extensions import TypedDict

from callstack_proxy.filemap import RankedFile, build_file_map, draw_map_for, fit_to_budget, render_file_map
from callstack_proxy.management.find_by_id import thread_tips
from callstack_proxy.management.treesitter import installed_languages, symbols_by_grammar
from callstack_proxy.management.views.struct_schema import StructSchema
from proxy.config import Config
from proxy.config.for_core import block_format_for, tool_settings
from proxy.core.context import block_of
from proxy.core.frames import Frame, PathState
from proxy.core.ledger import Ledger, Usage
from proxy.core.text import CountTokens
from proxy.core.tools import ContextCounts, FrameBlockBudgets, cut_with_remainder, measure_context
from proxy.errors import NotFound


class BudgetsView(TypedDict):
    total: int
    ancestors: int
    siblings: int
    current: int


class ContextView(ContextCounts):
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
    window: int
    read: float
    write: float
    usage: Annotated[Usage, StructSchema()] | None


class BlockPreview(TypedDict):
    """The block of the active frame: as it was `told`, or as it would be. `more` characters were cut off."""

    frame: str
    told: bool
    text: str
    more: int


class FrameSummaryView(TypedDict):
    """What a frame came to, or has so far."""

    frame: str
    title: str
    status: str
    results: str | None
    artifacts: list[str]
    decisions: list[str]


def context_view(ledger: Ledger, path_state: PathState, config: Config, now: int, count: CountTokens) -> ContextView:
    """Raises NotFound if no frame was begun."""
    info = measure_context(_require_active_frame(path_state), tool_settings(config).budgets, now, count)
    model = _newest_model(ledger, path_state)
    tariff = config.tariff_of(model)
    return {
        "conversation": ledger.conversation.id,
        "frame": info.frame.id,
        "title": path_state.tree.as_shown.frames[info.frame.id].title,
        "budgets": budgets_view(info.budgets),
        "changed": list(info.changed_budgets),
        "block_tokens": count(info.block) if info.block else None,
        **info.counts,
        "window": tariff.window,
        "read": tariff.read,
        "write": tariff.write,
        "usage": info.usage,
    }


def budgets_view(budgets: FrameBlockBudgets) -> BudgetsView:
    return {
        "total": budgets.total,
        "ancestors": budgets.ancestors,
        "siblings": budgets.siblings,
        "current": budgets.current,
    }


def _require_active_frame(path_state: PathState) -> PathState:
    if not path_state.tree.active:
        raise NotFound("No frame was begun here yet. The first message to the agent begins one.")
    return path_state


def _newest_model(ledger: Ledger, path_state: PathState) -> str:
    tip = ledger.entries.get(path_state.tip)
    thread = ledger.threads.get(tip.thread) if tip else None
    return thread.model if thread else next((ledger.threads[name].model for name in thread_tips(ledger)), "")


def block_preview(frame: str, block: str, most: int, *, told: bool) -> BlockPreview:
    """At most `most` characters of the frame's block."""
    return {"frame": frame, "told": told, "text": cut_with_remainder(block, most), "more": max(0, len(block) - most)}


def active_block(
    ledger: Ledger, path_state: PathState, config: Config, now: int, count: CountTokens
) -> tuple[str, bool]:
    """The block of the active frame, and whether the model was told it. A block that would be told lacks its
    conversation mark, which only the running proxy has. Raises NotFound."""
    tree = _require_active_frame(path_state).tree
    if tree.active_frame.opening and tree.active_frame.opening.block:
        return tree.active_frame.opening.block, True
    block = block_of(
        block_format_for(config, _newest_model(ledger, path_state), draw_map_for(config)),
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
    """The map for the active frame of a path, in at most `budget` tokens. Waits up to some seconds for grammars."""
    tree = path_state.tree
    file_map = build_file_map(path_state, tree, tree.active, symbols_by_grammar, config.observed_tools)
    files = fit_to_budget(file_map.files, file_map.seen_count, budget, count)
    text = render_file_map(files, file_map.seen_count)
    return {
        "conversation": ledger.conversation.id,
        "frame": tree.active,
        "seen": file_map.seen_count,
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
            {"name": definition.name, "line": definition.line or None, "text": definition.text, "rank": rank}
            for definition, rank in file.definitions
        ],
    }
