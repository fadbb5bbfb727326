"""The note that tells a model of a root that began beside the one it knew (C20).

The model ended its tree of frames, and the user has spoken again: the block of the new root stands behind their words,
with the ended ones as its siblings and what came of them. The law: **it is told once**, with the next request of an
awake thread in mode `active`. A thread that wakes is told of it in its guidance, and one whose client compacted by its
introduction.

What this module does not do: it begins no root (`stack.roots`).
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.frames.events import RootTold
from proxy.core.matching.match import How
from proxy.core.observers.turns import user_spoke_last
from proxy.exchange.notes.base import Teller
from proxy.exchange.thread.placement import Standing, here
from proxy.exchange.thread.policy import Actor

MOST = 600
"""Tokens of the block: what its siblings did stands on the line, or behind their refs."""


@dataclass(frozen=True)
class RootNote:
    """The root that began. A model that takes no words behind results is told with the user's next message."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        root, request = standing.story.tree.untold_root, standing.request
        if not root or standing.mode != "active":
            return standing
        if not (self.teller.takes_words(request.model) or user_spoke_last(request.messages)):
            return standing
        standing = self.teller.recorded(standing, [RootTold(root)])
        if standing.how is How.COMPACTED:
            return standing
        return self.teller.told(standing, self.actor.block(here(standing), MOST, root))
