"""The layout `stack`: the state of a tree of frames as the plugin that began it keeps it on disk, and the logs.

    conversation.json      id, when it began (ms), the wire format of its messages
    state.json             version, frames, activeFrameID, rootFrameIDs, updatedAt
    frames/ID.json         one frame, with its place in the tree
    frames/plan-ID.json    the same for a frame that is planned
    frames/ID.log          everything it did, one message a line

Names of fields are those of `/stack`; times are ms since the epoch. The law: **an id never becomes part of a path as it
is**: whatever is no letter, digit, dash or underscore is written as an underscore.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.core.frames.frames import Frame, Status, ancestors, children
from proxy.core.tools.inspect import state_of
from proxy.management.export.items import Item, as_document, items_of, log_lines
from proxy.management.export.source import Material

ABOUT = "conversation.json"
STATE = "state.json"
FRAMES = "frames"
PLANNED = "plan-"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")


def safe(name: str) -> str:
    """An id as part of a file name (S1-13)."""
    return _UNSAFE.sub("_", name)


def files(material: Material) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The state, each frame, then each log."""
    tree = material.story.tree
    state = state_with_logs(material)
    yield ABOUT, about(material)
    yield STATE, iter((as_document(state),))
    for frame in tree.frames.values():
        yield _file_of(frame), iter((as_document(_told(material, frame, state["frames"][frame.id])),))
    owned: dict[str, list[Item]] = defaultdict(list)
    for item in items_of(material.ledger, tree):
        owned[item.frame].append(item)
    for name in dict.fromkeys((*tree.frames, *owned)):
        yield _log_of(name), log_lines(owned[name])


def about(material: Material) -> Iterator[bytes]:
    """What a state does not say of the conversation it is of."""
    conversation = material.ledger.conversation
    told = {"id": conversation.id, "created": conversation.created, "dialect": conversation.dialect}
    yield as_document(told)


def state_with_logs(material: Material) -> dict[str, Any]:
    """The state, each frame with the file its log is in."""
    state = state_of(material.story.tree, FRAMES)
    frames = {name: {**fields, "logPath": _log_of(name)} for name, fields in state["frames"].items()}
    return {**state, "frames": frames}


def _file_of(frame: Frame) -> str:
    """An id that was taken over from such a file says by itself that the frame was planned."""
    before = PLANNED if frame.status is Status.PLANNED and not frame.id.startswith(PLANNED) else ""
    return f"{FRAMES}/{before}{safe(frame.id)}.json"


def _log_of(frame: str) -> str:
    return f"{FRAMES}/{safe(frame) or 'nobody'}.log"


def _told(material: Material, frame: Frame, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the state, and what only this file says: its place, and how it came to be."""
    tree = material.story.tree
    return {
        **fields,
        "conversation": material.id,
        "active": tree.active == frame.id,
        "ancestors": [above.id for above in ancestors(tree, frame.id)],
        "children": [below.id for below in children(tree, frame.id)],
        "origin": frame.origin,
        "tokens": frame.tokens,
    }
