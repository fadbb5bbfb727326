"""Whether a push or a pop is suggested to the model, and in which words (S1-92 to S1-95).

The laws: **one suggestion of a kind waits at a time**, and **what was told once is not told again** while the situation
is the same: the same frame, for the same reason. A suggestion that nobody follows was not wanted.

Where it would be pointless, nothing is suggested: a client that keeps a plan of its own divides the work by that, the
root and what the proxy saw by itself are no frames the model could return from.

What this module does not do: it takes no word off a line. That a suggestion has expired is no edit; its words stay.
"""

from __future__ import annotations

from msgspec.structs import replace

from proxy.core.frames.results import CRITERION, title_of
from proxy.core.frames.suggestion_log import POP, PUSH, Advice, Suggestion, Tally
from proxy.core.frames.tree import FINAL, RETURNED, Status, Tree, children, path_to
from proxy.core.observers.turns import first_said
from proxy.core.policy.autonomy_rules import Autonomy
from proxy.core.policy.scoring import Verdict, judged, may_be_reached
from proxy.core.policy.signals import Signals
from proxy.core.text import cut_for_display, element, escape_xml

NEXT = "the next step"
COMMENT = "<!-- Stack Autonomy Suggestions -->"


def suggestion(tree: Tree, seen: Signals, rules: Autonomy, max_depth: int, now: int) -> Suggestion | None:
    """What is to be suggested at `now` (ms), or None. A pop goes before a push: what is done is ended first."""
    for kind in (POP, PUSH):
        if pointless(tree, kind, max_depth) or any(s.kind == kind and s.waits(now) for s in tree.advice.history):
            continue
        if not may_be_reached(kind, seen, rules):
            continue
        verdict = judged(kind, seen, rules)
        if verdict.reached:
            made = _made(tree, seen, verdict, told=rules.suggest_in_context)
            if not _known(tree.advice, made):
                return made
    return None


def pointless(tree: Tree, kind: str, max_depth: int) -> str:
    """Why a push or a pop is not to be suggested here, whatever speaks for it; empty where it may be."""
    if tree.root.status in RETURNED:
        return "the root frame has ended"
    if kind == POP:
        if not tree.current.parent:
            return "the active frame is the root"
        return "the proxy opened and ends the active frame by itself" if tree.current.is_inferred else ""
    if any(f.origin == "plan" and f.status not in FINAL for f in tree.frames.values()):
        return "the client's own plan divides the work"
    return f"{max_depth} frames are open already" if len(path_to(tree, tree.active)) >= max_depth else ""


def topic(tree: Tree, goal: str) -> str:
    """What a push would be for: the new goal, the next frame that is planned, or what comes next."""
    if goal:
        return title_of(first_said([goal], CRITERION))
    planned = (f.title for f in children(tree, tree.active) if f.status is Status.PLANNED)
    return next(planned, NEXT)


def line(verdict: Verdict, title: str) -> str:
    """The suggestion as one line (S1-94). Quotes inside a title would end it early."""
    what = cut_for_display(title).replace('"', "'")
    does = f'pushing a new frame for "{what}"'
    if verdict.kind == POP:
        does = f'popping the current frame "{what}" as {verdict.status}'
    return f"[STACK SUGGESTION: Consider {does} - Reason: {verdict.reason} ({verdict.confidence}% confidence)]"


def words(made: Suggestion, nonce: str) -> str:
    """What the model is told. No text of a tool can forge it, for none knows the nonce."""
    # Inside an element quotes are no markup, and the line is to be read as it was made.
    text = escape_xml(made.text).replace("&quot;", '"').replace("&apos;", "'")
    return element("stack-context", {"note": "suggestion", "nonce": nonce}, COMMENT, text)


def waiting(advice: Advice, now: int) -> tuple[Suggestion, ...]:
    """The suggestions that somebody may still act upon, oldest first."""
    return tuple(each for each in advice.history if each.waits(now))


def stats(advice: Advice, now: int) -> Tally:
    """The counts, what expired by now among the ignored ones (S1-95)."""
    expired = sum(each.expired(now) and not each.cleared for each in advice.history)
    return replace(advice.tally, ignored=advice.tally.ignored + expired)


def _made(tree: Tree, seen: Signals, verdict: Verdict, *, told: bool) -> Suggestion:
    title = topic(tree, seen.goal) if verdict.kind == PUSH else tree.current.title
    return Suggestion(
        kind=verdict.kind,
        frame=tree.active,
        confidence=verdict.confidence,
        heuristic=verdict.primary,
        reason=verdict.reason,
        text=line(verdict, title),
        title=cut_for_display(title),
        status=verdict.status,
        told=told,
    )


def _known(advice: Advice, made: Suggestion) -> bool:
    """Whether it was suggested before in the same situation."""
    return any(_situation(each) == _situation(made) for each in advice.history)


def _situation(each: Suggestion) -> tuple[str, ...]:
    return (each.kind, each.frame, each.heuristic, each.title, each.status)
