"""Routes by which a person changes the frame tree: push, plan, activate, pop, invalidate, rename, retry, complete.
Changes take effect with the next request of the path."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from callstack_proxy.management.actions import CommandTarget, FrameCommandView, end_subagent, run_command
from callstack_proxy.management.api.base import (
    NOT_FOUND_RESPONSE,
    Caller,
    CurrentCaller,
    Error,
    Id,
    JsonResponse,
    ResponseDocs,
    Thread,
    now_ms,
)
from callstack_proxy.management.views import FrameDetail, frame_detail, path_state_of
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
from proxy.store import find_by_id

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


class CompletionBody(BaseModel):
    """How the subagent ended, and what came of it."""

    model_config = ConfigDict(extra="forbid")

    status: Literal["completed", "failed", "blocked"] = "completed"
    summary: Annotated[str, Field(max_length=20_000)] = ""


@router.post(
    "/conversations/{conversation}/frames",
    response_model=FrameCommandView,
    responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE},
)
async def push_or_plan(caller: CurrentCaller, conversation: Id, wanted: FramesBody, thread: Thread = "") -> Response:
    """Begin a frame under the active one, or plan frames."""
    command = _command_of(wanted)
    ledger = await find_by_id.ledger_of(caller.context.store, caller.scope, conversation)
    return await _apply_and_respond(caller, CommandTarget(ledger, path_state_of(ledger, thread), now_ms()), command)


@router.post(
    "/frames/{frame}/activate",
    response_model=FrameCommandView,
    responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE},
)
async def activate(caller: CurrentCaller, frame: Id) -> Response:
    """Begin a planned frame, resume a blocked one, try a failed one again."""
    return await _apply_and_respond(caller, await _locate_frame(caller, frame), ActivateCommand(frame))


@router.post(
    "/frames/{frame}/pop", response_model=FrameCommandView, responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE}
)
async def pop(caller: CurrentCaller, frame: Id, wanted: PopBody) -> Response:
    """End the active frame, or one above it with everything open below."""
    return await _apply_and_respond(
        caller, await _locate_frame(caller, frame), PopCommand(frame, wanted.status, wanted.results)
    )


@router.post(
    "/frames/{frame}/invalidate",
    response_model=FrameCommandView,
    responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE},
)
async def invalidate(caller: CurrentCaller, frame: Id, wanted: InvalidationBody) -> Response:
    """A frame is no longer wanted, and neither is what is planned below it."""
    return await _apply_and_respond(caller, await _locate_frame(caller, frame), InvalidateCommand(frame, wanted.reason))


@router.patch(
    "/frames/{frame}", response_model=FrameCommandView, responses={**NOT_FOUND_RESPONSE, **FRAME_CONFLICT_RESPONSE}
)
async def change(caller: CurrentCaller, frame: Id, wanted: RenameBody) -> Response:
    """Other words for a frame, while it is planned."""
    return await _apply_and_respond(
        caller, await _locate_frame(caller, frame), RenameCommand(frame, wanted.title, wanted.criteria)
    )


def _command_of(wanted: FramesBody) -> FrameCommand:
    """Raises BadRequest for an empty or contradictory request."""
    children = tuple(_step(child, 2) for child in wanted.children)
    title = wanted.title.strip()
    if wanted.plan:
        steps = (FrameSpec(title, wanted.criteria, children),) if title else children
        if not steps:
            raise BadRequest("Nothing to plan: give a title, or children with a title each.")
        return PlanCommand(steps, wanted.parent)
    if not title:
        raise BadRequest("title is missing; children alone are planned with `plan`: true.")
    if children:
        raise BadRequest("children are planned, not begun: send them with `plan`: true, then activate the first.")
    return PushCommand(FrameSpec(title, wanted.criteria), wanted.parent)


def _step(wanted: StepBody, depth: int) -> FrameSpec:
    if depth > MAX_PLAN_DEPTH:
        raise BadRequest(f"A plan has {MAX_PLAN_DEPTH} levels at most.")
    return FrameSpec(wanted.title.strip(), wanted.criteria, tuple(_step(child, depth + 1) for child in wanted.children))


async def _locate_frame(caller: Caller, frame: str) -> CommandTarget:
    ledger, path_state = await find_by_id.ledger_with_frame(caller.context.store, caller.scope, frame)
    return CommandTarget(ledger, path_state, now_ms())


async def _apply_and_respond(caller: Caller, target: CommandTarget, command: FrameCommand) -> Response:
    view, events = await run_command(caller.context.store, caller.context.config, target, command)
    caller.context.on_events_stored(target.ledger.conversation.tenant, target.ledger.conversation.id, events)
    return JsonResponse(view)


@router.post(
    "/frames/{frame}/retry",
    response_model=FrameCommandView,
    responses={
        **NOT_FOUND_RESPONSE,
        409: {"model": Error, "description": "It did not fail, or its parent is not active"},
    },
)
async def retry(caller: CurrentCaller, frame: Id) -> Response:
    """Try again what failed: another frame by the same title, which is told why the one before failed."""
    target = await _locate_frame(caller, frame)
    status = target.path_state.tree.frames[frame].status
    if status is not Status.FAILED:
        raise NotAllowed(f"Frame {frame} is {status}: only what failed is tried again.", code="not_failed")
    return await _apply_and_respond(caller, target, ActivateCommand(frame))


@router.post(
    "/frames/{frame}/complete",
    response_model=FrameDetail,
    responses={**NOT_FOUND_RESPONSE, 409: {"model": Error, "description": "No subagent's frame, or it has ended"}},
)
async def complete(caller: CurrentCaller, frame: Id, wanted: CompletionBody) -> Response:
    """End the frame of a subagent, and its own conversation's root. Nobody is stopped by it."""
    store = caller.context.store
    ledger, path_state = await find_by_id.ledger_with_frame(store, caller.scope, frame)
    ended = await end_subagent(store, ledger, path_state, (frame, wanted.status, wanted.summary), now_ms())
    for conversation, event in ended.events:
        caller.context.on_events_stored(ledger.conversation.tenant, conversation, [event])
    ledger, path_state = await find_by_id.ledger_with_frame(store, caller.scope, frame)
    return JsonResponse(frame_detail(ledger, path_state, frame, caller.context.config.observed_tools))
