"""The layout `jetbox`, written and read: `conversation.json`, `state.json` (goal, tasks, subtasks), `history.jsonl` (an
action a line) and `loops.json` (actions repeated with the same result).

The goal is the root frame, its children are tasks, all below are subtasks. Each node also has our own frame under
`frame`, which an import prefers; in files of other programs the description is the title and the position the id.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from callstack_proxy.management.export.base import JSON, ExportFormat
from callstack_proxy.management.export.import_files import FileSource, read_objects, refuse_import
from callstack_proxy.management.export.items import ExportItem, items_of, json_document, json_line
from callstack_proxy.management.export.rebuild import (
    ImportedConversation,
    ImportedMessage,
    imported_message,
    parents_first,
)
from callstack_proxy.management.export.source import ExportInput
from callstack_proxy.management.export.stack_layout import (
    ABOUT_FILE,
    STATE_FILE,
    build_conversation,
    conversation_document,
    parse_frame,
    state_with_logs,
)
from callstack_proxy.management.views import is_error, loop_rows
from proxy.core.frames import Frame, Status, Tree, children, frame_id, path_to
from proxy.core.ledger import Call, canonical_arguments
from proxy.core.observers import decode_json_or_text, last_outcome_by_kind, observe, steps_of
from proxy.core.policy import loop_detection
from proxy.dialects import OPENAI_CHAT, raw_json
from proxy.dialects.chat import read_message

HISTORY_FILE, LOOPS_FILE = "history.jsonl", "loops.json"
MIN_REPETITIONS = 3
"""Equal results from which an action counts as repeated."""
STATUS_WORDS: Mapping[Status, str] = {
    Status.PLANNED: "pending",
    Status.IN_PROGRESS: "in_progress",
    Status.COMPLETED: "completed",
    Status.FAILED: "failed",
    Status.BLOCKED: "blocked",
    Status.INVALIDATED: "failed",
}


@dataclass(frozen=True, slots=True)
class ToolAction:
    """A call of the client's tools; times are in ms. Without a result `result` is None and `ended_at` 0."""

    call: Call
    frame: str
    started_at: int
    result: str | None = None
    ended_at: int = 0
    has_failed: bool = False

    @property
    def signature(self) -> str:
        """Name and arguments with sorted keys."""
        return f"{self.call.name}:{canonical_arguments(self.call.arguments or '{}')}"


def jetbox_files(export_input: ExportInput) -> Iterator[tuple[str, Iterator[bytes]]]:
    actions = list(actions_of(export_input))
    yield ABOUT_FILE, conversation_document(export_input)
    yield STATE_FILE, iter((json_document(_jetbox_state(export_input, actions)),))
    yield HISTORY_FILE, (json_line(_history_line(action)) for action in actions)
    yield LOOPS_FILE, iter((json_document(_repeated_actions(actions)),))


# -------------------------------------------------------------------------------------------------------------- actions
def actions_of(export_input: ExportInput) -> Iterator[ToolAction]:
    """The actions on every path, in order."""
    items = items_of(export_input.ledger, export_input.path_state.tree)
    results = _results_by_call(items)
    for item in items:
        for call in item.message.calls:
            if not call.is_stack_call:
                result = results[call.id].popleft() if results[call.id] else None
                result_fields = (
                    (result.message.text, result.created_at, is_error(result.message)) if result else (None, 0, False)
                )
                yield ToolAction(call, item.frame, item.created_at, *result_fields)


def _results_by_call(items: list[ExportItem]) -> dict[str, deque[ExportItem]]:
    results: dict[str, deque[ExportItem]] = defaultdict(deque)
    for item in items:
        if item.message.answers:
            results[item.message.answers].append(item)
    return results


def _history_line(action: ToolAction) -> dict[str, Any]:
    status = "pending" if action.result is None else "error" if action.has_failed else "success"
    return {
        "timestamp": format_timestamp(action.started_at),
        "frame": action.frame,
        "call": action.call.id,
        "action": action.call.name,
        "args": decode_json_or_text(action.call.arguments or "{}"),
        "result": action.result,
        "status": status,
    }


