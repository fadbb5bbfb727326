"""Checkpoints and branches of a conversation as a person sees and requests them. Requests are stored on the newest
entry of a path; `proxy.core.tools` lets a branch begin with the user's next message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired

from typing_extensions import TypedDict

from callstack_proxy.management.views import FrameState, conversations
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
from proxy.store import LedgerRecord, Store, quote_reference

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
def checkpoint_rows(path_state: PathState) -> list[CheckpointRow]:
    """Oldest first."""
    return [_checkpoint_row(checkpoint) for checkpoint in path_state.branches.checkpoints.values()]


def _checkpoint_row(checkpoint: Checkpoint) -> CheckpointRow:
    return {
        "name": checkpoint.name,
        "branch": checkpoint.branch,
        "entry": checkpoint.at,
        "automatic": checkpoint.automatic,
        "created": checkpoint.created,
    }


def checkpoint_detail(ledger: Ledger, path_state: PathState, name: str) -> CheckpointDetail:
    """The state at a checkpoint. Raises NotFound."""
    checkpoint = path_state.branches.checkpoints.get(name)
    if checkpoint is None or checkpoint.at not in ledger.entries:
        raise NotFound(
            f"There is no checkpoint {quote_reference(name)} here. `callstack branch checkpoint --list` lists them."
        )
    state = replay(ledger, ledger.path(checkpoint.at), {})
    frames = conversations.tree_state_view(ledger, state)["frames"]
    wires = [
        m.wire.decode("utf-8", "replace")
        for path_entry in copyable_entries(state)
        if (m := message_of(path_entry)) is not None
    ]
    rows = _message_rows(state)
    messages: list[BranchMessage] = [{**row, "wire": wire} for row, wire in zip(rows, wires, strict=True)]
    return {
        **_checkpoint_row(checkpoint),
        "messages": messages,
        "frames": frames,
        "activeFrameID": state.tree.active or None,
    }


def branch_rows(path_state: PathState) -> list[BranchRow]:
    """The main branch first, then in the order in which they began; a requested one comes last."""
    branches, wanted = path_state.branches, path_state.branches.requested_switch
    rows = [_branch_row(path_state, name, checkpoint) for name, checkpoint in branches.start_checkpoints.items()]
    if wanted is not None and wanted.branch not in branches.start_checkpoints:
        rows.append(_branch_row(path_state, wanted.branch, wanted.checkpoint))
    return rows


def _branch_row(path_state: PathState, name: str, checkpoint: str) -> BranchRow:
    branches = path_state.branches
    wanted = branches.requested_switch is not None and branches.requested_switch.branch == name
    return {
        "name": name,
        "checkpoint": checkpoint or None,
        "begun": name in branches.start_checkpoints,
        "current": name == branches.current,
        "wanted": wanted,
    }


def branch_detail(ledger: Ledger, path_state: PathState, name: str) -> BranchDetail:
    """The messages of a branch, with the numbers by which they can be copied. Raises NotFound."""
    if name not in path_state.branches.start_checkpoints:
        raise NotFound(f"There is no branch {quote_reference(name)} here. `callstack branch --list` lists them.")
    branch = branch_named(path_state, name)
    frames = conversations.tree_state_view(ledger, branch)["frames"]
    row = _branch_row(path_state, name, path_state.branches.start_checkpoints[name])
    return {**row, "messages": _message_rows(branch), "frames": frames, "activeFrameID": branch.tree.active or None}


def _message_rows(branch: PathState) -> list[BranchMessage]:
    return [
        {"number": message.number, "role": message.role, "text": message.text} for message in numbered_messages(branch)
    ]


# ----------------------------------------------------------------------------------------------------------------- ask
@dataclass(frozen=True, slots=True)
class ConversationPath:
    """A path of a conversation at `now` (ms since the epoch)."""

    ledger: Ledger
    path_state: PathState
    now: int


async def store_event(store: Store, path: ConversationPath, event: FrameEvent) -> Sequence[LedgerEvent]:
    """Stores an event behind the newest entry of the path; durable on return. Raises NotFound, StoreError."""
    ledger, tip = path.ledger, path.path_state.tip
    if tip not in ledger.entries:
        raise NotFound("This conversation has no message yet. Send one in the client first.")
    rounds = ledger.rounds.get(tip, ())
    record = as_ledger_event(event, tip, rounds[-1].number if rounds else 0, ledger.next_seq, path.now)
    owner = ledger.conversation
    await store.wait_until_durable(store.write(owner.tenant, [LedgerRecord(owner.id, record)]))
    return [record]


async def set_checkpoint(
    store: Store, path: ConversationPath, name: str
) -> tuple[CheckpointRow, Sequence[LedgerEvent]]:
    """Names the newest point of the current branch. Raises NotAllowed, StoreError."""
    event = create_checkpoint(path.path_state, path.ledger, path.path_state.tip, name)
    events = await store_event(store, path, event)
    checkpoint = Checkpoint(event.name, event.at, event.branch, event.automatic, event.look, path.now)
    return _checkpoint_row(checkpoint), events


async def begin_branch(
    store: Store, path: ConversationPath, checkpoint: str, name: str, reason: str
) -> tuple[BranchSwitchView, Sequence[LedgerEvent]]:
    """Requests a new branch at a checkpoint. Raises NotAllowed, StoreError."""
    event = request_branch(path.path_state.branches, checkpoint, name, reason)
    return _switch_view(path, event.branch, event.checkpoint), await store_event(store, path, event)


async def switch_to_branch(
    store: Store, path: ConversationPath, name: str, reason: str
) -> tuple[BranchSwitchView, Sequence[LedgerEvent]]:
    """Requests a switch to another branch. Raises NotAllowed, StoreError."""
    event = request_switch(path.path_state.branches, name, reason)
    return _switch_view(path, name, path.path_state.branches.start_checkpoints[name]), await store_event(
        store, path, event
    )


def _switch_view(path: ConversationPath, branch: str, checkpoint: str) -> BranchSwitchView:
    return {
        "conversation": path.ledger.conversation.id,
        "branch": branch,
        "checkpoint": checkpoint or None,
        "comes": WITH_NEXT_MESSAGE,
    }


@dataclass(frozen=True, slots=True)
class InjectionSelection:
    """What to copy: messages by number, or the results of a frame. An empty target is the branch of the next
    request."""

    source_branch: str
    message_numbers: Sequence[int]
    frame: str
    target_branch: str = ""


async def inject(
    store: Store, path: ConversationPath, choice: InjectionSelection
) -> tuple[InjectionView, Sequence[LedgerEvent]]:
    """Requests a copy to the end of another branch, with its next request. Raises NotAllowed, StoreError."""
    texts = copy_texts(path.path_state, choice.source_branch, choice.message_numbers, choice.frame)
    event = request_injection(path.path_state.branches, choice.target_branch, choice.source_branch, texts)
    view: InjectionView = {
        "conversation": path.ledger.conversation.id,
        "branch": event.branch,
        "texts": len(texts),
        "comes": "with the next request there",
    }
    return view, await store_event(store, path, event)
