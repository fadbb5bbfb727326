"""Words of ours to the model of an awake thread: where they stand, and who is asked for them.

A *note* looks at a request where it stands and may say something behind its newest message, or change what is done with
it. Notes are asked one after the other, each with what the one before it left.

The laws: **what was told stays**: words are an overlay, stored with the request in which they arose and told again
with every later line, so nothing before the newest message ever changes (L2). **A fault of a note costs the note**, not
the request: only a store that does not take records is raised.

What this module does not do: it decides nothing and words nothing; each note is a module of its own.
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
from proxy.core.ledger import Entry, EntryKind, message_id
from proxy.core.matching import MatchKind
from proxy.core.observers import ends_with_user_message
from proxy.dialects import DialectComposer
from proxy.errors import StoreError
from proxy.exchange.thread.activation import MAX_COMPACTED_BLOCK_TOKENS, ContextPolicy
from proxy.exchange.thread.placement import Placement, policy_input_of
from proxy.store import ConversationCache

log = logging.getLogger(__name__)

BLOCK_START_PATTERN = re.compile(r'<stack-context session="[^"]*" frame="([^"]+)"')
"""How the block of a frame begins."""


@dataclass(frozen=True)
class NoteWriter:
    """Writes down what is said to the model, and what was decided at a request, of one dialect."""

    config: Config
    conversation_cache: ConversationCache
    composer: DialectComposer

    def add_note(self, placement: Placement, words: str) -> Placement:
        """Words of ours behind the newest message of the request, there for good. Raises StoreError."""
        text = self.composer.user_message(words)
        overlay = Entry(
            message_id(placement.entry_id, "overlay " + text.identity, placement.conversation),
            placement.entry_id,
            placement.ledger.next_seq,
            EntryKind.OVERLAY,
            placement.thread,
            text,
            created=placement.parsed_request.now,
        )
        self.conversation_cache.record(placement.cached_conversation, [overlay])
        return _with_new_path_state(placement)

    def record_events(self, placement: Placement, decided: Sequence[FrameEvent]) -> Placement:
        """What was decided hangs on the request, and its story is told anew. Raises StoreError."""
        seq, now = placement.ledger.next_seq, placement.parsed_request.now
        made = [as_ledger_event(e, placement.entry_id, 0, seq + n, now) for n, e in enumerate(decided)]
        self.conversation_cache.record(placement.cached_conversation, made)
        return _with_new_path_state(placement)

    def takes_text_after_results(self, model: str) -> bool:
        """Whether a model, by the client's name for it, takes words behind results as they are."""
        return self.config.tariff_of(self.config.upstream_model_of(model)).after_tool == "message"


class Note(Protocol):
    """Something that may be said at a request of an awake thread."""

    def __call__(self, placement: Placement) -> Placement: ...


def apply_notes(placement: Placement, notes: Iterable[Note]) -> Placement:
    """The request with what the notes, in their order, say of it. Raises StoreError."""
    for note in notes:
        try:
            placement = note(placement)
        except StoreError:
            raise
        except Exception:  # the edge of our own observers, which look at whatever a model or a tool has written
            log.exception("a note could not be made", extra={"note": type(note).__name__})
    return placement


@dataclass(frozen=True)
class IntroductionNote:
    """A history that the client compacted, or cut at its head, no longer shows where the work stands: the block follows
    its newest message. A model that takes no words behind results is told with the user's next message."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        if placement.mode == "passive":
            return placement
        if placement.match_kind is not MatchKind.COMPACTED and not self._block_is_lost(placement):
            return placement
        return self.note_writer.add_note(
            placement, self.policy.render_block(policy_input_of(placement), MAX_COMPACTED_BLOCK_TOKENS)
        )

    def _block_is_lost(self, placement: Placement) -> bool:
        """Whether the client has just left out the call whose result tells the model which frame it is in, and nothing
        on the line tells it instead."""
        path_state, request = placement.path_state, placement.request
        if placement.match_kind is not MatchKind.ALIGNED or not path_state.tree.active:
            return False
        opened = [frame for frame in path_to(path_state.tree, path_state.tree.active) if frame.opening]
        if not opened or not (
            self.note_writer.takes_text_after_results(request.model) or ends_with_user_message(request.messages)
        ):
            return False
        frame, shown = opened[-1], context_entries(path_state)
        if frame.opening is not None and any(p.entry.id == frame.opening.turn for p in shown):
            return False
        texts = (p.entry.message.text for p in shown if p.entry.is_overlay and p.entry.message)
        told = (
            block[1]
            for text in texts
            if (block := BLOCK_START_PATTERN.match(text)) and block[1] in path_state.tree.frames
        )
        return not any(frame in path_to(path_state.tree, each) for each in told)


def _with_new_path_state(placement: Placement) -> Placement:
    placement.cached_conversation.forget_path_state(placement.entry_id)
    return replace(placement, path_state=placement.cached_conversation.path_state(placement.entry_id))
