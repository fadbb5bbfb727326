"""Suggests a push or a pop to the model, and opens and ends automatic frames.

Runs for awake threads in mode `active`, unless the level is `manual`. Adds nothing where another note has added text,
or where the model accepts no text behind results. Readings of a path are cached, so each request reads only what is
new.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.config import Config
from proxy.core.frames import SuggestionMade
from proxy.core.memo import keep_newest
from proxy.core.observers import ToolRoles
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
from proxy.exchange.notes.base import NoteWriter
from proxy.exchange.thread.context_policy import ContextPolicy
from proxy.exchange.thread.placement import Placement

MAX_CACHED_FRAMES = 16
"""Frames per conversation whose reading is cached: work returns to the parent of a frame."""


@dataclass(frozen=True)
class SuggestionNote:
    """Runs last, because its text can wait."""

    note_writer: NoteWriter
    policy: ContextPolicy
    config: Config

    def __call__(self, placement: Placement) -> Placement:
        rules = self.config.autonomy_rules.with_overrides(placement.path_state.tree.suggestion_state.settings)
        if placement.mode != "active" or rules.level == "manual":
            return placement
        reading = read_frame_activity(placement, self.policy.inference_rules.tool_roles)
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
        return self._suggest(placement, seen, rules) if placement.guides_model else placement

    def _suggest(self, placement: Placement, seen: FrameSignals, rules: AutonomyRules) -> Placement:
        tree = placement.path_state.tree
        made = make_suggestion(tree, seen, rules, self.config.max_depth, placement.parsed_request.now)
        if made is None or (made.in_context and not self._may_add_note(placement)):
            return placement
        placement = self.note_writer.record_events(placement, [SuggestionMade(tree.active, made)])
        if not made.in_context:
            return placement
        return self.note_writer.add_note(placement, suggestion_note(made, self.policy.nonce_of(placement.conversation)))

    def _may_add_note(self, placement: Placement) -> bool:
        request = placement.request
        if placement.ledger.overlays.get(placement.entry_id) or not self.note_writer.may_add_note(request):
            return False
        return request.tool_choice in ("auto", "required") and self.note_writer.takes_text_after_results(request.model)


def read_frame_activity(placement: Placement, tool_roles: ToolRoles) -> FrameActivity:
    """The activity of the active frame. What was read before is continued."""
    readings = placement.cached_conversation.readings
    key = (placement.thread, placement.path_state.tree.active_frame.owner)
    reading = read_activity(placement.path_state, tool_roles, readings.pop(key, None))
    keep_newest(readings, key, reading, MAX_CACHED_FRAMES)
    return reading
