"""Adds the proxy's notes to a request of an awake thread, one after the other.

A note's text is stored with the request in which it arose and is sent again with every later context, so nothing before
the newest message changes. A note that fails is skipped; only StoreError is raised.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from proxy.config import Config
from proxy.core.context import context_entries
from proxy.core.frames import FrameEvent, as_ledger_event, path_to
from proxy.core.ledger import Entry, EntryKind, Request, message_id
from proxy.core.matching import MatchKind
from proxy.core.observers import ends_with_user_message
from proxy.dialects import DialectComposer
from proxy.errors import StoreError
from proxy.exchange.background.scheduler import is_long, let_others_run
from proxy.exchange.thread.context_policy import MAX_COMPACTED_BLOCK_TOKENS, ContextPolicy
from proxy.exchange.thread.placement import Placement, policy_input_of
from proxy.store import ConversationCache

log = logging.getLogger(__name__)

BLOCK_START_PATTERN = re.compile(r'<stack-context session="[^"]*" frame="([^"]+)"')


@dataclass(frozen=True)
class NoteWriter:
    """Stores the notes and events of a request, for one dialect."""

    config: Config
    conversation_cache: ConversationCache
    composer: DialectComposer

    def add_note(self, placement: Placement, words: str, behind: str = "") -> Placement:
        """Append a note behind the newest message of the request, permanently, or `behind` another entry of a request
        that opens a conversation: none of it was sent before. Raises StoreError."""
        text = self.composer.user_message(words)
        behind = behind or placement.entry_id
        overlay = Entry(
            message_id(behind, "overlay " + text.identity, placement.conversation),
            behind,
            placement.ledger.next_seq,
            EntryKind.OVERLAY,
            placement.thread,
            text,
            created=placement.parsed_request.now,
        )
        self.conversation_cache.record(placement.cached_conversation, [overlay])
        if behind != placement.entry_id:
            placement.cached_conversation.path_states.clear()
        return _with_new_path_state(placement)

    def record_events(self, placement: Placement, decided: Sequence[FrameEvent]) -> Placement:
        """Record events at the request and replay its path. Raises StoreError."""
        seq, now = placement.ledger.next_seq, placement.parsed_request.now
        made = [as_ledger_event(e, placement.entry_id, 0, seq + n, now) for n, e in enumerate(decided)]
        self.conversation_cache.record(placement.cached_conversation, made)
        return _with_new_path_state(placement)

    def takes_text_after_results(self, model: str) -> bool:
        """Whether a model, by the client's name for it, accepts text behind tool results."""
        return self.config.tariff_of(self.config.upstream_model_of(model)).after_tool == "message"

    def may_add_note(self, request: Request) -> bool:
        """Whether the model accepts a text of ours at the end of this request; if not, the next user message may. An
        answer that is to go on, as a paused one, must stay the last message."""
        paused = any(m.role == "assistant" for m in request.messages[-1:])
        return ends_with_user_message(request.messages) or (not paused and self.takes_text_after_results(request.model))


class Note(Protocol):
    """Looks at a request of an awake thread; may add text or record events."""

    def __call__(self, placement: Placement) -> Placement: ...


async def apply_notes(placement: Placement, notes: Iterable[Note]) -> Placement:
    """Apply the notes in order; each gets what the one before it returned. Raises StoreError."""
    for note in notes:
        await let_others_run(placement.request)
        try:
            placement = note(placement)
        except StoreError:
            raise
        except Exception:  # the edge of our own observers, which look at whatever a model or a tool has written
            log.exception("a note could not be made", extra={"note": type(note).__name__})
    return placement


@dataclass(frozen=True)
class IntroductionNote:
    """Adds the active frame's block when a history that the client compacted or cut no longer shows it. A model that
    accepts no text behind results gets it with the next user message."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        if not placement.guides_model:
            return placement
        if placement.match_kind is not MatchKind.COMPACTED and not self._block_is_lost(placement):
            return placement
        return self.note_writer.add_note(
            placement, self.policy.render_block(policy_input_of(placement), MAX_COMPACTED_BLOCK_TOKENS)
        )

    def _block_is_lost(self, placement: Placement) -> bool:
        path_state, request = placement.path_state, placement.request
        if placement.match_kind is not MatchKind.ALIGNED or not path_state.tree.active:
            return False
        opened = [frame for frame in path_to(path_state.tree, path_state.tree.active) if frame.opening]
        if not opened or not self.note_writer.may_add_note(request):
            return False
        frame, shown = opened[-1], context_entries(path_state)
        if frame.opening is not None and any(p.entry.id == frame.opening.turn for p in shown):
            return False
        texts = (p.entry.message.text for p in shown if p.entry.is_overlay and p.entry.message)
        is_told = (
            block[1]
            for text in texts
            if (block := BLOCK_START_PATTERN.match(text)) and block[1] in path_state.tree.frames
        )
        return not any(frame in path_to(path_state.tree, each) for each in is_told)


def _with_new_path_state(placement: Placement) -> Placement:
    cached, at = placement.cached_conversation, placement.entry_id
    cached.forget_path_state(at)
    if is_long(placement.request) and (before := placement.ledger.entries[at].parent):
        cached.path_state(before)  # kept, so that the next note replays one entry, and not all of the path: 30 ms
    return replace(placement, path_state=cached.path_state(at))
