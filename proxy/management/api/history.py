"""The routes that see a conversation as it was, and where its work stands: decisions, artifacts, edges, resume.

With `as_of` nothing is told that came later. What decisions and artifacts are told then is what held at that time.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool
from typing_extensions import TypedDict

from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import Ledger
from proxy.core.observers.tool_roles import Names
from proxy.management.api.base import UNKNOWN, Asked, AsOf, Id, Thread, answered
from proxy.management.views import as_of as noted
from proxy.management.views import lookup, tasks
from proxy.management.views import resume as resuming
from proxy.management.views.as_of import ArtifactRow, DecisionRow, ledger_at, moment_in
from proxy.management.views.conversations import story_of
from proxy.management.views.tasks import Edge

router = APIRouter(prefix="/conversations/{conversation}")

OfFrame = Annotated[str, Query(description="Only those of this frame")]


class Decisions(TypedDict):
    decisions: list[DecisionRow]


class Artifacts(TypedDict):
    artifacts: list[ArtifactRow]


class Edges(TypedDict):
    edges: list[Edge]


@router.get("/decisions", response_model=Decisions, responses=UNKNOWN)
async def list_decisions(
    asked: Asked, conversation: Id, thread: Thread = "", frame: OfFrame = "", as_of: AsOf = ""
) -> Response:
    """What frames decided, also what no longer holds, with the times from which and to which it held."""
    ledger, story = await _path(asked, conversation, thread, as_of)
    holding = bool(as_of.strip())
    return await answered(lambda: {"decisions": noted.decision_rows(ledger, story, frame=frame, holding=holding)})


@router.get("/artifacts", response_model=Artifacts, responses=UNKNOWN)
async def list_artifacts(
    asked: Asked, conversation: Id, thread: Thread = "", frame: OfFrame = "", as_of: AsOf = ""
) -> Response:
    """What frames made, with the times from which and to which it held."""
    ledger, story = await _path(asked, conversation, thread, as_of)
    names, holding = asked.backstage.config.observed_tools, bool(as_of.strip())
    return await answered(
        lambda: {"artifacts": noted.artifact_rows(ledger, story, names, frame=frame, holding=holding)}
    )


@router.get("/edges", response_model=Edges, responses=UNKNOWN)
async def list_edges(asked: Asked, conversation: Id, thread: Thread = "", as_of: AsOf = "") -> Response:
    """What belongs to what: subtasks, retries, and dependencies where the client's own plan names them."""
    _, story = await _path(asked, conversation, thread, as_of)
    return await answered(lambda: {"edges": tasks.edges(story)})


@router.get("/resume", response_model=resuming.Resume, responses=UNKNOWN)
async def show_resume(asked: Asked, conversation: Id, thread: Thread = "", as_of: AsOf = "") -> Response:
    """Where the work stands: the way from the goal, what was done last, what is not to be tried again, what is next."""
    ledger, story = await _path(asked, conversation, thread, as_of)
    return await answered(lambda: resuming.resume(ledger, story))


async def _path(asked: Asked, conversation: str, thread: str, as_of: str) -> tuple[Ledger, Story]:
    at = moment_in(as_of)
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    return await run_in_threadpool(_path_in, ledger, at, thread, asked.backstage.config.observed_tools)


def _path_in(ledger: Ledger, at: int | None, thread: str, names: Names) -> tuple[Ledger, Story]:
    ledger = ledger_at(ledger, at)
    return ledger, story_of(ledger, thread, names)
