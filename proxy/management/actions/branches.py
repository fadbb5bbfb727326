"""Checkpoints and branches of a conversation as a person sees them, and what a person wants of them put into the store.

Everything hangs on the newest entry of a path, so it holds on that path, in every process and after a restart. When a
branch begins is `proxy.core.tools.branch_tools`'s to say: with the user's next message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired

from typing_extensions import TypedDict

from proxy.core.frames import Checkpoint, FrameEvent, PathState, as_ledger_event, replay
from proxy.core.ledger import Ledger, LedgerEvent
from proxy.core.observers import message_of
from proxy.core.tools import (
    branch_named,
    copy_texts,
    copyable_entries,
    create_checkpoint,
    numbered_messages,
    request_branch,
    request_injection,
    request_switch,
)
from proxy.errors import NotFound
from proxy.management.views import FrameState, conversations, quote_reference
from proxy.store import LedgerRecord, Store

WITH_NEXT_MESSAGE = "with the user's next message"


class CheckpointRow(TypedDict):
    """A named point of the line `branch`: everything up to and with the entry `entry`. `automatic`: nobody asked for
    it."""

    name: str
    branch: str
    entry: str
    automatic: bool
    created: int


class BranchMessage(TypedDict):
    """A message of a line by its number there. `wire` is its stored text, byte for byte."""

    number: int
    role: str
    text: str
    wire: NotRequired[str]


class CheckpointDetail(CheckpointRow):
    """The line and the frames as they were there."""

    messages: list[BranchMessage]
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

    messages: list[BranchMessage]
    frames: dict[str, FrameState]
    activeFrameID: str | None


class BranchSwitchView(TypedDict):
    """What the user's next message goes to."""

    conversation: str
    branch: str
    checkpoint: str | None
    comes: str


class InjectionView(TypedDict):
    """How many texts are copied, and to which branch."""

    conversation: str
    branch: str
    texts: int
    comes: str


# ---------------------------------------------------------------------------------------------------------------- look
def checkpoint_rows(story: PathState) -> list[CheckpointRow]:
    """The oldest first."""
    return [_checkpoint_row(each) for each in story.branches.checkpoints.values()]


def _checkpoint_row(point: Checkpoint) -> CheckpointRow:
    return {
        "name": point.name,
        "branch": point.branch,
        "entry": point.at,
        "automatic": point.automatic,
        "created": point.created,
    }


def checkpoint_detail(ledger: Ledger, story: PathState, name: str) -> CheckpointDetail:
    """What stood at a checkpoint, whatever happened since. Raises UnknownFrame."""
    point = story.branches.checkpoints.get(name)
    if point is None or point.at not in ledger.entries:
        raise NotFound(
            f"There is no checkpoint {quote_reference(name)} here. `callstack checkpoint --list` lists them."
        )
    then = replay(ledger, ledger.path(point.at), {})
    frames = conversations.tree_state_view(ledger, then)["frames"]
    wires = [
        m.wire.decode("utf-8", "replace")
        for path_entry in copyable_entries(then)
        if (m := message_of(path_entry)) is not None
    ]
    rows = _message_rows(then)
    told: list[BranchMessage] = [{**row, "wire": wire} for row, wire in zip(rows, wires, strict=True)]
    return {**_checkpoint_row(point), "messages": told, "frames": frames, "activeFrameID": then.tree.active or None}


def branch_rows(story: PathState) -> list[BranchRow]:
    """The main line first, then in the order they began; one that is to begin comes last."""
    lines, wanted = story.branches, story.branches.requested_switch
    rows = [_branch_row(story, name, checkpoint) for name, checkpoint in lines.start_checkpoints.items()]
    if wanted is not None and wanted.line not in lines.start_checkpoints:
        rows.append(_branch_row(story, wanted.line, wanted.checkpoint))
    return rows


def _branch_row(story: PathState, name: str, checkpoint: str) -> BranchRow:
    lines = story.branches
    wanted = lines.requested_switch is not None and lines.requested_switch.line == name
    return {
        "name": name,
        "checkpoint": checkpoint or None,
        "begun": name in lines.start_checkpoints,
        "current": name == lines.current,
        "wanted": wanted,
    }


