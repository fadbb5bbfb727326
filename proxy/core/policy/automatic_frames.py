"""Frames that the proxy opens and ends by itself (level `auto`, S1-83).

Such a frame is inferred as those of a plan or a request are: it takes nothing off the line, and folds when it has
ended and that pays. It stands where requests and plans stand; inside a frame that the model pushed the model divides
its work, and is only told. A second one follows the first, it does not nest: what is long goes on in parts.

The law: **only at rest**. Every call has its result, so no call group is cut through, and **only what was opened here
is ended here**.

What this module does not do: it tells the model nothing, for nothing on the line changes.
"""

from __future__ import annotations

import msgspec

from proxy.core.frames.events import Entered, FrameEvent, frame_id
from proxy.core.frames.path_state import Story
from proxy.core.frames.reducer import apply
from proxy.core.frames.results import CRITERION, title_of
from proxy.core.frames.suggestion_log import POP, PUSH
from proxy.core.frames.tree import Status, Tree, children, path_to
from proxy.core.observers import Names
from proxy.core.observers.turns import first_said
from proxy.core.policy.autonomy_rules import Autonomy
from proxy.core.policy.infer_frames import ended
from proxy.core.policy.scoring import judged
from proxy.core.policy.signals import Reading, Signals
from proxy.core.policy.suggest import pointless, topic

AUTO = "auto"
BORN = 2_000
"""Added to the number of a frame born here, beside those that others decide at the same entry."""


class Place(msgspec.Struct, frozen=True):
    """A request where it stands: the path up to its last entry `node`, at `now` (ms). `names` tell which tool does
    what."""

    story: Story
    node: str
    now: int
    names: Names
    max_depth: int


def by_itself(at: Place, reading: Reading, seen: Signals, rules: Autonomy) -> tuple[FrameEvent, ...]:
    """What is opened or ended here, by what was read of the active frame."""
    tree = at.story.tree
    if not reading.at_rest or not _is_ours_to_divide(tree):
        return ()
    pushes = judged(PUSH, seen, rules).reached and not pointless(tree, PUSH, at.max_depth)
    pop = judged(POP, seen, rules)
    events: list[FrameEvent] = []
    if tree.current.origin == AUTO and (pushes or pop.reached):
        status = Status(pop.status) if pop.reached else Status.COMPLETED
        events.append(ended(at.story, tree.active, status, at.names))
        tree = apply(tree, events[0], at.now)
        pushes = pushes and bool(seen.goal or not pop.reached)  # what is done needs no other part
    if pushes:
        title, criteria = _about(tree, seen.goal)
        events.append(Entered(frame_id(at.node, BORN), tree.active, title, criteria, AUTO))
    return tuple(events)


def _about(tree: Tree, goal: str) -> tuple[str, str]:
    """Title and criteria: of the new goal, or of one more step of what the active frame is for."""
    if goal:
        return topic(tree, goal), first_said([goal], CRITERION)
    step = 2 + sum(frame.origin == AUTO for frame in children(tree, tree.active))
    return f"Step {step} of: {title_of(tree.current.title)}", tree.current.criteria


def _is_ours_to_divide(tree: Tree) -> bool:
    return all(frame.is_inferred or not frame.parent for frame in path_to(tree, tree.active))
