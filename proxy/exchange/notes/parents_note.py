"""The note that tells a subagent what it works for: the frames above the call that delegated it (S1-71i).

Clients isolate their subagents on purpose, so this is off unless the configuration asks for it
(`subagent.parent_context`). Then the thread wakes for it at its first message, however small it is: nothing of it can
be cached yet, so that breaks no prefix. The law: **an asleep thread passes as it came**, so one that cannot wake
(without tools, or in another mode than `active`) is told nothing; and **it is told once**, as things stood at the
call, and what was told stays, whatever becomes of the conversation it is about.

What this module does not do: it words nothing (`stack.block_lineage`), and knows no subagent by itself (`delegation`):
a fork, and a session that only names its parent, is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from msgspec.structs import replace

from proxy.core.context.block_lineage import render_lineage
from proxy.core.frames.events import ParentsTold
from proxy.core.observers.turns import user_spoke_last
from proxy.exchange.notes.base import Teller
from proxy.exchange.thread import subagents as delegation
from proxy.exchange.thread.placement import Standing
from proxy.exchange.thread.policy import Actor
from proxy.store.cache import Shelf


async def with_parents(standing: Standing, shelf: Shelf, teller: Teller) -> Standing:
    """The request with what its conversation works for, where it can be told of that now and was not before."""
    request, tree = standing.request, standing.story.tree
    if standing.mode != "active" or tree.parents_told or not standing.ledger.conversation.parent:
        return standing
    in_loop = tree.awake and teller.takes_words(request.model)
    if not (user_spoke_last(request.messages) or in_loop):
        return standing
    return replace(standing, above=await delegation.above(shelf, standing.ledger.conversation))


@dataclass(frozen=True)
class ParentsNote:
    """What was found above, behind the newest message. It is noted first: lost is better than twice."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        if standing.above is None:
            return standing
        conversation, tree, frame = standing.above
        budgets = self.actor.settings.budgets
        words = render_lineage(
            tree,
            frame,
            nonce=self.actor.nonce(standing.conversation),
            now=standing.arrival.now,
            budgets=replace(budgets, total=min(budgets.total, budgets.ancestors)),
            count=self.actor.count,
        )
        told = ParentsTold(conversation, sha256(words.encode()).hexdigest()[:12])
        return self.teller.told(self.teller.recorded(standing, [told]), words)