def branch_detail(ledger: Ledger, story: PathState, name: str) -> BranchDetail:
    """The messages of one line, numbered as they are named when they are copied. Raises UnknownFrame."""
    if name not in story.branches.start_checkpoints:
        raise NotFound(f"There is no branch {quote_reference(name)} here. `callstack branch --list` lists them.")
    line = branch_named(story, name)
    frames = conversations.tree_state_view(ledger, line)["frames"]
    row = _branch_row(story, name, story.branches.start_checkpoints[name])
    return {**row, "messages": _message_rows(line), "frames": frames, "activeFrameID": line.tree.active or None}


def _message_rows(line: PathState) -> list[BranchMessage]:
    return [{"number": each.number, "role": each.role, "text": each.text} for each in numbered_messages(line)]


# ----------------------------------------------------------------------------------------------------------------- ask
@dataclass(frozen=True, slots=True)
class ConversationPath:
    """A path of a conversation, asked at `at` (ms since the epoch)."""

    ledger: Ledger
    path_state: PathState
    now: int


async def store_event(store: Store, path: ConversationPath, event: FrameEvent) -> Sequence[LedgerEvent]:
    """What was decided, hung behind the newest entry of the path; durable when this returns. Raises StoreError."""
    ledger, tip = path.ledger, path.path_state.tip
    if tip not in ledger.entries:
        raise NotFound("This conversation has no message yet.")
    rounds = ledger.rounds.get(tip, ())
    made = as_ledger_event(event, tip, rounds[-1].number if rounds else 0, ledger.next_seq, path.now)
    owner = ledger.conversation
    await store.wait_until_durable(store.write(owner.tenant, [LedgerRecord(owner.id, made)]))
    return [made]


async def set_checkpoint(
    store: Store, path: ConversationPath, name: str
) -> tuple[CheckpointRow, Sequence[LedgerEvent]]:
    """Name the newest point of the current line. Raises NotAllowed, StoreError."""
    event = create_checkpoint(path.path_state, path.ledger, path.path_state.tip, name)
    events = await store_event(store, path, event)
    point = Checkpoint(event.name, event.at, event.line, event.automatic, event.look, path.now)
    return _checkpoint_row(point), events


async def begin_branch(
    store: Store, path: ConversationPath, checkpoint: str, name: str, reason: str
) -> tuple[BranchSwitchView, Sequence[LedgerEvent]]:
    """A new line from a checkpoint, from the user's next message on. Raises NotAllowed, StoreError."""
    event = request_branch(path.path_state.branches, checkpoint, name, reason)
    return _switch_view(path, event.line, event.checkpoint), await store_event(store, path, event)


async def switch_to_branch(
    store: Store, path: ConversationPath, name: str, reason: str
) -> tuple[BranchSwitchView, Sequence[LedgerEvent]]:
    """Go on with another line, from the user's next message on. Raises NotAllowed, StoreError."""
    event = request_switch(path.path_state.branches, name, reason)
    return _switch_view(path, name, path.path_state.branches.start_checkpoints[name]), await store_event(
        store, path, event
    )


def _switch_view(path: ConversationPath, line: str, checkpoint: str) -> BranchSwitchView:
    return {
        "conversation": path.ledger.conversation.id,
        "branch": line,
        "checkpoint": checkpoint or None,
        "comes": WITH_NEXT_MESSAGE,
    }


@dataclass(frozen=True, slots=True)
class InjectionSelection:
    """What is to be copied from the line `source`: messages by number, or what a frame returned; to the line `to`, or
    to the one the next request stands on."""

    source_branch: str
    message_numbers: Sequence[int]
    frame: str
    target_branch: str = ""


async def inject(
    store: Store, path: ConversationPath, choice: InjectionSelection
) -> tuple[InjectionView, Sequence[LedgerEvent]]:
    """Copy from one line to the end of another, with the next request there. Raises NotAllowed, StoreError."""
    texts = copy_texts(path.path_state, choice.source_branch, choice.message_numbers, choice.frame)
    event = request_injection(path.path_state.branches, choice.target_branch, choice.source_branch, texts)
    told: InjectionView = {
        "conversation": path.ledger.conversation.id,
        "branch": event.line,
        "texts": len(texts),
        "comes": "with the next request there",
    }
    return told, await store_event(store, path, event)
