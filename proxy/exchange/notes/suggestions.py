"""The note that suggests a push or a pop to the model, and the frames that are opened and ended without asking it
(S1-82, S1-83).

It looks at a request of an awake thread in mode `active`, unless the level is `manual`. What was read of a path is
kept, so that with the next request only what is new is looked at; it is a cache, and forgotten without harm.

The law: **at most one text of ours behind a request**. Where another note has spoken, a suggestion comes with a later
one or not at all; where a model takes no words behind results, it is told none.

What this module does not do: it finds no reason and words none (`stack.autonomy`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from proxy.config.model import Config
from proxy.core.frames.events import Suggested
from proxy.core.policy.automatic_frames import Place, by_itself
from proxy.core.policy.autonomy_rules import Autonomy
from proxy.core.policy.signals import Reading, Signals, read, signals
from proxy.core.policy.suggest import suggestion, words
from proxy.exchange.notes.note_writer import Teller
from proxy.exchange.thread.activation import Actor
from proxy.exchange.thread.placement import Standing

REMEMBERED = 16
"""Frames of a conversation of which a reading is kept: work comes back to the parent of a frame."""


@dataclass(frozen=True)
class Suggesting:
    """Asked last, for its words can wait."""

    teller: Teller
    actor: Actor
    config: Config

    def __call__(self, standing: Standing) -> Standing:
        rules = self._configured.with_chosen(standing.story.tree.advice.chosen)
        if standing.mode != "active" or rules.level == "manual":
            return standing
        reading = self._read(standing)
        window = self.actor.window(standing.request.model, standing.conversation).known
        seen = signals(reading, standing.story.tree.current, window)
        if rules.level == "auto":
            where = Place(
                standing.story, standing.node, standing.arrival.now, self.actor.watch.names, self.config.max_depth
            )
            if events := by_itself(where, reading, seen, rules):
                return self.teller.recorded(standing, events)
        return self._suggested(standing, seen, rules)

    @cached_property
    def _configured(self) -> Autonomy:
        return self.config.autonomy_rules

    def _suggested(self, standing: Standing, seen: Signals, rules: Autonomy) -> Standing:
        tree = standing.story.tree
        made = suggestion(tree, seen, rules, self.config.max_depth, standing.arrival.now)
        if made is None or (made.told and not self._may_speak(standing)):
            return standing
        standing = self.teller.recorded(standing, [Suggested(tree.active, made)])
        if not made.told:
            return standing
        return self.teller.told(standing, words(made, self.actor.nonce(standing.conversation)))

    def _may_speak(self, standing: Standing) -> bool:
        """Whether words of ours may stand here, and the model could follow them."""
        request = standing.request
        free = request.choice in ("auto", "required") and not request.structured
        return free and not standing.ledger.overlays.get(standing.node) and self.teller.takes_words(request.model)

    def _read(self, standing: Standing) -> Reading:
        readings = standing.shelved.readings
        key = (standing.thread, standing.story.tree.current.owner)
        reading = readings[key] = read(standing.story, self.actor.watch.names, readings.pop(key, None))
        if len(readings) > REMEMBERED:
            readings.popitem(last=False)
        return reading
