"""Routes that show checkpoints, branches and the autonomy of a conversation."""

from __future__ import annotations

from fastapi import APIRouter, Response
from typing_extensions import TypedDict

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    CurrentCaller,
    Id,
    JsonResponse,
    Thread,
    now_ms,
    respond_in_thread,
)
from callstack_proxy.management.api.operation_routes import find_target
from callstack_proxy.management.operations import (
    BranchDetail,
    BranchRow,
    CheckpointDetail,
    CheckpointRow,
    autonomy,
    branches,
)
from callstack_proxy.management.views import conversations

router = APIRouter(prefix="/conversations/{conversation}")


class CheckpointList(TypedDict):
    checkpoints: list[CheckpointRow]


class BranchList(TypedDict):
    branches: list[BranchRow]


@router.get("/checkpoints", response_model=CheckpointList, responses=NOT_FOUND_RESPONSE)
async def list_checkpoints(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """The points that have a name, the oldest first."""
    path = await find_target(caller.context, caller.scope, conversation=conversation, thread=thread)
    return JsonResponse({"checkpoints": branches.checkpoint_rows(path.path_state)})


@router.get("/checkpoints/{name}", response_model=CheckpointDetail, responses=NOT_FOUND_RESPONSE)
async def show_checkpoint(caller: CurrentCaller, conversation: Id, name: str, thread: Thread = "") -> Response:
    """The messages and the frames as they were at a checkpoint; they never change."""
    path = await find_target(caller.context, caller.scope, conversation=conversation, thread=thread)
    return JsonResponse(branches.checkpoint_detail(path.ledger, path.path_state, name))


@router.get("/branches", response_model=BranchList, responses=NOT_FOUND_RESPONSE)
async def list_branches(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """The lines of work, the main one first."""
    path = await find_target(caller.context, caller.scope, conversation=conversation, thread=thread)
    return JsonResponse({"branches": branches.branch_rows(path.path_state)})


@router.get("/branches/{name}", response_model=BranchDetail, responses=NOT_FOUND_RESPONSE)
async def show_branch(caller: CurrentCaller, conversation: Id, name: str, thread: Thread = "") -> Response:
    """The messages of one line with their numbers."""
    path = await find_target(caller.context, caller.scope, conversation=conversation, thread=thread)
    return JsonResponse(branches.branch_detail(path.ledger, path.path_state, name))


@router.get("/autonomy", response_model=autonomy.AUTONOMY.view, responses=NOT_FOUND_RESPONSE)
async def show_autonomy(caller: CurrentCaller, conversation: Id, thread: Thread = "") -> Response:
    """The level, the thresholds, each heuristic's score with what it is made of, and what was suggested."""
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    config = caller.context.config
    return await respond_in_thread(
        lambda: autonomy.autonomy_view(ledger, conversations.path_state_of(ledger, thread), config, now_ms())
    )
