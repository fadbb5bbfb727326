"""Checkpoints and branches of a conversation as a person sees and requests them. Requests are stored on the newest
entry of a path; `proxy.core.tools` lets a branch begin with the user's next message."""

from __future__ import annotations

from typing import Annotated, NotRequired

import typer
from pydantic import Field
from typing_extensions import TypedDict

from callstack_proxy.management.find_by_id import quote_reference
from callstack_proxy.management.operations.base import Decision, Input, Operation, Target
from callstack_proxy.management.views import FrameState, conversations
from proxy.core.frames import BranchSwitchRequested, Checkpoint, FrameEvent, PathState, replay
from proxy.core.ledger import Ledger, LedgerEvent
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
        if (m := path_entry.message) is not None
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
Name = Annotated[
    str, Field(max_length=64, description="Letters, digits, dots, dashes, underscores; default: a fresh one")
]
Known = Annotated[str, Field(min_length=1, max_length=64)]
Reason = Annotated[str, Field(max_length=2_000, description="For the model: why"), typer.Option("--reason")]
OnThread = Annotated[str, Field(max_length=64, description="The path of this thread; default: the one that grew last")]


class CheckpointBody(Input):
    name: Annotated[Name, typer.Argument()] = ""
    thread: OnThread = ""


class BranchBody(Input):
    checkpoint: Annotated[
        str,
        Field(max_length=64, description="Where it begins; default: the newest"),
        typer.Option("--from", help="The checkpoint it begins at; default: the newest."),
    ] = ""
    name: Annotated[Name, typer.Argument(help="Of the new branch; default: a fresh one.")] = ""
    reason: Reason = ""
    thread: OnThread = ""


class SwitchBody(Input):
    branch: Annotated[Known, typer.Argument(help="The branch to go on with; main is the first line.")]
    reason: Reason = ""
    thread: OnThread = ""


class InjectionBody(Input):
    """Either `messages` or `frame`."""

    branch: Annotated[
        Known, Field(description="Where it is copied from"), typer.Argument(help="The branch to copy from.")
    ]
    messages: Annotated[list[int], typer.Argument(help="Numbers, as `callstack branch BRANCH --list` tells them.")] = (
        Field([], max_length=100, description="Numbers, as GET .../branches/NAME tells them")
    )
    frame: Annotated[
        str,
        Field(max_length=200, description="A frame of that branch: what it returned"),
        typer.Option("--frame", help="Instead: what this frame of the branch returned."),
    ] = ""
    to: Annotated[
        str,
        Field(max_length=64, description="Default: where the next request stands"),
        typer.Option("--to", help="The branch to copy to; default: where the next request stands."),
    ] = ""
    thread: OnThread = ""


def set_checkpoint(target: Target, operation_input: CheckpointBody) -> Decision:
    """Name the newest point of the current line behind which the user could speak."""
    event = create_checkpoint(target.path_state, target.ledger, target.path_state.tip, operation_input.name)
    checkpoint = Checkpoint(event.name, event.at, event.branch, event.automatic, event.look, target.now)
    return Decision(_checkpoint_row(checkpoint), _at_tip(target, event))


def begin_branch(target: Target, operation_input: BranchBody) -> Decision:
    """Begin a new line at a checkpoint with the user's next message; what was done since is not known there."""
    event = request_branch(
        target.path_state.branches, operation_input.checkpoint, operation_input.name, operation_input.reason
    )
    return _switch_decision(target, event, event.checkpoint)


def switch(target: Target, operation_input: SwitchBody) -> Decision:
    """Go on with another line, as it was left, with the user's next message."""
    event = request_switch(target.path_state.branches, operation_input.branch, operation_input.reason)
    return _switch_decision(target, event, target.path_state.branches.start_checkpoints[operation_input.branch])


def _switch_decision(target: Target, event: BranchSwitchRequested, checkpoint: str) -> Decision:
    view: BranchSwitchView = {
        "conversation": target.ledger.conversation.id,
        "branch": event.branch,
        "checkpoint": checkpoint or None,
        "comes": WITH_NEXT_MESSAGE,
    }
    return Decision(view, _at_tip(target, event))


def inject(target: Target, operation_input: InjectionBody) -> Decision:
    """Copy messages of a line, or what a frame of it returned, once to the end of another."""
    texts = copy_texts(target.path_state, operation_input.branch, operation_input.messages, operation_input.frame)
    event = request_injection(target.path_state.branches, operation_input.to, operation_input.branch, texts)
    view: InjectionView = {
        "conversation": target.ledger.conversation.id,
        "branch": event.branch,
        "texts": len(texts),
        "comes": "with the next request there",
    }
    return Decision(view, _at_tip(target, event))


def _at_tip(target: Target, event: FrameEvent) -> list[LedgerEvent]:
    """Raises NotFound."""
    if target.path_state.tip not in target.ledger.entries:
        raise NotFound("This conversation has no message yet. Send one in the client first.")
    return target.events_at_tips([(event, target.path_state)])


CHECKPOINT = Operation(
    "POST", "/conversations/{conversation}/checkpoints", set_checkpoint, CheckpointBody, CheckpointRow
)
BRANCH = Operation("POST", "/conversations/{conversation}/branches", begin_branch, BranchBody, BranchSwitchView)
SWITCH = Operation("POST", "/conversations/{conversation}/switch", switch, SwitchBody, BranchSwitchView)
INJECT = Operation("POST", "/conversations/{conversation}/inject", inject, InjectionBody, InjectionView)
