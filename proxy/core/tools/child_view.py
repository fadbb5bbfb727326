"""What a child sees of its parents where the configuration leaves that open (`child_view: auto`).

A child that sees all of its parent's line costs nothing at its beginning, because that line is in the provider's cache,
and a read of it with every request. One that sees the task alone has to be written once and is short from then on.
The law: **isolated only where that is cheaper over the requests a child is expected to make**, and only where the
parent's line is long enough for it to matter.

What this module does not do: it counts nothing and knows no prices; both come in.
"""

from __future__ import annotations

from statistics import median

import msgspec

from proxy.core.compaction.cost_gate import Prices
from proxy.core.compaction.segments import tokens_of, told_tokens
from proxy.core.context.message_list import owner_of
from proxy.core.frames.path_state import Placed, Story
from proxy.core.frames.tree import RETURNED, path_to
from proxy.core.text import Count

AUTO = "auto"
BLOCK = 1_500
"""Tokens of the text that opens an isolated child, beside the user's messages."""
USUAL_REQUESTS = 12
"""Of a child, where no frame of the conversation has ended yet."""


class Choice(msgspec.Struct, frozen=True):
    """`parent` and `isolated` are tokens: of the parent's line, and of what a child would see of it alone. `requests`
    are those expected in the child."""

    parent: int
    isolated: int
    requests: int
    prices: Prices


def chosen_view(choice: Choice, above: int) -> str:
    """`isolate` where the parent's line is longer than `above` tokens and what reading it would cost in the child is
    more than writing the short one."""
    read = (choice.parent - choice.isolated) * choice.prices.read * choice.requests
    return "isolate" if choice.parent > above and read > choice.isolated * choice.prices.write else "fork"


def choice_at(story: Story, shown: frozenset[str], prices: Prices, count: Count) -> Choice:
    """What there is to choose from at the end of `story`; `shown` are the entries on the line. `count` is asked for
    what is told there in our words."""
    line = sum(told_tokens(story, placed, count) for placed in story.placed if placed.at in shown)
    users = sum(tokens_of(p) for p in _on_path(story) if p.entry.message and p.entry.message.role == "user")
    return Choice(line, users + BLOCK, requests_expected(story), prices)


def _on_path(story: Story) -> list[Placed]:
    owners = {frame.owner for frame in path_to(story.tree, story.tree.active)}
    return [p for p in story.placed if p.round is None and owner_of(story, p) in owners]


def requests_expected(story: Story) -> int:
    """How many requests a child is taken to make: the median of those that have ended on this path."""
    made: dict[str, int] = {}
    for placed in story.placed:
        if placed.round is not None:
            frame = placed.owner.partition("#")[0]
            made[frame] = made.get(frame, 0) + 1
    frames = story.tree.frames
    over = {f.id for f in frames.values() if f.parent and f.status in RETURNED}
    ended = [requests for frame, requests in made.items() if frame in over]
    return round(median(ended)) if ended else USUAL_REQUESTS
