"""Routes that show a conversation as it was, and where its work stands: decisions, artifacts, edges, resume. `as_of`
hides everything later, and shows only the decisions and artifacts that held then."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool
from typing_extensions import TypedDict

from callstack_proxy.management import find_by_id
from callstack_proxy.management.api.base import NOT_FOUND_RESPONSE, AsOf, CurrentCaller, Id, Thread, respond_in_thread
from callstack_proxy.management.views import (
    ArtifactRow,
    DecisionRow,
    Edge,
    ledger_at,
    parse_timestamp,
    path_state_of,
    resume,
    tasks,
)
from callstack_proxy.management.views import as_of as as_of_views
from proxy.core.frames import PathState
from proxy.core.ledger import Ledger
from proxy.core.observers import ToolRoles

router = APIRouter(prefix="/conversations/{conversation}")

OfFrame = Annotated[str, Query(description="Only those of this frame")]


class DecisionList(TypedDict):
    decisions: list[DecisionRow]


class ArtifactList(TypedDict):
    artifacts: list[ArtifactRow]


class EdgeList(TypedDict):
    edges: list[Edge]


@router.get("/decisions", response_model=DecisionList, responses=NOT_FOUND_RESPONSE)
async def list_decisions(
    caller: CurrentCaller, conversation: Id, thread: Thread = "", frame: OfFrame = "", as_of: AsOf = ""
) -> Response:
    """What frames decided, also what no longer holds, with the times from which and to which it held."""
    ledger, path_state = await _load_path(caller, conversation, thread, as_of)
    holding = bool(as_of.strip())
    return await respond_in_thread(
        lambda: {"decisions": as_of_views.decision_rows(ledger, path_state, frame=frame, holding=holding)}
    )


@router.get("/artifacts", response_model=ArtifactList, responses=NOT_FOUND_RESPONSE)
async def list_artifacts(
    caller: CurrentCaller, conversation: Id, thread: Thread = "", frame: OfFrame = "", as_of: AsOf = ""
) -> Response:
    """What frames made, with the times from which and to which it held."""
    ledger, path_state = await _load_path(caller, conversation, thread, as_of)
    names, holding = caller.context.config.observed_tools, bool(as_of.strip())
    return await respond_in_thread(
        lambda: {"artifacts": as_of_views.artifact_rows(ledger, path_state, names, frame=frame, holding=holding)}
    )


@router.get("/edges", response_model=EdgeList, responses=NOT_FOUND_RESPONSE)
async def list_edges(caller: CurrentCaller, conversation: Id, thread: Thread = "", as_of: AsOf = "") -> Response:
    """What belongs to what: subtasks, retries, and dependencies where the client's own plan names them."""
    _, path_state = await _load_path(caller, conversation, thread, as_of)
    return await respond_in_thread(lambda: {"edges": tasks.edges_of(path_state)})


@router.get("/resume", response_model=resume.ResumeView, responses=NOT_FOUND_RESPONSE)
async def show_resume(caller: CurrentCaller, conversation: Id, thread: Thread = "", as_of: AsOf = "") -> Response:
    """Where the work stands: the way from the goal, what was done last, what is not to be tried again, what is next."""
    ledger, path_state = await _load_path(caller, conversation, thread, as_of)
    return await respond_in_thread(lambda: resume.resume_view(ledger, path_state))


async def _load_path(caller: CurrentCaller, conversation: str, thread: str, as_of: str) -> tuple[Ledger, PathState]:
    at = parse_timestamp(as_of)
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    return await run_in_threadpool(_path_at, ledger, at, thread, caller.context.config.observed_tools)


def _path_at(ledger: Ledger, at: int | None, thread: str, names: ToolRoles) -> tuple[Ledger, PathState]:
    ledger = ledger_at(ledger, at)
    return ledger, path_state_of(ledger, thread, names)
