"""Applies a person's commands to the tree: push, plan, activate, pop, invalidate, rename.

A person may do what the model may, under the same rules as the stack tools. A command by itself removes nothing from
the context: a frame begun by hand has no opening call, so like an inferred frame it leaves by a fold. Only a frame that
the model opened with a call leaves at once when a person ends it, so that waits until nothing is running in it.
Refusals raise NotAllowed or UnknownFrame, whose messages say what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    results_from_texts,
    return_path,
)
from proxy.core.ledger import EntryKind, Ledger, LedgerEvent
from proxy.core.observers import message_of
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


def apply_command(hand: CommandContext, command: FrameCommand) -> CommandResult:
    """Raises UnknownFrame and NotAllowed, whose messages say what to do."""
    if not hand.tree.active:
        raise NotAllowed("There is no frame here yet: the first message to the agent begins one.", code="no_frames")
    try:
        match command:
            case PushCommand():
                return _push(hand, command)
            case PlanCommand():
                return _plan(hand, command)
            case ActivateCommand():
                return _activate(hand, command)
            case PopCommand():
                return _pop(hand, command)
            case InvalidateCommand():
                return _invalidate(hand, command)
            case RenameCommand():
                return _rename(hand, command)
    except ToolError as mistake:
        raise NotAllowed(str(mistake).removeprefix("Error: "), code="not_allowed") from None


def attach(hand: CommandContext, done: CommandResult) -> list[LedgerEvent]:
    """The events as ledger events at the newest entry of the path, behind the last round if that is a turn. A frame's
    birth is keyed by its own name, so that it cannot happen twice; other events may recur at this entry."""
    tip = hand.path_state.tip
    rounds = hand.ledger.rounds.get(tip, ())
    number = rounds[-1].number if rounds else 0
    said = (*done.events, UserCommandApplied(hand.command_id, done.model_text, done.user_text))
    found = [as_ledger_event(event, tip, number, hand.ledger.next_seq + n, hand.now) for n, event in enumerate(said)]
    return [
        event
        if isinstance(what, FramePlanned | FrameEntered) and what.frame not in hand.tree.frames
        else _with_command_id(event, hand.command_id)
        for what, event in zip(said, found, strict=True)
    ]


def _with_command_id(event: LedgerEvent, key: str) -> LedgerEvent:
    return replace(event, subject=f"{event.subject.partition('/')[0]}/{key}")


def previous_answer(ledger: Ledger, entry: str, key: str) -> str | None:
    """The answer to the command with this key at an entry; None if it was not applied yet."""
    events = (e for e in ledger.events.get(entry, ()) if e.kind == "by hand" and e.subject == f"/{key}")
    return next((read.told for e in events if isinstance(read := decode_event(e), UserCommandApplied)), None)


# ---------------------------------------------------------------------------------------------------------------- push
def _push(hand: CommandContext, command: PushCommand) -> CommandResult:
    tree = hand.tree
    _refuse_if_root_ended(tree)
    if command.parent and (parent := _find_frame(tree, command.parent)).id != tree.active:
        raise NotAllowed(
            f"A frame begins under the active one, which is {_frame_label(tree.active_frame)}. Plan "
            f"it under {_frame_label(parent)} "
            "and activate it, or leave the parent away."
        )
    return _result_of(hand, frame_tools.push(hand.tool_context, _plan_arguments(command.step)))


def _activate(hand: CommandContext, command: ActivateCommand) -> CommandResult:
    tree = hand.tree
    _refuse_if_root_ended(tree)
    frame = _find_frame(tree, command.frame)
    if frame.status is not Status.FAILED:
        return _result_of(hand, frame_tools.activate(hand.tool_context, {"sessionID": frame.id}))
    if frame.parent != tree.active:
        raise NotAllowed(
            f"{_frame_label(frame)} failed; another attempt begins beside it, under {frame.parent}. "
            f"The active frame is {_frame_label(tree.active_frame)}: pop it first."
        )
    return _result_of(
        hand,
        frame_tools.push(
            hand.tool_context, {**_plan_arguments(FrameSpec(frame.title, frame.criteria)), "retry_of": frame.id}
        ),
    )


# ---------------------------------------------------------------------------------------------------------------- plan
def _plan(hand: CommandContext, command: PlanCommand) -> CommandResult:
    parent = _find_frame(hand.tree, command.parent).id if command.parent else hand.tree.active
    steps = [_plan_arguments(step) for step in command.steps]
    return _result_of(hand, plan_tools.plan(hand.tool_context, {"parentSessionID": parent, "children": steps}))


def _plan_arguments(step: FrameSpec) -> dict[str, Any]:
    below = [_plan_arguments(child) for child in step.children]
    title = remove_illegal_xml(step.title).strip()
    return {"title": title, "successCriteria": remove_illegal_xml(step.criteria).strip() or title, "children": below}


def _rename(hand: CommandContext, command: RenameCommand) -> CommandResult:
    frame = _find_frame(hand.tree, command.frame)
    if not command.title and not command.criteria:
        raise NotAllowed(f"Say what is to change of {_frame_label(frame)}: its title, its criteria, or both.")
    return _result_of(
        hand,
        plan_tools.plan(
            hand.tool_context, {"frameID": frame.id, **_changed_fields(title=command.title, criteria=command.criteria)}
        ),
    )


def _changed_fields(*, title: str, criteria: str) -> Mapping[str, str]:
    return {name: remove_illegal_xml(text) for name, text in (("title", title), ("successCriteria", criteria)) if text}


# ----------------------------------------------------------------------------------------------------------------- end
def _pop(hand: CommandContext, command: PopCommand) -> CommandResult:
    tree = hand.tree
    _refuse_if_root_ended(tree)
    frame = _find_frame(tree, command.frame) if command.frame else tree.active_frame
    open_ones = (tree.active_frame, *ancestors(tree, tree.active))
    below = [f for f in open_ones if frame.id in {a.id for a in ancestors(tree, f.id)}]
    _refuse_if_busy(hand, [*below, *return_path(tree, frame.id)])
    results = (
        remove_illegal_xml(command.results).strip() or _last_assistant_text(hand.path_state, frame) or DEFAULT_RESULTS
    )
    return _result_of(
        hand, frame_tools.pop(hand.tool_context, {"frameID": frame.id, "status": command.status, "results": results})
    )


def _last_assistant_text(story: PathState, frame: Frame) -> str:
    """The last assistant text in a frame, used as its results."""
    own = (path_entry for path_entry in story.entries if owner_of(story, path_entry) == frame.owner)
    said = [m.text for p in own if (m := message_of(p)) is not None and m.role == "assistant"]
    return results_from_texts(said)[:MAX_RESULTS_CHARACTERS]


def _invalidate(hand: CommandContext, command: InvalidateCommand) -> CommandResult:
    tree = hand.tree
    frame = _find_frame(tree, command.frame)
    if frame.id == tree.active and frame.parent:
        _refuse_if_root_ended(tree)
        _refuse_if_busy(hand, return_path(tree, frame.id))
    return _result_of(
        hand,
        plan_tools.invalidate(hand.tool_context, {"frameID": frame.id, "reason": remove_illegal_xml(command.reason)}),
    )


def _refuse_if_root_ended(tree: Tree) -> None:
    if tree.root.status in RETURN_STATUSES:
        raise NotAllowed(f"The root frame is {tree.root.status}. {_next_message_text(tree.root)}")


def _refuse_if_busy(hand: CommandContext, left: Sequence[Frame]) -> None:
    """Raises NotAllowed where ending these frames would remove running work from the context, or would leave a model
    with a user message behind a result that it does not accept."""
    called = next((frame for frame in left if frame.opening is not None), None)
    if called is None:
        return
    if not _is_idle(hand):
        raise NotAllowed(
            f"The agent is at work in {_frame_label(called)}, which it opened itself. Wait until it "
            f"has answered, then do "
            "this again; or tell the agent to end the frame."
        )
    if hand.forbids_user_after_result:
        raise NotAllowed(
            f"The agent opened {_frame_label(called)} itself, and its model cannot go on behind a "
            f"frame that somebody else "
            "ended. Tell the agent to end it."
        )


def _is_idle(hand: CommandContext) -> bool:
    """Whether the path ends with a finished answer."""
    entry = hand.ledger.entries.get(hand.path_state.tip)
    if entry is None:
        return False
    if entry.kind is EntryKind.TURN:
        last = hand.ledger.rounds.get(entry.id, ())[-1:]
        return any(done.last and done.spoken.complete and not done.spoken.client_calls for done in last)
    return entry.message is not None and entry.message.role == "assistant" and not entry.message.calls


# --------------------------------------------------------------------------------------------------------------- words
def _result_of(hand: CommandContext, outcome: ToolResult) -> CommandResult:
    events = tuple(own for event in outcome.events for own in _as_user_events(hand.tree, event))
    tree = hand.tree
    lines: list[str] = []
    for event in events:
        after = reduce(tree, event, hand.now)
        lines += _event_lines(tree, after, event)
        tree = after
    about = tuple(dict.fromkeys(frame for event in events if (frame := getattr(event, "frame", ""))))
    words = "\n".join(lines)
    return CommandResult(events, tree, about, words, f"{words}\n{_active_frame_text(tree)}")


def _active_frame_text(tree: Tree) -> str:
    if tree.root.status in RETURN_STATUSES:
        return _next_message_text(tree.root)
    return f"Active: {_frame_label(tree.active_frame)}."


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
            known = tree.frames.get(event.frame)
            how = "Begun" if known is None or known.status is Status.PLANNED else "Resumed"
            yield f"{how}: {_with_criteria(after.frames[event.frame])}"
            yield from _earlier_attempt_lines(after, after.frames[event.frame])
        case FramePlanned():
            yield f"Planned under {event.parent}: {_with_criteria(after.frames[event.frame])}"
        case FrameReplanned():
            yield f"Changed: {_with_criteria(after.frames[event.frame])}"
        case FramePopped():
            yield f"Ended as {event.status}: {_frame_label(after.frames[event.frame])}."
        case FrameInvalidated():
            yield f"Invalidated: {_frame_label(after.frames[event.frame])}. Reason: {cut_for_display(event.reason)}"
            if event.cascade:
                gone = "; ".join(_frame_label(after.frames[frame]) for frame in event.cascade)
                yield f"Invalidated with it: {gone}."
        case _:
            return


def _earlier_attempt_lines(tree: Tree, frame: Frame) -> Iterator[str]:
    before = tree.frames.get(frame.retry_of)
    if before is not None:
        yield f"It was tried before, as {before.id}, which {before.status}: {before.results[:MAX_RESULTS_CHARACTERS]}"
    elif frame.results:
        yield f"What came of it so far: {frame.results[:MAX_RESULTS_CHARACTERS]}"


def _with_criteria(frame: Frame) -> str:
    criteria = frame.criteria.strip()
    done_when = f" Done when: {criteria[:MAX_CRITERIA_CHARACTERS]}" if criteria != frame.title.strip() else ""
    return f"{_frame_label(frame)}.{done_when}"


def _frame_label(frame: Frame) -> str:
    return f"{frame.id} ({cut_for_display(frame.title)})"


def _find_frame(tree: Tree, reference: str) -> Frame:
    frame = find_frame(tree, reference.strip().strip("\"'"))
    if frame is None:
        shown = cut_for_display(reference)
        raise NotFound(f"No frame, or more than one, is called {shown!r}. {known_frames_text(tree)}")
    return frame


# ---------------------------------------------------------------------------------------------------------------- note
def commands_note(tree: Tree, nonce: str) -> str:
    """The note about what a person did since the last note. The nonce keeps tool output from forging it."""
    said = [line for words in tree.unannounced_commands[-MAX_COMMANDS_IN_NOTE:] for line in words.splitlines()]
    lines = ["The user changed the frames by hand:", *(f"- {line}" for line in said), *_next_step_lines(tree)]
    return element("stack-context", {"note": "by hand", "nonce": nonce}, escape_xml("\n".join(lines)))


def _next_step_lines(tree: Tree) -> Iterator[str]:
    """The active frame and the next planned ones."""
    yield f"The active frame is {_frame_label(tree.active_frame)}."
    waiting = [frame for frame in children(tree, tree.active) if frame.status is Status.PLANNED]
    if waiting:
        named = "; ".join(map(_frame_label, waiting[:MAX_PLANNED_IN_NOTE]))
        more = f"; +{len(waiting) - MAX_PLANNED_IN_NOTE} more" if len(waiting) > MAX_PLANNED_IN_NOTE else ""
        yield f"Planned under it, in this order: {named}{more}."
        yield f"Work through them one by one: begin each with stack_frame_activate, the first is {waiting[0].id}."
    elif tree.active_frame.parent:
        yield "When its criteria are met, pop it with results."
