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

from proxy.core.commands import commands_note
from proxy.core.compaction import describe_active_frame
from proxy.core.context import context_entries, render_lineage
from proxy.core.frames import (
    BRANCH_SWITCHED_KIND,
    BranchSwitched,
    InjectionDelivered,
    ParentsAnnounced,
    PathState,
    RootAnnounced,
    UserCommandsAnnounced,
    decode_event,
)
from proxy.core.ledger import EntryKind
from proxy.core.matching import MatchKind
from proxy.core.observers import asks_for_summary, ends_with_user_message
from proxy.core.text import element, escape_xml, truncate_to_tokens
from proxy.core.tools import render_branch_switch, render_pending_injections
from proxy.exchange.notes.note_writer import NoteWriter
from proxy.exchange.thread import attach_subagent as delegation
from proxy.exchange.thread.activation import ContextPolicy
from proxy.exchange.thread.placement import Placement, policy_input_of
from proxy.store import ConversationCache

MAX_NOTE_TOKENS = 500
"""Tokens of what is told of the frames."""
COMPACTION_NOTE = "compaction"
SUMMARY_HINT = "If this asks for a summary of the conversation, let it say where the work stands, by these names:"
_CREATED_LINE = re.compile(r"^Created: .* ago$", re.MULTILINE)


@dataclass(frozen=True)
class CompactionNote:
    """The active frame, its parent, what is planned and what was finished beside it."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        if (
            placement.mode != "active"
            or placement.match_kind is MatchKind.COMPACTED
            or not _user_asks_for_summary(placement)
        ):
            return placement
        told = [entry.message.text for entry in placement.ledger.overlays.get(placement.entry_id, ()) if entry.message]
        if any(map(_is_compaction_note, told)):
            return placement
        about = describe_active_frame(placement.path_state.tree, placement.parsed_request.now)
        words = f"{SUMMARY_HINT}\n{truncate_to_tokens(about, MAX_NOTE_TOKENS, self.policy.count_tokens)}"
        around = {"note": COMPACTION_NOTE, "nonce": self.policy.nonce_of(placement.conversation)}
        note = element("stack-context", around, escape_xml(words))
        return placement if _is_in_context(placement.path_state, note) else self.note_writer.add_note(placement, note)


def _is_compaction_note(text: str) -> bool:
    return f'note="{COMPACTION_NOTE}"' in text


def _is_in_context(path_state: PathState, note: str) -> bool:
    """Whether the line has the note already, be it of another time."""
    ours = (
        p.entry.message.text
        for p in context_entries(path_state)
        if p.entry.kind is EntryKind.OVERLAY and p.entry.message
    )
    return _CREATED_LINE.sub("", note) in {_CREATED_LINE.sub("", text) for text in ours if _is_compaction_note(text)}


def _user_asks_for_summary(placement: Placement) -> bool:
    """Whether the user's last words, behind an answer, ask for it."""
    messages = placement.request.messages
    if not ends_with_user_message(messages) or not any(m.role == "assistant" for m in messages):
        return False
    last = next((m for m in reversed(messages) if m.role == "user"), None)
    return last is not None and asks_for_summary(last.text)


@dataclass(frozen=True)
class BranchNote:
    """A line that begins, or is taken up again, with this request."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        turned = _branch_switch_at(placement)
        if turned is None:
            return placement
        return self.note_writer.add_note(
            placement, render_branch_switch(turned, self.policy.nonce_of(placement.conversation))
        )


def _branch_switch_at(placement: Placement) -> BranchSwitched | None:
    """The turn that came with the new messages of this request, which are all of the user."""
    entry = placement.ledger.entries.get(placement.entry_id)
    while entry is not None and entry.created >= placement.parsed_request.now:
        for event in placement.ledger.events.get(entry.id, ()):
            if event.kind == BRANCH_SWITCHED_KIND and event.created >= placement.parsed_request.now:
                said = decode_event(event)
                return said if isinstance(said, BranchSwitched) else None
        entry = placement.ledger.entries.get(entry.parent)
    return None


@dataclass(frozen=True)
class InjectionNote:
    """What waits to be copied to the line this request stands on. It is noted first: lost is better than twice."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        lines, request = placement.path_state.branches, placement.request
        if not lines.pending_injections or not (
            self.note_writer.takes_text_after_results(request.model) or ends_with_user_message(request.messages)
        ):
            return placement
        words = render_pending_injections(lines, self.policy.nonce_of(placement.conversation))
        if not words:
            return placement
        return self.note_writer.add_note(
            self.note_writer.record_events(placement, [InjectionDelivered(lines.current)]), words
        )


@dataclass(frozen=True)
class UserCommandNote:
    """What a person did since the model was told last. A model that takes no words behind results is told with the
    user's next message."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        request, tree = placement.request, placement.path_state.tree
        if not tree.unannounced_commands or placement.mode != "active":
            return placement
        if not (self.note_writer.takes_text_after_results(request.model) or ends_with_user_message(request.messages)):
            return placement
        words = commands_note(tree, self.policy.nonce_of(placement.conversation))
        told = UserCommandsAnnounced(sha256(words.encode()).hexdigest()[:12])
        return self.note_writer.add_note(self.note_writer.record_events(placement, [told]), words)


async def attach_parent_task(placement: Placement, conversations: ConversationCache, teller: NoteWriter) -> Placement:
    """The request with what its conversation works for, where it can be told of that now and was not before."""
    request, tree = placement.request, placement.path_state.tree
    if placement.mode != "active" or tree.parents_announced or not placement.ledger.conversation.parent:
        return placement
    in_loop = tree.is_awake and teller.takes_text_after_results(request.model)
    if not (ends_with_user_message(request.messages) or in_loop):
        return placement
    return replace(
        placement, parent_task=await delegation.find_parent_task(conversations, placement.ledger.conversation)
    )


@dataclass(frozen=True)
class ParentsNote:
    """What was found above, behind the newest message. It is noted first: lost is better than twice."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        if placement.parent_task is None:
            return placement
        conversation, tree, frame = placement.parent_task
        budgets = self.policy.settings.budgets
        words = render_lineage(
            tree,
            frame,
            nonce=self.policy.nonce_of(placement.conversation),
            now=placement.parsed_request.now,
            budgets=replace(budgets, total=min(budgets.total, budgets.ancestors)),
            count=self.policy.count_tokens,
        )
        told = ParentsAnnounced(conversation, sha256(words.encode()).hexdigest()[:12])
        return self.note_writer.add_note(self.note_writer.record_events(placement, [told]), words)


MAX_BLOCK_TOKENS = 600
"""Tokens of the block: what its siblings did stands on the line, or behind their refs."""


@dataclass(frozen=True)
class RootNote:
    """The root that began. A model that takes no words behind results is told with the user's next message."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        root, request = placement.path_state.tree.unannounced_root, placement.request
        if not root or placement.mode != "active":
            return placement
        if not (self.note_writer.takes_text_after_results(request.model) or ends_with_user_message(request.messages)):
            return placement
        placement = self.note_writer.record_events(placement, [RootAnnounced(root)])
        if placement.match_kind is MatchKind.COMPACTED:
            return placement
        return self.note_writer.add_note(
            placement, self.policy.render_block(policy_input_of(placement), MAX_BLOCK_TOKENS, root)
        )
