"""The tree of frames as the page of a conversation shows it: each frame with one mark that says where its work is, the
tokens that it has in the request, and whether its branch is open."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from callstack_proxy.management.console.parts.icicle import lay_out
from callstack_proxy.management.unfold_targets import unfoldable_frames
from callstack_proxy.management.views import FrameState, tree_state_view
from proxy.core.frames import FINAL_STATUSES, RETURN_STATUSES, Frame, PathState, Status, children, is_kept
from proxy.core.ledger import Ledger
from proxy.core.observers import task_text_of

MAX_OPEN_FRAMES = 30
"""In a tree of more frames, branches that are finished are closed, but for the newest one."""
ORIGIN_WORDS = {
    "request": "a request of the user",
    "plan": "an item of the agent's plan",
    "subagent": "delegated to a subagent",
    "auto": "set apart by the proxy",
    "model": "begun by the model",
    "human": "begun by a person",
}


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One frame. `mark` is the word for where its work is. Of its own messages `tokens` are in the request and
    `own_tokens` are all; `cost` (USD) is of the requests made in it. `returns` is what a button beside it does: `ask`
    brings its work back, `hurry` brings back at once what would come later, empty for neither."""

    frame: Frame
    title: str
    state: FrameState
    active: bool
    mark: str
    tokens: int
    own_tokens: int
    cost: float
    origin: str
    returns: str
    is_open: bool
    children: Sequence[TreeRow]


def tree_rows(
    ledger: Ledger,
    path_state: PathState,
    tokens: Mapping[str, Mapping[str, int]],
    costs: Mapping[str, float],
    returning: Mapping[str, str] = MappingProxyType({}),
) -> list[TreeRow]:
    """The roots, in order of creation, each with what is below it. `tokens` are those of each frame's own messages by
    fate; `returning` is that of `ways_back`."""
    tree = path_state.tree.as_shown
    states = tree_state_view(ledger, path_state)["frames"]
    closes = len(tree.frames) > MAX_OPEN_FRAMES

    def rows(parent: str, *, is_newest: bool) -> list[TreeRow]:
        found = children(tree, parent)
        return [row(frame, is_newest=is_newest and frame is found[-1]) for frame in found]

    def row(frame: Frame, *, is_newest: bool) -> TreeRow:
        below = rows(frame.id, is_newest=is_newest)
        own = tokens.get(frame.id, {})
        returns = "kept" in states[frame.id]
        of_all = _sum([own, *(tokens.get(each.frame.id, {}) for each in _all(below))])
        return TreeRow(
            frame,
            long_title(frame),
            states[frame.id],
            tree.active == frame.id,
            mark_of(own if any(own.values()) else of_all, returns=returns)
            or _mark_without_work(frame, returning.get(frame.id, ""), has_worked=costs.get(frame.id, 0.0) > 0),
            sum(own.values()) - own.get("folded", 0),
            sum(own.values()),
            costs.get(frame.id, 0.0),
            ORIGIN_WORDS.get(frame.origin, ""),
            returning.get(frame.id, ""),
            not closes
            or is_newest
            or any(each.status not in FINAL_STATUSES for each in (frame, *(r.frame for r in _all(below)))),
            below,
        )

    return rows("", is_newest=True)


def ways_back(ledger: Ledger, path_state: PathState) -> Mapping[str, str]:
    """What can be done for each frame whose work is put away now, as in `TreeRow.returns`."""
    tree = path_state.tree
    found: dict[str, str] = {}
    for frame, holder in unfoldable_frames(ledger, path_state).items():
        if not is_kept(tree, frame):
            found[frame] = "ask"
        elif not tree.kept_frames.get(holder, False):
            found[frame] = "hurry"
    ended = [frame.id for frame in tree.as_shown.frames.values() if has_returned(frame)]
    return found | {frame: "ask" for frame in ended if not is_kept(tree, frame)}


def has_returned(frame: Frame) -> bool:
    """Whether its result alone stands in the context, and the model reads its work again with `stack_recall`."""
    return frame.status in RETURN_STATUSES and frame.opening is not None


def mark_of(tokens: Mapping[str, int], *, returns: bool) -> str:
    """Where the work is that has so many tokens by fate. `returns`: a person asked for it, and it comes back. Empty
    where there is none yet."""
    away = tokens.get("folded", 0)
    here = sum(tokens.values()) - away
    if away and returns:
        return "coming back"
    if away:
        return "partly put away" if here else "put away"
    if tokens.get("recalled") or (here and returns):
        return "brought back"
    return "in context" if here else ""


def _mark_without_work(frame: Frame, returns: str, *, has_worked: bool) -> str:
    """Of a frame that has no messages: none yet, or another frame has taken them over, with which they are put away or
    not. `has_worked`: requests were made in it."""
    if returns:
        return {"ask": "put away", "hurry": "coming back"}[returns]
    if has_worked:
        return "in another frame"
    return "" if frame.status is Status.PLANNED else "empty"


def tree_mark(ledger: Ledger, path_state: PathState, frame: str, *, has_worked: bool) -> str:
    """The mark that a frame has in the tree of its newest request. `has_worked`: requests were made in it."""
    costs = {frame: float(has_worked)}
    rows = tree_rows(ledger, path_state, lay_out(path_state, 1).by_frame, costs, ways_back(ledger, path_state))
    return next((row.mark for row in _all(rows) if row.frame.id == frame), "")


def long_title(frame: Frame) -> str:
    """The title of a frame; where it is the cut beginning of what the user asked for, more of that."""
    words = " ".join(task_text_of(frame.criteria).split())
    cut = frame.title.removesuffix("…")
    return words if cut != frame.title and words.startswith(cut) else frame.title


def _all(rows: Iterable[TreeRow]) -> Iterable[TreeRow]:
    for row in rows:
        yield row
        yield from _all(row.children)


def _sum(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for fate, tokens in each.items():
            total[fate] = total.get(fate, 0) + tokens
    return total
