"""The note that tells a model that its window is filling up, before anything is evicted (S2-43).

The law: **only where somebody said how large the window is**: its tariff, a configured row, or a provider's refusal.

What this module does not do: the bound and the words are in `stack.pressure`; what leaves when the window is full is
decided by `asking`.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.config.model import Config
from proxy.core.compaction.window_pressure import Room, arisen, note, tokens_on_line
from proxy.core.frames.events import Pressed
from proxy.exchange.notes.note_writer import Teller
from proxy.exchange.thread.activation import Actor
from proxy.exchange.thread.placement import Standing

NEAR = 0.5
"""Of the bound: a client's request below this share of it is looked at no closer. What is on the line beside what the
client sent, our texts and hidden rounds, is far less than that."""


@dataclass(frozen=True)
class PressureWarning:
    """A window that has become three quarters full with this request is told of behind it."""

    teller: Teller
    actor: Actor
    config: Config

    def __call__(self, standing: Standing) -> Standing:
        request, waking = standing.request, standing.story.tree.waking
        takes = self.config.pressure_warning > 0 and self.teller.takes_words(request.model)
        if standing.mode != "active" or not takes or waking is None:
            return standing
        window = self.actor.window(request.model, standing.conversation)
        room = Room(window.tokens, window.limit, self.config.pressure_warning)
        if not window.binds or (request.tokens < NEAR * room.bound and not standing.story.tree.pressed):
            return standing
        ours = sum(map(self.actor.weigh, (waking.tools, waking.guidance, waking.appended)))
        fixed = sum(m.tokens for m in request.head) + request.tools_tokens + ours
        event = arisen(standing.story, fixed + tokens_on_line(standing.story, self.actor.weigh), room)
        if event is None:
            return standing
        standing = self.teller.recorded(standing, [event])
        if not isinstance(event, Pressed):
            return standing
        return self.teller.told(standing, note(event, self.actor.nonce(standing.conversation)))
