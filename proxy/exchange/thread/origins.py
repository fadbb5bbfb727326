"""Where a conversation comes from: nobody, the call of another one that delegated it, or the one it was forked from.

It is asked once, when a conversation begins. The law: **what was made behind a line of ours is bound to it** (L8), also
where a history is taken over into another conversation, and whether or not that one is shown under its parent.

What this module does not do: it finds no conversation that goes on (`reception` does), and makes no frame (`delegation`
does).
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from proxy.config.model import Config
from proxy.config.runtime import LiveSettings
from proxy.core.frames.results import CRITERION
from proxy.core.ledger.messages import Request
from proxy.core.matching import guess_parent as presuming
from proxy.core.matching import lookup_keys as anchors
from proxy.core.matching import walk_history as walking
from proxy.core.matching.match import Match
from proxy.core.observers.turns import untagged
from proxy.dialects import Dialect
from proxy.exchange.thread import attach_subagent as delegation
from proxy.exchange.thread import session_headers as clients
from proxy.exchange.thread.activation import binds
from proxy.exchange.thread.placement import Arrival, Standing, made_behind_ours
from proxy.store.conversation_cache import Shelf, Shelved

PROMPTS = 4
"""User messages at the beginning of a conversation that may be what it was told to do."""
_NOTHING: Set[int] = frozenset()


class Origin(NamedTuple):
    """Where a conversation comes from: the one it was forked from or delegated by, the entry there, and for a
    delegated one what it was told. Empty where it is nobody's."""

    conversation: str = ""
    turn: str = ""
    prompt: str = ""


@dataclass(frozen=True)
class Origins:
    """Finds out where conversations come from, and tells those they come from."""

    config: Config
    live: LiveSettings
    shelf: Shelf
    dialect: Dialect

    async def of(self, arrival: Arrival) -> Origin:
        """Who delegated this conversation: by the session it names, else by the call whose prompt this one begins with,
        else by its title (S1-71a)."""
        if named := clients.parent_hint(arrival.headers):
            for conversation in await self.shelf.sessions(arrival.tenant, named):
                shelved = await self.shelf.get(arrival.tenant, conversation)
                if shelved and any(t.tool_names for t in shelved.ledger.threads.values()):
                    prompts = _prompts(arrival.request)
                    turns = ((p, anchors.delegated_at(shelved.ledger, p)) for p in prompts)
                    by_prompt = (Origin(conversation, turn, p) for p, turn in turns if turn)
                    return next(by_prompt, None) or self._presumed(arrival, conversation)
        for prompt in _prompts(arrival.request):
            if found := await self.shelf.delegating(arrival.tenant, prompt):
                return Origin(found[0].ledger.conversation.id, found[1], prompt)
        return self._presumed(arrival)

    async def bound_elsewhere(self, arrival: Arrival, origin: Origin) -> Set[int]:
        """Answers at the beginning of a new conversation, by their place, that it took over from another one, and whose
        reasoning the provider binds to a line of that one (L8)."""
        request = arrival.request
        model = self.config.sent_as(request.model)
        if not origin.conversation or not binds(self.config, self.dialect, model):
            return _NOTHING
        parent = await self.shelf.get(arrival.tenant, origin.conversation)
        path = walking.walk(parent.ledger, request.messages) if parent else ()
        if parent is None or not path:
            return _NOTHING
        behind = made_behind_ours(parent.ledger, parent.story(path[-1].id), len(path))
        return frozenset(at for at in behind if request.messages[at].role == "assistant")

    async def begun(self, standing: Standing, origin: Origin) -> None:
        """What this request begins in another conversation."""
        arrival, where = standing.arrival, (origin.conversation, origin.turn)
        if origin.turn and origin.prompt:
            await delegation.begun(self.shelf, arrival.tenant, where, standing.conversation, origin.prompt, arrival.now)

    async def returned(self, standing: Standing) -> None:
        """What this request ends in other conversations."""
        tree, now = standing.story.tree, standing.arrival.now
        if any(f.origin == "subagent" for f in tree.frames.values()):
            await delegation.returned(self.shelf, standing.ledger, tree, standing.node, now)

    def _presumed(self, arrival: Arrival, named: str = "") -> Origin:
        """Who may have delegated a conversation that only a title shows to be a subagent's: the one that waited last
        for a call, or the one it has `named`, which is where it comes from in any case."""
        subagent = self.live.subagent
        if not (subagent.patterns and subagent.enabled and presuming.is_titled(arrival.request, subagent.patterns)):
            return Origin(named)
        since = arrival.now - subagent.idle_delay
        conversation, turn = delegation.presumed(self.shelf, arrival.tenant, since, named)
        return Origin(conversation or named, turn, presuming.told(arrival.request) if turn else "")


def fork_point(shelved: Shelved, found: Match) -> Origin:
    """The conversation that a fork left, and the last entry they share."""
    return Origin(shelved.ledger.conversation.id, found.path[-1].id if found.path else "")


def _prompts(request: Request) -> tuple[str, ...]:
    """What this conversation may have been told to do: the user messages before its first answer, as they are, and
    without what the client put around them."""
    opening = takewhile(lambda m: m.role != "assistant", request.messages)
    texts = [m.text for m in opening if m.role == "user"][:PROMPTS]
    return tuple(dict.fromkeys(said for text in texts for said in (text, untagged(text, CRITERION)) if said))
