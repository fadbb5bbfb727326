"""Decides whether to suggest a push or a pop to the model, and writes the suggestion. One suggestion of a kind is
pending at a time, and a suggestion is not repeated for the same frame and reason. Nothing is suggested where it would
be pointless: clients with their own plan divide the work by that, and the model cannot return from the root or from an
inferred frame."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.core.frames import (
    FINAL_STATUSES,
    MAX_CRITERION_CHARACTERS,
    POP,
    PUSH,
    RETURN_STATUSES,
    Status,
    Suggestion,
    SuggestionCounts,
    SuggestionState,
    Tree,
    children,
    path_to,
    title_of,
)
from proxy.core.observers import first_user_text
from proxy.core.policy.autonomy_rules import AutonomyRules
from proxy.core.policy.heuristics import AutonomyVerdict, judge, may_reach_threshold
from proxy.core.policy.signals import FrameSignals
from proxy.core.text import cut_for_display, element, escape_xml

DEFAULT_TOPIC = "the next step"
SUGGESTION_COMMENT = "<!-- Stack Autonomy Suggestions -->"


def make_suggestion(
    tree: Tree, signals: FrameSignals, rules: AutonomyRules, max_depth: int, now: int
) -> Suggestion | None:
    """The suggestion due at `now` (ms since the epoch), or None. A pop is preferred to a push."""
    for kind in (POP, PUSH):
        if reason_not_to_suggest(tree, kind, max_depth) or any(
            s.kind == kind and s.is_waiting(now) for s in tree.suggestion_state.history
        ):
            continue
        if not may_reach_threshold(kind, signals, rules):
            continue
        verdict = judge(kind, signals, rules)
        if verdict.is_reached:
            suggestion = _build_suggestion(tree, signals, verdict, is_in_context=rules.suggest_in_context)
            if _situation_of(suggestion) not in map(_situation_of, tree.suggestion_state.history):
                return suggestion
    return None


def reason_not_to_suggest(tree: Tree, kind: str, max_depth: int) -> str:
    """Why no push or pop may be suggested here, whatever its score; empty where one may."""
    if tree.root.status in RETURN_STATUSES:
        return "the root frame has ended"
    if kind == POP:
        if not tree.active_frame.parent:
            return "the active frame is the root"
        return "the proxy opened and ends the active frame by itself" if tree.active_frame.is_inferred else ""
    path = path_to(tree, tree.active)
    request = next((at for at, f in enumerate(path) if f.origin == "request"), 0)
    at_work = {f.id for f in path[request:]}  # behind the last item of its plan only the closing words are left
    if any(
        f.origin == "plan" and (f.status not in FINAL_STATUSES or f.parent in at_work) for f in tree.frames.values()
    ):
        return "the client's own plan divides the work"
    return f"{max_depth} frames are open already" if len(path) >= max_depth else ""


def push_title(tree: Tree, goal: str) -> str:
    """Title for a push: the new goal, the next planned frame, or a general phrase."""
    if goal:
        return title_of(first_user_text([goal], MAX_CRITERION_CHARACTERS))
    planned = (f.title for f in children(tree, tree.active) if f.status is Status.PLANNED)
    return next(planned, DEFAULT_TOPIC)


def suggestion_line(verdict: AutonomyVerdict, title: str) -> str:
    """The suggestion as one line. Quotes inside a title would end it early, so they are replaced."""
    what = cut_for_display(title).replace('"', "'")
    does = f'pushing a new frame for "{what}"'
    if verdict.kind == POP:
        does = f'popping the current frame "{what}" as {verdict.status}'
    return f"[STACK SUGGESTION: Consider {does} - Reason: {verdict.reason} ({verdict.confidence}% confidence)]"


def suggestion_note(suggestion: Suggestion, nonce: str) -> str:
    """The note for the model. The nonce keeps tool output from forging it."""
    around = {"note": "suggestion", "nonce": nonce}
    return element("stack-context", around, SUGGESTION_COMMENT, escape_xml(suggestion.text))


def pending_suggestions(state: SuggestionState, now: int) -> tuple[Suggestion, ...]:
    """Suggestions that have not expired, oldest first."""
    return tuple(each for each in state.history if each.is_waiting(now))


def tally_at(state: SuggestionState, now: int) -> SuggestionCounts:
    """The counts at `now`; expired suggestions count as ignored."""
    expired = sum(each.is_expired(now) and not each.cleared for each in state.history)
    return replace(state.counts, ignored=state.counts.ignored + expired)


def _build_suggestion(
    tree: Tree, signals: FrameSignals, verdict: AutonomyVerdict, *, is_in_context: bool
) -> Suggestion:
    title = push_title(tree, signals.goal) if verdict.kind == PUSH else tree.active_frame.title
    return Suggestion(
        kind=verdict.kind,
        frame=tree.active,
        confidence=verdict.confidence,
        heuristic=verdict.primary,
        reason=verdict.reason,
        text=suggestion_line(verdict, title),
        title=cut_for_display(title),
        status=verdict.status,
        in_context=is_in_context,
    )


def _situation_of(suggestion: Suggestion) -> tuple[str, ...]:
    return (suggestion.kind, suggestion.frame, suggestion.heuristic, suggestion.title, suggestion.status)
