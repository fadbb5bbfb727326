"""Tools about the context itself: stack_context_info (budgets, sizes, usage, cache prices), stack_context_preview (the
active frame's block), stack_compaction_info (what left the context, what is pending) and stack_cache_clear. Reading
never renders a block anew: a block already sent is shown as it was sent. stack_cache_clear only marks blocks as stale,
because rewriting one at once would invalidate the prompt cache behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import fields
from typing_extensions import TypedDict

from proxy.core.compaction import count_context_tokens
from proxy.core.context import block_holder, block_of, context_entries, frames_with_block, surroundings_of
from proxy.core.frames import FINAL_STATUSES, RETURN_STATUSES, BlockStale, Frame, PathState, Tree, is_ended_root
from proxy.core.ledger import Usage
from proxy.core.text import CountTokens, cut_for_display, remove_illegal_xml
from proxy.core.tools.base import (
    FrameBlockBudgets,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    frame_argument,
    integer_argument,
    object_schema,
    text_schema,
)
from proxy.core.tools.inspect_tools import frame_named

DEFAULT_PREVIEW_CHARACTERS = 2_000  # characters (S1-113)
MAX_PREVIEW_CHARACTERS = 100_000
MAX_NAMED_FRAMES = 10  # of one kind


class ContextCounts(TypedDict):
    """Frames in the block, entries and tokens of the context."""

    ancestors: int
    siblings: int
    finished: int
    planned: int
    entries: int
    tokens: int


class ContextInfo(msgspec.Struct, frozen=True):
    """Sizes of the active frame's context, in tokens. `changed_budgets` names the budgets that differ from the
    defaults; `block` is the block sent when the frame was entered, which showed `siblings` of the `finished` frames;
    `usage` is the provider's report of the newest round."""

    frame: Frame
    budgets: FrameBlockBudgets
    changed_budgets: tuple[str, ...]
    block: str
    counts: ContextCounts
    usage: Usage | None


def measure_context(path_state: PathState, budgets: FrameBlockBudgets, now: int, count: CountTokens) -> ContextInfo:
    """The context at the end of a path with an active frame; `now` is ms since the epoch. `count` is asked for texts of
    the proxy."""
    frame, surroundings, entries = (
        path_state.tree.active_frame,
        surroundings_of(path_state.tree, path_state.tree.active, now),
        context_entries(path_state),
    )
    rounds = [path_entry.round for path_entry in path_state.entries if path_entry.round is not None]
    return ContextInfo(
        frame=frame,
        budgets=budgets,
        changed_budgets=tuple(f.name for f in fields(FrameBlockBudgets) if getattr(budgets, f.name) != f.default),
        block=frame.opening.block if frame.opening else "",
        counts={
            "ancestors": len(surroundings.lineage),
            "siblings": sum(map(len, surroundings.sibling_levels)),
            "finished": surroundings.finished_count,
            "planned": len(surroundings.planned_children),
            "entries": len(entries),
            "tokens": count_context_tokens(path_state, count),
        },
        usage=next(
            (finished_round.spoken.usage for finished_round in reversed(rounds) if finished_round.spoken.usage), None
        ),
    )


