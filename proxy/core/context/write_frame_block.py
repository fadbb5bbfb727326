"""The frame block: what a frame is told about the tree around it, as `<stack-context>` XML: the user's request
(the goal), ancestors, finished siblings with the `ref` that `stack_recall` takes, planned children and the next step.

A block is rendered once, on entry, and replayed byte for byte, so it holds no clock and the same state gives the same
bytes. To fit the budget, siblings are cut first, then the path, the parent, the current frame and the root. All text is
escaped, so quoted text cannot end an element.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from typing import Protocol

import msgspec
from msgspec.structs import replace

from proxy.core.context.relatives import FrameSurroundings, surroundings_of
from proxy.core.context.relevance import select_ancestors, select_siblings
from proxy.core.frames import Frame, Status, Tree, next_planned, ordered_siblings, position_of
from proxy.core.text import (
    TRUNCATION_MARKER,
    CountTokens,
    cut_for_display,
    element,
    escape_xml,
    join_shown,
    remove_illegal_xml,
    text_element,
    truncate_to_tokens,
)

RESULTS_SHARE = 0.7  # S1-59: of what one frame may take
DECISIONS_SHARE = 0.5  # S1-59: of the budget of the current frame
MIN_FRAME_TOKENS = 120
"""Minimum tokens of a frame: with a small budget fewer frames are shown, not unreadable ones."""
MAX_FRAME_TOKENS = 400
"""Maximum tokens of a frame; the rest is available through its ref."""
SIBLING_FILL_TARGET = 1_500
"""Finished siblings may fill the whole block up to so many tokens; budget beyond that is for the other parts."""
MIN_SIBLINGS_TOKENS = 600
"""Tokens that finished siblings may have even then."""
LINEAGE_SHARE = 0.2
"""Share of the total for the root and for the parent each, so that neither crowds out the current frame."""
PLAN_SHARE = 0.3
"""Share of the current frame's budget for its planned children."""
LATER_SHARE = 0.2
"""Share of the current frame's budget for what is planned beside it and beside the frames above it."""
OMITTED_DECISIONS = "[more decisions omitted]"  # S1-59
WRAPPER_TOKENS = 24
"""Tokens reserved for the tags around a list."""
MIN_ANCESTORS_WITH_MIDDLE = 3
"""With fewer ancestors there is none between the root and the parent."""
SESSION_ID_CHARACTERS = 8
"""Characters shown of the conversation id: enough to tell two apart; no tool takes it."""
INITIAL_PLANNING = (
    "A task of several distinct steps is easier with its steps laid out first (for example: find the cause; fix it; "
    "check it). A small task needs no plan."
)
"""True whenever it is read: the block stays in the context as it was written."""


SEVERAL_IN_PROGRESS_WARNING = (
    "More than one task of this level is in progress. Finish one before you go on with another:"
)


class BlockBudgets(Protocol):
    """Tokens for the block and its parts."""

    @property
    def total(self) -> int: ...
    @property
    def ancestors(self) -> int: ...
    @property
    def siblings(self) -> int: ...
    @property
    def current(self) -> int: ...


class BlockShares(msgspec.Struct, frozen=True):
    """Tokens that each part may take, in the order in which parts are cut."""

    siblings: int
    path: int
    parent: int
    current: int
    root: int


CUT_ORDER = ("siblings", "path", "parent", "current", "root")


class BlockParts(Protocol):
    """A rendered block: one attribute with the text of each part of `BlockShares`, and `to_xml` for all of it."""

    def to_xml(self, attributes: Mapping[str, str]) -> str: ...


class FlatBlockParts(msgspec.Struct, frozen=True):
    """`path` are the frames between root and parent. With `budgets` the block ends with the budgets and the numbers
    left out."""

    root: str
    path: str
    parent: str
    siblings: str
    current: str
    depth: int
    omitted_ancestors: int
    omitted_siblings: int
    budgets: BlockBudgets | None = None
    about: str = ""
    """An introduction, for a block about another conversation."""

    def to_xml(self, attributes: Mapping[str, str]) -> str:
        lineage = {"count": str(self.depth - self.omitted_ancestors), "omitted": str(self.omitted_ancestors)}
        above = element("ancestors", lineage, self.root, self.path, self.parent) if self.depth else ""
        return element(
            "stack-context", attributes, self.about, above, self.siblings, self.current, self._budget_metadata()
        )

    def _budget_metadata(self) -> str:
        if (given := self.budgets) is None:
            return ""
        named = {name: str(getattr(given, name)) for name in ("total", "ancestors", "siblings", "current")}
        cut = {"ancestors-omitted": str(self.omitted_ancestors), "siblings-filtered": str(self.omitted_siblings)}
        return element("metadata", {}, element("budget", named), element("truncation", cut))


