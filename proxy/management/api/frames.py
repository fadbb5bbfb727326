"""The routes by which a person drives the tree: push, plan, activate, pop, invalidate, rename.

The law: **nothing here changes what is being sent**. What is done takes effect with the next request of its path.

The route by which a person wants another attempt at a frame that failed (S0-39).
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from proxy.core.commands.command_values import Activate, Deed, Invalidate, Plan, Pop, Push, Rename, Step
from proxy.core.frames.tree import Status
from proxy.errors import BadRequest, NotAllowed
from proxy.management.actions.frames import At, HandTold, do
from proxy.management.api.base import UNKNOWN, Asked, Asking, Documented, Error, Id, Json, Thread
from proxy.management.views import lookup
from proxy.management.views.conversations import story_of

REFUSED: Documented = {409: {"model": Error, "description": "Not possible here; the message says what to do"}}
MOST_STEPS = 40
DEEPEST = 8
"""Levels of a plan in one request."""

router = APIRouter()

Title = Annotated[str, Field(min_length=1, max_length=500, pattern=r"\S")]
Words = Annotated[str, Field(max_length=20_000)]


class StepWanted(BaseModel):
    """A frame to be. Without criteria its title says when it is done."""

    model_config = ConfigDict(extra="forbid")

    title: Title
    criteria: Words = ""
    children: Annotated[list[StepWanted], Field(max_length=MOST_STEPS)] = []


class FramesWanted(BaseModel):
    """One frame by `title`, begun or, with `plan`, planned; or several planned ones as `children`."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(max_length=500)] = ""
    criteria: Words = ""
    parent: Annotated[str, Field(max_length=200, description="Id or title; default: the active frame")] = ""
    plan: Annotated[bool, Field(description="Only plan it")] = False
    children: Annotated[list[StepWanted], Field(max_length=MOST_STEPS)] = []


class PopWanted(BaseModel):
    """Without `results` the last words of the frame stand for them."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["completed", "failed", "blocked"] = "completed"
    results: Words = ""


class InvalidationWanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]


class ChangeWanted(BaseModel):
    """What is left away stays."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(max_length=500)] = ""
    criteria: Words = ""


@router.post("/conversations/{conversation}/frames", response_model=HandTold, responses={**UNKNOWN, **REFUSED})
async def push_or_plan(asked: Asked, conversation: Id, wanted: FramesWanted, thread: Thread = "") -> Response:
    """Begin a frame under the active one, or plan frames."""
    deed = _deed(wanted)
    ledger = await lookup.ledger_of(asked.backstage.store, asked.scope, conversation)
    return await _done(asked, At(ledger, story_of(ledger, thread), _now()), deed)


@router.post("/frames/{frame}/activate", response_model=HandTold, responses={**UNKNOWN, **REFUSED})
async def activate(asked: Asked, frame: Id) -> Response:
    """Begin a planned frame, resume a blocked one, try a failed one again."""
    return await _done(asked, await _at(asked, frame), Activate(frame))


@router.post("/frames/{frame}/pop", response_model=HandTold, responses={**UNKNOWN, **REFUSED})
async def pop(asked: Asked, frame: Id, wanted: PopWanted) -> Response:
    """End the active frame, or one above it with everything open below."""
    return await _done(asked, await _at(asked, frame), Pop(frame, wanted.status, wanted.results))


@router.post("/frames/{frame}/invalidate", response_model=HandTold, responses={**UNKNOWN, **REFUSED})
async def invalidate(asked: Asked, frame: Id, wanted: InvalidationWanted) -> Response:
    """A frame is no longer wanted, and neither is what is planned below it."""
    return await _done(asked, await _at(asked, frame), Invalidate(frame, wanted.reason))


@router.patch("/frames/{frame}", response_model=HandTold, responses={**UNKNOWN, **REFUSED})
async def change(asked: Asked, frame: Id, wanted: ChangeWanted) -> Response:
    """Other words for a frame, while it is planned."""
    return await _done(asked, await _at(asked, frame), Rename(frame, wanted.title, wanted.criteria))


def _deed(wanted: FramesWanted) -> Deed:
    """Raises BadRequest for what asks for nothing, or for too much at once."""
    below = tuple(_step(child, 2) for child in wanted.children)
    title = wanted.title.strip()
    if wanted.plan:
        steps = (Step(title, wanted.criteria, below),) if title else below
        if not steps:
            raise BadRequest("Nothing to plan: give a title, or children with a title each.")
        return Plan(steps, wanted.parent)
    if not title:
        raise BadRequest("title is missing; children alone are planned with `plan`: true.")
    if below:
        raise BadRequest("children are planned, not begun: send them with `plan`: true, then activate the first.")
    return Push(Step(title, wanted.criteria), wanted.parent)


def _step(wanted: StepWanted, depth: int) -> Step:
    if depth > DEEPEST:
        raise BadRequest(f"A plan has {DEEPEST} levels at most.")
    return Step(wanted.title.strip(), wanted.criteria, tuple(_step(child, depth + 1) for child in wanted.children))


async def _at(asked: Asking, frame: str) -> At:
    ledger, story = await lookup.frame_of(asked.backstage.store, asked.scope, frame)
    return At(ledger, story, _now())


async def _done(asked: Asking, at: At, deed: Deed) -> Response:
    told, events = await do(asked.backstage.store, asked.backstage.config, at, deed)
    asked.backstage.decided(at.ledger.conversation.tenant, at.ledger.conversation.id, events)
    return Json(told)


def _now() -> int:
    return time.time_ns() // 1_000_000


@router.post(
    "/frames/{frame}/retry",
    response_model=HandTold,
    responses={**UNKNOWN, 409: {"model": Error, "description": "It did not fail, or its parent is not active"}},
)
async def retry(asked: Asked, frame: Id) -> Response:
    """Try again what failed: another frame by the same title, which is told why the one before failed."""
    ledger, story = await lookup.frame_of(asked.backstage.store, asked.scope, frame)
    status = story.tree.frames[frame].status
    if status is not Status.FAILED:
        raise NotAllowed(f"Frame {frame} is {status}: only what failed is tried again.", code="not_failed")
    at = At(ledger, story, time.time_ns() // 1_000_000)
    told, events = await do(asked.backstage.store, asked.backstage.config, at, Activate(frame))
    asked.backstage.decided(ledger.conversation.tenant, ledger.conversation.id, events)
    return Json(told)
