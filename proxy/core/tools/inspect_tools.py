"""Tools that only read: status, tree, details and summary of a frame, and the whole state as JSON. They produce no
events. Texts of frames are put on one line and cut to fit the layout; `stack_get_state` cuts nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.core.context import with_open_frame_artifacts
from proxy.core.frames import (
    FINAL_STATUSES,
    USER_ORIGIN,
    Frame,
    Status,
    Tree,
    children,
    distinct_titles,
    find_frame,
    frames_titled,
    is_task,
    path_to,
)
from proxy.core.text import cut_at_word, cut_for_display, format_duration, quoted, remove_illegal_xml
from proxy.core.tools.base import (
    FRAME_ARGUMENTS,
    FRAME_SCHEMA,
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

STATE_VERSION = 1  # of the shape of `tree_state` (S1-07, S1-08)
MAX_STATUS_CHARACTERS = 60  # S1-107
PREVIEW_CHARACTERS = 100  # S1-107
PREVIEW_DEPTH = 2
MAX_KNOWN_FRAMES = 30  # frames that an error lists

STATUS_ICONS: Mapping[Status, str] = {
    Status.PLANNED: "[P]",
    Status.IN_PROGRESS: "[*]",
    Status.COMPLETED: "[+]",
    Status.FAILED: "[X]",
    Status.BLOCKED: "[!]",
    Status.INVALIDATED: "[-]",
}
TREE_ICONS: Mapping[Status, str] = {
    Status.COMPLETED: "✓",
    Status.IN_PROGRESS: "→",
    Status.PLANNED: "○",
    Status.FAILED: "✗",
    Status.BLOCKED: "!",
    Status.INVALIDATED: "⚠",
}
TREE_ORDER = (
    Status.IN_PROGRESS,
    Status.PLANNED,
    Status.COMPLETED,
    Status.BLOCKED,
    Status.FAILED,
    Status.INVALIDATED,
)


def frame_named(tree: Tree, reference: str) -> Frame:
    """The frame with this id, unique prefix of an id, or title. Raises ToolError."""
    frame = find_frame(tree, reference.strip().strip("\"'"))
    if frame is None:
        raise ToolError(
            known_title_text(tree, reference)
            or f"Error: no frame, or more than one, is called {reference[:80]!r}. {known_frames_text(tree)}"
        )
    return frame


def known_frames_text(tree: Tree) -> str:
    """The newest frames, for an error the model can act on."""
    return f"Frames: {_frame_list(tree, sorted(tree.frames.values(), key=lambda f: -f.order)[:MAX_KNOWN_FRAMES])}."


def known_title_text(tree: Tree, title: str) -> str:
    """The frames that share a title, for an error the model can act on; empty where none or one has it."""
    named = frames_titled(tree, title)[-MAX_KNOWN_FRAMES:]
    if len(named) < 2:
        return ""
    return (
        f"Error: {len(named)} frames are called {quoted(title[:80])}. Give the id of one: {_frame_list(tree, named)}."
    )


def _frame_list(tree: Tree, frames: Sequence[Frame]) -> str:
    titles = distinct_titles(tree, frames, cut_for_display)
    return "; ".join(f"{f.id} {titles[f.id]} ({f.status_text})" for f in frames)


def _tree_with_artifacts(tool_context: ToolContext) -> Tree:
    """The tree as it is told, with the artifacts that open frames have so far."""
    return with_open_frame_artifacts(tool_context.path_state, tool_context.settings.tool_roles).tree.as_shown


def _roots_and_orphans(tree: Tree) -> tuple[list[Frame], list[Frame]]:
    """Orphans are frames whose parent is unknown."""
    roots = [f for f in tree.frames.values() if not f.parent]
    return roots, [f for f in tree.frames.values() if f.parent and f.parent not in tree.frames]


def show_status(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    del arguments  # it takes none
    return ToolResult(render_status(tool_context.tree))


def render_status(tree: Tree) -> str:
    """All frames in order of creation, with icons and short texts; the tree must have an active frame."""
    tree = tree.as_shown
    roots, orphans = _roots_and_orphans(tree)
    lines = [line for root in roots for line in _status_lines(tree, root, 0)]
    if orphans:
        lines.append("Orphans (their parent is unknown):")
        lines += [line for frame in orphans for line in _status_lines(tree, frame, 1)]
    active = f"Active: {tree.active_frame.label}"
    return "\n".join([*lines, active])


def _status_lines(tree: Tree, frame: Frame, depth: int) -> Iterator[str]:
    indent = "  " * depth
    active = " <- active" if frame.id == tree.active else ""
    title = cut_for_display(frame.title, MAX_STATUS_CHARACTERS)
    yield f"{indent}{STATUS_ICONS[frame.status]} {frame.id} {title}{active}"
    if frame.criteria and frame.status not in FINAL_STATUSES:
        yield f"{indent}    criteria: {cut_for_display(frame.criteria, MAX_STATUS_CHARACTERS)}"
    if frame.results and depth < PREVIEW_DEPTH:
        yield f"{indent}    results: {cut_for_display(frame.results, PREVIEW_CHARACTERS)}"
    for child in children(tree, frame.id):
        yield from _status_lines(tree, child, depth + 1)


def show_tree(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """The drawn tree. With `showFull` false, only the active path and its direct children."""
    reference = text_argument(arguments, "rootID", "root_id", *FRAME_ARGUMENTS)
    tree = _tree_with_artifacts(tool_context)
    root = frame_named(tree, reference) if reference else None
    full, details = flag_argument(arguments, "showFull", default=True), flag_argument(arguments, "showDetails")
    return ToolResult(draw_tree(tree, root, full=full, details=details))


def draw_tree(
    tree: Tree,
    root: Frame | None = None,
    *,
    full: bool = True,
    details: bool = False,
    marks: Mapping[str, str] | None = None,
) -> str:
    """The tree from `root` down, or all of it with the newest root first, then the legend and the counts. `marks` are
    shown behind frame ids."""
    tree = tree.as_shown
    roots, orphans = _roots_and_orphans(tree)
    top = [tree.frames[root.id]] if root else sorted((*roots, *orphans), key=lambda f: -f.order)
    drawing = TreeDrawing(tree, full, details, marks or {})
    lines = [line for frame in top for line in drawing.lines_from(frame)]
    legend = "Legend: " + "  ".join(f"{icon} {name}" for name, icon in TREE_ICONS.items())
    return "\n".join([*lines, "", legend, _status_counts(tree)])


class TreeDrawing:
    def __init__(self, tree: Tree, full: bool, details: bool, marks: Mapping[str, str]) -> None:  # noqa: FBT001  two of the tool's arguments
        self.state, self.shows_all_frames, self.shows_details, self.marks = tree, full, details, marks
        self.active_path = {f.id for f in path_to(tree, tree.active)} if tree.active else set()

    def lines_from(self, frame: Frame) -> Iterator[str]:
        yield self._frame_line(frame)
        yield from self._child_lines(frame, "")

    def _child_lines(self, frame: Frame, prefix: str) -> Iterator[str]:
        tasks = (f for f in children(self.state, frame.id) if is_task(self.state, f))
        shown = sorted(tasks, key=lambda f: (TREE_ORDER.index(f.status), f.order))
        if not self.shows_all_frames and frame.id not in self.active_path:
            shown = []
        if self.shows_details:
            yield from (f"{prefix}{'│  ' if shown else '   '}{line}" for line in _detail_lines(frame))
        for child in shown:
            last = child is shown[-1]
            yield f"{prefix}{'└─ ' if last else '├─ '}{self._frame_line(child)}"
            yield from self._child_lines(child, prefix + ("   " if last else "│  "))

    def _frame_line(self, frame: Frame) -> str:
        active = " (active)" if frame.id == self.state.active else ""
        mark = f" {self.marks[frame.id]}" if frame.id in self.marks else ""
        title = cut_at_word(frame.title, MAX_STATUS_CHARACTERS)
        return f"{TREE_ICONS[frame.status]} {title} [{frame.id}]{mark}{active}"


def _detail_lines(frame: Frame) -> Iterator[str]:
    if frame.criteria:
        yield f"criteria: {cut_at_word(frame.criteria, PREVIEW_CHARACTERS)}"
    if frame.results:
        yield f"results: {cut_at_word(frame.results, PREVIEW_CHARACTERS)}"
    if frame.artifacts:
        yield f"artifacts: {cut_at_word(', '.join(frame.artifacts), PREVIEW_CHARACTERS)}"


def _status_counts(tree: Tree) -> str:
    tasks = [f for f in tree.frames.values() if is_task(tree, f)]
    counted = [(name, sum(f.status is name for f in tasks)) for name in TREE_ORDER]
    frames = "1 frame" if len(tasks) == 1 else f"{len(tasks)} frames"
    return f"{frames}: " + ", ".join(f"{number} {name}" for name, number in counted if number)


def show_details(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    tree = _tree_with_artifacts(tool_context)
    missing = f"Error: frame is missing: an id or a title. {known_frames_text(tree)}"
    frame = frame_named(tree, frame_argument(arguments, missing))
    return ToolResult("\n".join(_frame_fields(tree, frame)))


def _frame_fields(tree: Tree, frame: Frame) -> Iterator[str]:
    yield f"{STATUS_ICONS[frame.status]} {remove_illegal_xml(frame.title)}"
    yield f"id: {frame.id}"
    yield f"status: {frame.status}"
    if frame.parent:
        yield f"parent: {frame.parent}"
    yield f"success criteria: {remove_illegal_xml(frame.criteria) or 'none'}"
    if frame.results:
        yield f"results: {remove_illegal_xml(frame.results)}"
    if frame.retry_of:
        yield f"retry of: {frame.retry_of}"
    if frame.invalidation_reason:
        yield f"invalidated: {remove_illegal_xml(frame.invalidation_reason)}"
    yield from _list_lines("artifacts", frame.artifacts)
    for name, items in (("decisions", frame.decisions), *frame.notes_by_kind().items()):
        yield from _list_lines(name, items)
    yield from _list_lines(
        "children", [f"{c.id} {c.status}: {cut_for_display(c.title)}" for c in children(tree, frame.id)]
    )
    if frame.status in FINAL_STATUSES:
        yield f"took: {format_duration(frame.updated_at - frame.created_at)}"
    yield f'its messages and outputs: stack_recall with ref "{frame.id}"'


def _list_lines(name: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield f"{name}:"
        yield from (f"- {remove_illegal_xml(item)}" for item in items)


def get_summary(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """A frame's results, artifacts and decisions, also before it ends."""
    reference = frame_argument(arguments)
    tree = _tree_with_artifacts(tool_context)
    frame = frame_named(tree, reference) if reference else tree.active_frame
    return ToolResult("\n".join(_summary_lines(frame)))


