"""Tools that record something on a frame: stack_frame_summarize, stack_add_artifact, stack_add_decision.

A summary changes neither the frame nor its context: it is stored, and replaces the work only when that leaves the
context. It keeps the model's words, up to `MAX_NOTE_TOKENS`, beside facts taken from the calls (files, commands,
decisions, errors). Artifacts and decisions are never edited; they appear in the frame's compaction and in the blocks of
later frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.core.compaction import REASON_SEPARATOR, SpanFacts, facts_of_span
from proxy.core.context import owner_of
from proxy.core.frames import (
    FINAL_STATUSES,
    RETURN_STATUSES,
    ArtifactAdded,
    DecisionAdded,
    Frame,
    InterimSummaryAdded,
    PathEntry,
    Status,
    children,
    decisions_in,
    frame_id_of,
)
from proxy.core.text import cut_for_display, remove_illegal_xml, truncate_to_tokens
from proxy.core.tools.base import (
    FRAME_SCHEMA,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
    frame_argument,
    object_schema,
    prose_argument,
    text_argument,
    text_schema,
)
from proxy.core.tools.branch_tools import answered_request_entry
from proxy.core.tools.inspect_tools import frame_named

MAX_NOTE_TOKENS = 600  # of the model's own words
CUT_MARKER = "[cut]"
MAX_SUMMARY_ITEMS = 40  # of one kind, the newest
MAX_ITEM_CHARACTERS = 200
NOTHING_TO_SUMMARIZE = (
    "Error: nothing was done in {frame} yet that could be summed up. Give a note, or go on and ask later."
)


def summarize_frame(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Store a summary of the active frame so far: the note, else the last assistant text, and the known facts."""
    frame = tool_context.tree.active_frame
    if frame.status in RETURN_STATUSES:
        raise ToolError(
            f"Error: frame {frame.id} is {frame.status}; only a frame that is being worked on is summed up."
        )
    entries = _frame_entries(tool_context, frame)
    facts = facts_of_span(tool_context.path_state, entries, tool_context.settings.tool_roles)
    text = remove_illegal_xml(prose_argument(arguments, "note", "summary")).strip() or _last_assistant_text(entries)
    if not text and not facts.steps:
        raise ToolError(NOTHING_TO_SUMMARIZE.format(frame=frame.id))
    summary = truncate_to_tokens(text, MAX_NOTE_TOKENS, tool_context.count_tokens, CUT_MARKER)
    event = InterimSummaryAdded(
        frame.id,
        answered_request_entry(tool_context),
        summary,
        "\n".join(_sections(tool_context, frame, summary, facts)),
    )
    return ToolResult(_result_text(frame, shortened=summary != text), (event,))


def _frame_entries(tool_context: ToolContext, frame: Frame) -> list[PathEntry]:
    """Entries of the frame before this turn, oldest first."""
    entries = (p for p in tool_context.path_state.entries if p.entry.id != tool_context.turn_id)
    return [p for p in entries if frame_id_of(owner_of(tool_context.path_state, p)) == frame.id]


def _last_assistant_text(path_entries: list[PathEntry]) -> str:
    texts = (m.text for p in reversed(path_entries) if (m := p.message) and m.role == "assistant")
    return next((remove_illegal_xml(text).strip() for text in texts if text.strip()), "")


def _sections(tool_context: ToolContext, frame: Frame, words: str, facts: SpanFacts) -> Iterator[str]:
    """Fixed sections; an empty one says so."""
    planned = [f"{f.title} ({f.id})" for f in children(tool_context.tree, frame.id) if f.status is Status.PLANNED]
    yield f"State: {words or 'none'}"
    for name, items in (
        ("Changed", facts.changed),
        ("Read", facts.read),
        ("Commands", facts.commands),
        ("Decisions", tuple(dict.fromkeys((*frame.decisions, *facts.decisions, *decisions_in(words))))),
        ("Errors", facts.errors),
        ("Next", planned),
    ):
        listed = [f"- {cut_for_display(item, MAX_ITEM_CHARACTERS)}" for item in items[-MAX_SUMMARY_ITEMS:]]
        yield "\n".join([f"{name}:", *listed]) if listed else f"{name}: none"


