"""The tool that sums up the active frame while it goes on (S1-65, S1-115).

    stack_frame_summarize     what stands so far gets a summary, which is kept

The laws: **the frame stays active and its line as it is**: the summary is kept beside the work, and told in its place
only when that leaves the line, with the next request that finds nothing of it cached or the window nearly full. And
**the model's words stay whole**, within `WORDS` tokens; what is known exactly of the work (files, commands, decisions,
errors) is written beside them from the calls, for people, and told anew in the trace.

What this module does not do: it takes nothing off a line (`folding` does), and it asks no model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.core.compaction.facts import facts_of
from proxy.core.compaction.trace import Facts
from proxy.core.context.line import owner_of
from proxy.core.frames.events import InterimSummary
from proxy.core.frames.frames import RETURNED, Frame, Status, children
from proxy.core.frames.path_state import Placed
from proxy.core.observers.step import said_by
from proxy.core.text import clean, cut_for_display, truncate_to_tokens
from proxy.core.tools.base import Desk, Mistake, Outcome, Tool, text_of
from proxy.core.tools.branches_stack import before

WORDS = 600
"""Tokens of the model's own words that are kept."""
CUT = "[cut]"
LISTED = 40
"""Items of one kind that a summary lists, the newest."""
ITEM = 200
"""Characters of one of them."""
NOTHING = "Error: nothing was done in {frame} yet that could be summed up. Give a note, or go on and ask later."


def summarize(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Keep a summary of what the active frame did so far: the note, else what was said last, and what is known."""
    frame = desk.tree.current
    if frame.status in RETURNED:
        raise Mistake(f"Error: frame {frame.id} is {frame.status}; only a frame that is being worked on is summed up.")
    own = _own(desk, frame)
    facts = facts_of(own, desk.settings.names)
    words = clean(text_of(arguments, "note", "summary")).strip() or _last_said(own)
    if not words and not facts.steps:
        raise Mistake(NOTHING.format(frame=frame.id))
    kept = truncate_to_tokens(words, WORDS, desk.count, CUT)
    event = InterimSummary(frame.id, before(desk), kept, "\n".join(_sections(desk, frame, kept, facts)))
    return Outcome(_told(frame, shortened=kept != words), (event,))


def _own(desk: Desk, frame: Frame) -> list[Placed]:
    """What the frame did up to this turn, oldest first."""
    mine = (p for p in desk.story.placed if p.entry.id != desk.turn)
    return [p for p in mine if owner_of(desk.story, p).partition("#")[0] == frame.id]


def _last_said(own: list[Placed]) -> str:
    said = (m.text for p in reversed(own) if (m := said_by(p)) and m.role == "assistant")
    return next((clean(text).strip() for text in said if text.strip()), "")


def _sections(desk: Desk, frame: Frame, words: str, facts: Facts) -> Iterator[str]:
    """Fixed sections; one without content says so (S1-68, C11)."""
    planned = [f"{f.title} ({f.id})" for f in children(desk.tree, frame.id) if f.status is Status.PLANNED]
    yield f"State: {words or 'none'}"
    for name, items in (
        ("Changed", facts.changed),
        ("Read", facts.read),
        ("Commands", facts.commands),
        ("Decisions", tuple(dict.fromkeys((*frame.decisions, *facts.decisions)))),
        ("Errors", facts.errors),
        ("Next", planned),
    ):
        listed = [f"- {cut_for_display(item, ITEM)}" for item in items[-LISTED:]]
        yield "\n".join([f"{name}:", *listed]) if listed else f"{name}: none"


def _told(frame: Frame, *, shortened: bool) -> str:
    cut = f" Your note was cut to {WORDS} tokens." if shortened else ""
    return (
        f"A summary of {frame.id} ({cut_for_display(frame.title)}) up to this turn is kept.{cut} The frame goes on "
        "and your context stays as it is. When that work has to leave it, this summary stands for it, and stack_recall "
        "gives the rest back."
    )


TOOLS = (
    Tool(
        "stack_frame_summarize",
        "summarize",
        "Keep a summary of the current frame so far; it goes on.",
        {
            "type": "object",
            "properties": {"note": {"type": "string", "description": "state, what is in flight, next, open questions"}},
        },
        summarize,
        listed=False,
    ),
)
