"""Where the work of a conversation stands, on one screen: for whoever comes back to it, after a crash too (S2-42).

The way from the goal down to what is being done, what was done last, what came of the parts before it, which actions
are not to be tried again, and what comes next. The law: **everything is read from what is stored**, and the same
before and after a restart; a text is cut to a line.

What this module does not do: it asks no model what the work is about, and proposes nothing that was not planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from typing_extensions import TypedDict

from proxy.core.context.actions import LOOKED_AT, in_a_line
from proxy.core.context.relatives import family_of, planned_under
from proxy.core.context.relevance import next_planned
from proxy.core.frames.path_state import Story
from proxy.core.frames.tree import FINAL, RETURNED, Frame, Status, Tree, path_to
from proxy.core.ledger.ledger import Ledger
from proxy.core.observers.step import said_by, steps_of
from proxy.core.policy.loop_detection import Rules, standing
from proxy.core.policy.roots import following
from proxy.core.text import clean, cut_for_display
from proxy.management.views.conversations import last_active
from proxy.management.views.logs import place_of, states_of

ACTIONS = 3
FINISHED = 5
LINE = 100
"""Characters of a title, a result, an action."""
WORDS = 240
"""Characters of what was said last."""


class OnTheWay(TypedDict):
    """A frame from the goal down to the active one, which is the last. `criteria` is empty where the title says it."""

    frame: str
    title: str
    status: str
    criteria: str


class CameTo(TypedDict):
    """A part that ended, with what it came to."""

    frame: str
    title: str
    status: str
    results: str


class BlockedAction(TypedDict):
    """A loop that still stands: its calls, in words, are not to be tried again as they are."""

    kind: str
    calls: list[str]
    times: int
    frame: str


class Following(TypedDict):
    """What comes next, in words; `frame` is the planned one that begins then, where there is one."""

    frame: str | None
    title: str | None
    action: str


class Resume(TypedDict):
    """`path`: the goal first. `actions`: the newest calls of the client's tools and what came of them, oldest first.
    `finished`: the newest parts that ended, oldest first; `blocked_actions`: loops that stand; `said`: the newest words
    of the assistant."""

    conversation: str
    last_active: int
    path: list[OnTheWay]
    actions: list[str]
    finished: list[CameTo]
    blocked_actions: list[BlockedAction]
    planned: int
    said: str
    next: Following


def resume(ledger: Ledger, story: Story) -> Resume:
    """Where the path of `story` stands."""
    tree = story.tree
    return {
        "conversation": ledger.conversation.id,
        "last_active": last_active(ledger, ()),
        "path": [_on_the_way(frame) for frame in (path_to(tree, tree.active) if tree.active else ())],
        "actions": _actions(story),
        "finished": [_came_to(frame) for frame in _finished(tree)],
        "blocked_actions": [
            {"kind": loop.kind, "calls": list(loop.shown), "times": loop.count, "frame": tree.active}
            for loop in standing(story, Rules().window)
        ],
        "planned": sum(frame.status is Status.PLANNED for frame in tree.frames.values()),
        "said": _said(story),
        "next": _next(story),
    }


def _on_the_way(frame: Frame) -> OnTheWay:
    criteria = cut_for_display(frame.criteria, LINE)
    says_more = frame.criteria.strip() != frame.title.strip()
    return {
        "frame": frame.id,
        "title": cut_for_display(frame.title, LINE),
        "status": str(frame.status),
        "criteria": criteria if says_more else "",
    }


def _actions(story: Story) -> list[str]:
    done = [each for step in steps_of(story.placed[-LOOKED_AT:]) for each in step.done if each.answered]
    return [in_a_line(each) for each in done[-ACTIONS:]]


def _finished(tree: Tree) -> Sequence[Frame]:
    ended = [frame for frame in tree.frames.values() if frame.status in RETURNED and frame is not tree.root]
    return sorted(ended, key=lambda frame: (frame.updated_at, frame.order))[-FINISHED:]


def _came_to(frame: Frame) -> CameTo:
    return {
        "frame": frame.id,
        "title": cut_for_display(frame.title, LINE),
        "status": str(frame.status),
        "results": cut_for_display(frame.results, LINE),
    }


def _said(story: Story) -> str:
    messages = (said_by(placed) for placed in reversed(story.placed))
    said = next((m.text for m in messages if m and m.role == "assistant" and m.text.strip()), "")
    return cut_for_display(clean(said), WORDS)


# ---------------------------------------------------------------------------------------------------------------- next
def _next(story: Story) -> Following:
    tree = story.tree
    if not tree.active:
        return {"frame": None, "title": None, "action": "Nothing was begun yet."}
    current, title = tree.current, cut_for_display(tree.current.title, LINE)
    if current.status in FINAL | RETURNED:
        return {"frame": None, "title": None, "action": f"Nothing: {title} is {current.status}.{_again(current)}"}
    if waiting := list(_waited_for(story)):
        return {"frame": None, "title": None, "action": f"The client's result of {', '.join(waiting)}."}
    below = next(iter(planned_under(tree, current.id)), None)
    if below is not None:
        return _begin(below, f"Begin {cut_for_display(below.title, LINE)}, which is planned in {title}.")
    following = next_planned(current, family_of(tree, current))
    if following is not None:
        return _begin(following, f"Finish {title}, then begin {cut_for_display(following.title, LINE)}.")
    return {"frame": None, "title": None, "action": f"Go on with {title}."}


def _again(current: Frame) -> str:
    return "" if current.parent else f" The user's next message {following(current)}."


def _begin(frame: Frame, action: str) -> Following:
    return {"frame": frame.id, "title": cut_for_display(frame.title, LINE), "action": action}


def _waited_for(story: Story) -> Iterator[str]:
    """The client's calls of the newest answer that have no result yet."""
    answers = [placed for placed in story.placed[-LOOKED_AT:] if (m := said_by(placed)) and m.role == "assistant"]
    newest = said_by(answers[-1]) if answers else None
    if newest is None:
        return
    states = states_of(story.placed[-LOOKED_AT:])[place_of(answers[-1])]
    for call, state in zip(newest.calls, states, strict=True):
        if not call.is_ours and state in ("pending", "running"):
            yield cut_for_display(f"{call.name}({call.arguments})", LINE)
