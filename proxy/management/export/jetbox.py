"""The layout `jetbox`: a goal with its tasks and subtasks, the actions, and what was done again and again.

    conversation.json  id, when it began (ms), the wire format of its messages
    state.json      goal (tasks, subtasks), current_task_idx, current_subtask_idx, loop_counts, blocked_actions,
                    last_probe_state, session_start
    history.jsonl   one action a line: a call of the client's tools with its result
    loops.json      actions that were made three times or more with the same result

The goal is the root frame, a task a frame under it, everything below is a subtask. Its words for a status are fewer
than ours, so each node also carries the frame as it is, under `frame`: that is what an import reads. The law: **an
action is known by its signature**, the tool's name and its arguments with sorted keys.

What the layout `jetbox` tells: a goal with tasks and subtasks, and the actions that were taken.

Where a node carries a frame as we have it (`frame`), that is read. Where it does not, as in files that others wrote,
its description is the title, and its place makes its id. An action becomes a call and its result.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from proxy.core.frames.events import frame_id
from proxy.core.frames.tree import Frame, Status, Tree, children, path_to
from proxy.core.ledger.ledger import Kind
from proxy.core.ledger.messages import Call, canonical_arguments
from proxy.core.observers import observe
from proxy.core.observers.commands import probes
from proxy.core.observers.step import steps_of
from proxy.core.policy import loop_detection as loops
from proxy.dialects import OPENAI_CHAT
from proxy.dialects import raw_json as slices
from proxy.dialects.chat.message import read_message
from proxy.management.export.items import Item, as_document, as_line, items_of
from proxy.management.export.reading import Shelf, objects, refuse
from proxy.management.export.rebuild import FrameTold, Said, Told, in_order
from proxy.management.export.source import Material
from proxy.management.export.stack_layout import ABOUT, STATE, about, completed, frame_told, state_with_logs
from proxy.management.views.logs import is_error
from proxy.management.views.loops import loop_rows

HISTORY, LOOPS = "history.jsonl", "loops.json"
AGAIN = 3
"""How often an action has to come to the same result to be told as a repetition."""
WORDS: Mapping[Status, str] = {
    Status.PLANNED: "pending",
    Status.IN_PROGRESS: "in_progress",
    Status.COMPLETED: "completed",
    Status.FAILED: "failed",
    Status.BLOCKED: "blocked",
    Status.INVALIDATED: "failed",
}


@dataclass(frozen=True, slots=True)
class Action:
    """A call of the client's tools, made at `at` (ms). `result` is None where none came, and `ended` 0.
    `failed`: the result tells of a failure."""

    call: Call
    frame: str
    at: int
    result: str | None = None
    ended: int = 0
    failed: bool = False

    @property
    def signature(self) -> str:
        """The name and the arguments, their keys sorted (S3-20)."""
        return f"{self.call.name}:{canonical_arguments(self.call.arguments or '{}')}"


def files(material: Material) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The files, one after another."""
    actions = list(actions_of(material))
    yield ABOUT, about(material)
    yield STATE, iter((as_document(_state(material, actions)),))
    yield HISTORY, (as_line(_line(action)) for action in actions)
    yield LOOPS, iter((as_document(_loops(actions)),))


# -------------------------------------------------------------------------------------------------------------- actions
def actions_of(material: Material) -> Iterator[Action]:
    """On every path, in the order in which they were made."""
    items = items_of(material.ledger, material.story.tree)
    results = _results(items)
    for item in items:
        for call in item.message.calls:
            if not call.is_ours:
                came = results[call.id].popleft() if results[call.id] else None
                told = (came.message.text, came.at, is_error(came.message)) if came else (None, 0, False)
                yield Action(call, item.frame, item.at, *told)


def _results(items: list[Item]) -> dict[str, deque[Item]]:
    """The results by the call they answer, oldest first: ids repeat."""
    found: dict[str, deque[Item]] = defaultdict(deque)
    for item in items:
        if item.message.answers:
            found[item.message.answers].append(item)
    return found


def _line(action: Action) -> dict[str, Any]:
    status = "pending" if action.result is None else "error" if action.failed else "success"
    return {
        "timestamp": moment(action.at),
        "frame": action.frame,
        "call": action.call.id,
        "action": action.call.name,
        "args": _arguments(action.call.arguments),
        "result": action.result,
        "status": status,
    }