def _repeated_actions(actions: list[ToolAction]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str | None], list[ToolAction]] = defaultdict(list)
    for action in actions:
        groups[action.signature, action.result].append(action)
    return [
        {"timestamp": format_timestamp(same[-1].started_at), "signature": signature, "attempt_count": len(same)}
        for (signature, _), same in groups.items()
        if len(same) >= MIN_REPETITIONS
    ]


# ---------------------------------------------------------------------------------------------------------------- state
def _jetbox_state(export_input: ExportInput, actions: list[ToolAction]) -> dict[str, Any]:
    tree = export_input.path_state.tree
    documents = state_with_logs(export_input)["frames"]
    path = path_to(tree, tree.active) if tree.active else ()
    roots = [f for f in tree.frames.values() if not f.parent]
    goal = path[0] if path else next(iter(roots), None)
    counts: dict[str, int] = defaultdict(int)
    for action in actions:
        counts[action.signature] += 1
    return {
        "goal": _goal_node(tree, goal, documents, "tasks") if goal else None,
        "other_goals": [_goal_node(tree, root, documents, "tasks") for root in roots if root is not goal],
        "active_frame": tree.active,
        "current_task_idx": _index_on_path(tree, path, 1),
        "current_subtask_idx": _index_on_path(tree, path, 2),
        "loop_counts": {signature: count for signature, count in counts.items() if count > 1},
        "blocked_actions": _looping_actions(export_input, actions),
        "last_probe_state": _probe_results(export_input),
        "session_start": format_timestamp(export_input.ledger.conversation.created),
    }


def _goal_node(tree: Tree, frame: Frame, documents: Mapping[str, Any], below: str) -> dict[str, Any]:
    return {
        "description": frame.title,
        "status": STATUS_WORDS[frame.status],
        "success_criteria": frame.criteria,
        "result": frame.results or frame.invalidation_reason,
        "frame": {**documents[frame.id], "origin": frame.origin},
        below: [_goal_node(tree, child, documents, "subtasks") for child in children(tree, frame.id)],
    }


def _index_on_path(tree: Tree, path: tuple[Frame, ...], depth: int) -> int:
    if len(path) <= depth:
        return 0
    return [f.id for f in children(tree, path[depth - 1].id)].index(path[depth].id)


def _looping_actions(export_input: ExportInput, actions: list[ToolAction]) -> list[str]:
    looped = {name for row in loop_rows(export_input.ledger) if row["standing"] for name in row["signatures"]}
    looping = (
        action
        for action in actions
        if looped and loop_detection.call_signature(action.call, export_input.tool_roles) in looped
    )
    return list(dict.fromkeys(action.signature for action in looping))


def _probe_results(export_input: ExportInput) -> dict[str, bool]:
    runs = [
        run
        for step in steps_of(export_input.path_state.entries)
        for run in observe(step, export_input.tool_roles).commands
    ]
    return {f"{kind}_ok": ok for kind, ok in last_outcome_by_kind(runs).items()}


