"""Frames as tasks and edges, as other tools store a tree. Edges link a subtask to its task, a retry to the failed
attempt, and a task to those that the client's plan says it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, cast

import msgspec
from typing_extensions import TypedDict

from proxy.core.frames import PathState, Tree, children, task_of
from proxy.core.ledger import Call
from proxy.core.observers import ID_ARGUMENTS

BLOCKED_BY_KEYS = ("addBlockedBy", "blockedBy", "blocked_by", "depends_on", "dependsOn", "dependencies")
"""Arguments that name the items for which a plan item waits."""
BLOCKS_KEYS = ("addBlocks", "blocks")
"""Arguments that name the items that wait for a plan item."""


class TaskFrame(TypedDict):
    """A frame as a task; `parent` and `result` are left out where there is none. `children` in order of birth."""

    id: str
    goal: str
    parent: NotRequired[str]
    children: list[str]
    status: Literal["active", "complete", "blocked"]
    result: NotRequired[str]
    depth: int


Edge = TypedDict("Edge", {"from": str, "to": str, "kind": Literal["subtask", "retry_of", "depends_on"]})
"""`from` is the task, the retry, or what waits; `to` the subtask, what is tried again, or what is waited for."""


def task_frame(tree: Tree, frame: str) -> TaskFrame:
    task = task_of(tree, tree.frames[frame])
    fields: dict[str, Any] = {"id": task.id, "goal": task.goal, "children": [f.id for f in children(tree, frame)]}
    fields |= {"status": task.status, "depth": task.depth}
    optional = {"parent": task.parent_id, "result": task.result}
    return cast(TaskFrame, fields | {name: value for name, value in optional.items() if value})


# --------------------------------------------------------------------------------------------------------------- edges
def edges_of(path_state: PathState) -> list[Edge]:
    """Each edge once, in order of the frames' creation, then dependencies in the order in which they were stated."""
    frames = path_state.tree.frames
    edges: dict[tuple[str, str, str], None] = {}
    for frame in frames.values():
        if frame.parent in frames:
            edges[frame.parent, frame.id, "subtask"] = None
        if frame.retry_of in frames:
            edges[frame.id, frame.retry_of, "retry_of"] = None
    edges |= dict.fromkeys((dependent, dependency, "depends_on") for dependent, dependency in _dependencies(path_state))
    return [cast(Edge, {"from": one, "to": other, "kind": kind}) for one, other, kind in edges]


def _dependencies(path_state: PathState) -> Iterator[tuple[str, str]]:
    """Pairs of a waiting frame and the one it waits for, from plan calls about known frames."""
    by_key = {frame.client_key: frame.id for frame in path_state.tree.frames.values() if frame.client_key}
    for path_entry in path_state.entries:
        message = path_entry.message
        for call in message.calls if message else ():
            yield from _dependencies_in_call(call, by_key)


def _dependencies_in_call(call: Call, by_key: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if call.is_stack_call or not any(name in call.arguments for name in (*BLOCKED_BY_KEYS, *BLOCKS_KEYS)):
        return
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return
    for item in _plan_items(arguments):
        subject = next((by_key[key] for name in ID_ARGUMENTS if (key := str(item.get(name))) in by_key), "")
        for other in _known_frames_named(item, BLOCKED_BY_KEYS, by_key):
            yield from [(subject, other)] if subject and subject != other else ()
        for other in _known_frames_named(item, BLOCKS_KEYS, by_key):
            yield from [(other, subject)] if subject and subject != other else ()


def _plan_items(arguments: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(arguments, dict):
        yield arguments
        for value in arguments.values():
            yield from (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def _known_frames_named(item: Mapping[str, Any], names: tuple[str, ...], by_key: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        value = item.get(name)
        for key in value if isinstance(value, list) else [value]:
            if str(key) in by_key:
                yield by_key[str(key)]