def show_context_info(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    del arguments  # it takes none
    info = measure_context(
        tool_context.path_state, tool_context.settings.budgets, tool_context.now, tool_context.count_tokens
    )
    return ToolResult("\n".join(_render_context_info(info, tool_context)))


def _render_context_info(info: ContextInfo, tool_context: ToolContext) -> Iterator[str]:
    budgets = ", ".join(f"{f.name} {getattr(info.budgets, f.name):,}" for f in fields(FrameBlockBudgets))
    changed = f"; set otherwise than they come: {', '.join(info.changed_budgets)}" if info.changed_budgets else ""
    yield f"Active: {info.frame.id} ({cut_for_display(tool_context.tree.as_shown.frames[info.frame.id].title)})"
    yield f"Budgets of a frame's block, in tokens: {budgets}{changed}."
    if info.block:
        yield (
            f"Block: {tool_context.count_tokens(info.block):,} tokens, as told when the frame was entered; "
            "it does not change."
        )
    else:
        yield "Block: none was told as this frame began."
    counts, window = info.counts, tool_context.window_tokens
    yield (
        f"Selection: {counts['ancestors']} above, {counts['siblings']} of {counts['finished']} finished beside the "
        f"path, {counts['planned']} planned below."
    )
    full = f" of {window:,} ({100 * counts['tokens'] / window:.1f} %)" if window else ""
    yield f"Line: {counts['entries']} entries, {counts['tokens']:,} tokens{full}, without the system text and tools."
    yield f"Last usage: {_render_usage(info.usage)}."
    prices = tool_context.prices
    yield (
        f"Caching: a cached token costs {prices.read:g} of a fresh one, a written one {prices.write:g}; what stands on "
        "the line is never written anew without a reason."
    )


def _render_usage(usage: Usage | None) -> str:
    if usage is None:
        return "the provider has told none yet"
    counts = (f"input {usage.input:,}", f"cached {usage.cached:,}", f"written {usage.written:,}")
    return f"{', '.join(counts)}, output {usage.output:,}"


def show_context_preview(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """The block of the active frame, cut at `maxLength` characters."""
    return ToolResult(cut_with_remainder(current_block(tool_context), _max_length_argument(arguments)))


def current_block(tool_context: ToolContext) -> str:
    """The block as it was sent; where none was, as it would be."""
    opening = tool_context.tree.active_frame.opening
    if opening is not None and opening.block:
        return opening.block
    return block_of(
        tool_context.settings.block_format,
        tool_context.path_state,
        tool_context.tree,
        tool_context.tree.active,
        session=tool_context.ledger.conversation.id,
        nonce=tool_context.nonce,
        now=tool_context.now,
        budgets=tool_context.settings.budgets,
        count=tool_context.count_tokens,
    )


def cut_with_remainder(text: str, max_characters: int) -> str:
    """At most `max_characters` characters, and how many more there are."""
    return (
        text
        if len(text) <= max_characters
        else f"{text[:max_characters]}\n... {len(text) - max_characters:,} more characters"
    )


def _max_length_argument(arguments: Mapping[str, Any]) -> int:
    wanted = f"a number of characters from 1 to {MAX_PREVIEW_CHARACTERS:,}; default {DEFAULT_PREVIEW_CHARACTERS:,}"
    length = integer_argument(arguments, "maxLength", wanted)
    if length is not None and not 1 <= length <= MAX_PREVIEW_CHARACTERS:
        raise ToolError(f"Error: maxLength must be {wanted}.")
    return DEFAULT_PREVIEW_CHARACTERS if length is None else length


class CompactionState(msgspec.Struct, frozen=True):
    """Ids of frames. `returned` are shown as their call's result; `folded`, and the parts of long work in `parted`, as
    a trace; `ended` are over but not folded yet; `wanted` were recalled and return at the next cheap moment;
    `completing` are subagents whose result is awaited. `trims` counts cuts made because the context did not fit."""

    returned: tuple[str, ...]
    folded: tuple[str, ...]
    parted: tuple[str, ...]
    trims: int
    ended: tuple[str, ...]
    wanted: tuple[str, ...]
    completing: tuple[str, ...]


def compaction_state_of(tree: Tree) -> CompactionState:
    frames, folded = tree.frames.values(), {trim.frame for trim in tree.removals if trim.frame}
    ended = [f for f in frames if f.status in FINAL_STATUSES | RETURN_STATUSES]
    return CompactionState(
        returned=tuple(f.id for f in ended if f.opening is not None),
        folded=tuple(f.id for f in frames if f.id in folded and f.origin != "part"),
        parted=tuple(f.id for f in frames if f.id in folded and f.origin == "part"),
        trims=sum(not trim.frame for trim in tree.removals),
        ended=tuple(f.id for f in ended if _awaits_fold(tree, f) and f.id not in folded),
        wanted=tuple(frame for frame in tree.kept_frames if frame in folded),
        completing=tuple(
            f.id for f in frames if f.origin == "subagent" and f.status not in FINAL_STATUSES | RETURN_STATUSES
        ),
    )


def _awaits_fold(tree: Tree, frame: Frame) -> bool:
    """Whether an ended frame's entries stay in the context until a fold."""
    return is_ended_root(tree, frame) or (
        frame.leaves_only_by_fold and bool(frame.parent) and frame.origin != "subagent"
    )


def show_compaction_info(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    del arguments  # it takes none
    state = compaction_state_of(tool_context.tree)
    return ToolResult("\n".join(_render_compactions(tool_context.tree, state)))


def _render_compactions(tree: Tree, state: CompactionState) -> Iterator[str]:
    yield "Off the line, each recalled by its id:"
    yield f"- as results of their calls: {_list_frames(tree, state.returned)}"
    yield f"- folded: {_list_frames(tree, state.folded)}"
    yield f"- parts of long work: {_list_frames(tree, state.parted)}"
    yield f"- cut because the line did not fit: {state.trims} times"
    yield "Pending:"
    yield f"- ended, and folded as soon as that pays: {_list_frames(tree, state.ended)}"
    yield f"- asked back: {_list_frames(tree, state.wanted)}"
    yield f"- subagents whose result is awaited: {_list_frames(tree, state.completing)}"


def _list_frames(tree: Tree, frames: tuple[str, ...]) -> str:
    named = [
        f"{frame} {cut_for_display(remove_illegal_xml(tree.frames[frame].title))}"
        for frame in frames[-MAX_NAMED_FRAMES:]
    ]
    more = [f"and {len(frames) - MAX_NAMED_FRAMES} before them"] if len(frames) > MAX_NAMED_FRAMES else []
    return "; ".join([*named, *more]) or "none"


_NO_PARAMETERS: Mapping[str, Any] = object_schema()
CONTEXT_INFO = Tool(
    "stack_context_info",
    "context_info",
    "What the context is made of.",
    _NO_PARAMETERS,
    show_context_info,
)
CONTEXT_PREVIEW = Tool(
    "stack_context_preview",
    "context_preview",
    "The frame block as it was told.",
    object_schema(maxLength={"type": "integer", "description": f"characters; default {DEFAULT_PREVIEW_CHARACTERS}"}),
    show_context_preview,
)
COMPACTION_INFO = Tool(
    "stack_compaction_info",
    "compaction_info",
    "What left the context, and what is pending.",
    _NO_PARAMETERS,
    show_compaction_info,
)


NO_BLOCK = (
    "Error: no frame block stands in your context, so there is nothing to write anew. stack_status tells the frames."
)


def clear_block_cache(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Mark blocks as stale; they are rewritten when that is cheap."""
    holders = frames_with_block(tool_context.tree)
    if not holders:
        raise ToolError(NO_BLOCK)
    reference = frame_argument(arguments)
    stale_frames = (
        [_require_block_holder(holders, block_holder(tool_context.tree, frame_named(tool_context.tree, reference)))]
        if reference
        else list(holders)
    )
    named = ", ".join(f.label for f in stale_frames)
    answer = (
        f"What you were told of {named} is written anew with the next request that finds nothing of your context in "
        "the provider's cache, or that changes what stands before it anyway. That breaks the prefix: done now, all "
        "behind it would be paid for in full again. stack_status and stack_tree tell how things are now."
    )
    return ToolResult(answer, (BlockStale(tuple(f.id for f in stale_frames)),))


def _require_block_holder(holders: tuple[Frame, ...], frame: Frame) -> Frame:
    if frame not in holders:
        named = ", ".join(f.label for f in holders)
        raise ToolError(f"Error: no block of {frame.id} stands in your context. There are those of {named}.")
    return frame


CACHE_CLEAR = Tool(
    "stack_cache_clear",
    "cache_clear",
    "Have what you were told of your frames written anew, when that breaks no cache.",
    object_schema(frame=text_schema("id or title; default: all")),
    clear_block_cache,
)
