"""Warns a model of loops and of a context window that fills up, refuses looping calls with `loops: block`, and ends
failing frames at level `auto`.

A frame is ended as blocked when the same task in it failed again and again. That happens only when the user speaks
after an ended turn, so no call group is cut. Only frames that the model pushed are ended, never the root.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from proxy.config import Config
from proxy.core.compaction import WindowLimits, count_context_tokens, pressure_change, pressure_note
from proxy.core.frames import (
    ContextPressureWarned,
    Frame,
    Loop,
    LoopDetected,
    PathState,
    Status,
    Tree,
    as_ledger_event,
    children,
)
from proxy.core.ledger import Call, Entry, EntryKind, Ledger, ShouldRefuse
from proxy.core.observers import ToolRoles, ends_with_user_message
from proxy.core.policy import (
    LoopRules,
    call_signature,
    find_new_loop,
    find_repeated_failure,
    loop_note,
    looping_signatures,
)
from proxy.core.tools import frame_tools
from proxy.exchange.notes.base import NoteWriter
from proxy.exchange.thread.context_policy import ContextPolicy
from proxy.exchange.thread.placement import Placement

MIN_CHECKED_SHARE = 0.5
"""Share of the bound below which a client's request is not counted more closely: what we add is far less than the
rest."""


@dataclass(frozen=True)
class FailingFrameBlocker:
    """A note that adds no text: the frame's result says why it was ended."""

    note_writer: NoteWriter
    policy: ContextPolicy
    config: Config

    def __call__(self, placement: Placement) -> Placement:
        tree = placement.path_state.tree
        loop = find_repeated_failure(tree) if self._may_end_frame(placement) else None
        turn = _preceding_turn(placement) if loop else None
        if loop is None or turn is None:
            return placement
        before = placement.cached_conversation.path_state(turn.id)
        if before.tree.active != tree.active:
            return placement
        now = placement.parsed_request.now
        at = self.policy.own_tool_context(before, placement.ledger, now, turn.id)
        outcome = frame_tools.pop(
            at, {"status": str(Status.BLOCKED), "results": _blocked_results(tree, tree.active_frame, loop)}
        )
        number, seq = placement.ledger.rounds[turn.id][-1].number, placement.ledger.next_seq
        events = [as_ledger_event(event, turn.id, number, seq + n, now) for n, event in enumerate(outcome.events)]
        self.note_writer.conversation_cache.record(placement.cached_conversation, events)
        placement.cached_conversation.path_states.clear()
        return replace(placement, path_state=placement.cached_conversation.path_state(placement.entry_id))

    def _may_end_frame(self, placement: Placement) -> bool:
        request, frame = placement.request, placement.path_state.tree.active_frame
        pushed = bool(frame.parent) and frame.opening is not None and frame.status is Status.IN_PROGRESS
        if not pushed or placement.mode != "active" or self.config.loops == "off":
            return False
        rules = self.config.autonomy_rules.with_overrides(placement.path_state.tree.suggestion_state.settings)
        may = rules.level == "auto" and self.note_writer.takes_text_after_results(request.model)
        return may and ends_with_user_message(request.messages)


def _preceding_turn(placement: Placement) -> Entry | None:
    """The ended turn right before this request's new user message, or None."""
    ledger, now = placement.ledger, placement.parsed_request.now
    entry = ledger.entries.get(placement.entry_id)
    while entry is not None and _is_new_user_message(entry, now):
        entry = ledger.entries.get(entry.parent)
    return entry if entry is not None and entry.id != placement.entry_id and _is_finished_turn(ledger, entry) else None


def _is_new_user_message(entry: Entry, now: int) -> bool:
    message = entry.message
    return entry.created >= now and message is not None and message.role == "user" and not message.answers


def _is_finished_turn(ledger: Ledger, entry: Entry) -> bool:
    last = ledger.rounds.get(entry.id, ())[-1:] if entry.kind is EntryKind.TURN else ()
    return any(done.last and done.spoken.complete and not done.spoken.client_calls for done in last)


def _blocked_results(tree: Tree, frame: Frame, loop: Loop) -> str:
    failed = [f for f in children(tree, frame.id) if f.status is Status.FAILED]
    newest = max(failed, key=lambda f: (f.updated_at, f.order))
    return f"Blocked: {', '.join(loop.shown)} failed {loop.count} times. The last attempt: {newest.results}"


@dataclass(frozen=True)
class LoopWarning:
    """Warns of a loop that closes with this request."""

    note_writer: NoteWriter
    policy: ContextPolicy
    config: Config

    def __call__(self, placement: Placement) -> Placement:
        takes = self.config.loops != "off" and self.note_writer.takes_text_after_results(placement.request.model)
        if placement.mode != "active" or not takes:
            return placement
        names = self.policy.inference_rules.tool_roles
        rules = LoopRules(self.config.loop_repeats, self.config.loop_window, self.config.loop_period)
        loop = find_new_loop(placement.path_state, names, rules)
        if loop is not None:
            words = loop_note(loop, self.policy.nonce_of(placement.conversation))
            looped = LoopDetected(placement.frame, replace(loop, at=placement.entry_id))
            placement = self.note_writer.add_note(self.note_writer.record_events(placement, [looped]), words)
        if self.config.loops == "block":
            placement = replace(
                placement, refused_signatures=looping_signatures(placement.path_state, names, self.config.loop_window)
            )
        return placement


def loop_refusal(placement: Placement, path_state: PathState, names: ToolRoles, window: int) -> ShouldRefuse | None:
    """Which tool calls of the client to refuse as looping in `path_state`, which may be later than the request; None
    for none."""
    signatures = placement.refused_signatures & looping_signatures(path_state, names, window)
    return (
        (lambda name, arguments: call_signature(Call("", name, arguments), names) in signatures) if signatures else None
    )


@dataclass(frozen=True)
class PressureWarning:
    """Warns when a request fills the window beyond `pressure_warning`, and not again while it stays above: only where
    the window's size is known, from its tariff, the configuration, or a provider's refusal."""

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
        fixed = request.fixed_tokens + request.loaded_tokens(request.messages) + ours
        event = pressure_change(
            placement.path_state, fixed + count_context_tokens(placement.path_state, self.policy.count_memoized), room
        )
        if event is None:
            return placement
        placement = self.note_writer.record_events(placement, [event])
        if not isinstance(event, ContextPressureWarned):
            return placement
        return self.note_writer.add_note(placement, pressure_note(event, self.policy.nonce_of(placement.conversation)))
