"""Changes to the frames of a conversation by a person: push, plan, activate, pop, invalidate, rename, retry, unfold.

Commands are stored on the newest entry of a path, and unfold requests at the requests that folded, so that every path
with the fold has them. They hold after a restart and take effect with the next request, which also tells the model.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from msgspec.structs import replace
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from callstack_proxy.management.find_by_id import all_path_states
from callstack_proxy.management.operations.base import Decision, Input, Operation, Target
from callstack_proxy.management.unfold_targets import UnfoldTarget, find_unfold_target
from callstack_proxy.management.views import FrameState, UnfoldView, tree_state_view, truncate_line
from proxy.accounting import estimate_tokens
from proxy.config.for_core import forbids_user_after_result, tool_settings
from proxy.core.commands import (
    ActivateCommand,
    CommandContext,
    FrameCommand,
    FrameSpec,
    InvalidateCommand,
    PlanCommand,
    PopCommand,
    PushCommand,
    RenameCommand,
    apply_command,
    attach,
)
from proxy.core.frames import FrameKept, PathState, Status
from proxy.core.ledger import Ledger
from proxy.errors import BadRequest, NotAllowed

MAX_STEPS = 40
MAX_PLAN_DEPTH = 8
"""Levels of a plan in one request."""
EndStatus = Literal["completed", "failed", "blocked"]
MaybeTitle = Annotated[str, Field(max_length=500)]
Title = Annotated[MaybeTitle, Field(min_length=1, pattern=r"\S")]
Words = Annotated[str, Field(max_length=20_000)]


class FrameCommandView(TypedDict):
    """What came of it: the frames it was about as they are now, the active one, and the same in words."""

    conversation: str
    frames: list[FrameState]
    activeFrameID: str
    told: str


def command_context(target: Target) -> CommandContext:
    return CommandContext(
        target.path_state,
        target.ledger,
        target.fresh_id,
        target.now,
        estimate_tokens,
        tool_settings(target.config),
        forbids_user_after_result(target.config, _newest_model(target)),
    )


def _newest_model(target: Target) -> str:
    """The model of the newest request; empty if unknown."""
    tip = target.ledger.entries.get(target.path_state.tip)
    thread = target.ledger.threads.get(tip.thread) if tip else None
    return thread.model if thread else ""


def _commanded(target: Target, command: FrameCommand) -> Decision:
    """Raises NotFound, NotAllowed."""
    context = command_context(target)
    result = apply_command(context, command)
    frames = tree_state_view(target.ledger, replace(target.path_state, tree=result.tree))["frames"]
    view: FrameCommandView = {
        "conversation": target.ledger.conversation.id,
        "frames": [frames[frame] for frame in result.frames],
        "activeFrameID": result.tree.active,
        "told": result.user_text,
    }
    return Decision(view, attach(context, result))


# -------------------------------------------------------------------------------------------------------------- frames
class StepBody(Input):
    """A frame to be. Without criteria its title says when it is done."""

    title: Title
    criteria: Words = ""
    children: list[StepBody] = Field([], max_length=MAX_STEPS)


class FramesBody(Input):
    """One frame by `title`, begun or, with `plan`, planned; or several planned ones as `children`."""

    title: MaybeTitle = ""
    criteria: Words = ""
    parent: Annotated[str, Field(max_length=200, description="Id or title; default: the active frame")] = ""
    plan: Annotated[bool, Field(description="Only plan it")] = False
    children: list[StepBody] = Field([], max_length=MAX_STEPS)


def push_or_plan(target: Target, operation_input: FramesBody) -> Decision:
    """Begin a frame under the active one, or plan frames."""
    children = tuple(_step(child, 2) for child in operation_input.children)
    title = operation_input.title.strip()
    if operation_input.plan:
        steps = (FrameSpec(title, operation_input.criteria, children),) if title else children
        if not steps:
            raise BadRequest("Nothing to plan: give a title, or children with a title each.")
        return _commanded(target, PlanCommand(steps, operation_input.parent))
    if not title:
        raise BadRequest("title is missing; children alone are planned with `plan`: true.")
    if children:
        raise BadRequest("children are planned, not begun: send them with `plan`: true, then activate the first.")
    return _commanded(target, PushCommand(FrameSpec(title, operation_input.criteria), operation_input.parent))


def _step(step: StepBody, depth: int) -> FrameSpec:
    if depth > MAX_PLAN_DEPTH:
        raise BadRequest(f"A plan has {MAX_PLAN_DEPTH} levels at most.")
    return FrameSpec(step.title.strip(), step.criteria, tuple(_step(child, depth + 1) for child in step.children))


def activate(target: Target, _: None) -> Decision:
    """Begin a planned frame, resume a blocked one, try a failed one again."""
    return _commanded(target, ActivateCommand(target.frame))


class PopBody(Input):
    """Without `results` the last words of the frame stand for them."""

    status: EndStatus = "completed"
    results: Words = ""


def pop(target: Target, operation_input: PopBody) -> Decision:
    """End the active frame, or one above it with everything open below."""
    return _commanded(target, PopCommand(target.frame, operation_input.status, operation_input.results))


class InvalidationBody(Input):
    reason: Annotated[
        str,
        Field(min_length=1, max_length=2_000, pattern=r"\S"),
        typer.Option("--reason", help="Why; the model reads it."),
    ]


def invalidate(target: Target, operation_input: InvalidationBody) -> Decision:
    """A frame is no longer wanted, and neither is what is planned below it."""
    return _commanded(target, InvalidateCommand(target.frame, operation_input.reason))


class RenameBody(Input):
    """What is left away stays."""

    title: Annotated[MaybeTitle, typer.Option("--title", help="Default: as it is.")] = ""
    criteria: Annotated[Words, typer.Option("--criteria", help="Default: as they are.")] = ""


def change(target: Target, operation_input: RenameBody) -> Decision:
    """Other words for a frame, while it is planned."""
    return _commanded(target, RenameCommand(target.frame, operation_input.title, operation_input.criteria))


def retry(target: Target, _: None) -> Decision:
    """Try again what failed: another frame by the same title, which is told why the one before failed."""
    status = target.path_state.tree.frames[target.frame].status
    if status is not Status.FAILED:
        raise NotAllowed(f"Frame {target.frame} is {status}: only what failed is tried again.", code="not_failed")
    return _commanded(target, ActivateCommand(target.frame))


# -------------------------------------------------------------------------------------------------------------- unfold
AT_ONCE = "with the next request, whatever it costs"
WHEN_CHEAP = "with the next request that finds the provider's cache cold, or puts other work away"


class UnfoldQuery(BaseModel):
    now: Annotated[bool, Field(description="With the next request, whatever it costs"), typer.Option("--now")] = False


def unfold_frame(target: Target, operation_input: UnfoldQuery) -> Decision:
    """Bring back what was folded wrongly, at the next moment that is cheap; it is never folded again."""
    path_state, found = _path_with_fold(target.ledger, target.frame, now=operation_input.now)
    kept = FrameKept(found.frame, operation_input.now)
    at_once = operation_input.now or path_state.tree.kept_frames.get(found.frame, False)
    view: UnfoldView = {
        "frame": found.frame,
        "title": truncate_line(path_state.tree.frames[found.frame].title),
        "conversation": target.ledger.conversation.id,
        "new": found.is_new,
        "now": at_once,
        "comes": AT_ONCE if at_once else WHEN_CHEAP,
    }
    return Decision(view, target.events_at((kept, entry, 0) for entry in found.entries) if found.is_new else ())


def _path_with_fold(ledger: Ledger, frame: str, *, now: bool) -> tuple[PathState, UnfoldTarget]:
    """The newest path on which the frame is folded. Raises NotAllowed with the newest path's reason."""
    refused: NotAllowed | None = None
    for path_state in all_path_states(ledger):
        if frame in path_state.tree.frames:
            try:
                return path_state, find_unfold_target(ledger, path_state, frame, now=now)
            except NotAllowed as error:
                refused = refused or error
    raise refused or NotAllowed(
        f"Frame {frame} stands on no path. Name a frame that `callstack tree` shows.", code="not_folded"
    )


FRAMES = Operation(
    "POST", "/conversations/{conversation}/frames", push_or_plan, FramesBody, FrameCommandView, thread_in_query=True
)
ACTIVATE = Operation("POST", "/frames/{frame}/activate", activate, None, FrameCommandView)
POP = Operation("POST", "/frames/{frame}/pop", pop, PopBody, FrameCommandView)
INVALIDATE = Operation("POST", "/frames/{frame}/invalidate", invalidate, InvalidationBody, FrameCommandView)
# Of `change` the API's description has its name: another would rename the method in every generated client.
RENAME = Operation("PATCH", "/frames/{frame}", change, RenameBody, FrameCommandView)
RETRY = Operation(
    "POST", "/frames/{frame}/retry", retry, None, FrameCommandView, "It did not fail, or its parent is not active"
)
UNFOLD = Operation(
    "POST",
    "/frames/{frame}/unfold",
    unfold_frame,
    UnfoldQuery,
    UnfoldView,
    "Nothing of it was folded; the message says what to do",
    in_query=True,
)
