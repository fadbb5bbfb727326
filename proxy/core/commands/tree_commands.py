"""Applies a person's commands to the tree: push, plan, activate, pop, invalidate, rename.

A person may do what the model may, under the same rules as the stack tools. A command by itself removes nothing from
the context: a frame begun by hand has no opening call, so like an inferred frame it leaves by a fold. Only a frame that
the model opened with a call leaves at once when a person ends it, so that waits until nothing is running in it.
Refusals raise NotAllowed or NotFound, whose messages say what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import structs
from msgspec.structs import replace

from proxy.core.commands.command_values import (
    ActivateCommand,
    FrameCommand,
    FrameSpec,
    InvalidateCommand,
    PlanCommand,
    PopCommand,
    PushCommand,
    RenameCommand,
)
from proxy.core.context import owner_of
from proxy.core.frames import (
    RETURN_STATUSES,
    USER_ORIGIN,
    Frame,
    FrameActivated,
    FrameEntered,
    FrameEvent,
    FrameInvalidated,
    FramePlanned,
    FramePopped,
    FramePushed,
    FrameReplanned,
    PathState,
    Status,
    Tree,
    UserCommandApplied,
    ancestors,
    as_ledger_event,
    children,
    decode_event,
    find_frame,
    reduce,
    results_of_item,
    return_path,
)
from proxy.core.ledger import EntryKind, Ledger, LedgerEvent
from proxy.core.policy import next_message_effect
from proxy.core.text import cut_for_display, element, escape_xml, remove_illegal_xml
from proxy.core.tools import (
    CallGroup,
    ToolContext,
    ToolError,
    ToolResult,
    ToolSettings,
    frame_tools,
    known_frames_text,
    plan_tools,
)
from proxy.errors import NotAllowed, NotFound

MAX_RESULTS_CHARACTERS = 1_200  # of the assistant text used as results, and of a lesson in the note
MAX_CRITERIA_CHARACTERS = 600
MAX_COMMANDS_IN_NOTE = 30  # the newest ones
MAX_PLANNED_IN_NOTE = 12
DEFAULT_RESULTS = "Ended by the user."


class CommandContext(msgspec.Struct, frozen=True):
    """What a command works with. `path_state` holds only what the path already has, nothing in progress; `command_id`
    makes a repeated command recognisable; `now` is ms since the epoch."""

    path_state: PathState
    ledger: Ledger
    command_id: str
    now: int
    count_tokens: Callable[[str], int]
    settings: ToolSettings
    forbids_user_after_result: bool = False

    @property
    def tree(self) -> Tree:
        return self.path_state.tree

    @property
    def tool_context(self) -> ToolContext:
        """Context for the stack tools. No turn is running, so a checkpoint goes to the end of the path."""
        group = CallGroup(has_only_stack_calls=True, home_frame=self.tree.active)
        settings = replace(self.settings, checkpoint_at_push=False)
        return ToolContext(
            self.path_state, self.ledger, group, self.command_id, "", 0, self.now, "", self.count_tokens, settings
        )


class CommandResult(msgspec.Struct, frozen=True):
    """Events in order, the tree after them, and the frames concerned."""

    events: tuple[FrameEvent, ...]
    tree: Tree
    frames: tuple[str, ...]
    model_text: str
    user_text: str


def apply_command(command_context: CommandContext, command: FrameCommand) -> CommandResult:
    """Raises NotFound and NotAllowed, whose messages say what to do."""
    if not command_context.tree.active:
        raise NotAllowed("There is no frame here yet: the first message to the agent begins one.", code="no_frames")
    try:
        match command:
            case PushCommand():
                return _push(command_context, command)
            case PlanCommand():
                return _plan(command_context, command)
            case ActivateCommand():
                return _activate(command_context, command)
            case PopCommand():
                return _pop(command_context, command)
            case InvalidateCommand():
                return _invalidate(command_context, command)
            case RenameCommand():
                return _rename(command_context, command)
    except ToolError as mistake:
        raise NotAllowed(str(mistake).removeprefix("Error: "), code="not_allowed") from None


def attach(command_context: CommandContext, result: CommandResult) -> list[LedgerEvent]:
    """The events as ledger events at the newest entry of the path, behind the last round if that is a turn. A frame's
    birth is keyed by its own name, so that it cannot happen twice; other events may recur at this entry."""
    tip = command_context.path_state.tip
    rounds = command_context.ledger.rounds.get(tip, ())
    number = rounds[-1].number if rounds else 0
    events = (*result.events, UserCommandApplied(command_context.command_id, result.model_text, result.user_text))
    ledger_events = [
        as_ledger_event(ledger_event, tip, number, command_context.ledger.next_seq + n, command_context.now)
        for n, ledger_event in enumerate(events)
    ]
    return [
        ledger_event
        if isinstance(frame_event, FramePlanned | FrameEntered) and frame_event.frame not in command_context.tree.frames
        else replace(ledger_event, subject=f"{ledger_event.subject.partition('/')[0]}/{command_context.command_id}")
        for frame_event, ledger_event in zip(events, ledger_events, strict=True)
    ]


def previous_answer(ledger: Ledger, entry: str, key: str) -> str | None:
    """The answer to the command with this key at an entry; None if it was not applied yet."""
    events = (e for e in ledger.events.get(entry, ()) if e.kind == "by hand" and e.subject == f"/{key}")
    return next((applied.reply for e in events if isinstance(applied := decode_event(e), UserCommandApplied)), None)


def _push(command_context: CommandContext, command: PushCommand) -> CommandResult:
    tree = command_context.tree
    _refuse_if_root_ended(tree)
    if command.parent and (parent := _find_frame(tree, command.parent)).id != tree.active:
        raise NotAllowed(
            f"A frame begins under the active one, which is {tree.as_shown.active_frame.label}. Plan it under "
            f"{parent.label} and activate it, or leave the parent away."
        )
    return _result_of(command_context, frame_tools.push(command_context.tool_context, _plan_arguments(command.step)))


def _activate(command_context: CommandContext, command: ActivateCommand) -> CommandResult:
    tree = command_context.tree
    _refuse_if_root_ended(tree)
    frame = _find_frame(tree, command.frame)
    if frame.status is not Status.FAILED:
        return _result_of(command_context, frame_tools.activate(command_context.tool_context, {"frame": frame.id}))
    if frame.parent != tree.active:
        raise NotAllowed(
            f"{frame.label} failed; another attempt begins beside it, under {frame.parent}. "
            f"The active frame is {tree.as_shown.active_frame.label}: pop it first."
        )
    return _result_of(
        command_context,
        frame_tools.push(
            command_context.tool_context,
            {**_plan_arguments(FrameSpec(frame.title, frame.criteria)), "retry_of": frame.id},
        ),
    )


def _plan(command_context: CommandContext, command: PlanCommand) -> CommandResult:
    parent = _find_frame(command_context.tree, command.parent).id if command.parent else command_context.tree.active
    steps = [_plan_arguments(step) for step in command.steps]
    return _result_of(
        command_context, plan_tools.plan(command_context.tool_context, {"frame": parent, "children": steps})
    )


def _plan_arguments(step: FrameSpec) -> dict[str, Any]:
    child_arguments = [_plan_arguments(child) for child in step.children]
    title = remove_illegal_xml(step.title).strip()
    return {
        "title": title,
        "successCriteria": remove_illegal_xml(step.criteria).strip() or title,
        "children": child_arguments,
    }


def _rename(command_context: CommandContext, command: RenameCommand) -> CommandResult:
    frame = _find_frame(command_context.tree, command.frame)
    if not command.title and not command.criteria:
        raise NotAllowed(f"Say what is to change of {frame.label}: its title, its criteria, or both.")
    given = {"title": command.title, "successCriteria": command.criteria}
    changed = {name: remove_illegal_xml(text) for name, text in given.items() if text}
    return _result_of(command_context, plan_tools.plan(command_context.tool_context, {"replan": frame.id, **changed}))


def _pop(command_context: CommandContext, command: PopCommand) -> CommandResult:
    tree = command_context.tree
    _refuse_if_root_ended(tree)
    frame = _find_frame(tree, command.frame) if command.frame else tree.active_frame
    open_frames = (tree.active_frame, *ancestors(tree, tree.active))
    below = [f for f in open_frames if frame.id in {a.id for a in ancestors(tree, f.id)}]
    _refuse_if_busy(command_context, [*below, *return_path(tree, frame.id)])
    results = (
        remove_illegal_xml(command.results).strip()
        or _last_assistant_text(command_context.path_state, frame)
        or DEFAULT_RESULTS
    )
    return _result_of(
        command_context,
        frame_tools.pop(
            command_context.tool_context, {"frame": frame.id, "status": command.status, "results": results}
        ),
    )


def _last_assistant_text(path_state: PathState, frame: Frame) -> str:
    """The last assistant text in a frame that announces nothing, used as its results."""
    own_entries = (path_entry for path_entry in path_state.entries if owner_of(path_state, path_entry) == frame.owner)
    texts = [m.text for p in own_entries if (m := p.message) is not None and m.role == "assistant"]
    return results_of_item(texts)[:MAX_RESULTS_CHARACTERS]


def _invalidate(command_context: CommandContext, command: InvalidateCommand) -> CommandResult:
    tree = command_context.tree
    frame = _find_frame(tree, command.frame)
    if frame.id == tree.active and frame.parent:
        _refuse_if_root_ended(tree)
        _refuse_if_busy(command_context, return_path(tree, frame.id))
    return _result_of(
        command_context,
        plan_tools.invalidate(
            command_context.tool_context, {"frame": frame.id, "reason": remove_illegal_xml(command.reason)}
        ),
    )


def _refuse_if_root_ended(tree: Tree) -> None:
    if tree.root.status in RETURN_STATUSES:
        raise NotAllowed(f"The root frame is {tree.root.status}. {_next_message_text(tree.root)}")


def _refuse_if_busy(command_context: CommandContext, frames: Sequence[Frame]) -> None:
    """Raises NotAllowed where ending these frames would remove running work from the context, or would leave a model
    with a user message behind a result that it does not accept."""
    called = next((frame for frame in frames if frame.opening is not None), None)
    if called is None:
        return
    if not _is_idle(command_context):
        raise NotAllowed(
            f"The agent is at work in {called.label}, which it opened itself. Wait until it has answered, then "
            "do this again; or tell the agent to end the frame."
        )
    if command_context.forbids_user_after_result:
        raise NotAllowed(
            f"The agent opened {called.label} itself, and its model cannot go on behind a frame that somebody "
            "else ended. Tell the agent to end it."
        )


def _is_idle(command_context: CommandContext) -> bool:
    """Whether the path ends with a finished answer."""
    entry = command_context.ledger.entries.get(command_context.path_state.tip)
    if entry is None:
        return False
    if entry.kind is EntryKind.TURN:
        last_rounds = command_context.ledger.rounds.get(entry.id, ())[-1:]
        return any(
            last_round.last and last_round.spoken.complete and not last_round.spoken.client_calls
            for last_round in last_rounds
        )
    return entry.message is not None and entry.message.role == "assistant" and not entry.message.calls


def _result_of(command_context: CommandContext, tool_result: ToolResult) -> CommandResult:
    events = tuple(
        user_event for event in tool_result.events for user_event in _as_user_events(command_context.tree, event)
    )
    tree = command_context.tree
    lines: list[str] = []
    for event in events:
        after = reduce(tree, event, command_context.now)
        lines += _event_lines(tree, after, event)
        tree = after
    frame_ids = tuple(dict.fromkeys(frame for event in events if (frame := getattr(event, "frame", ""))))
    text = "\n".join(lines)
    return CommandResult(events, tree, frame_ids, text, f"{text}\n{_active_frame_text(tree)}")


def _active_frame_text(tree: Tree) -> str:
    if tree.root.status in RETURN_STATUSES:
        return _next_message_text(tree.root)
    return f"Active: {tree.as_shown.active_frame.label}."


def _next_message_text(root: Frame) -> str:
    return f"Your next message to the agent {next_message_effect(root)}."


def _as_user_events(tree: Tree, event: FrameEvent) -> Iterator[FrameEvent]:
    """Events of the stack tools, changed into a person's: without a call whose result would show the frame."""
    match event:
        case FramePushed():
            words = (event.frame, event.parent, event.title, event.criteria)
            yield FrameEntered(*words, USER_ORIGIN, retry_of=event.retry_of)
        case FrameActivated():
            for frame in (tree.frames[f] for f in (*event.through, event.frame)):
                yield FrameEntered(frame.id, frame.parent, frame.title, frame.criteria, USER_ORIGIN)
        case FramePlanned():
            yield structs.replace(event, origin=USER_ORIGIN)
        case _:
            yield event