def _arguments(text: str) -> Any:
    """As a value, or as the text they are where that is no JSON."""
    try:
        return msgspec.json.decode(text or "{}")
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text


def _loops(actions: list[Action]) -> list[dict[str, Any]]:
    """Actions with one signature and one result, the oldest first (S3-26)."""
    made: dict[tuple[str, str | None], list[Action]] = defaultdict(list)
    for action in actions:
        made[action.signature, action.result].append(action)
    return [
        {"timestamp": moment(same[-1].at), "signature": signature, "attempt_count": len(same)}
        for (signature, _), same in made.items()
        if len(same) >= AGAIN
    ]


# ---------------------------------------------------------------------------------------------------------------- state
def _state(material: Material, actions: list[Action]) -> dict[str, Any]:
    tree = material.story.tree
    told = state_with_logs(material)["frames"]
    path = path_to(tree, tree.active) if tree.active else ()
    roots = [f for f in tree.frames.values() if not f.parent]
    goal = path[0] if path else next(iter(roots), None)
    counts: dict[str, int] = defaultdict(int)
    for action in actions:
        counts[action.signature] += 1
    return {
        "goal": _node(tree, goal, told, "tasks") if goal else None,
        "other_goals": [_node(tree, root, told, "tasks") for root in roots if root is not goal],
        "active_frame": tree.active,
        "current_task_idx": _position(tree, path, 1),
        "current_subtask_idx": _position(tree, path, 2),
        "loop_counts": {signature: count for signature, count in counts.items() if count > 1},
        "blocked_actions": _standing(material, actions),
        "last_probe_state": _probes(material),
        "session_start": moment(material.ledger.conversation.created),
    }


def _node(tree: Tree, frame: Frame, told: Mapping[str, Any], below: str) -> dict[str, Any]:
    """A goal or a task with what is under it; a node of its own kind for every frame."""
    return {
        "description": frame.title,
        "status": WORDS[frame.status],
        "success_criteria": frame.criteria,
        "result": frame.results or frame.invalidation_reason,
        "frame": {**told[frame.id], "origin": frame.origin},
        below: [_node(tree, child, told, "subtasks") for child in children(tree, frame.id)],
    }


def _position(tree: Tree, path: tuple[Frame, ...], depth: int) -> int:
    """Of the frame under way among its siblings, from 0; 0 where the work is not that deep."""
    if len(path) <= depth:
        return 0
    return [f.id for f in children(tree, path[depth - 1].id)].index(path[depth].id)


def _standing(material: Material, actions: list[Action]) -> list[str]:
    """Actions in a loop that was warned of and goes on (S3-25, S3-28)."""
    looped = {name for row in loop_rows(material.ledger) if row["standing"] for name in row["signatures"]}
    found = (action for action in actions if looped and loops.signature(action.call, material.names) in looped)
    return list(dict.fromkeys(action.signature for action in found))


def _probes(material: Material) -> dict[str, bool]:
    """How the newest command of each kind ended (S3-05)."""
    ran = [one for step in steps_of(material.story.placed) for one in observe(step, material.names).commands]
    return {f"{kind}_ok": ok for kind, ok in probes(ran).items()}


