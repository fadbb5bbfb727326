"""The note that tells a model that its window is filling up, before anything is evicted (S2-43).

The law: **only where somebody said how large the window is**: its tariff, a configured row, or a provider's refusal.

What this module does not do: the bound and the words are in `stack.pressure`; what leaves when the window is full is
decided by `asking`.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.config import Config
from proxy.core.compaction import WindowLimits, count_context_tokens, pressure_change, pressure_note
from proxy.core.frames import ContextPressureWarned
from proxy.exchange.notes.note_writer import NoteWriter
from proxy.exchange.thread.activation import ContextPolicy
from proxy.exchange.thread.placement import Placement

MIN_CHECKED_SHARE = 0.5
"""Of the bound: a client's request below this share of it is looked at no closer. What is on the line beside what the
client sent, our texts and hidden rounds, is far less than that."""


@dataclass(frozen=True)
class PressureWarning:
    """A window that has become three quarters full with this request is told of behind it."""

    note_writer: NoteWriter
    policy: ContextPolicy
    config: Config

    def __call__(self, placement: Placement) -> Placement:
        request, waking = placement.request, placement.path_state.tree.wake_state
        takes = self.config.pressure_warning > 0 and self.note_writer.takes_text_after_results(request.model)
        if placement.mode != "active" or not takes or waking is None:
            return placement
        window = self.policy.window_of(request.model, placement.conversation)
        room = WindowLimits(window.tokens, window.limit, self.config.pressure_warning)
        if not window.is_binding or (
            request.tokens < MIN_CHECKED_SHARE * room.warning_tokens
            and not placement.path_state.tree.is_pressure_warned
        ):
            return placement
        ours = sum(map(self.policy.count_memoized, (waking.tools, waking.guidance, waking.appended)))
        fixed = sum(m.tokens for m in request.head) + request.tools_tokens + ours
        event = pressure_change(
            placement.path_state, fixed + count_context_tokens(placement.path_state, self.policy.count_memoized), room
        )
        if event is None:
            return placement
        placement = self.note_writer.record_events(placement, [event])
        if not isinstance(event, ContextPressureWarned):
            return placement
        return self.note_writer.add_note(placement, pressure_note(event, self.policy.nonce_of(placement.conversation)))