def _event_lines(tree: Tree, after: Tree, event: FrameEvent) -> Iterator[str]:
    """What happened, one line each, for the model and the person."""
    match event:
        case FrameEntered():
            earlier = tree.frames.get(event.frame)
            how = "Begun" if earlier is None or earlier.status is Status.PLANNED else "Resumed"
            yield f"{how}: {_with_criteria(after.frames[event.frame])}"
            yield from _earlier_attempt_lines(after, after.frames[event.frame])
        case FramePlanned():
            yield f"Planned under {event.parent}: {_with_criteria(after.frames[event.frame])}"
        case FrameReplanned():
            yield f"Changed: {_with_criteria(after.frames[event.frame])}"
        case FramePopped():
            yield f"Ended as {event.status}: {after.frames[event.frame].label}."
        case FrameInvalidated():
            yield f"Invalidated: {after.frames[event.frame].label}. Reason: {cut_for_display(event.reason)}"
            if event.cascade:
                invalidated = "; ".join(after.frames[frame].label for frame in event.cascade)
                yield f"Invalidated with it: {invalidated}."
        case _:
            return


def _earlier_attempt_lines(tree: Tree, frame: Frame) -> Iterator[str]:
    earlier = tree.frames.get(frame.retry_of)
    if earlier is not None:
        results = earlier.results[:MAX_RESULTS_CHARACTERS]
        yield f"It was tried before, as {earlier.id}, which {earlier.status}: {results}"
    elif frame.results:
        yield f"What came of it so far: {frame.results[:MAX_RESULTS_CHARACTERS]}"


