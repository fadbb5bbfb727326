"""The tool that sums up the active frame while it goes on (S1-65, S1-115).

    stack_frame_summarize     what stands so far gets a summary, which is kept

The laws: **the frame stays active and its line as it is**: the summary is kept beside the work, and told in its place
only when that leaves the line, with the next request that finds nothing of it cached or the window nearly full. And
**the model's words stay whole**, within `WORDS` tokens; what is known exactly of the work (files, commands, decisions,
errors) is written beside them from the calls, for people, and told anew in the trace.

What this module does not do: it takes nothing off a line (`folding` does), and it asks no model.

The tools that note something on a frame: an artifact it made, a decision it took.

The law: **notes are kept, never changed**. An artifact is listed once; a decision stands with its reason. They travel
with the frame: into its compaction, and into the blocks of the frames after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.core.compaction.facts import BECAUSE, facts_of
from proxy.core.compaction.trace import Facts
from proxy.core.context.message_list import owner_of
from proxy.core.frames.events import ArtifactAdded, Decided, InterimSummary
from proxy.core.frames.path_state import Placed
from proxy.core.frames.tree import FINAL, RETURNED, Frame, Status, children
from proxy.core.observers.step import said_by
from proxy.core.text import clean, cut_for_display, truncate_to_tokens
from proxy.core.tools.base import Desk, Mistake, Outcome, Tool, text_of
from proxy.core.tools.branch_tools import before
from proxy.core.tools.inspect_tools import frame_named

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


ARTIFACT_MISSING = "Error: artifact is missing. Name a file, a path or something else this frame made."
DECISION_MISSING = "Error: decision is missing. Say what was decided, and why."


def add_artifact(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Note what the frame made; twice is once (S1-110)."""
    artifact = text_of(arguments, "artifact", "path", required=ARTIFACT_MISSING)
    frame = _noted_on(desk, arguments)
    if artifact in frame.artifacts:
        return Outcome(f"{frame.id} lists {cut_for_display(artifact)} already.")
    return Outcome(f"Noted on {frame.id}: {cut_for_display(artifact)}.", (ArtifactAdded(frame.id, artifact),))


def add_decision(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Note what was decided, with the reason where one is given (S1-111). With `supersedes` it takes the place of an
    earlier decision of the frame, which is kept with its end (S2-26)."""
    decision = text_of(arguments, "decision", required=DECISION_MISSING)
    reason = text_of(arguments, "reason", "rationale")
    frame = _noted_on(desk, arguments)
    whole = f"{decision}{BECAUSE}{reason})" if reason else decision
    if whole in frame.decisions:
        return Outcome(f"{frame.id} has this decision already.")
    old = _superseded(frame, text_of(arguments, "supersedes"))
    instead = f" It takes the place of: {cut_for_display(old)}." if old else ""
    return Outcome(
        f"Decision noted on {frame.id}: {cut_for_display(whole)}.{instead}", (Decided(frame.id, whole, old),)
    )


def _superseded(frame: Frame, reference: str) -> str:
    """The decision of `frame` that is meant, by its words or some of them; empty where none is."""
    if not reference:
        return ""
    wanted = reference.casefold()
    found = [d for d in frame.decisions if d.casefold() == wanted] or [
        d for d in frame.decisions if wanted in d.casefold()
    ]
    if len(found) == 1:
        return found[0]
    known = "; ".join(cut_for_display(d) for d in frame.decisions) or "none"
    which = "more than one decision" if found else "no decision"
    raise Mistake(f"Error: {which} of {frame.id} is {reference[:80]!r}. Its decisions: {known}.")


def _noted_on(desk: Desk, arguments: Mapping[str, Any]) -> Frame:
    """The frame that is named, else the active one; what ended takes no more notes."""
    reference = text_of(arguments, "frameID", "frame_id")
    frame = frame_named(desk.tree, reference) if reference else desk.tree.current
    if frame.status in FINAL:
        raise Mistake(f"Error: frame {frame.id} is {frame.status}; note it on an open frame.")
    return frame


_STRING = {"type": "string"}
ADD_ARTIFACT = Tool(
    "stack_add_artifact",
    "add_artifact",
    "Note a file or other thing the frame made.",
    {"type": "object", "properties": {"artifact": _STRING}, "required": ["artifact"]},
    add_artifact,
)
ADD_DECISION = Tool(
    "stack_add_decision",
    "add_decision",
    "Note a decision and its reason.",
    {"type": "object", "properties": {"decision": _STRING, "reason": _STRING}, "required": ["decision"]},
    add_decision,
)
RECORD_TOOLS = (ADD_ARTIFACT, ADD_DECISION)