def render_flat(  # noqa: PLR0913  a block is these facts and nothing else; each call site has them at hand
    tree: Tree,
    frame_id: str,
    *,
    nonce: str,
    now: int,
    budgets: BlockBudgets,
    count: CountTokens,
    session: str = "",
    figures: bool = False,
    in_view: Container[str] = frozenset(),
) -> str:
    """The block of a frame on entry. `tree` is the state just after the frame began; `now` is in ms. `figures` adds
    the budgets. `in_view` are finished frames of which the context tells already."""
    view = surroundings_of(tree, frame_id, now, in_view)
    count = cache(count)  # most texts are the same in every attempt to make it fit
    siblings = FinishedSiblings(view, count, _sibling_element)
    shown_budgets = budgets if figures else None
    return fit_budgets(
        lambda shares: replace(draw_flat_parts(view, shares, count, siblings, urge=True), budgets=shown_budgets),
        wrapper_attributes(session, frame_id, nonce),
        view,
        budgets,
        count,
    )


def wrapper_attributes(session: str, frame_id: str, nonce: str) -> dict[str, str]:
    """Attributes of the outermost element, the same in every form."""
    return {"session": session[:SESSION_ID_CHARACTERS], "frame": frame_id, "nonce": nonce}


def fit_budgets(
    draw: Callable[[BlockShares], BlockParts],
    wrapper: Mapping[str, str],
    view: FrameSurroundings,
    budgets: BlockBudgets,
    count: CountTokens,
) -> str:
    """Draw the block again with smaller shares until it fits the budgets."""
    required_count = min(2, max(1, len(view.lineage)))  # the root and the parent stand whatever the budget
    share = min(share_per_frame(budgets.ancestors, len(view.lineage)), int(budgets.total * LINEAGE_SHARE))
    share = min(share, max(1, (budgets.ancestors - WRAPPER_TOKENS) // required_count))
    shares = BlockShares(budgets.siblings, budgets.ancestors, share, budgets.current, share)
    block = draw(shares)
    cuts = [
        ("siblings", min(SIBLING_FILL_TARGET, budgets.total), MIN_SIBLINGS_TOKENS),
        *((name, budgets.total, 0) for name in CUT_ORDER),
    ]
    for name, limit, least in cuts:
        while (excess := count(block.to_xml(wrapper)) - limit) > 0 and getattr(shares, name) > least:
            used = min(getattr(shares, name), count(getattr(block, name)))
            shares = replace(shares, **{name: max(least, used - excess)})
            block = draw(shares)
    return block.to_xml(wrapper)


# --------------------------------------------------------------------------------------------------------------- parts
def draw_flat_parts(
    view: FrameSurroundings, shares: BlockShares, count: CountTokens, finished: FinishedSiblings | None, *, urge: bool
) -> FlatBlockParts:
    """The parts within these shares. `finished` is None to leave siblings out; `urge` adds position and next action."""
    path = shown_ancestors(view, shares, count, _ancestor_element)
    siblings = finished.fit(shares.siblings) if finished else {}
    hinted = next_planned(view.frame, view.frame_and_siblings) if urge and not view.planned_children else None
    later = [f for f in view.planned_beside_path if hinted is None or f.id != hinted.id]
    for_plan = int(shares.current * PLAN_SHARE) if view.planned_children else 0
    for_later = int(shares.current * LATER_SHARE) if later else 0
    current = [
        _current_frame_element(view.frame, shares.current, for_plan + for_later, count),
        *_planned_element("planned-children", view.planned_children, for_plan, count),
        *_planned_element("planned-later", later, for_later, count),
    ]
    if urge and shares.current:
        current += _next_step_hints(view)
    return FlatBlockParts(
        _ancestor_element(view.lineage[-1], shares.root, count) if view.lineage else "",
        "\n".join(path.values()),
        _ancestor_element(view.lineage[0], shares.parent, count) if len(view.lineage) > 1 and shares.parent else "",
        _siblings_element(view, siblings) if shares.siblings else "",
        "\n".join(current),
        len(view.lineage),
        len(view.lineage) - len(path) - min(len(view.lineage), 2 if shares.parent else 1),
        view.finished_count - len(siblings),
    )


def shown_ancestors(
    view: FrameSurroundings, shares: BlockShares, count: CountTokens, draw: Callable[[Frame, int, CountTokens], str]
) -> dict[str, str]:
    """Rendered frames between root and parent that fit, by id, upper ones first."""
    if len(view.lineage) < MIN_ANCESTORS_WITH_MIDDLE or not shares.path:
        return {}
    parent, *_ = lineage = view.lineage[:-1]
    share = share_per_frame(shares.path, len(view.lineage))
    texts = {f.id: draw(f, shares.parent if f is parent else share, count) for f in lineage}
    costs = {frame: count(text) for frame, text in texts.items()}
    room = shares.path - count(draw(view.lineage[-1], shares.root, count)) - WRAPPER_TOKENS
    chosen = select_ancestors(lineage, costs, view.ages_hours, room).chosen
    return {f.id: texts[f.id] for f in chosen if f is not parent}


class FinishedSiblings:
    """Renders finished siblings within a budget: each once per share, and only if its title fits, because a block is
    drawn several times and there may be a thousand."""

    def __init__(
        self,
        view: FrameSurroundings,
        count: CountTokens,
        draw: Callable[[FrameSurroundings, Frame, int, CountTokens], str],
    ) -> None:
        self._view, self._count = view, count
        self._ranked = {frame.id: frame for level in view.sibling_levels for frame in level}
        self._text = cache(lambda frame, share: draw(view, self._ranked[frame], share, count))

    def fit(self, budget: int) -> dict[str, str]:
        if not self._view.finished_count or not budget:
            return {}
        share = share_per_frame(budget, len(self._ranked))
        costs = _LazyCosts(lambda frame: self._count(self._text(frame, share)))
        chosen = select_siblings(self._view.sibling_levels, costs, budget - WRAPPER_TOKENS, self._minimum_tokens).chosen
        return {frame.id: self._text(frame.id, share) for frame in chosen}

    def _minimum_tokens(self, frame: Frame) -> int:
        return self._count(self._text(frame.id, 0))


class _LazyCosts(dict[str, int]):
    def __init__(self, cost: Callable[[str], int]) -> None:
        super().__init__()
        self._cost = cost

    def __missing__(self, frame: str) -> int:
        tokens = self[frame] = self._cost(frame)
        return tokens


def _ancestor_element(frame: Frame, share: int, count: CountTokens) -> str:
    return frame_element(frame, {"id": frame.id, "status": frame.status}, share, count)


def _sibling_element(view: FrameSurroundings, frame: Frame, share: int, count: CountTokens) -> str:
    attributes = sibling_attributes(view, frame)
    if view.child_counts[frame.id]:
        attributes["children"] = str(view.child_counts[frame.id])
    return frame_element(frame, attributes, share, count)


def sibling_attributes(view: FrameSurroundings, frame: Frame) -> dict[str, str]:
    """Attributes of a finished sibling: `ref` if `stack_recall` finds messages of it, else `id`."""
    return {"id" if frame.id in view.without_messages else "ref": frame.id, "status": frame.status}


def _siblings_element(view: FrameSurroundings, shown: Mapping[str, str]) -> str:
    if not view.finished_count:
        return ""
    counted = {"count": str(len(shown)), "filtered": str(view.finished_count - len(shown)), "told": "when each ended"}
    return element("completed-siblings", counted, *shown.values())


def _current_frame_element(frame: Frame, share: int, for_plan: int, count: CountTokens) -> str:
    """The current frame within `share`. Criteria and decisions get at most half each; the newest decisions stay."""
    attributes = {"id": frame.id, "status": frame.status}
    title = title_element(frame)
    left = share - count(element("current-frame", attributes, title)) - for_plan
    decisions = _decisions_element(frame.decisions, min(left, int(share * DECISIONS_SHARE)), count)
    left -= count(decisions)
    criteria = truncated_element("success-criteria", frame.criteria, min(left, int(share * DECISIONS_SHARE)), count)
    artifacts = artifacts_element(frame.artifacts, left - count(criteria), count)
    return element("current-frame", attributes, title, criteria, artifacts, decisions)


def _planned_element(name: str, planned: Sequence[Frame], budget: int, count: CountTokens) -> list[str]:
    """Planned frames with full ids, which `activate` takes."""
    if not planned or not budget:
        return []
    rows = [element("frame", {"id": f.id, "title": cut_for_display(f.title)}) for f in planned]
    kept = _count_fitting(rows, budget - WRAPPER_TOKENS, count)
    more = [f"+{len(rows) - kept} more"] if kept < len(rows) else []
    return [element(name, {"count": str(len(rows))}, *rows[:kept], *more)]


def _next_step_hints(view: FrameSurroundings) -> list[str]:
    position, of = position_of(view.frame, view.frame_and_siblings)
    hints = (
        [text_element("position", f"Task {position} of {of}"), *_sibling_statuses(view)] if of > 1 and position else []
    )
    next_sibling = next_planned(view.frame, view.frame_and_siblings)
    if view.planned_children:
        first = view.planned_children[0]
        hints.append(element("first-child", {"id": first.id, "title": cut_for_display(first.title)}))
        action = "" if first.is_inferred else f"Push the first planned child, {first.id}, by its title."
    elif next_sibling:
        hints.append(element("next-sibling", {"id": next_sibling.id, "title": cut_for_display(next_sibling.title)}))
        then = "." if next_sibling.is_inferred else f"; then push {next_sibling.id} by its title."
        action = f"When the criteria are met, pop with results{then}"
    elif not view.frame.parent:
        if not view.has_plan:
            hints.append(text_element("initial-planning", INITIAL_PLANNING, priority="HIGH"))
        action = "Plan the steps or work on; when the overall goal is reached, pop with results."
    else:
        action = "When the criteria are met, pop with results."
    if not action or view.frame.is_inferred:  # what the client's own list governs is neither popped nor activated
        return hints
    return [*hints, text_element("next-action", action)]


def _sibling_statuses(view: FrameSurroundings) -> list[str]:
    """Number of siblings by status, the frame included, and a warning if another one is active that is no subagent
    and no request, of which the user may give several at once."""
    family = ordered_siblings(view.frame_and_siblings)
    counted = Counter(f.status for f in family)
    labels = {"completed": Status.COMPLETED, "in-progress": Status.IN_PROGRESS, "pending": Status.PLANNED}
    status = element("sibling-status", {name: str(counted[frame_status]) for name, frame_status in labels.items()})
    open_beside = [
        f.label
        for f in family
        if f.status is Status.IN_PROGRESS and f.id != view.frame.id and f.origin not in ("subagent", "request")
    ]
    return (
        [status, text_element("warning", f"{SEVERAL_IN_PROGRESS_WARNING} {', '.join(open_beside)}.")]
        if open_beside
        else [status]
    )


# ------------------------------------------------------------------------------------------------------------ elements
def frame_element(
    frame: Frame, attributes: Mapping[str, str], share: int, count: CountTokens, name: str = "frame"
) -> str:
    """A frame within `share` tokens, or its title alone if no more fits."""
    bare = element(name, attributes, title_element(frame))
    room = share - count(bare) if share > 0 else 0
    return element(name, attributes, *frame_details(frame, room, share, count)) if room > 0 else bare


def title_element(frame: Frame) -> str:
    return text_element("title", cut_for_display(frame.title))


def frame_details(frame: Frame, left: int, share: int, count: CountTokens) -> tuple[str, ...]:
    """Title, criteria, results and artifacts in `left` of `share` tokens. Results get room first, artifacts last."""
    largest = int(share * RESULTS_SHARE)
    results = truncated_element("results", frame.results_compacted or frame.results, min(left, largest), count)
    left -= count(results)
    criteria = truncated_element(
        "success-criteria", frame.criteria_compacted or frame.criteria, min(left, largest), count
    )
    artifacts = artifacts_element(frame.artifacts, left - count(criteria), count)
    return (title_element(frame), criteria, results, artifacts)


def truncated_element(name: str, text: str, budget: int, count: CountTokens) -> str:
    """An element of at most `budget` tokens, `truncated` if it was cut; empty without text or room."""
    text = text.strip()
    whole = text_element(name, text)
    if not remove_illegal_xml(text) or count(whole) <= budget:
        return whole if remove_illegal_xml(text) else ""
    room = budget - count(text_element(name, "", truncated="true"))
    kept = truncate_to_tokens(text, room, lambda part: count(escape_xml(part)))
    return text_element(name, kept, truncated="true") if kept.removesuffix(TRUNCATION_MARKER) else ""


def artifacts_element(artifacts: Sequence[str], budget: int, count: CountTokens) -> str:
    if not artifacts:
        return ""
    kept = _count_fitting([f"{escape_xml(a)}, " for a in artifacts], budget - WRAPPER_TOKENS, count)
    listed = join_shown(artifacts[:kept], len(artifacts))
    return text_element("artifacts", listed) if budget > WRAPPER_TOKENS else ""


def _decisions_element(decisions: Sequence[str], budget: int, count: CountTokens) -> str:
    if not decisions or budget <= WRAPPER_TOKENS:
        return ""
    lines = [f"- {decision}" for decision in decisions]
    kept = _count_fitting([escape_xml(line) + "\n" for line in reversed(lines)], budget - WRAPPER_TOKENS, count)
    omitted = [OMITTED_DECISIONS] if kept < len(lines) else []
    return text_element("decisions", "\n".join([*omitted, *lines[len(lines) - kept :]]))


def _count_fitting(texts: Sequence[str], budget: int, count: CountTokens) -> int:
    for at, text in enumerate(texts):
        budget -= count(text) + 1  # one for the border between two of them
        if budget < 0:
            return at
    return len(texts)


def share_per_frame(budget: int, frames: int) -> int:
    return min(budget, MAX_FRAME_TOKENS, max(MIN_FRAME_TOKENS, budget // max(1, frames)))
