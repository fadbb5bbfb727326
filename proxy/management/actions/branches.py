"""Checkpoints and branches of a conversation as a person sees them, and what a person wants of them put into the store.

Everything hangs on the newest entry of a path, so it holds on that path, in every process and after a restart. When a
branch begins is `proxy.core.tools.branch_tools`'s to say: with the user's next message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired

from typing_extensions import TypedDict

from proxy.core.frames.branches import Checkpoint
from proxy.core.frames.events import FrameEvent, recorded
from proxy.core.frames.path_state import Story, follow
from proxy.core.ledger.ledger import Event, Ledger
from proxy.core.observers.step import said_by
from proxy.core.tools.branch_tools import (
    branch_from,
    checkpoint_at,
    copied,
    line_named,
    numbered,
    spoken,
    switch_to,
    wanted_on,
)
from proxy.errors import UnknownFrame
from proxy.management.views import conversations
from proxy.management.views.lookup import shown
from proxy.management.views.schemas import FrameState
from proxy.store import Owned, Store

WITH_NEXT = "with the user's next message"


class CheckpointRow(TypedDict):
    """A named point of the line `branch`: everything up to and with the entry `entry`. `automatic`: nobody asked for
    it."""

    name: str
    branch: str
    entry: str
    automatic: bool
    created: int


class MessageOn(TypedDict):
    """A message of a line by its number there. `wire` is its stored text, byte for byte."""

    number: int
    role: str
    text: str
    wire: NotRequired[str]


class CheckpointDetail(CheckpointRow):
    """The line and the frames as they were there."""

    messages: list[MessageOn]
    frames: dict[str, FrameState]
    activeFrameID: str | None


class BranchRow(TypedDict):
    """A line. `checkpoint` is where it begins, none for the main one; `begun`: something was said there; `wanted`: the
    user's next message goes there."""

    name: str
    checkpoint: str | None
    begun: bool
    current: bool
    wanted: bool


class BranchDetail(BranchRow):
    """The line as it stands, or was left, with its frames."""

    messages: list[MessageOn]
    frames: dict[str, FrameState]
    activeFrameID: str | None


class BranchTold(TypedDict):
    """What the user's next message goes to."""

    conversation: str
    branch: str
    checkpoint: str | None
    comes: str


class InjectionTold(TypedDict):
    """How many texts are copied, and to which branch."""

    conversation: str
    branch: str
    texts: int
    comes: str


# ---------------------------------------------------------------------------------------------------------------- look
def checkpoint_rows(story: Story) -> list[CheckpointRow]:
    """The oldest first."""
    return [_row(each) for each in story.lines.checkpoints.values()]


def _row(point: Checkpoint) -> CheckpointRow:
    return {
        "name": point.name,
        "branch": point.line,
        "entry": point.at,
        "automatic": point.automatic,
        "created": point.created,
    }


def checkpoint_detail(ledger: Ledger, story: Story, name: str) -> CheckpointDetail:
    """What stood at a checkpoint, whatever happened since. Raises UnknownFrame."""
    point = story.lines.checkpoints.get(name)
    if point is None or point.at not in ledger.entries:
        raise UnknownFrame(f"There is no checkpoint {shown(name)} here. `callstack checkpoint --list` lists them.")
    then = follow(ledger, ledger.path(point.at), {})
    frames = conversations.state(ledger, then)["frames"]
    wires = [m.wire.decode("utf-8", "replace") for placed in spoken(then) if (m := said_by(placed)) is not None]
    rows = _messages(then)
    told: list[MessageOn] = [{**row, "wire": wire} for row, wire in zip(rows, wires, strict=True)]
    return {**_row(point), "messages": told, "frames": frames, "activeFrameID": then.tree.active or None}


def branch_rows(story: Story) -> list[BranchRow]:
    """The main line first, then in the order they began; one that is to begin comes last."""
    lines, wanted = story.lines, story.lines.wanted
    rows = [_branch(story, name, checkpoint) for name, checkpoint in lines.begun.items()]
    if wanted is not None and wanted.line not in lines.begun:
        rows.append(_branch(story, wanted.line, wanted.checkpoint))
    return rows


