"""The note that tells a model where the work stands as its client asks it for a summary of the conversation (S1-66,
S1-103).

A client that compacts goes on with the summary alone, so what the frames know should be in it. The law: **the client's
own words stay as they are**; this stands behind them, in mode `active`, once for a request, and not again while one
that says the same stands on the line.

What this module does not do: it answers no such request itself, and knows none that comes without the thread's
history: such a one is a side request, and passes as it is.

The notes that tell a model where its work stands: which branch begins or goes on with this request, and what was
copied to it from another one.

The law: **told once, by the request that it is true of**. What was told stays on that line, and is on no other.

What this module does not do: it chooses no line and words nothing (`stack.branching`).

The note that tells a model what a person did to its frames by hand (S0-36).

The law: **it is told once**, with the next request of an awake thread in mode `active`; what a person did while the
thread slept waits until it wakes.

What this module does not do: it words nothing (`stack.by_hand`).

The note that tells a subagent what it works for: the frames above the call that delegated it (S1-71i).

Clients isolate their subagents on purpose, so this is off unless the configuration asks for it
(`subagent.parent_context`). Then the thread wakes for it at its first message, however small it is: nothing of it can
be cached yet, so that breaks no prefix. The law: **an asleep thread passes as it came**, so one that cannot wake
(without tools, or in another mode than `active`) is told nothing; and **it is told once**, as things stood at the
call, and what was told stays, whatever becomes of the conversation it is about.

What this module does not do: it words nothing (`stack.block_lineage`), and knows no subagent by itself (`delegation`):
a fork, and a session that only names its parent, is none.

The note that tells a model of a root that began beside the one it knew (C20).

The model ended its tree of frames, and the user has spoken again: the block of the new root stands behind their words,
with the ended ones as its siblings and what came of them. The law: **it is told once**, with the next request of an
awake thread in mode `active`. A thread that wakes is told of it in its guidance, and one whose client compacted by its
introduction.

What this module does not do: it begins no root (`stack.roots`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from msgspec.structs import replace

from proxy.core.commands.apply_command import note
from proxy.core.compaction.llm_summary import where_it_stands
from proxy.core.context.block_nested import render_lineage
from proxy.core.context.message_list import on_line
from proxy.core.frames.branches import SWITCHED
from proxy.core.frames.events import HandTold, Injected, ParentsTold, RootTold, Switched, read_event
from proxy.core.frames.path_state import Story
from proxy.core.ledger.ledger import Kind
from proxy.core.matching.match import How
from proxy.core.observers.turns import asks_for_summary, user_spoke_last
from proxy.core.text import element, escape_xml, truncate_to_tokens
from proxy.core.tools.branch_tools import injected_words, turned_words
from proxy.exchange.notes.note_writer import Teller
from proxy.exchange.thread import attach_subagent as delegation
from proxy.exchange.thread.activation import Actor
from proxy.exchange.thread.placement import Standing, here
from proxy.store.conversation_cache import Shelf

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


@dataclass(frozen=True)
class BranchNote:
    """A line that begins, or is taken up again, with this request."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        turned = _turned(standing)
        if turned is None:
            return standing
        return self.teller.told(standing, turned_words(turned, self.actor.nonce(standing.conversation)))


def _turned(standing: Standing) -> Switched | None:
    """The turn that came with the new messages of this request, which are all of the user."""
    entry = standing.ledger.entries.get(standing.node)
    while entry is not None and entry.created >= standing.arrival.now:
        for event in standing.ledger.events.get(entry.id, ()):
            if event.kind == SWITCHED and event.created >= standing.arrival.now:
                said = read_event(event)
                return said if isinstance(said, Switched) else None
        entry = standing.ledger.entries.get(entry.parent)
    return None


@dataclass(frozen=True)
class InjectionNote:
    """What waits to be copied to the line this request stands on. It is noted first: lost is better than twice."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        lines, request = standing.story.lines, standing.request
        if not lines.injections or not (self.teller.takes_words(request.model) or user_spoke_last(request.messages)):
            return standing
        words = injected_words(lines, self.actor.nonce(standing.conversation))
        if not words:
            return standing
        return self.teller.told(self.teller.recorded(standing, [Injected(lines.current)]), words)


@dataclass(frozen=True)
class HandNote:
    """What a person did since the model was told last. A model that takes no words behind results is told with the
    user's next message."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        request, tree = standing.request, standing.story.tree
        if not tree.by_hand or standing.mode != "active":
            return standing
        if not (self.teller.takes_words(request.model) or user_spoke_last(request.messages)):
            return standing
        words = note(tree, self.actor.nonce(standing.conversation))
        told = HandTold(sha256(words.encode()).hexdigest()[:12])
        return self.teller.told(self.teller.recorded(standing, [told]), words)


async def with_parents(standing: Standing, shelf: Shelf, teller: Teller) -> Standing:
    """The request with what its conversation works for, where it can be told of that now and was not before."""
    request, tree = standing.request, standing.story.tree
    if standing.mode != "active" or tree.parents_told or not standing.ledger.conversation.parent:
        return standing
    in_loop = tree.awake and teller.takes_words(request.model)
    if not (user_spoke_last(request.messages) or in_loop):
        return standing
    return replace(standing, above=await delegation.above(shelf, standing.ledger.conversation))


@dataclass(frozen=True)
class ParentsNote:
    """What was found above, behind the newest message. It is noted first: lost is better than twice."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        if standing.above is None:
            return standing
        conversation, tree, frame = standing.above
        budgets = self.actor.settings.budgets
        words = render_lineage(
            tree,
            frame,
            nonce=self.actor.nonce(standing.conversation),
            now=standing.arrival.now,
            budgets=replace(budgets, total=min(budgets.total, budgets.ancestors)),
            count=self.actor.count,
        )
        told = ParentsTold(conversation, sha256(words.encode()).hexdigest()[:12])
        return self.teller.told(self.teller.recorded(standing, [told]), words)


ROOT_NOTE_TOKENS = 600
"""Tokens of the block: what its siblings did stands on the line, or behind their refs."""


@dataclass(frozen=True)
class RootNote:
    """The root that began. A model that takes no words behind results is told with the user's next message."""

    teller: Teller
    actor: Actor

    def __call__(self, standing: Standing) -> Standing:
        root, request = standing.story.tree.untold_root, standing.request
        if not root or standing.mode != "active":
            return standing
        if not (self.teller.takes_words(request.model) or user_spoke_last(request.messages)):
            return standing
        standing = self.teller.recorded(standing, [RootTold(root)])
        if standing.how is How.COMPACTED:
            return standing
        return self.teller.told(standing, self.actor.block(here(standing), ROOT_NOTE_TOKENS, root))
