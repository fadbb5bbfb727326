"""What the layout `jetbox` tells: a goal with tasks and subtasks, and the actions that were taken.

Where a node carries a frame as we have it (`frame`), that is read. Where it does not, as in files that others wrote,
its description is the title, and its place makes its id. An action becomes a call and its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from proxy.core.frames.events import frame_id
from proxy.core.frames.frames import Status
from proxy.core.ledger.ledger import Kind
from proxy.dialects import OPENAI_CHAT
from proxy.dialects import raw_json as slices
from proxy.dialects.chat.message import read_message
from proxy.management.export.jetbox import HISTORY
from proxy.management.export.layout import STATE
from proxy.management.export.reading import Shelf, objects, refuse
from proxy.management.export.rebuild import FrameTold, Said, Told, in_order
from proxy.management.export.stack_layout import completed, frame_told

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
