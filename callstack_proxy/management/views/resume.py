"""Where the work of a conversation stands, for someone who returns to it: the goal, the current frame, the last
actions, finished parts, calls not to repeat, and the next step. Reads only stored data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from typing_extensions import TypedDict

from callstack_proxy.management.views.conversations import last_active
from callstack_proxy.management.views.logs import call_states_of, message_position_of
from proxy.core.context import RECENT_ENTRIES_LIMIT, format_action, frame_and_siblings, planned_children
from proxy.core.frames import (
    FINAL_STATUSES,
    RETURN_STATUSES,
    Frame,
    PathState,
    Status,
    Tree,
    is_task,
    next_planned,
    path_to,
)
from proxy.core.ledger import Ledger
from proxy.core.observers import steps_of
from proxy.core.policy import LoopRules, active_loops, next_message_effect
from proxy.core.text import cut_at_word, remove_illegal_xml

MAX_ACTIONS = 3
MAX_FINISHED_FRAMES = 5
MAX_LINE_LENGTH = 100
"""Characters of a title, a result or an action."""
MAX_QUOTE_LENGTH = 240
"""Characters of the assistant's last text."""


class PathFrame(TypedDict):
    """A frame from the goal down to the active one, which is the last. `criteria` is empty where the title says it."""

    frame: str
    title: str
    status: str
    criteria: str


class FinishedFrameSummary(TypedDict):
    """A part that ended, with what it came to."""

    frame: str
    title: str
    status: str
    results: str


class BlockedAction(TypedDict):
    """A loop that still stands: its calls, in words, are not to be tried again as they are."""

    kind: str
    calls: list[str]
    times: int
    frame: str


class NextStep(TypedDict):
    """What comes next, in words; `frame` is the planned one that begins then, where there is one."""

    frame: str | None
    title: str | None
    action: str


class ResumeView(TypedDict):
    """`path`: the goal first. `actions`: the newest calls of the client's tools and what came of them, oldest first.
    `finished`: the newest parts that ended, oldest first; `blocked_actions`: loops that stand; `said`: the newest words
    of the assistant."""

    conversation: str
    last_active: int
    path: list[PathFrame]
    actions: list[str]
    finished: list[FinishedFrameSummary]
    blocked_actions: list[BlockedAction]
    planned: int
    said: str
    next: NextStep


def resume_view(ledger: Ledger, path_state: PathState) -> ResumeView:
    tree = path_state.tree
    path = path_to(tree, tree.active) if tree.active else ()
    return {
        "conversation": ledger.conversation.id,
        "last_active": last_active(ledger, ()),
        "path": [_path_frame(frame) for frame in path if is_task(tree, frame)],
        "actions": _actions(path_state),
        "finished": [_finished_frame_summary(frame) for frame in _newest_finished_frames(tree)],
        "blocked_actions": [
            {"kind": loop.kind, "calls": list(loop.shown), "times": loop.count, "frame": tree.active}
            for loop in active_loops(path_state, LoopRules().window)
        ],
        "planned": sum(frame.status is Status.PLANNED for frame in tree.frames.values()),
        "said": _last_assistant_words(path_state),
        "next": _next_step(path_state),
    }


def _path_frame(frame: Frame) -> PathFrame:
    criteria = cut_at_word(frame.criteria, MAX_LINE_LENGTH)
    says_more = frame.criteria.strip() != frame.title.strip()
    return {
        "frame": frame.id,
        "title": cut_at_word(frame.title, MAX_LINE_LENGTH),
        "status": str(frame.status),
        "criteria": criteria if says_more else "",
    }


def _actions(path_state: PathState) -> list[str]:
    executions = [
        execution
        for step in steps_of(path_state.entries[-RECENT_ENTRIES_LIMIT:])
        for execution in step.executions
        if execution.answered
    ]
    return [format_action(execution) for execution in executions[-MAX_ACTIONS:]]


def _newest_finished_frames(tree: Tree) -> Sequence[Frame]:
    ended = [frame for frame in tree.frames.values() if frame.status in RETURN_STATUSES and frame is not tree.root]
    return sorted(ended, key=lambda frame: (frame.updated_at, frame.order))[-MAX_FINISHED_FRAMES:]


def _finished_frame_summary(frame: Frame) -> FinishedFrameSummary:
    return {
        "frame": frame.id,
        "title": cut_at_word(frame.title, MAX_LINE_LENGTH),
        "status": str(frame.status),
        "results": cut_at_word(frame.results, MAX_LINE_LENGTH),
    }


def _last_assistant_words(path_state: PathState) -> str:
    messages = (path_entry.message for path_entry in reversed(path_state.entries))
    text = next((m.text for m in messages if m and m.role == "assistant" and m.text.strip()), "")
    return cut_at_word(remove_illegal_xml(text), MAX_QUOTE_LENGTH)


# ---------------------------------------------------------------------------------------------------------------- next
def _next_step(path_state: PathState) -> NextStep:
    tree = path_state.tree.as_shown
    if not tree.active:
        return {"frame": None, "title": None, "action": "Nothing was begun yet."}
    current, title = tree.active_frame, cut_at_word(tree.active_frame.title, MAX_LINE_LENGTH)
    if current.status in FINAL_STATUSES | RETURN_STATUSES:
        after = "" if current.parent else f" The user's next message {next_message_effect(current)}."
        return {
            "frame": None,
            "title": None,
            "action": f"Nothing: {title} is {current.status}.{after}",
        }
    if pending := list(_pending_client_calls(path_state)):
        return {"frame": None, "title": None, "action": f"The client's result of {', '.join(pending)}."}
    child = next(iter(planned_children(tree, current.id)), None)
    if child is not None:
        return _begin(child, f"Begin {cut_at_word(child.title, MAX_LINE_LENGTH)}, which is planned in {title}.")
    following = next_planned(current, frame_and_siblings(tree, current))
    if following is not None:
        return _begin(following, f"Finish {title}, then begin {cut_at_word(following.title, MAX_LINE_LENGTH)}.")
    return {"frame": None, "title": None, "action": f"Go on with {title}.".replace("….", "…")}


def _begin(frame: Frame, action: str) -> NextStep:
    return {"frame": frame.id, "title": cut_at_word(frame.title, MAX_LINE_LENGTH), "action": action}


def _pending_client_calls(path_state: PathState) -> Iterator[str]:
    answers = [
        path_entry
        for path_entry in path_state.entries[-RECENT_ENTRIES_LIMIT:]
        if (m := path_entry.message) and m.role == "assistant"
    ]
    newest = answers[-1].message if answers else None
    if newest is None:
        return
    states = call_states_of(path_state.entries[-RECENT_ENTRIES_LIMIT:])[message_position_of(answers[-1])]
    for call, state in zip(newest.calls, states, strict=True):
        if not call.is_stack_call and state in ("pending", "running"):
            yield cut_at_word(f"{call.name}({call.arguments})", MAX_LINE_LENGTH)
