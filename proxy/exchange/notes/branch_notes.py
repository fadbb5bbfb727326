"""The notes that tell a model where its work stands: which branch begins or goes on with this request, and what was
copied to it from another one.

The law: **told once, by the request that it is true of**. What was told stays on that line, and is on no other.

What this module does not do: it chooses no line and words nothing (`stack.branching`).
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.frames.branches import SWITCHED
from proxy.core.frames.events import Injected, Switched, read_event
from proxy.core.observers.turns import user_spoke_last
from proxy.core.tools.branches import injected_words, turned_words
from proxy.exchange.notes.base import Teller
from proxy.exchange.thread.placement import Standing
from proxy.exchange.thread.policy import Actor


@dataclass(frozen=True)
class BranchNote:
    """A line that begins, or is taken up again, with this request."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        turned = _turned(standing)
        if turned is None:
            return standing
        return self.teller.told(standing, turned_words(turned, self.actor.nonce(standing.conversation)))


def _turned(standing: Standing) -> Switched | None:
    """The turn that came with the new messages of this request, which are all of the user."""
    entry = standing.ledger.entries.get(standing.node)
    while entry is not None and entry.created >= standing.arrival.now:
        for event in standing.ledger.events.get(entry.id, ()):
            if event.kind == SWITCHED and event.created >= standing.arrival.now:
                said = read_event(event)
                return said if isinstance(said, Switched) else None
        entry = standing.ledger.entries.get(entry.parent)
    return None


@dataclass(frozen=True)
class InjectionNote:
    """What waits to be copied to the line this request stands on. It is noted first: lost is better than twice."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        lines, request = standing.story.lines, standing.request
        if not lines.injections or not (self.teller.takes_words(request.model) or user_spoke_last(request.messages)):
            return standing
        words = injected_words(lines, self.actor.nonce(standing.conversation))
        if not words:
            return standing
        return self.teller.told(self.teller.recorded(standing, [Injected(lines.current)]), words)
