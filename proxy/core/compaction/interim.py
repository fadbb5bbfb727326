"""What the model summed up of work that goes on: which of it, and in which words.

A summary is made by `stack_frame_summarize` and speaks of what its frame did up to an entry. The law: **it is told in
the place of that work, and only there**: while the work is on the line nothing tells of its summary.

What this module does not do: it makes none (`tools.summarizing` does), and says of no moment that it is right
(`folding` and `trim` do).
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.context.line import owner_of
from proxy.core.frames.path_state import Placed, Story


def summed_up(story: Story, placed: Sequence[Placed]) -> frozenset[int]:
    """The places in `placed`, some of the story, of what the newest summary of its frame speaks of."""
    interims = story.tree.interims
    if not interims:
        return frozenset()
    order = {entry: n for n, p in enumerate(story.placed) for entry in (p.entry.id, p.at)}
    until = {frame: order.get(interim.at, -1) for frame, interim in interims.items()}
    owners = ((at, p, owner_of(story, p).partition("#")[0]) for at, p in enumerate(placed))
    return frozenset(at for at, p, owner in owners if owner in until and order[p.at] <= until[owner])


def interim_words(story: Story, placed: Sequence[Placed]) -> str:
    """How the model summed up what some of `placed` is part of; empty where it did not."""
    summed = summed_up(story, placed)
    frames = dict.fromkeys(owner_of(story, placed[at]).partition("#")[0] for at in sorted(summed))
    return "\n".join(filter(None, (story.tree.interims[frame].words for frame in frames)))
