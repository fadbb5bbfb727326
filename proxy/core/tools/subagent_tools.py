"""The tools that tell of the subagents of a conversation: which there are, and what became of them (S1-119, S1-121).

    stack_subagent_list     all, active, completed, with or without a frame; the newest first
    stack_stats             counted, with rates; who is at work

The law: **counted is what the tree says**, so it is the same after a restart and on every path. What a whole tenant's
clients delegated, and counting anew, is for people: `/stack/subagents`.

The tool that ends a subagent before its result comes (S1-120).

    stack_subagent_complete     as completed, failed or blocked, with a summary

In the conversation that delegated the work it ends the frame that stands for it there; in a subagent's own
conversation, where no other one is named, that itself: its root is popped. The laws: **a subagent ends once** (by its
result, by this, or by the client going on without it), and **nothing leaves a line by it**: what a subagent does stands
in a conversation of its own. Who ends it by hand, through the API, is refused in the same words.

What this module does not do: it stops nobody; a subagent that is still at work goes on, and a further message to it
begins another root.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.core.frames.events import Popped, read_event
from proxy.core.frames.tree import RETURNED, Frame, Status, Tree, find
from proxy.core.ledger.ledger import Ledger
from proxy.core.text import clean, cut_for_display, format_duration
from proxy.core.tools.base import Desk, Mistake, Outcome, Tool, flag_of, text_of
from proxy.core.tools.frame_tools import pop

SUBAGENT = "subagent"
UNTOLD = "Ended before its result came."
"""The results of a subagent that was ended without a word."""
KEPT = 4_000
"""Characters of a summary that are kept."""
COMPACTED = 350
NAMES_LISTED = 20


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
    named = (f"{f.id} {cut_for_display(f.title)} ({f.status})" for f in known[-NAMES_LISTED:])
    return f"Tracked: {'; '.join(named)}."


COMPLETE_TOOLS = (
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


TITLE = 30
"""Characters of a title in the list (S1-121)."""
LISTED = 50
FILTERS = ("all", "active", "completed", "with-frame", "without-frame")


# --------------------------------------------------------------------------------------------------------------- count
class Counts(msgspec.Struct, frozen=True):
    """Of conversations that others began: `detected` all of them, `framed` those with a frame, `skipped` those too
    short for one, `by_result` frames that the result of their call ended, or silence, `by_hand` those ended by somebody
    (S1-71g)."""

    detected: int = 0
    framed: int = 0
    skipped: int = 0
    by_result: int = 0
    by_hand: int = 0

    def rates(self) -> Mapping[str, float]:
        """In percent, with one decimal: of those detected, and of the frames."""
        return {
            "framed": _percent(self.framed, self.detected),
            "skipped": _percent(self.skipped, self.detected),
            "completed": _percent(self.by_result + self.by_hand, self.framed),
        }


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0


def subagents_of(tree: Tree) -> list[Frame]:
    """Frames that stand for a subagent's work; that with the newest activity first."""
    return sorted((f for f in tree.frames.values() if f.origin == SUBAGENT), key=lambda f: (-f.updated_at, -f.order))


def counts_of(ledger: Ledger, frames: Sequence[Frame]) -> Counts:
    """Of the subagents' frames of a conversation."""
    ended = [frame for frame in frames if frame.status in RETURNED]
    by_result = sum(ended_by_result(ledger, frame) for frame in ended)
    return Counts(len(frames), len(frames), 0, by_result, len(ended) - by_result)


def ended_by_result(ledger: Ledger, frame: Frame) -> bool:
    """Whether the result of its call ended it: then that is the message its end hangs on. Without a call silence does,
    at the moment it is made."""
    for entry, events in ledger.events.items():
        for event in events:
            if event.kind == "popped" and event.subject.partition("/")[0] == frame.id:
                ended, message = read_event(event), ledger.entries[entry].message
                if isinstance(ended, Popped) and ended.status is frame.status:
                    if not frame.key:
                        return event.created == frame.created_at
                    return message is not None and message.answers == frame.key
    return False


# ---------------------------------------------------------------------------------------------------------------- list
def subagent_list(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """The subagents of this conversation (S1-121)."""
    chosen = text_of(arguments, "filter") or FILTERS[0]
    if chosen not in FILTERS:
        raise Mistake(f"Error: filter {chosen[:40]!r} is none of {', '.join(FILTERS)}.")
    frames = [frame for frame in subagents_of(desk.tree) if fits(chosen, ended=frame.status in RETURNED, framed=True)]
    lines = [_line(frame, desk.now) for frame in frames[:LISTED]]
    more = [f"and {len(frames) - LISTED} older ones"] if len(frames) > LISTED else []
    return Outcome("\n".join([f"Subagents ({chosen}): {len(frames)}", *lines, *more]))


def fits(chosen: str, *, ended: bool, framed: bool) -> bool:
    """Whether a subagent is among those that a filter names."""
    return {"active": not ended, "completed": ended, "with-frame": framed, "without-frame": not framed}.get(
        chosen, True
    )


def _line(frame: Frame, now: int) -> str:
    ago = format_duration(max(0, now - frame.updated_at))
    return f"- {frame.id} {cut_for_display(frame.title, TITLE)}: {frame.status}, last active {ago} ago"


# --------------------------------------------------------------------------------------------------------------- stats
def stats(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """The subagents of this conversation, counted (S1-119)."""
    if flag_of(arguments, "reset"):
        raise Mistake("Error: only a person counts anew: POST /stack/subagents/reset. Call it without reset to read.")
    frames = subagents_of(desk.tree)
    return Outcome("\n".join(_stats(desk, frames, active=flag_of(arguments, "showActive", default=True))))


def _stats(desk: Desk, frames: Sequence[Frame], *, active: bool) -> Iterator[str]:
    counts = counts_of(desk.ledger, frames)
    yield f"Subagents with a frame: {counts.framed}"
    yield f"Ended by their result: {counts.by_result}; ended by hand: {counts.by_hand}"
    yield f"Completed: {counts.rates()['completed']:.1f} %"
    at_work = [frame for frame in frames if frame.status not in RETURNED]
    if active:
        yield f"At work: {len(at_work)}"
        yield from (_line(frame, desk.now) for frame in at_work[:LISTED])


TOOLS = (
    Tool(
        "stack_stats",
        "stats",
        "Subagents of this conversation, counted.",
        {"type": "object", "properties": {"reset": {"type": "boolean"}, "showActive": {"type": "boolean"}}},
        stats,
        listed=False,
    ),
    Tool(
        "stack_subagent_list",
        "subagent_list",
        "The subagents of this conversation.",
        {"type": "object", "properties": {"filter": {"type": "string", "enum": list(FILTERS)}}},
        subagent_list,
        listed=False,
    ),
)
