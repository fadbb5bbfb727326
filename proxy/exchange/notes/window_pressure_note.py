"""Warns a model that its context window is filling up, before anything is evicted.

Runs only where the window's size is known: from its tariff, the configuration, or a provider's refusal.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.config import Config
from proxy.core.compaction import WindowLimits, count_context_tokens, pressure_change, pressure_note
from proxy.core.frames import ContextPressureWarned
from proxy.exchange.notes.base import NoteWriter
from proxy.exchange.thread.context_policy import ContextPolicy
from proxy.exchange.thread.placement import Placement

MIN_CHECKED_SHARE = 0.5
"""Share of the bound below which a client's request is not counted more closely: what we add is far less than the
rest."""


@dataclass(frozen=True)
class PressureWarning:
    """Warns when a request fills the window beyond `pressure_warning`, and not again while it stays above."""

    note_writer: NoteWriter
    policy: ContextPolicy
    config: Config

    def __call__(self, placement: Placement) -> Placement:
        request, waking = placement.request, placement.path_state.tree.wake_state
        takes = self.config.pressure_warning > 0 and self.note_writer.takes_text_after_results(request.model)
        if not placement.guides_model or not takes or waking is None:
            return placement
        window = self.policy.window_of(request.model, placement.conversation)
        room = WindowLimits(window.tokens, window.limit, self.config.pressure_warning)
        if not window.is_binding or (
            request.tokens < MIN_CHECKED_SHARE * room.warning_tokens
            and not placement.path_state.tree.is_pressure_warned
        ):
            return placement
        ours = sum(map(self.policy.count_memoized, (waking.tools, waking.guidance, waking.appended)))
        tools = request.tools_tokens + request.loaded_tokens(request.messages)
        fixed = sum(m.tokens for m in request.head) + tools + ours
        event = pressure_change(
            placement.path_state, fixed + count_context_tokens(placement.path_state, self.policy.count_memoized), room
        )
        if event is None:
            return placement
        placement = self.note_writer.record_events(placement, [event])
        if not isinstance(event, ContextPressureWarned):
            return placement
        return self.note_writer.add_note(placement, pressure_note(event, self.policy.nonce_of(placement.conversation)))