def _summary_lines(frame: Frame) -> Iterator[str]:
    """Fixed sections; an empty one says so."""
    yield f"{STATUS_ICONS[frame.status]} {remove_illegal_xml(frame.title)} [{frame.id}] {frame.status}"
    yield f"results: {remove_illegal_xml(frame.results) or 'none yet'}"
    noted = (("artifacts", frame.artifacts), ("decisions", frame.decisions), *frame.notes_by_kind().items())
    for name, items in noted:
        yield from _list_lines(name, items) if items else [f"{name}: none"]


def tree_state(tree: Tree, logs: str = "frames") -> dict[str, Any]:
    """The tree as JSON values, in the format of S1-08 and S1-09. Times are ms since the epoch; empty fields are left
    out. `logPath` is relative to the folder `logs`, where an export writes one file per frame."""
    values: dict[str, Any] = {
        "version": STATE_VERSION,
        "frames": {frame.id: _frame_state(tree, frame, logs) for frame in tree.frames.values()},
        "rootFrameIDs": [f.id for f in _roots_and_orphans(tree)[0]],
        "updatedAt": max((f.updated_at for f in tree.frames.values()), default=0),
    }
    return {**values, "activeFrameID": tree.active} if tree.active else values


def _frame_state(tree: Tree, frame: Frame, logs: str) -> dict[str, Any]:
    always: dict[str, Any] = {
        "sessionID": frame.id,
        "status": str(frame.status),
        "title": frame.title,
        "successCriteria": frame.criteria,
        "successCriteriaCompacted": frame.criteria_compacted,
        "createdAt": frame.created_at,
        "updatedAt": frame.updated_at,
        "artifacts": list(frame.artifacts),
        "decisions": list(frame.decisions),
        "logPath": f"{logs}/{frame.id}.log",
    }
    sometimes = {
        "parentSessionID": frame.parent,
        "notes": frame.notes_by_kind(),
        "results": frame.results,
        "resultsCompacted": frame.results_compacted,
        "invalidationReason": frame.invalidation_reason,
        "invalidatedAt": frame.invalidated_at,
        "plannedChildren": [f.id for f in children(tree, frame.id) if f.status is Status.PLANNED],
        "auto": frame.origin != "model"
        and (frame.origin != USER_ORIGIN or not frame.opening or bool(frame.uncalled_owners)),
    }
    return always | {name: value for name, value in sometimes.items() if value}


def get_state(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    del arguments  # it takes none
    return ToolResult(
        remove_illegal_xml(json.dumps(tree_state(_tree_with_artifacts(tool_context)), ensure_ascii=False))
    )


_NO_PARAMETERS: Mapping[str, Any] = object_schema()
STATUS = Tool("stack_status", "status", "All frames with their status.", _NO_PARAMETERS, show_status)
TREE = Tool(
    "stack_tree",
    "tree",
    "The frame tree, drawn.",
    object_schema(
        showFull={"type": "boolean", "description": "default true; false: the active path only"},
        frame=text_schema("the root of the tree to draw; default: all"),
        showDetails={"type": "boolean", "description": "with criteria and results; default false"},
    ),
    show_tree,
)
DETAILS = Tool(
    "stack_frame_details",
    "details",
    "Everything known of one frame.",
    object_schema("frame", frame=text_schema("id or title")),
    show_details,
)
GET_STATE = Tool("stack_get_state", "get_state", "The whole state as JSON.", _NO_PARAMETERS, get_state)
GET_SUMMARY = Tool(
    "stack_get_summary",
    "get_summary",
    "What a frame came to.",
    object_schema(frame=FRAME_SCHEMA),
    get_summary,
)
