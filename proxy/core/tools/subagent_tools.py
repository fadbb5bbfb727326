"""Tools about the subagents of a conversation: stack_subagent_list, stack_stats and stack_subagent_complete.

Counts come from the frame tree, so they are the same after a restart and on every path. stack_subagent_complete ends
the frame of a subagent before its result arrives; called in a subagent's own conversation without a reference, it pops
that conversation's root. A subagent ends once, and ending it removes nothing from a context and stops no running work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.core.frames import RETURN_STATUSES, Frame, FramePopped, Status, Tree, decode_event, find_frame
from proxy.core.ledger import Ledger
from proxy.core.text import cut_for_display, format_duration, remove_illegal_xml
from proxy.core.tools.base import (
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    flag_argument,
    frame_argument,
    object_schema,
    text_argument,
    text_schema,
)
from proxy.core.tools.frame_tools import pop

SUBAGENT_ORIGIN = "subagent"
RESULTS_MISSING_NOTE = "Ended before its result came."
MAX_SUMMARY_CHARACTERS = 4_000
COMPACTED_CHARACTERS = 350
MAX_LISTED_SUBAGENTS = 20


def complete_subagent(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """End the frame of a subagent, or this conversation's root where it is itself a subagent's."""
    reference = frame_argument(arguments)
    status, summary = text_argument(arguments, "status"), text_argument(arguments, "summary", "results")
    if tool_context.ledger.conversation.parent and reference in (
        "",
        tool_context.tree.root.id,
        tool_context.ledger.conversation.id,
    ):
        return pop(
            tool_context,
            {"frame": tool_context.tree.root.id, "status": status, "results": summary or RESULTS_MISSING_NOTE},
        )
    frame = tracked_subagent(tool_context.tree, reference)
    event = subagent_end_event(frame, status, summary)
    answer = f"Subagent {frame.label} is {event.status}. A result that still comes is yours"
    return ToolResult(f"{answer} to read, and changes this no more.", (event,))


def tracked_subagent(tree: Tree, reference: str) -> Frame:
    """The subagent named by frame, title or conversation; without a reference, the only one in progress."""
    tracked = [f for f in tree.frames.values() if f.origin == SUBAGENT_ORIGIN]
    in_progress = [f for f in tracked if f.status not in RETURN_STATUSES]
    if not reference:
        if len(in_progress) == 1:
            return in_progress[0]
        which = "Say which by frame." if in_progress else "None is at work."
        raise ToolError(f"Error: frame is missing. {which} {_list_tracked(tracked)}")
    frame = find_frame(tree, reference) or next((f for f in tracked if f.conversation == reference), None)
    if frame is None or frame not in tracked:
        raise ToolError(
            f"Error: {reference[:80]!r} is not tracked: it is no subagent of this conversation. "
            f"{_list_tracked(tracked)} A frame of yours ends with stack_frame_pop."
        )
    return frame


def subagent_end_event(frame: Frame, status: str, summary: str) -> FramePopped:
    """The end of a subagent's frame. Raises ToolError where it has already ended or the status is not allowed."""
    if frame.status is not Status.IN_PROGRESS:
        raise ToolError(f"Error: subagent {frame.id} is already {frame.status}; it ends once.")
    final_status = status or Status.COMPLETED
    if final_status not in RETURN_STATUSES:
        raise ToolError(f"Error: status {final_status[:40]!r} is none of {', '.join(sorted(RETURN_STATUSES))}.")
    results = remove_illegal_xml(summary).strip()[:MAX_SUMMARY_CHARACTERS] or RESULTS_MISSING_NOTE
    return FramePopped(frame.id, Status(final_status), results, cut_for_display(results, COMPACTED_CHARACTERS))


def _list_tracked(tracked: list[Frame]) -> str:
    if not tracked:
        return "No subagent is tracked here."
    named = (f"{f.id} {cut_for_display(f.title)} ({f.status})" for f in tracked[-MAX_LISTED_SUBAGENTS:])
    return f"Tracked: {'; '.join(named)}."


SUBAGENT_COMPLETE = Tool(
    "stack_subagent_complete",
    "subagent_complete",
    "End the frame of a subagent before its result comes.",
    object_schema(
        frame=text_schema("its frame; default: the only one at work"),
        status={"type": "string", "description": "default: completed", "enum": sorted(RETURN_STATUSES)},
        summary=text_schema("what it came to"),
    ),
    complete_subagent,
)


LISTED_TITLE_CHARACTERS = 30
MAX_SUBAGENT_ROWS = 50
SUBAGENT_FILTERS = ("all", "active", "completed", "with-frame", "without-frame")