def _with_criteria(frame: Frame) -> str:
    criteria = frame.criteria.strip()
    done_when = f" Done when: {criteria[:MAX_CRITERIA_CHARACTERS]}" if criteria != frame.title.strip() else ""
    return f"{frame.label}.{done_when}"


def _find_frame(tree: Tree, reference: str) -> Frame:
    frame = find_frame(tree, reference.strip().strip("\"'"))
    if frame is None:
        shown = cut_for_display(reference)
        raise NotFound(f"No frame, or more than one, is called {shown!r}. {known_frames_text(tree)}")
    return frame


def commands_note(tree: Tree, nonce: str) -> str:
    """The note about what a person did since the last note. The nonce keeps tool output from forging it."""
    changes = [line for text in tree.unannounced_commands[-MAX_COMMANDS_IN_NOTE:] for line in text.splitlines()]
    lines = ["The user changed the frames by hand:", *(f"- {line}" for line in changes), *_next_step_lines(tree)]
    return element("stack-context", {"note": "by hand", "nonce": nonce}, escape_xml("\n".join(lines)))


def _next_step_lines(tree: Tree) -> Iterator[str]:
    """The active frame and the next planned ones."""
    yield f"The active frame is {tree.as_shown.active_frame.label}."
    waiting = [frame for frame in children(tree, tree.active) if frame.status is Status.PLANNED]
    if waiting:
        named = "; ".join(frame.label for frame in waiting[:MAX_PLANNED_IN_NOTE])
        more = f"; +{len(waiting) - MAX_PLANNED_IN_NOTE} more" if len(waiting) > MAX_PLANNED_IN_NOTE else ""
        yield f"Planned under it, in this order: {named}{more}."
        yield f"Work through them one by one: activate each, the first is {waiting[0].id}."
    elif tree.active_frame.parent:
        yield "When its criteria are met, pop it with results."
