"""The note that tells a model what a person did to its frames by hand (S0-36).

The law: **it is told once**, with the next request of an awake thread in mode `active`; what a person did while the
thread slept waits until it wakes.

What this module does not do: it words nothing (`stack.by_hand`).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from proxy.core.commands.frames import note
from proxy.core.frames.events import HandTold
from proxy.core.observers.turns import user_spoke_last
from proxy.exchange.notes.base import Teller
from proxy.exchange.thread.placement import Standing
from proxy.exchange.thread.policy import Actor


@dataclass(frozen=True)
class HandNote:
    """What a person did since the model was told last. A model that takes no words behind results is told with the
    user's next message."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        request, tree = standing.request, standing.story.tree
        if not tree.by_hand or standing.mode != "active":
            return standing
        if not (self.teller.takes_words(request.model) or user_spoke_last(request.messages)):
            return standing
        words = note(tree, self.actor.nonce(standing.conversation))
        told = HandTold(sha256(words.encode()).hexdigest()[:12])
        return self.teller.told(self.teller.recorded(standing, [told]), words)
