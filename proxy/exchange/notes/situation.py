"""The note that tells a model where the work stands as its client asks it for a summary of the conversation (S1-66,
S1-103).

A client that compacts goes on with the summary alone, so what the frames know should be in it. The law: **the client's
own words stay as they are**; this stands behind them, in mode `active`, once for a request, and not again while one
that says the same stands on the line.

What this module does not do: it answers no such request itself, and knows none that comes without the thread's
history: such a one is a side request, and passes as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from proxy.core.compaction.summarize import where_it_stands
from proxy.core.context.line import on_line
from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import Kind
from proxy.core.matching.match import How
from proxy.core.observers.summary import asks_for_summary
from proxy.core.observers.turns import user_spoke_last
from proxy.core.text import element, escape_xml, truncate_to_tokens
from proxy.exchange.notes.base import Teller
from proxy.exchange.thread.placement import Standing
from proxy.exchange.thread.policy import Actor

MOST = 500
"""Tokens of what is told of the frames."""
NOTE = "compaction"
ASKED = "If this asks for a summary of the conversation, let it say where the work stands, by these names:"
_TIME = re.compile(r"^Created: .* ago$", re.MULTILINE)


@dataclass(frozen=True)
class CompactionNote:
    """The active frame, its parent, what is planned and what was finished beside it."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        if standing.mode != "active" or standing.how is How.COMPACTED or not _asks(standing):
            return standing
        told = [entry.message.text for entry in standing.ledger.overlays.get(standing.node, ()) if entry.message]
        if any(map(_is_one, told)):
            return standing
        about = where_it_stands(standing.story.tree, standing.arrival.now)
        words = f"{ASKED}\n{truncate_to_tokens(about, MOST, self.actor.count)}"
        around = {"note": NOTE, "nonce": self.actor.nonce(standing.conversation)}
        note = element("stack-context", around, escape_xml(words))
        return standing if _stands(standing.story, note) else self.teller.told(standing, note)


def _is_one(text: str) -> bool:
    return f'note="{NOTE}"' in text


def _stands(story: Story, note: str) -> bool:
    """Whether the line has the note already, be it of another time."""
    ours = (p.entry.message.text for p in on_line(story) if p.entry.kind is Kind.OVERLAY and p.entry.message)
    return _TIME.sub("", note) in {_TIME.sub("", text) for text in ours if _is_one(text)}


def _asks(standing: Standing) -> bool:
    """Whether the user's last words, behind an answer, ask for it."""
    messages = standing.request.messages
    if not user_spoke_last(messages) or not any(m.role == "assistant" for m in messages):
        return False
    last = next((m for m in reversed(messages) if m.role == "user"), None)
    return last is not None and asks_for_summary(last.text)
