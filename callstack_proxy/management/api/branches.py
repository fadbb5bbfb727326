"""Routes of checkpoints and branches. Changes take effect with the user's next message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from callstack_proxy.management.actions import (
    BranchDetail,
    BranchRow,
    BranchSwitchView,
    CheckpointDetail,
    CheckpointRow,
    ConversationPath,
    InjectionSelection,
    InjectionView,
    branches,
)
from callstack_proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    CurrentCaller,
    Error,
    Id,
    JsonResponse,
    ResponseDocs,
    Thread,
    now_ms,
)
from callstack_proxy.management.views import path_state_of
from proxy.core.ledger import LedgerEvent
from proxy.store import find_by_id

BRANCH_CONFLICT_RESPONSE: ResponseDocs = {
    409: {"model": Error, "description": "Not possible here; the message says what to do"}
}

router = APIRouter(prefix="/conversations/{conversation}")

Name = Annotated[
    str, Field(max_length=64, description="Letters, digits, dots, dashes, underscores; default: a fresh one")
]
Known = Annotated[str, Field(min_length=1, max_length=64)]
Reason = Annotated[str, Field(max_length=2_000, description="For the model: why")]
OnThread = Annotated[str, Field(max_length=64, description="The path of this thread; default: the one that grew last")]


class CheckpointBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name = ""
    thread: OnThread = ""


class BranchBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    checkpoint: Annotated[str, Field(max_length=64, description="Where it begins; default: the newest")] = ""
    name: Name = ""
    reason: Reason = ""
    thread: OnThread = ""


class SwitchBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    branch: Known
    reason: Reason = ""
    thread: OnThread = ""


class InjectionBody(BaseModel):
    """Either `messages` or `frame`."""

    model_config = ConfigDict(extra="forbid")

    branch: Annotated[Known, Field(description="Where it is copied from")]
    messages: Annotated[
        list[int], Field(max_length=100, description="Numbers, as GET .../branches/NAME tells them")
    ] = []
    frame: Annotated[str, Field(max_length=200, description="A frame of that branch: what it returned")] = ""
    to: Annotated[str, Field(max_length=64, description="Default: where the next request stands")] = ""
    thread: OnThread = ""


class CheckpointList(TypedDict):
    checkpoints: list[CheckpointRow]


class BranchList(TypedDict):
    branches: list[BranchRow]


# ---------------------------------------------------------------------------------------------------------------- look
@router.get("/checkpoints", response_model=CheckpointList, responses=NOT_FOUND_RESPONSE)
async def list_checkpoints(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """The points that have a name, the oldest first."""
    path = await _load_path(caller, conversation, thread)
    return JsonResponse({"checkpoints": branches.checkpoint_rows(path.path_state)})


@router.get("/checkpoints/{name}", response_model=CheckpointDetail, responses=NOT_FOUND_RESPONSE)
async def show_checkpoint(caller: CurrentCaller, conversation: Id, name: str, thread: Thread = "") -> Response:
    """The messages and the frames as they were at a checkpoint; they never change."""
    path = await _load_path(caller, conversation, thread)
    return JsonResponse(branches.checkpoint_detail(path.ledger, path.path_state, name))


@router.get("/branches", response_model=BranchList, responses=NOT_FOUND_RESPONSE)
async def list_branches(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """The lines of work, the main one first."""
    path = await _load_path(caller, conversation, thread)
    return JsonResponse({"branches": branches.branch_rows(path.path_state)})


@router.get("/branches/{name}", response_model=BranchDetail, responses=NOT_FOUND_RESPONSE)
async def show_branch(caller: CurrentCaller, conversation: Id, name: str, thread: Thread = "") -> Response:
    """The messages of one line with their numbers."""
    path = await _load_path(caller, conversation, thread)
    return JsonResponse(branches.branch_detail(path.ledger, path.path_state, name))


# ----------------------------------------------------------------------------------------------------------------- ask
@router.post("/checkpoints", response_model=CheckpointRow, responses={**NOT_FOUND_RESPONSE, **BRANCH_CONFLICT_RESPONSE})
async def set_checkpoint(caller: CurrentCaller, conversation: Id, wanted: CheckpointBody) -> Response:
    """Name the newest point of the current line behind which the user could speak."""
    path = await _load_path(caller, conversation, wanted.thread)
    told, events = await branches.set_checkpoint(caller.context.store, path, wanted.name)
    return _publish_and_respond(caller, path, events, told)


@router.post("/branches", response_model=BranchSwitchView, responses={**NOT_FOUND_RESPONSE, **BRANCH_CONFLICT_RESPONSE})
async def begin_branch(caller: CurrentCaller, conversation: Id, wanted: BranchBody) -> Response:
    """Begin a new line at a checkpoint with the user's next message; what was done since is not known there."""
    path = await _load_path(caller, conversation, wanted.thread)
    told, events = await branches.begin_branch(
        caller.context.store, path, wanted.checkpoint, wanted.name, wanted.reason
    )
    return _publish_and_respond(caller, path, events, told)


@router.post("/switch", response_model=BranchSwitchView, responses={**NOT_FOUND_RESPONSE, **BRANCH_CONFLICT_RESPONSE})
async def switch(caller: CurrentCaller, conversation: Id, wanted: SwitchBody) -> Response:
    """Go on with another line, as it was left, with the user's next message."""
    path = await _load_path(caller, conversation, wanted.thread)
    told, events = await branches.switch_to_branch(caller.context.store, path, wanted.branch, wanted.reason)
    return _publish_and_respond(caller, path, events, told)


@router.post("/inject", response_model=InjectionView, responses={**NOT_FOUND_RESPONSE, **BRANCH_CONFLICT_RESPONSE})
async def inject(caller: CurrentCaller, conversation: Id, wanted: InjectionBody) -> Response:
    """Copy messages of a line, or what a frame of it returned, once to the end of another."""
    path = await _load_path(caller, conversation, wanted.thread)
    choice = InjectionSelection(wanted.branch, wanted.messages, wanted.frame, wanted.to)
    told, events = await branches.inject(caller.context.store, path, choice)
    return _publish_and_respond(caller, path, events, told)


async def _load_path(caller: CurrentCaller, conversation: str, thread: str) -> ConversationPath:
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    return ConversationPath(ledger, await run_in_threadpool(path_state_of, ledger, thread), now_ms())


def _publish_and_respond(
    caller: CurrentCaller, path: ConversationPath, events: Sequence[LedgerEvent], told: object
) -> Response:
    owner = path.ledger.conversation
    caller.context.on_events_stored(owner.tenant, owner.id, events)
    return JsonResponse(told)