def _branch(story: Story, name: str, checkpoint: str) -> BranchRow:
    lines = story.lines
    wanted = lines.wanted is not None and lines.wanted.line == name
    return {
        "name": name,
        "checkpoint": checkpoint or None,
        "begun": name in lines.begun,
        "current": name == lines.current,
        "wanted": wanted,
    }


def branch_detail(ledger: Ledger, story: Story, name: str) -> BranchDetail:
    """The messages of one line, numbered as they are named when they are copied. Raises UnknownFrame."""
    if name not in story.lines.begun:
        raise UnknownFrame(f"There is no branch {shown(name)} here. `callstack branch --list` lists them.")
    line = line_named(story, name)
    frames = conversations.state(ledger, line)["frames"]
    row = _branch(story, name, story.lines.begun[name])
    return {**row, "messages": _messages(line), "frames": frames, "activeFrameID": line.tree.active or None}


def _messages(line: Story) -> list[MessageOn]:
    return [{"number": each.number, "role": each.role, "text": each.text} for each in numbered(line)]


# ----------------------------------------------------------------------------------------------------------------- ask
@dataclass(frozen=True, slots=True)
class Path:
    """A path of a conversation, asked at `at` (ms since the epoch)."""

    ledger: Ledger
    story: Story
    at: int


async def kept(store: Store, path: Path, event: FrameEvent) -> Sequence[Event]:
    """What was decided, hung behind the newest entry of the path; durable when this returns. Raises StoreError."""
    ledger, tip = path.ledger, path.story.tip
    if tip not in ledger.entries:
        raise UnknownFrame("This conversation has no message yet.")
    rounds = ledger.rounds.get(tip, ())
    made = recorded(event, tip, rounds[-1].number if rounds else 0, ledger.seq, path.at)
    owner = ledger.conversation
    await store.durable(store.write(owner.tenant, [Owned(owner.id, made)]))
    return [made]


async def set_checkpoint(store: Store, path: Path, name: str) -> tuple[CheckpointRow, Sequence[Event]]:
    """Name the newest point of the current line. Raises NotAllowed, StoreError."""
    event = checkpoint_at(path.story, path.ledger, path.story.tip, name)
    events = await kept(store, path, event)
    point = Checkpoint(event.name, event.at, event.line, event.automatic, event.look, path.at)
    return _row(point), events


async def begin_branch(
    store: Store, path: Path, checkpoint: str, name: str, reason: str
) -> tuple[BranchTold, Sequence[Event]]:
    """A new line from a checkpoint, from the user's next message on. Raises NotAllowed, StoreError."""
    event = branch_from(path.story.lines, checkpoint, name, reason)
    return _told(path, event.line, event.checkpoint), await kept(store, path, event)


async def switch(store: Store, path: Path, name: str, reason: str) -> tuple[BranchTold, Sequence[Event]]:
    """Go on with another line, from the user's next message on. Raises NotAllowed, StoreError."""
    event = switch_to(path.story.lines, name, reason)
    return _told(path, name, path.story.lines.begun[name]), await kept(store, path, event)


def _told(path: Path, line: str, checkpoint: str) -> BranchTold:
    return {
        "conversation": path.ledger.conversation.id,
        "branch": line,
        "checkpoint": checkpoint or None,
        "comes": WITH_NEXT,
    }


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be copied from the line `source`: messages by number, or what a frame returned; to the line `to`, or
    to the one the next request stands on."""

    source: str
    numbers: Sequence[int]
    frame: str
    to: str = ""


async def inject(store: Store, path: Path, choice: Choice) -> tuple[InjectionTold, Sequence[Event]]:
    """Copy from one line to the end of another, with the next request there. Raises NotAllowed, StoreError."""
    texts = copied(path.story, choice.source, choice.numbers, choice.frame)
    event = wanted_on(path.story.lines, choice.to, choice.source, texts)
    told: InjectionTold = {
        "conversation": path.ledger.conversation.id,
        "branch": event.line,
        "texts": len(texts),
        "comes": "with the next request there",
    }
    return told, await kept(store, path, event)
