"""The tools that note something on a frame: an artifact it made, a decision it took.

The law: **notes are kept, never changed**. An artifact is listed once; a decision stands with its reason. They travel
with the frame: into its compaction, and into the blocks of the frames after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.core.compaction.facts import BECAUSE
from proxy.core.frames.events import ArtifactAdded, Decided
from proxy.core.frames.frames import FINAL, Frame
from proxy.core.text import cut_for_display
from proxy.core.tools.base import Desk, Mistake, Outcome, Tool, text_of
from proxy.core.tools.inspect import frame_named

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
TOOLS = (ADD_ARTIFACT, ADD_DECISION)
