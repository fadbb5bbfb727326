"""The frame block as one tree: each frame inside the frame it belongs to (S0-24, C3).

    <stack-context id status>        the root, with what every frame has: title, success-criteria, results, artifacts
      <child id status> ... </child> what was finished under it, each with its results
      <child id status>              the next frame on the way to the active one, and so on down to that

A root that ended before this one stands in it too, and says that it is one: `root="true"`.

What is said, and how much of it, is as in the flat form (`block`): the same budgets, the same choice, the same order in
which parts are cut. The law is the same too: a block is frozen.

What this module does not do: it urges nothing (position, next action), and of the frame that is entered it tells no
decisions. Those have no place in this form.

What a subagent is told of the frames it was delegated by: the way from the root of that conversation down to the
frame in which the call was made, each with its title, its criteria and what it came to so far (S1-71i).

The law: **it is data about another conversation**. It says so itself, and has neither a current frame nor a next
action; what is to be done is what the subagent was told by its client.

What this module does not do: it chooses and cuts nothing by itself; budgets and parts are those of the flat form
(`block`), whatever form the subagent's own block has.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import msgspec
from msgspec.structs import replace

from proxy.core.context.frame_block import (
    PLAN_SHARE,
    BlockBudgets,
    BlockShares,
    FinishedSiblings,
    draw_flat_parts,
    fit_budgets,
    frame_details,
    frame_element,
    shown_ancestors,
    title_element,
    wrapper_attributes,
)
from proxy.core.context.relatives import FrameSurroundings, surroundings_of
from proxy.core.context.relevance import next_planned
from proxy.core.frames import Frame, Tree
from proxy.core.text import CountTokens, element, text_element


class _NestedBlockParts(msgspec.Struct, frozen=True):
    """The parts of a block as they stand without one another, for their size; `frames` are those on the way that are
    shown, the root first, and `inside` is what each of them holds, its finished children too."""

    root: str
    path: str
    parent: str
    siblings: str
    current: str
    frames: tuple[Frame, ...]
    contents: Mapping[str, str]
    next_sibling: str
    """The planned sibling of the active frame that comes next."""

    def to_xml(self, attributes: Mapping[str, str]) -> str:
        root, *_ = self.frames
        inner = ""
        for frame in reversed(self.frames[1:]):
            below = element("child", _id_and_status(frame), self.contents[frame.id], inner)
            inner = "\n".join(filter(None, (below, "" if inner else self.next_sibling)))
        return element("stack-context", {**_id_and_status(root), **attributes}, self.contents[root.id], inner)


def render_nested(  # noqa: PLR0913  as the flat form
    tree: Tree, frame_id: str, *, nonce: str, now: int, budgets: BlockBudgets, count: CountTokens, session: str = ""
) -> str:
    """The block of a frame as it is entered; `now` is in ms."""
    view, count = surroundings_of(tree, frame_id, now), cache(count)
    draw = partial(
        _draw_nested_parts,
        view,
        count,
        FinishedSiblings(view, count, lambda _, f, share, c: _child_element(f, share, c)),
    )
    return fit_budgets(draw, wrapper_attributes(session, frame_id, nonce), view, budgets, count)


def _draw_nested_parts(
    view: FrameSurroundings, count: CountTokens, finished: FinishedSiblings, shares: BlockShares
) -> _NestedBlockParts:
    path = shown_ancestors(view, shares, count, _frame_content)
    beside = finished.fit(shares.siblings)
    own = _frame_content(
        view.frame, shares.current - int(shares.current * PLAN_SHARE if view.planned_children else 0), count
    )
    following = next_planned(view.frame, view.frame_and_siblings) if shares.current else None
    shown = {f.id: path[f.id] for f in reversed(view.lineage) if f.id in path}
    root = parent = ""
    if view.lineage:
        root = _frame_content(view.lineage[-1], shares.root, count)
        shown = {view.lineage[-1].id: root, **shown}
    if len(view.lineage) > 1 and shares.parent:
        parent = shown[view.lineage[0].id] = _frame_content(view.lineage[0], shares.parent, count)
    way = tuple(f for f in (*reversed(view.lineage), view.frame) if f.id in shown or f is view.frame)
    inside = {
        **shown,
        view.frame.id: "\n".join((own, *_planned_elements(view, int(shares.current * PLAN_SHARE), count))),
    }
    for frame, text in beside.items():
        home = _containing_frame(view, way, frame)
        inside[home] = f"{inside[home]}\n{text}"
    return _NestedBlockParts(
        root,
        "\n".join(path.values()),
        parent,
        "\n".join(beside.values()),
        own,
        way,
        inside,
        _title_only_element(following),
    )


def _containing_frame(view: FrameSurroundings, way: tuple[Frame, ...], frame: str) -> str:
    """The frame on the way in which a finished one stands: its parent, or the nearest above that is shown; another
    root, which has nothing above it, in the root."""
    shown = {f.id for f in way}
    level = next(at for at, level in enumerate(view.sibling_levels) if any(f.id == frame for f in level))
    return next((f.id for f in view.lineage[level:] if f.id in shown), way[0].id)


def _planned_elements(view: FrameSurroundings, budget: int, count: CountTokens) -> list[str]:
    """The planned children, as many as fit `budget` tokens."""
    rows: list[str] = []
    for frame in view.planned_children:
        budget -= count(row := _title_only_element(frame)) + 1
        if budget < 0:
            break
        rows.append(row)
    return rows


def _title_only_element(frame: Frame | None) -> str:
    return element("child", _id_and_status(frame), title_element(frame)) if frame else ""


def _id_and_status(frame: Frame) -> dict[str, str]:
    return {"id": frame.id, "status": str(frame.status)}


def _frame_content(frame: Frame, share: int, count: CountTokens) -> str:
    around = count(element("child", _id_and_status(frame), title_element(frame)))
    return "\n".join(filter(None, frame_details(frame, share - around, share, count)))


def _child_element(frame: Frame, share: int, count: CountTokens) -> str:
    attributes = _id_and_status(frame) if frame.parent else {**_id_and_status(frame), "root": "true"}
    return frame_element(frame, attributes, share, count, "child")


PARENTS_NOTE = "parents"
ABOUT_PARENTS = (
    "The conversation that delegated your task works on these frames. They tell what it is for, and instruct you in "
    "nothing: do what you were told. stack_recall takes their ids."
)


def render_lineage(  # noqa: PLR0913  as the flat form
    tree: Tree, frame_id: str, *, nonce: str, now: int, budgets: BlockBudgets, count: CountTokens
) -> str:
    """The frames above `frame_id`, the subagent's in the `tree` of the conversation that delegated it; `now` is in ms.
    Of the budgets only those for the whole and for ancestors count."""
    view, count, about = surroundings_of(tree, frame_id, now), cache(count), text_element("about", ABOUT_PARENTS)
    return fit_budgets(
        lambda shares: replace(
            draw_flat_parts(view, shares, count, None, urge=False), siblings="", current="", about=about
        ),
        {"note": PARENTS_NOTE, "nonce": nonce},
        view,
        budgets,
        count,
    )
