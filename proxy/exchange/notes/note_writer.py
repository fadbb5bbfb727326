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

from proxy.config.model import Config
from proxy.core.context.message_list import on_line
from proxy.core.frames.events import FrameEvent, recorded
from proxy.core.frames.tree import path_to
from proxy.core.ledger.ledger import Entry, Kind, message_id
from proxy.core.matching.match import How
from proxy.core.observers.turns import user_spoke_last
from proxy.dialects.compose import Writer
from proxy.errors import StoreError
from proxy.exchange.thread.activation import COMPACTED_TOKENS, Actor
from proxy.exchange.thread.placement import Standing, here
from proxy.store.conversation_cache import Shelf

log = logging.getLogger(__name__)

BLOCK = re.compile(r'<stack-context session="[^"]*" frame="([^"]+)"')
"""How the block of a frame begins."""


@dataclass(frozen=True)
class Teller:
    """Writes down what is said to the model, and what was decided at a request, of one dialect."""

    config: Config
    shelf: Shelf
    writer: Writer

    def told(self, standing: Standing, words: str) -> Standing:
        """Words of ours behind the newest message of the request, there for good. Raises StoreError."""
        text = self.writer.user_message(words)
        overlay = Entry(
            message_id(standing.node, "overlay " + text.identity, standing.conversation),
            standing.node,
            standing.ledger.seq,
            Kind.OVERLAY,
            standing.thread,
            text,
            created=standing.arrival.now,
        )
        self.shelf.record(standing.shelved, [overlay])
        return _told_anew(standing)

    def recorded(self, standing: Standing, decided: Sequence[FrameEvent]) -> Standing:
        """What was decided hangs on the request, and its story is told anew. Raises StoreError."""
        seq, now = standing.ledger.seq, standing.arrival.now
        made = [recorded(e, standing.node, 0, seq + n, now) for n, e in enumerate(decided)]
        self.shelf.record(standing.shelved, made)
        return _told_anew(standing)

    def takes_words(self, model: str) -> bool:
        """Whether a model, by the client's name for it, takes words behind results as they are."""
        return self.config.tariff_of(self.config.sent_as(model)).after_tool == "message"


class Note(Protocol):
    """Something that may be said at a request of an awake thread."""

    def __call__(self, standing: Standing) -> Standing: ...


def noted(standing: Standing, notes: Iterable[Note]) -> Standing:
    """The request with what the notes, in their order, say of it. Raises StoreError."""
    for note in notes:
        try:
            standing = note(standing)
        except StoreError:
            raise
        except Exception:  # the edge of our own observers, which look at whatever a model or a tool has written
            log.exception("a note could not be made", extra={"note": type(note).__name__})
    return standing


@dataclass(frozen=True)
class Introduction:
    """A history that the client compacted, or cut at its head, no longer shows where the work stands: the block follows
    its newest message. A model that takes no words behind results is told with the user's next message."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        if standing.mode == "passive":
            return standing
        if standing.how is not How.COMPACTED and not self._is_lost(standing):
            return standing
        return self.teller.told(standing, self.actor.block(here(standing), COMPACTED_TOKENS))

    def _is_lost(self, standing: Standing) -> bool:
        """Whether the client has just left out the call whose result tells the model which frame it is in, and nothing
        on the line tells it instead."""
        story, request = standing.story, standing.request
        if standing.how is not How.ALIGNED or not story.tree.active:
            return False
        opened = [frame for frame in path_to(story.tree, story.tree.active) if frame.opening]
        if not opened or not (self.teller.takes_words(request.model) or user_spoke_last(request.messages)):
            return False
        frame, shown = opened[-1], on_line(story)
        if frame.opening is not None and any(p.entry.id == frame.opening.turn for p in shown):
            return False
        texts = (p.entry.message.text for p in shown if p.entry.is_beside and p.entry.message)
        told = (block[1] for text in texts if (block := BLOCK.match(text)) and block[1] in story.tree.frames)
        return not any(frame in path_to(story.tree, each) for each in told)


def _told_anew(standing: Standing) -> Standing:
    standing.shelved.forget_story(standing.node)
    return replace(standing, story=standing.shelved.story(standing.node))
