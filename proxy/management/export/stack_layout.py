"""What the layout `stack` tells: its state, and its logs where it has them.

The plugin this layout comes from writes no logs. Then the goal of the first root is all that was said, so that there is
something the frames can hang on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

import msgspec

from proxy.core.frames.frames import Status
from proxy.core.ledger.ledger import Kind
from proxy.core.ledger.messages import Call, Message, identity_of
from proxy.dialects import OPENAI_CHAT
from proxy.management.export.items import as_line
from proxy.management.export.layout import ABOUT, STATE
from proxy.management.export.ledger import as_bytes
from proxy.management.export.reading import Shelf, document, objects, refuse
from proxy.management.export.rebuild import FrameTold, Said, Told, in_order

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
