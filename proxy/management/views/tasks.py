"""Frames as tasks and as edges: the shapes in which others keep a tree (S2-33, S2-36).

A task has three statuses where a frame has six (`proxy.core.frames.tasks`). Edges say what belongs to what: a subtask
to its task, a retry to what it tries again, and a task to those it waits for, where the client's own plan says so.

The law: **a dependency is told, never guessed**: only the members of a call that name other items count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, cast

import msgspec
from typing_extensions import TypedDict

from proxy.core.frames import PathState, Tree, children, task_of
from proxy.core.ledger import Call
from proxy.core.observers import ID_ARGUMENTS, message_of

BLOCKED_BY_KEYS = ("addBlockedBy", "blockedBy", "blocked_by", "depends_on", "dependsOn", "dependencies")
"""Members of a call that name the items which the one it is about (`IDS`) waits for, and those that wait for it."""
BLOCKS_KEYS = ("addBlocks", "blocks")


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
    """A frame of `tree`, by its id."""
    task = task_of(tree, tree.frames[frame])
    told: dict[str, Any] = {"id": task.id, "goal": task.goal, "children": [f.id for f in children(tree, frame)]}
    told |= {"status": task.status, "depth": task.depth}
    sometimes = {"parent": task.parent_id, "result": task.result}
    return cast(TaskFrame, told | {name: value for name, value in sometimes.items() if value})


# --------------------------------------------------------------------------------------------------------------- edges
def edges_of(path_state: PathState) -> list[Edge]:
    """Each once, in order of the frames' birth; dependencies in the order in which they were said, at the end."""
    frames = path_state.tree.frames
    found: dict[tuple[str, str, str], None] = {}
    for frame in frames.values():
        if frame.parent in frames:
            found[frame.parent, frame.id, "subtask"] = None
        if frame.retry_of in frames:
            found[frame.id, frame.retry_of, "retry_of"] = None
    found |= dict.fromkeys((waiting, held, "depends_on") for waiting, held in _dependencies(path_state))
    return [cast(Edge, {"from": one, "to": other, "kind": kind}) for one, other, kind in found]


def _dependencies(path_state: PathState) -> Iterator[tuple[str, str]]:
    """What waits, and for what, by what calls of the client's plan say of items whose frames are known."""
    by_key = {frame.client_key: frame.id for frame in path_state.tree.frames.values() if frame.client_key}
    for path_entry in path_state.entries:
        message = message_of(path_entry)
        for call in message.calls if message else ():
            yield from _dependencies_in_call(call, by_key)


def _dependencies_in_call(call: Call, by_key: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if call.is_stack_call or not any(name in call.arguments for name in (*BLOCKED_BY_KEYS, *BLOCKS_KEYS)):
        return
    try:
        told = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return
    for item in _plan_items(told):
        about = next((by_key[key] for name in ID_ARGUMENTS if (key := str(item.get(name))) in by_key), "")
        for other in _known_frames_named(item, BLOCKED_BY_KEYS, by_key):
            yield from [(about, other)] if about and about != other else ()
        for other in _known_frames_named(item, BLOCKS_KEYS, by_key):
            yield from [(other, about)] if about and about != other else ()


def _plan_items(told: object) -> Iterator[Mapping[str, Any]]:
    """The call itself, or the list of items it gives."""
    if isinstance(told, dict):
        yield told
        for listed in told.values():
            yield from (item for item in listed if isinstance(item, dict)) if isinstance(listed, list) else ()


def _known_frames_named(item: Mapping[str, Any], names: tuple[str, ...], by_key: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        told = item.get(name)
        for key in told if isinstance(told, list) else [told]:
            if str(key) in by_key:
                yield by_key[str(key)]