def format_timestamp(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


CHILD_FIELDS = ("tasks", "subtasks")
JETBOX_STATUSES: Mapping[str, Status] = {
    "pending": Status.PLANNED,
    "active": Status.IN_PROGRESS,
    "in_progress": Status.IN_PROGRESS,
    "complete": Status.COMPLETED,
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    "blocked": Status.BLOCKED,
}
"""Status words found in files of this kind."""


def read_jetbox_layout(conversations: FileSource, state: Mapping[str, Any]) -> ImportedConversation:
    """Raises BadRequest, which names the file and the place."""
    goals = [goal for goal in (state["goal"], *_list_member(state, "other_goals")) if goal is not None]
    frames = parents_first(frame for number, goal in enumerate(goals) for frame in _read_frames(goal, "", (number,)))
    active = state.get("active_frame")
    if not isinstance(active, str) or not active:
        in_progress = (frame.id for frame in reversed(frames) if frame.status is Status.IN_PROGRESS)
        active = next(in_progress, frames[0].id if frames else "")
    return build_conversation(
        conversations, state, frames, active, tuple(_read_messages(conversations, frames, active))
    )


# --------------------------------------------------------------------------------------------------------------- frames
def _read_frames(node: Any, parent: str, place: tuple[int, ...]) -> Iterator[Frame]:
    where = f"{STATE_FILE}, node {'.'.join(map(str, place))}"
    if not isinstance(node, dict):
        refuse_import(f"{where} is no object")
    frame = parse_frame(node["frame"], where) if node.get("frame") else _frame_from_node(node, parent, place, where)
    yield frame
    for number, child in enumerate(child for below in CHILD_FIELDS for child in _list_member(node, below)):
        yield from _read_frames(child, frame.id, (*place, number))


def _frame_from_node(node: Mapping[str, Any], parent: str, place: tuple[int, ...], where: str) -> Frame:
    title, status = node.get("description"), JETBOX_STATUSES.get(str(node.get("status", "pending")).lower())
    if not isinstance(title, str) or not title.strip():
        refuse_import(f"{where}: description is missing")
    if status is None:
        refuse_import(
            f"{where}: status {str(node.get('status'))[:40]!r} is not known; there are {', '.join(JETBOX_STATUSES)}"
        )
    result = node.get("result") or node.get("reason") or ""
    name = frame_id("/".join(map(str, place)) + title, len(place))
    fields = {"sessionID": name, "status": status, "title": title, "parentSessionID": parent, "results": str(result)}
    return parse_frame(fields, where)


def _list_member(node: Mapping[str, Any], name: str) -> list[Any]:
    members = node.get(name) or []
    return members if isinstance(members, list) else refuse_import(f"{STATE_FILE}: {name} is no list")


# -------------------------------------------------------------------------------------------------------------- actions
class _HistoryAction(msgspec.Struct):
    """An action; other programs name the tool `name` or `action`."""

    action: str = ""
    name: str = ""
    args: Any = None
    result: Any = None
    frame: str = ""
    call: str = ""
    timestamp: str | float | None = None


def _read_messages(conversations: FileSource, frames: tuple[Frame, ...], active: str) -> Iterator[ImportedMessage]:
    """The goal as a user message, then each action as a call with its result."""
    if HISTORY_FILE not in conversations.file_names() or not frames:
        return
    goal = OPENAI_CHAT.user_message(frames[0].criteria.strip() or frames[0].title)
    yield imported_message("goal", "", 0, goal, frames[0].id, frames[0].created_at)
    frame_ids, after, seq = {frame.id for frame in frames}, "goal", 1
    for number, fields in read_objects(conversations, HISTORY_FILE):
        action = _parse_action(fields, f"{HISTORY_FILE}, line {number}")
        frame, created = action.frame if action.frame in frame_ids else active, _parse_timestamp(action.timestamp)
        for part, wire in _wire_messages(action, number):
            name = f"{number}-{part}"
            yield imported_message(name, after, seq, read_message(wire), frame, created)
            after, seq = name, seq + 1


def _parse_action(fields: Mapping[str, Any], where: str) -> _HistoryAction:
    try:
        action = msgspec.convert(fields, _HistoryAction)
    except msgspec.ValidationError as error:
        refuse_import(f"{where}: {error}")
    return action if action.action or action.name else refuse_import(f"{where}: action is missing")


def _wire_messages(action: _HistoryAction, number: int) -> Iterator[tuple[str, bytes]]:
    call = action.call or f"action_{number}"
    arguments = action.args if isinstance(action.args, str) else raw_json.encode(action.args or {}).decode()
    function = {"name": action.action or action.name, "arguments": arguments}
    calls = [{"id": call, "type": "function", "function": function}]
    yield "call", raw_json.encode({"role": "assistant", "content": None, "tool_calls": calls})
    if action.result is not None:
        text = action.result if isinstance(action.result, str) else raw_json.encode(action.result).decode()
        yield "result", raw_json.encode({"role": "tool", "tool_call_id": call, "content": text})


def _parse_timestamp(timestamp: str | float | None) -> int:
    """ms since the epoch; a number is in seconds, as other programs write it."""
    try:
        return (
            round(datetime.fromisoformat(timestamp).timestamp() * 1000)
            if isinstance(timestamp, str)
            else round((timestamp or 0) * 1000)
        )
    except (ValueError, OverflowError):
        return 0


JETBOX = ExportFormat(
    "goal, tasks and subtasks; history.jsonl, loops.json", JSON, "", render_files=jetbox_files, is_importable=True
)
