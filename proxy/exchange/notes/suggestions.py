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

from proxy.config import Config
from proxy.core.frames import SuggestionMade
from proxy.core.policy import (
    AutonomyInput,
    AutonomyRules,
    FrameActivity,
    FrameSignals,
    decide_automatic_frames,
    make_suggestion,
    read_activity,
    signals_of,
    suggestion_note,
)
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

    def __call__(self, placement: Placement) -> Placement:
        rules = self._configured_rules.with_overrides(placement.path_state.tree.suggestion_state.settings)
        if placement.mode != "active" or rules.level == "manual":
            return placement
        reading = self._read_activity(placement)
        window = self.policy.window_of(placement.request.model, placement.conversation).known_tokens
        seen = signals_of(reading, placement.path_state.tree.active_frame, window)
        if rules.level == "auto":
            where = AutonomyInput(
                placement.path_state,
                placement.entry_id,
                placement.parsed_request.now,
                self.policy.inference_rules.tool_roles,
                self.config.max_depth,
            )
            if events := decide_automatic_frames(where, reading, seen, rules):
                return self.note_writer.record_events(placement, events)
        return self._suggest(placement, seen, rules)

    @cached_property
    def _configured_rules(self) -> AutonomyRules:
        return self.config.autonomy_rules

    def _suggest(self, placement: Placement, seen: FrameSignals, rules: AutonomyRules) -> Placement:
        tree = placement.path_state.tree
        made = make_suggestion(tree, seen, rules, self.config.max_depth, placement.parsed_request.now)
        if made is None or (made.told and not self._may_add_note(placement)):
            return placement
        placement = self.note_writer.record_events(placement, [SuggestionMade(tree.active, made)])
        if not made.told:
            return placement
        return self.note_writer.add_note(placement, suggestion_note(made, self.policy.nonce_of(placement.conversation)))

    def _may_add_note(self, placement: Placement) -> bool:
        """Whether words of ours may stand here, and the model could follow them."""
        request = placement.request
        free = request.tool_choice in ("auto", "required") and not request.wants_structured_output
        return (
            free
            and not placement.ledger.overlays.get(placement.entry_id)
            and self.note_writer.takes_text_after_results(request.model)
        )

    def _read_activity(self, placement: Placement) -> FrameActivity:
        readings = placement.cached_conversation.readings
        key = (placement.thread, placement.path_state.tree.active_frame.owner)
        reading = readings[key] = read_activity(
            placement.path_state, self.policy.inference_rules.tool_roles, readings.pop(key, None)
        )
        if len(readings) > MAX_CACHED_FRAMES:
            readings.popitem(last=False)
        return reading