def _result_text(frame: Frame, *, shortened: bool) -> str:
    cut = f" Your note was cut to {MAX_NOTE_TOKENS} tokens." if shortened else ""
    return (
        f"A summary of {frame.label} up to this turn is kept.{cut} The frame goes on "
        "and your context stays as it is. When that work has to leave it, this summary stands for it, and stack_recall "
        "gives the rest back."
    )


SUMMARIZE = Tool(
    "stack_frame_summarize",
    "summarize",
    "Keep a summary of the current frame so far; it goes on.",
    object_schema(note={"type": "string", "description": "state, what is in flight, next, open questions"}),
    summarize_frame,
)


ARTIFACT_MISSING = "Error: artifact is missing. Name a file, a path or something else this frame made."
DECISION_MISSING = "Error: decision is missing. Say what was decided, and why."


def add_artifact(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Record an artifact, once."""
    artifact = text_argument(arguments, "artifact", "path", required=ARTIFACT_MISSING)
    frame = _target_frame(tool_context, arguments)
    if artifact in frame.artifacts:
        return ToolResult(f"{frame.id} lists {cut_for_display(artifact)} already.")
    return ToolResult(f"Noted on {frame.id}: {cut_for_display(artifact)}.", (ArtifactAdded(frame.id, artifact),))


def add_decision(tool_context: ToolContext, arguments: Mapping[str, Any]) -> ToolResult:
    """Record a decision with its reason. `supersedes` names an earlier decision of the frame, which is kept as
    ended."""
    decision = prose_argument(arguments, "decision", required=DECISION_MISSING)
    reason = prose_argument(arguments, "reason", "rationale")
    frame = _target_frame(tool_context, arguments)
    whole = f"{decision}{REASON_SEPARATOR}{reason})" if reason else decision
    if whole in frame.decisions:
        return ToolResult(f"{frame.id} has this decision already.")
    old = _superseded_decision(frame, text_argument(arguments, "supersedes"))
    instead = f" It takes the place of: {cut_for_display(old)}." if old else ""
    return ToolResult(
        f"Decision noted on {frame.id}: {cut_for_display(whole)}.{instead}", (DecisionAdded(frame.id, whole, old),)
    )


def _superseded_decision(frame: Frame, reference: str) -> str:
    """The decision of `frame` that has or contains this text; empty without a reference."""
    if not reference:
        return ""
    wanted = reference.casefold()
    matches = [d for d in frame.decisions if d.casefold() == wanted] or [
        d for d in frame.decisions if wanted in d.casefold()
    ]
    if len(matches) == 1:
        return matches[0]
    known = "; ".join(cut_for_display(d) for d in frame.decisions) or "none"
    problem = "more than one decision" if matches else "no decision"
    raise ToolError(f"Error: {problem} of {frame.id} is {reference[:80]!r}. Its decisions: {known}.")


def _target_frame(tool_context: ToolContext, arguments: Mapping[str, Any]) -> Frame:
    """The named frame, else the active one. Raises ToolError if it has ended."""
    reference = frame_argument(arguments)
    frame = frame_named(tool_context.tree, reference) if reference else tool_context.tree.active_frame
    if frame.status in FINAL_STATUSES:
        raise ToolError(f"Error: frame {frame.id} is {frame.status}; note it on an open frame.")
    return frame


ADD_ARTIFACT = Tool(
    "stack_add_artifact",
    "add_artifact",
    "Note a file or other thing the frame made.",
    object_schema("artifact", artifact=text_schema("a path, or what else was made"), frame=FRAME_SCHEMA),
    add_artifact,
)
ADD_DECISION = Tool(
    "stack_add_decision",
    "add_decision",
    "Note a decision and its reason.",
    object_schema(
        "decision",
        decision=text_schema("what was decided"),
        reason=text_schema("why"),
        supersedes=text_schema("the earlier decision of the frame that it replaces, or words of it"),
        frame=FRAME_SCHEMA,
    ),
    add_decision,
)
