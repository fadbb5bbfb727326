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
from proxy.core.frames.events import SuggestionMade
from proxy.core.policy.automatic_frames import AutonomyInput, decide_automatic_frames
from proxy.core.policy.autonomy_rules import AutonomyRules
from proxy.core.policy.signals import FrameActivity, FrameSignals, read_activity, signals_of
from proxy.core.policy.suggest import make_suggestion, suggestion_note
from proxy.exchange.notes.note_writer import NoteWriter
from proxy.exchange.thread.activation import ContextPolicy
from proxy.exchange.thread.placement import Placement

MAX_CACHED_FRAMES = 16
"""Frames of a conversation of which a reading is kept: work comes back to the parent of a frame."""


@dataclass(frozen=True)
class SuggestionNote:
    """Asked last, for its words can wait."""

    note_writer: NoteWriter
    policy: ContextPolicy
    config: Config

    def __call__(self, standing: Placement) -> Placement:
        rules = self._configured_rules.with_overrides(standing.path_state.tree.suggestion_state.settings)
        if standing.mode != "active" or rules.level == "manual":
            return standing
        reading = self._read_activity(standing)
        window = self.policy.window_of(standing.request.model, standing.conversation).known_tokens
        seen = signals_of(reading, standing.path_state.tree.active_frame, window)
        if rules.level == "auto":
            where = AutonomyInput(
                standing.path_state,
                standing.entry_id,
                standing.parsed_request.now,
                self.policy.inference_rules.tool_roles,
                self.config.max_depth,
            )
            if events := decide_automatic_frames(where, reading, seen, rules):
                return self.note_writer.record_events(standing, events)
        return self._suggest(standing, seen, rules)

    @cached_property
    def _configured_rules(self) -> AutonomyRules:
        return self.config.autonomy_rules

    def _suggest(self, standing: Placement, seen: FrameSignals, rules: AutonomyRules) -> Placement:
        tree = standing.path_state.tree
        made = make_suggestion(tree, seen, rules, self.config.max_depth, standing.parsed_request.now)
        if made is None or (made.told and not self._may_add_note(standing)):
            return standing
        standing = self.note_writer.record_events(standing, [SuggestionMade(tree.active, made)])
        if not made.told:
            return standing
        return self.note_writer.add_note(standing, suggestion_note(made, self.policy.nonce_of(standing.conversation)))

    def _may_add_note(self, standing: Placement) -> bool:
        """Whether words of ours may stand here, and the model could follow them."""
        request = standing.request
        free = request.tool_choice in ("auto", "required") and not request.wants_structured_output
        return (
            free
            and not standing.ledger.overlays.get(standing.entry_id)
            and self.note_writer.takes_text_after_results(request.model)
        )

    def _read_activity(self, standing: Placement) -> FrameActivity:
        readings = standing.cached_conversation.readings
        key = (standing.thread, standing.path_state.tree.active_frame.owner)
        reading = readings[key] = read_activity(
            standing.path_state, self.policy.inference_rules.tool_roles, readings.pop(key, None)
        )
        if len(readings) > MAX_CACHED_FRAMES:
            readings.popitem(last=False)
        return reading
