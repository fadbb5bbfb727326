"""The tool that ends a subagent before its result comes (S1-120).

    stack_subagent_complete     as completed, failed or blocked, with a summary

In the conversation that delegated the work it ends the frame that stands for it there; in a subagent's own
conversation, where no other one is named, that itself: its root is popped. The laws: **a subagent ends once** (by its
result, by this, or by the client going on without it), and **nothing leaves a line by it**: what a subagent does stands
in a conversation of its own. Who ends it by hand, through the API, is refused in the same words.

What this module does not do: it stops nobody; a subagent that is still at work goes on, and a further message to it
begins another root.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.core.frames.events import Popped
from proxy.core.frames.frames import RETURNED, Frame, Status, Tree, find
from proxy.core.text import clean, cut_for_display
from proxy.core.tools.base import Desk, Mistake, Outcome, Tool, text_of
from proxy.core.tools.frames import pop

SUBAGENT = "subagent"
UNTOLD = "Ended before its result came."
"""The results of a subagent that was ended without a word."""
KEPT = 4_000
"""Characters of a summary that are kept."""
COMPACTED = 350
LISTED = 20


def complete(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """End the frame of a subagent of this conversation, or this one, where it is a subagent's own."""
    reference = text_of(arguments, "sessionID", "frameID", "frame_id", "frame")
    status, summary = text_of(arguments, "status"), text_of(arguments, "summary", "results")
    if desk.ledger.conversation.parent and reference in ("", desk.tree.root.id, desk.ledger.conversation.id):
        return pop(desk, {"frameID": desk.tree.root.id, "status": status, "results": summary or UNTOLD})
    frame = tracked(desk.tree, reference)
    event = ended(frame, status, summary)
    told = f"Subagent {frame.id} ({cut_for_display(frame.title)}) is {event.status}. A result that still comes is yours"
    return Outcome(f"{told} to read, and changes this no more.", (event,))


def tracked(tree: Tree, reference: str) -> Frame:
    """The subagent that is meant: by frame, title or conversation; without a word the only one at work."""
    known = [f for f in tree.frames.values() if f.origin == SUBAGENT]
    at_work = [f for f in known if f.status not in RETURNED]
    if not reference:
        if len(at_work) == 1:
            return at_work[0]
        which = "Say which by sessionID." if at_work else "None is at work."
        raise Mistake(f"Error: sessionID is missing. {which} {_listed(known)}")
    frame = find(tree, reference) or next((f for f in known if f.conversation == reference), None)
    if frame is None or frame not in known:
        raise Mistake(
            f"Error: {reference[:80]!r} is not tracked: it is no subagent of this conversation. {_listed(known)} "
            "A frame of yours ends with stack_frame_pop."
        )
    return frame


def ended(frame: Frame, status: str, summary: str) -> Popped:
    """The end of a subagent's frame. Raises Mistake where it has ended, or cannot end so."""
    if frame.status is not Status.IN_PROGRESS:
        raise Mistake(f"Error: subagent {frame.id} is already {frame.status}; it ends once.")
    wanted = status or Status.COMPLETED
    if wanted not in RETURNED:
        raise Mistake(f"Error: status {wanted[:40]!r} is none of {', '.join(sorted(RETURNED))}.")
    results = clean(summary).strip()[:KEPT] or UNTOLD
    return Popped(frame.id, Status(wanted), results, cut_for_display(results, COMPACTED))


def _listed(known: list[Frame]) -> str:
    if not known:
        return "No subagent is tracked here."
    named = (f"{f.id} {cut_for_display(f.title)} ({f.status})" for f in known[-LISTED:])
    return f"Tracked: {'; '.join(named)}."


TOOLS = (
    Tool(
        "stack_subagent_complete",
        "subagent_complete",
        "End the frame of a subagent before its result comes.",
        {
            "type": "object",
            "properties": {
                "sessionID": {"type": "string", "description": "its frame; default: the only one at work"},
                "status": {"type": "string", "enum": sorted(RETURNED)},
                "summary": {"type": "string"},
            },
        },
        complete,
        listed=False,
    ),
)
