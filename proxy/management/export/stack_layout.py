"""What the layout `stack` tells: its state, and its logs where it has them.

The plugin this layout comes from writes no logs. Then the goal of the first root is all that was said, so that there is
something the frames can hang on.

The layout `stack`: the state of a tree of frames as the plugin that began it keeps it on disk, and the logs.

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
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

import msgspec

from proxy.core.frames.tree import Frame, Status, ancestors, children
from proxy.core.ledger.ledger import Kind
from proxy.core.ledger.messages import Call, Message, identity_of
from proxy.core.tools.inspect_tools import state_of
from proxy.dialects import OPENAI_CHAT
from proxy.management.export.items import Item, as_document, as_line, items_of, log_lines
from proxy.management.export.ledger import as_bytes
from proxy.management.export.reading import Shelf, document, objects, refuse
from proxy.management.export.rebuild import FrameTold, Said, Told, in_order
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


FRAME_FILES, LOG_FILES = "frames/*.json", "frames/*.log"


def told(shelf: Shelf, state: Mapping[str, Any]) -> Told:
    """Raises BadRequest, which names the file and the member."""
    names = shelf.names()
    listed = state["frames"]
    if not isinstance(listed, dict):
        refuse(f"{STATE}: `frames` is no object")
    found = {name: frame_told(fields, f"{STATE}, frame {name[:64]}") for name, fields in listed.items()}
    for name in names:
        if fnmatchcase(name, FRAME_FILES):
            frame = frame_told(document(shelf, name), name)
            # What only a file of its own says, such as where a frame came from, is taken from there.
            found[frame.id] = frame if frame.id not in found else _joined(found[frame.id], frame)
    frames = in_order(found.values())
    said = sorted(_said(shelf, names), key=lambda one: (one.seq, one.number))
    active = state.get("activeFrameID") or ""
    return completed(shelf, state, frames, active if isinstance(active, str) else "", tuple(said))


def completed(
    shelf: Shelf, state: Mapping[str, Any], frames: tuple[FrameTold, ...], active: str, said: tuple[Said, ...]
) -> Told:
    """With the conversation it is of; the goal alone where nothing that was said is told."""
    about = document(shelf, ABOUT) if ABOUT in shelf.names() else {}
    created = round(min((frame.created for frame in frames), default=0))
    name, begun, dialect = about.get("id"), about.get("created"), about.get("dialect")
    if not isinstance(name, str) or not name:
        name = sha256(as_line(state)).hexdigest()[:32]  # the same state is the same conversation
    if not said and frames:
        said = (_goal(frames[0]),)
    return Told(
        name,
        dialect if isinstance(dialect, str) else OPENAI_CHAT.name,
        begun if isinstance(begun, int) else created,
        frames,
        active,
        said,
    )


def _goal(root: FrameTold) -> Said:
    text = (root.criteria or "").strip() or root.title
    return Said("goal", "", root.id, Kind.MESSAGE, OPENAI_CHAT.user_message(text), 0, round(root.created))


def frame_told(fields: Any, where: str) -> FrameTold:
    """Raises BadRequest, which says `where` and what is missing."""
    try:
        found = msgspec.convert(fields, FrameTold)
    except msgspec.ValidationError as error:
        allowed = ", ".join(Status)
        refuse(f"{where}: {error}; a frame has at least sessionID, title and a status ({allowed})")
    return found if found.id else refuse(f"{where}: sessionID is empty")


def _joined(state: FrameTold, file: FrameTold) -> FrameTold:
    return msgspec.structs.replace(state, origin=state.origin or file.origin, tokens=state.tokens or file.tokens)


# ----------------------------------------------------------------------------------------------------------------- logs
class _Result(msgspec.Struct, kw_only=True):
    """A message as a log has it."""

    role: str
    text: str = ""
    calls: list[dict[str, Any]] = []
    answers: str = ""
    tokens: int = 0
    wire: str = ""

    def message(self) -> Message:
        """Raises KeyError or UnicodeError for what no log of ours has."""
        calls = tuple(Call(str(c["id"]), str(c["name"]), str(c["arguments"])) for c in self.calls)
        identity = identity_of(self.role, self.text, calls, self.answers)
        return Message(self.role, as_bytes(self.wire), identity, self.text, calls, self.answers, self.tokens)


class _Item(_Result, kw_only=True):
    id: str
    kind: Kind
    thread: str = "imported"
    created: int = 0
    results: list[_Result] = []
    finish: str = ""
    complete: bool = True


class _Line(msgspec.Struct):
    frame: str
    seq: int
    round: int
    after: str
    item: _Item


def _said(shelf: Shelf, names: list[str]) -> Iterator[Said]:
    for name in names:
        if fnmatchcase(name, LOG_FILES):
            for number, told_there in objects(shelf, name):
                yield _read(told_there, f"{name}, line {number}")


def _read(fields: Mapping[str, Any], where: str) -> Said:
    try:
        line = msgspec.convert(fields, _Line)
        item = line.item
        results = tuple(result.message() for result in item.results)
        return Said(
            item.id, line.after, line.frame, item.kind, item.message(), line.seq, item.created, line.round, results,
            item.finish, item.complete, item.thread,
        )  # fmt: skip
    except (msgspec.ValidationError, KeyError, UnicodeError) as error:
        refuse(f"{where}: {error}")
