"""The routes of checkpoints and branches, each a question to `proxy.views.branches` with the asker's scope.

The law: **nothing here changes what is being sent**. What is wanted is kept, and happens with the user's next message.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from proxy.core.ledger.ledger import Event
from proxy.management.actions import branches
from proxy.management.actions.branches import (
    BranchDetail,
    BranchRow,
    BranchTold,
    CheckpointDetail,
    CheckpointRow,
    Choice,
    InjectionTold,
    Path,
)
from proxy.management.api.base import UNKNOWN, Asked, Documented, Error, Id, Json, Thread
from proxy.management.views import lookup
from proxy.management.views.conversations import story_of

REFUSED: Documented = {409: {"model": Error, "description": "Not possible here; the message says what to do"}}

router = APIRouter(prefix="/conversations/{conversation}")

Name = Annotated[
    str, Field(max_length=64, description="Letters, digits, dots, dashes, underscores; default: a fresh one")
]
Known = Annotated[str, Field(min_length=1, max_length=64)]
Reason = Annotated[str, Field(max_length=2_000, description="For the model: why")]
OnThread = Annotated[str, Field(max_length=64, description="The path of this thread; default: the one that grew last")]


class CheckpointWanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Name = ""
    thread: OnThread = ""


class BranchWanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    checkpoint: Annotated[str, Field(max_length=64, description="Where it begins; default: the newest")] = ""
    name: Name = ""
    reason: Reason = ""
    thread: OnThread = ""


class SwitchWanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    branch: Known
    reason: Reason = ""
    thread: OnThread = ""


class InjectionWanted(BaseModel):
    """Either `messages` or `frame`."""

    model_config = ConfigDict(extra="forbid")

    branch: Annotated[Known, Field(description="Where it is copied from")]
    messages: Annotated[
        list[int], Field(max_length=100, description="Numbers, as GET .../branches/NAME tells them")
    ] = []
    frame: Annotated[str, Field(max_length=200, description="A frame of that branch: what it returned")] = ""
    to: Annotated[str, Field(max_length=64, description="Default: where the next request stands")] = ""
    thread: OnThread = ""


class Checkpoints(TypedDict):
    checkpoints: list[CheckpointRow]


class Branches(TypedDict):
    branches: list[BranchRow]


# ---------------------------------------------------------------------------------------------------------------- look
@router.get("/checkpoints", response_model=Checkpoints, responses=UNKNOWN)
async def list_checkpoints(asked: Asked, conversation: Id, thread: Thread = "") -> Response:
    """The points that have a name, the oldest first."""
    path = await _path(asked, conversation, thread)
    return Json({"checkpoints": branches.checkpoint_rows(path.story)})


@router.get("/checkpoints/{name}", response_model=CheckpointDetail, responses=UNKNOWN)
async def show_checkpoint(asked: Asked, conversation: Id, name: str, thread: Thread = "") -> Response:
    """The messages and the frames as they were at a checkpoint; they never change."""
    path = await _path(asked, conversation, thread)
    return Json(branches.checkpoint_detail(path.ledger, path.story, name))


@router.get("/branches", response_model=Branches, responses=UNKNOWN)
async def list_branches(asked: Asked, conversation: Id, thread: Thread = "") -> Response:
    """The lines of work, the main one first."""
    path = await _path(asked, conversation, thread)
    return Json({"branches": branches.branch_rows(path.story)})


@router.get("/branches/{name}", response_model=BranchDetail, responses=UNKNOWN)
async def show_branch(asked: Asked, conversation: Id, name: str, thread: Thread = "") -> Response:
    """The messages of one line with their numbers."""
    path = await _path(asked, conversation, thread)
    return Json(branches.branch_detail(path.ledger, path.story, name))


# ----------------------------------------------------------------------------------------------------------------- ask
@router.post("/checkpoints", response_model=CheckpointRow, responses={**UNKNOWN, **REFUSED})
async def set_checkpoint(asked: Asked, conversation: Id, wanted: CheckpointWanted) -> Response:
    """Name the newest point of the current line behind which the user could speak."""
    path = await _path(asked, conversation, wanted.thread)
    told, events = await branches.set_checkpoint(asked.backstage.store, path, wanted.name)
    return _answered(asked, path, events, told)


@router.post("/branches", response_model=BranchTold, responses={**UNKNOWN, **REFUSED})
async def begin_branch(asked: Asked, conversation: Id, wanted: BranchWanted) -> Response:
    """Begin a new line at a checkpoint with the user's next message; what was done since is not known there."""
    path = await _path(asked, conversation, wanted.thread)
    told, events = await branches.begin_branch(
        asked.backstage.store, path, wanted.checkpoint, wanted.name, wanted.reason
    )
    return _answered(asked, path, events, told)


@router.post("/switch", response_model=BranchTold, responses={**UNKNOWN, **REFUSED})
async def switch(asked: Asked, conversation: Id, wanted: SwitchWanted) -> Response:
    """Go on with another line, as it was left, with the user's next message."""
    path = await _path(asked, conversation, wanted.thread)
    told, events = await branches.switch(asked.backstage.store, path, wanted.branch, wanted.reason)
    return _answered(asked, path, events, told)


@router.post("/inject", response_model=InjectionTold, responses={**UNKNOWN, **REFUSED})
async def inject(asked: Asked, conversation: Id, wanted: InjectionWanted) -> Response:
    """Copy messages of a line, or what a frame of it returned, once to the end of another."""
    path = await _path(asked, conversation, wanted.thread)
    choice = Choice(wanted.branch, wanted.messages, wanted.frame, wanted.to)
    told, events = await branches.inject(asked.backstage.store, path, choice)
    return _answered(asked, path, events, told)


async def _path(asked: Asked, conversation: str, thread: str) -> Path:
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    return Path(ledger, await run_in_threadpool(story_of, ledger, thread), time.time_ns() // 1_000_000)


def _answered(asked: Asked, path: Path, events: Sequence[Event], told: object) -> Response:
    owner = path.ledger.conversation
    asked.backstage.decided(owner.tenant, owner.id, events)
    return Json(told)
