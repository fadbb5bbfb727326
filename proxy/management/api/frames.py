"""The routes by which a person drives the tree: push, plan, activate, pop, invalidate, rename.

The law: **nothing here changes what is being sent**. What is done takes effect with the next request of its path.

The route by which a person wants another attempt at a frame that failed (S0-39).
"""

from __future__ import annotations

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from proxy.core.commands import (
    ActivateCommand,
    FrameCommand,
    FrameSpec,
    InvalidateCommand,
    PlanCommand,
    PopCommand,
    PushCommand,
    RenameCommand,
)
from proxy.core.frames import Status
from proxy.errors import BadRequest, NotAllowed
from proxy.management.actions import CommandTarget, FrameCommandView, run_command
from proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    Caller,
    CurrentCaller,
    Error,
    Id,
    JsonResponse,
    ResponseDocs,
    Thread,
)
from proxy.management.views import lookup, path_state_of

FRAME_CONFLICT_RESPONSE: ResponseDocs = {
    409: {"model": Error, "description": "Not possible here; the message says what to do"}
}
MAX_STEPS = 40
MAX_PLAN_DEPTH = 8
"""Levels of a plan in one request."""

router = APIRouter()

Title = Annotated[str, Field(min_length=1, max_length=500, pattern=r"\S")]
Words = Annotated[str, Field(max_length=20_000)]


class StepBody(BaseModel):
    """A frame to be. Without criteria its title says when it is done."""

    model_config = ConfigDict(extra="forbid")

    title: Title
    criteria: Words = ""
    children: Annotated[list[StepBody], Field(max_length=MAX_STEPS)] = []


class FramesBody(BaseModel):
    """One frame by `title`, begun or, with `plan`, planned; or several planned ones as `children`."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(max_length=500)] = ""
    criteria: Words = ""
    parent: Annotated[str, Field(max_length=200, description="Id or title; default: the active frame")] = ""
    plan: Annotated[bool, Field(description="Only plan it")] = False
    children: Annotated[list[StepBody], Field(max_length=MAX_STEPS)] = []


class PopBody(BaseModel):
    """Without `results` the last words of the frame stand for them."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["completed", "failed", "blocked"] = "completed"
    results: Words = ""


class InvalidationBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"\S")]


class RenameBody(BaseModel):
    """What is left away stays."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(max_length=500)] = ""
    criteria: Words = ""


@router.post(
    "/conversations/{conversation}/frames",
    response_model=FrameCommandView,
    responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE},
)
async def push_or_plan(asked: CurrentCaller, conversation: Id, wanted: FramesBody, thread: Thread = "") -> Response:
    """Begin a frame under the active one, or plan frames."""
    command = _command_of(wanted)
    ledger = await lookup.ledger_of(asked.context.store, asked.scope, conversation)
    return await _apply_and_respond(asked, CommandTarget(ledger, path_state_of(ledger, thread), _now()), command)


@router.post(
    "/frames/{frame}/activate",
    response_model=FrameCommandView,
    responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE},
)
async def activate(asked: CurrentCaller, frame: Id) -> Response:
    """Begin a planned frame, resume a blocked one, try a failed one again."""
    return await _apply_and_respond(asked, await _locate_frame(asked, frame), ActivateCommand(frame))


@router.post(
    "/frames/{frame}/pop", response_model=FrameCommandView, responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE}
)
async def pop(asked: CurrentCaller, frame: Id, wanted: PopBody) -> Response:
    """End the active frame, or one above it with everything open below."""
    return await _apply_and_respond(
        asked, await _locate_frame(asked, frame), PopCommand(frame, wanted.status, wanted.results)
    )


@router.post(
    "/frames/{frame}/invalidate",
    response_model=FrameCommandView,
    responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE},
)
async def invalidate(asked: CurrentCaller, frame: Id, wanted: InvalidationBody) -> Response:
    """A frame is no longer wanted, and neither is what is planned below it."""
    return await _apply_and_respond(asked, await _locate_frame(asked, frame), InvalidateCommand(frame, wanted.reason))


@router.patch(
    "/frames/{frame}", response_model=FrameCommandView, responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE}
)
async def change(asked: CurrentCaller, frame: Id, wanted: RenameBody) -> Response:
    """Other words for a frame, while it is planned."""
    return await _apply_and_respond(
        asked, await _locate_frame(asked, frame), RenameCommand(frame, wanted.title, wanted.criteria)
    )


def _command_of(wanted: FramesBody) -> FrameCommand:
    """Raises BadRequest for what asks for nothing, or for too much at once."""
    below = tuple(_step(child, 2) for child in wanted.children)
    title = wanted.title.strip()
    if wanted.plan:
        steps = (FrameSpec(title, wanted.criteria, below),) if title else below
        if not steps:
            raise BadRequest("Nothing to plan: give a title, or children with a title each.")
        return PlanCommand(steps, wanted.parent)
    if not title:
        raise BadRequest("title is missing; children alone are planned with `plan`: true.")
    if below:
        raise BadRequest("children are planned, not begun: send them with `plan`: true, then activate the first.")
    return PushCommand(FrameSpec(title, wanted.criteria), wanted.parent)


def _step(wanted: StepBody, depth: int) -> FrameSpec:
    if depth > MAX_PLAN_DEPTH:
        raise BadRequest(f"A plan has {MAX_PLAN_DEPTH} levels at most.")
    return FrameSpec(wanted.title.strip(), wanted.criteria, tuple(_step(child, depth + 1) for child in wanted.children))


async def _locate_frame(asked: Caller, frame: str) -> CommandTarget:
    ledger, path_state = await lookup.ledger_with_frame(asked.context.store, asked.scope, frame)
    return CommandTarget(ledger, path_state, _now())


async def _apply_and_respond(asked: Caller, at: CommandTarget, command: FrameCommand) -> Response:
    told, events = await run_command(asked.context.store, asked.context.config, at, command)
    asked.context.on_events_stored(at.ledger.conversation.tenant, at.ledger.conversation.id, events)
    return JsonResponse(told)


def _now() -> int:
    return time.time_ns() // 1_000_000


@router.post(
    "/frames/{frame}/retry",
    response_model=FrameCommandView,
    responses={
        **NOT_FOUND_RESPONSE,
        409: {"model": Error, "description": "It did not fail, or its parent is not active"},
    },
)
async def retry(asked: CurrentCaller, frame: Id) -> Response:
    """Try again what failed: another frame by the same title, which is told why the one before failed."""
    ledger, path_state = await lookup.ledger_with_frame(asked.context.store, asked.scope, frame)
    status = path_state.tree.frames[frame].status
    if status is not Status.FAILED:
        raise NotAllowed(f"Frame {frame} is {status}: only what failed is tried again.", code="not_failed")
    at = CommandTarget(ledger, path_state, time.time_ns() // 1_000_000)
    told, events = await run_command(asked.context.store, asked.context.config, at, ActivateCommand(frame))
    asked.context.on_events_stored(ledger.conversation.tenant, ledger.conversation.id, events)
    return JsonResponse(told)