def moment(at_ms: int) -> str:
    """ISO 8601, UTC, to the ms."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


BELOW = ("tasks", "subtasks")
STATUSES: Mapping[str, Status] = {
    "pending": Status.PLANNED,
    "active": Status.IN_PROGRESS,
    "in_progress": Status.IN_PROGRESS,
    "complete": Status.COMPLETED,
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    "blocked": Status.BLOCKED,
}
"""Words for a status that files of this kind use."""


def told(shelf: Shelf, state: Mapping[str, Any]) -> Told:
    """Raises BadRequest, which names the file and the place."""
    goals = [goal for goal in (state["goal"], *_listed(state, "other_goals")) if goal is not None]
    frames = in_order(frame for number, goal in enumerate(goals) for frame in _frames(goal, "", (number,)))
    active = state.get("active_frame")
    if not isinstance(active, str) or not active:
        active = _under_way(frames)
    return completed(shelf, state, frames, active, tuple(_said(shelf, frames, active)))


def _under_way(frames: tuple[FrameTold, ...]) -> str:
    """The deepest frame in progress: the last one that began."""
    return next((f.id for f in reversed(frames) if f.status is Status.IN_PROGRESS), frames[0].id if frames else "")


# --------------------------------------------------------------------------------------------------------------- frames
def _frames(node: Any, parent: str, place: tuple[int, ...]) -> Iterator[FrameTold]:
    """A node and all below it. `place` are the numbers on the way to it."""
    where = f"{STATE}, node {'.'.join(map(str, place))}"
    if not isinstance(node, dict):
        refuse(f"{where} is no object")
    frame = frame_told(node["frame"], where) if node.get("frame") else _described(node, parent, place, where)
    yield frame
    for number, child in enumerate(child for below in BELOW for child in _listed(node, below)):
        yield from _frames(child, frame.id, (*place, number))


def _described(node: Mapping[str, Any], parent: str, place: tuple[int, ...], where: str) -> FrameTold:
    title, status = node.get("description"), STATUSES.get(str(node.get("status", "pending")).lower())
    if not isinstance(title, str) or not title.strip():
        refuse(f"{where}: description is missing")
    if status is None:
        refuse(f"{where}: status {str(node.get('status'))[:40]!r} is not known; there are {', '.join(STATUSES)}")
    result = node.get("result") or node.get("reason") or ""
    name = frame_id("/".join(map(str, place)) + title, len(place))
    return FrameTold(
        id=name, status=status, title=title, parent=parent, results=result if isinstance(result, str) else str(result)
    )


def _listed(node: Mapping[str, Any], name: str) -> list[Any]:
    found = node.get(name) or []
    return found if isinstance(found, list) else refuse(f"{STATE}: {name} is no list")


# -------------------------------------------------------------------------------------------------------------- actions
class _Acted(msgspec.Struct):
    """An action. What files of others call a tool is `name` or `action`."""

    action: str = ""
    name: str = ""
    args: Any = None
    result: Any = None
    frame: str = ""
    call: str = ""
    timestamp: str | float | None = None


def _said(shelf: Shelf, frames: tuple[FrameTold, ...], active: str) -> Iterator[Said]:
    """The goal as the user's words, then each action as a call, and its result where one came."""
    if HISTORY not in shelf.names() or not frames:
        return
    goal = OPENAI_CHAT.user_message((frames[0].criteria or "").strip() or frames[0].title)
    yield Said("goal", "", frames[0].id, Kind.MESSAGE, goal, 0, round(frames[0].created))
    known, after, seq = {frame.id for frame in frames}, "goal", 1
    for number, fields in objects(shelf, HISTORY):
        acted = _read(fields, f"{HISTORY}, line {number}")
        frame, at = acted.frame if acted.frame in known else active, _moment(acted.timestamp)
        for part, wire in _wires(acted, number):
            name = f"{number}-{part}"
            yield Said(name, after, frame, Kind.MESSAGE, read_message(wire), seq, at)
            after, seq = name, seq + 1


def _read(fields: Mapping[str, Any], where: str) -> _Acted:
    try:
        acted = msgspec.convert(fields, _Acted)
    except msgspec.ValidationError as error:
        refuse(f"{where}: {error}")
    return acted if acted.action or acted.name else refuse(f"{where}: action is missing")


def _wires(acted: _Acted, number: int) -> Iterator[tuple[str, bytes]]:
    call = acted.call or f"action_{number}"
    arguments = acted.args if isinstance(acted.args, str) else slices.encoded(acted.args or {}).decode()
    function = {"name": acted.action or acted.name, "arguments": arguments}
    made = [{"id": call, "type": "function", "function": function}]
    yield "call", slices.encoded({"role": "assistant", "content": None, "tool_calls": made})
    if acted.result is not None:
        text = acted.result if isinstance(acted.result, str) else slices.encoded(acted.result).decode()
        yield "result", slices.encoded({"role": "tool", "tool_call_id": call, "content": text})


def _moment(told_at: str | float | None) -> int:
    """ms since the epoch; a number is taken for seconds, as files of others have it."""
    try:
        return (
            round(datetime.fromisoformat(told_at).timestamp() * 1000)
            if isinstance(told_at, str)
            else round((told_at or 0) * 1000)
        )
    except (ValueError, OverflowError):
        return 0