class SubagentCounts(msgspec.Struct, frozen=True):
    """Counts of delegated conversations: `detected` all, `framed` with a frame, `skipped` too short for one,
    `by_result` ended by the result of their call or by inactivity, `by_hand` ended by somebody."""

    detected: int = 0
    framed: int = 0
    skipped: int = 0
    by_result: int = 0
    by_hand: int = 0

    def rates(self) -> Mapping[str, float]:
        """Percent with one decimal: of detected ones, and for `completed` of those with a frame."""
        return {
            "framed": _percent(self.framed, self.detected),
            "skipped": _percent(self.skipped, self.detected),
            "completed": _percent(self.by_result + self.by_hand, self.framed),
        }


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def subagents_of(tree: Tree) -> list[Frame]:
    """Frames of subagents, the most recently active first."""
    return sorted(
        (f for f in tree.frames.values() if f.origin == SUBAGENT_ORIGIN), key=lambda f: (-f.updated_at, -f.order)
    )


def count_subagents(ledger: Ledger, frames: Sequence[Frame]) -> SubagentCounts:
    ended = [frame for frame in frames if frame.status in RETURN_STATUSES]
    by_result = sum(was_ended_by_result(ledger, frame) for frame in ended)
    return SubagentCounts(len(frames), len(frames), 0, by_result, len(ended) - by_result)


def was_ended_by_result(ledger: Ledger, frame: Frame) -> bool:
    """Whether the result of the frame's call ended it: then the end is attached to that message. A frame without a call
    is ended by inactivity at the moment it is created."""
    for entry, events in ledger.events.items():
        for event in events:
            if event.kind == "popped" and event.subject.partition("/")[0] == frame.id:
                ended, message = decode_event(event), ledger.entries[entry].message
                if isinstance(ended, FramePopped) and ended.status is frame.status:
                    if not frame.client_key:
                        return event.created == frame.created_at
                    return message is not None and message.answers == frame.client_key
    return False


def list_subagents(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    chosen = text_argument(arguments, "filter") or SUBAGENT_FILTERS[0]
    if chosen not in SUBAGENT_FILTERS:
        raise ToolError(f"Error: filter {chosen[:40]!r} is none of {', '.join(SUBAGENT_FILTERS)}.")
    frames = [
        frame
        for frame in subagents_of(tool_context.tree)
        if matches_filter(chosen, ended=frame.status in RETURN_STATUSES, framed=True)
    ]
    lines = [_subagent_line(frame, tool_context.now) for frame in frames[:MAX_SUBAGENT_ROWS]]
    more = [f"and {len(frames) - MAX_SUBAGENT_ROWS} older ones"] if len(frames) > MAX_SUBAGENT_ROWS else []
    return ToolResult("\n".join([f"Subagents ({chosen}): {len(frames)}", *lines, *more]))


def matches_filter(chosen: str, *, ended: bool, framed: bool) -> bool:
    return {"active": not ended, "completed": ended, "with-frame": framed, "without-frame": not framed}.get(
        chosen, True
    )


def _subagent_line(frame: Frame, now: int) -> str:
    ago = format_duration(max(0, now - frame.updated_at))
    return (
        f"- {frame.id} {cut_for_display(frame.title, LISTED_TITLE_CHARACTERS)}: {frame.status}, last active {ago} ago"
    )


def show_subagent_stats(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    if flag_argument(arguments, "reset"):
        raise ToolError("Error: only a person counts anew: POST /stack/subagents/reset. Call it without reset to read.")
    frames = subagents_of(tool_context.tree)
    return ToolResult(
        "\n".join(_stats_lines(tool_context, frames, active=flag_argument(arguments, "showActive", default=True)))
    )


def _stats_lines(tool_context: ToolContext, frames: Sequence[Frame], *, active: bool) -> Iterator[str]:
    counts = count_subagents(tool_context.ledger, frames)
    yield f"Subagents with a frame: {counts.framed}"
    yield f"Ended by their result: {counts.by_result}; ended by hand: {counts.by_hand}"
    yield f"Completed: {counts.rates()['completed']:.1f} %"
    at_work = [frame for frame in frames if frame.status not in RETURN_STATUSES]
    if active:
        yield f"At work: {len(at_work)}"
        yield from (_subagent_line(frame, tool_context.now) for frame in at_work[:MAX_SUBAGENT_ROWS])


STATS = Tool(
    "stack_stats",
    "stats",
    "Subagents of this conversation, counted.",
    object_schema(
        reset={"type": "boolean", "description": "only people may: count anew"},
        showActive={"type": "boolean", "description": "also list those at work; default: true"},
    ),
    show_subagent_stats,
)
SUBAGENT_LIST = Tool(
    "stack_subagent_list",
    "subagent_list",
    "The subagents of this conversation.",
    object_schema(
        filter={
            "type": "string",
            "description": f"which to list; default: {SUBAGENT_FILTERS[0]}",
            "enum": list(SUBAGENT_FILTERS),
        }
    ),
    list_subagents,
)
