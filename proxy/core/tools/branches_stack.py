"""The tools that branch: checkpoint, branch, switch, inject.

The law: **nothing turns in the middle of a turn**. A branch or a switch that the model asks for begins with the user's
next message; what is copied is the result of the call that asks for it, so it stands at the end of the line, once.

What this module does not do: it says what may be done nowhere (`branching` does); here is only how a model asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from proxy.core.frames.events import CheckpointSet
from proxy.core.tools.base import Desk, Mistake, Outcome, Tool, text_of
from proxy.core.tools.branches import branch_from, checkpoint_at, copied, copied_words, switch_to
from proxy.errors import NotAllowed

Run = Callable[[Desk, Mapping[str, Any]], Outcome]
BRANCH_MISSING = "Error: branch is missing: the name of the branch to go to; main is the line it all began on."
SOURCE_MISSING = "Error: branch is missing: the name of the branch to copy from."
CHOICE_MISSING = (
    "Error: say what to copy: messages (numbers such as 3 or [3, 4]), or frameID for what a frame returned."
)


def _told(run: Run) -> Run:
    """What is refused is a mistake of the model's, told as text."""

    @wraps(run)
    def answering(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
        try:
            return run(desk, arguments)
        except NotAllowed as refused:
            raise Mistake(f"Error: {refused}") from None

    return answering


@_told
def checkpoint(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Name the point before this turn's calls (S2-01)."""
    event = checkpoint_at(desk.story, desk.ledger, before(desk), text_of(arguments, "name"))
    return Outcome(
        f"Checkpoint {event.name} is set: the conversation up to this turn. A branch can begin there.", (event,)
    )


def before(desk: Desk) -> str:
    """The entry of the request that is being answered."""
    turn = desk.ledger.entries.get(desk.turn)
    return turn.parent if turn else desk.story.tip


def at_push(desk: Desk, frame: str) -> tuple[CheckpointSet, ...]:
    """The point before a frame is pushed, where the configuration wants one."""
    if not desk.settings.checkpoint_at_push:
        return ()
    return (checkpoint_at(desk.story, desk.ledger, before(desk), f"before-{frame}", automatic=True),)


@_told
def branch(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Begin a line at a checkpoint (S2-02)."""
    reason, point = text_of(arguments, "reason"), text_of(arguments, "checkpoint")
    event = branch_from(desk.story.lines, point, text_of(arguments, "name", "branch"), reason)
    return Outcome(
        f"Branch {event.line} begins at checkpoint {event.checkpoint} with the user's next message. It will know "
        "nothing of what was done since. Until then you are where you were: finish this turn.",
        (event,),
    )


@_told
def switch(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Go on with a line that was left (S2-03)."""
    event = switch_to(
        desk.story.lines, text_of(arguments, "branch", "name", required=BRANCH_MISSING), text_of(arguments, "reason")
    )
    return Outcome(f"The user's next message goes to {event.line}. Until then you are where you were.", (event,))


@_told
def inject(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Copy from another line (S2-04)."""
    source = text_of(arguments, "branch", required=SOURCE_MISSING)
    frame = text_of(arguments, "frameID", "frame_id", "frame")
    texts = copied(desk.story, source, _numbers(arguments), frame)
    return Outcome(copied_words(source, texts, desk.nonce))


def _numbers(arguments: Mapping[str, Any]) -> list[int]:
    """Message numbers as models write them: 3, "3", [3, "4"]."""
    given = arguments.get("messages", arguments.get("message"))
    found: list[int] = []
    for each in given if isinstance(given, list) else [] if given is None else [given]:
        if isinstance(each, bool) or not str(each).strip().isdecimal() or len(str(each)) > len("1000000"):
            raise Mistake(CHOICE_MISSING)
        found.append(int(each))
    return found


_STRING = {"type": "string"}
CHECKPOINT = Tool(
    "stack_checkpoint",
    "checkpoint",
    "Name this point of the conversation, so that a branch can begin here.",
    {"type": "object", "properties": {"name": _STRING}},
    checkpoint,
    listed=False,
)
BRANCH = Tool(
    "stack_branch",
    "branch",
    "Begin a new line of work at a checkpoint, with the user's next message; it knows nothing of what came after.",
    {"type": "object", "properties": {"checkpoint": _STRING, "name": _STRING}},
    branch,
    listed=False,
)
SWITCH = Tool(
    "stack_switch",
    "switch",
    "Go on with another branch (main is the first), with the user's next message.",
    {"type": "object", "properties": {"branch": _STRING}, "required": ["branch"]},
    switch,
    listed=False,
)
INJECT = Tool(
    "stack_inject",
    "inject",
    "Copy messages of another branch, by number, or what a frame of it returned.",
    {
        "type": "object",
        "properties": {
            "branch": _STRING,
            "messages": {"type": "array", "items": {"type": "integer"}},
            "frameID": _STRING,
        },
        "required": ["branch"],
    },
    inject,
    listed=False,
)
TOOLS = (CHECKPOINT, BRANCH, SWITCH, INJECT)
