"""Notes that tell a model where its work stands.

They cover a client's request for a summary, a branch and what was copied to it, a person's edits of frames, the task a
subagent works for, and the block of a frame that is due. Each is added once, to a request of an awake thread
in mode `active`, and stays in that context.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from msgspec.structs import replace

from proxy.core.commands import commands_note
from proxy.core.compaction import describe_active_frame
from proxy.core.context import context_entries, render_lineage, uncalled_frame
from proxy.core.frames import (
    BRANCH_SWITCHED_KIND,
    BranchSwitched,
    InjectionDelivered,
    ParentsAnnounced,
    PathState,
    RootAnnounced,
    UserCommandsAnnounced,
    decode_event,
    path_to,
)
from proxy.core.ledger import EntryKind
from proxy.core.matching import MatchKind
from proxy.core.observers import asks_for_summary, ends_with_user_message
from proxy.core.text import element, escape_xml, truncate_to_tokens
from proxy.core.tools import render_branch_switch, render_pending_injections
from proxy.exchange.notes.base import NoteWriter
from proxy.exchange.thread import attach_subagent
from proxy.exchange.thread.context_policy import MAX_NOTE_BLOCK_TOKENS, ContextPolicy
from proxy.exchange.thread.placement import Placement, policy_input_of
from proxy.store import ConversationCache

MAX_NOTE_TOKENS = 500
COMPACTION_NOTE = "compaction"
SUMMARY_HINT = "If this asks for a summary of the conversation, let it say where the work stands, by these names:"
_CREATED_LINE = re.compile(r"^Created: .* ago$", re.MULTILINE)


@dataclass(frozen=True)
class CompactionNote:
    """Answers a client's compaction prompt with the active frame, its parent, and planned and finished siblings. The
    client's own text stays unchanged."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        if (
            placement.mode != "active"
            or placement.match_kind is MatchKind.COMPACTED
            or not _user_asks_for_summary(placement)
        ):
            return placement
        announced = [
            entry.message.text for entry in placement.ledger.overlays.get(placement.entry_id, ()) if entry.message
        ]
        if any(map(_is_compaction_note, announced)):
            return placement
        about = describe_active_frame(placement.path_state.tree, placement.parsed_request.now)
        words = f"{SUMMARY_HINT}\n{truncate_to_tokens(about, MAX_NOTE_TOKENS, self.policy.count_tokens)}"
        around = {"note": COMPACTION_NOTE, "nonce": self.policy.nonce_of(placement.conversation)}
        note = element("stack-context", around, escape_xml(words))
        return placement if _is_in_context(placement.path_state, note) else self.note_writer.add_note(placement, note)


def _is_compaction_note(text: str) -> bool:
    return f'note="{COMPACTION_NOTE}"' in text


def _is_in_context(path_state: PathState, note: str) -> bool:
    ours = (
        p.entry.message.text
        for p in context_entries(path_state)
        if p.entry.kind is EntryKind.OVERLAY and p.entry.message
    )
    return _CREATED_LINE.sub("", note) in {_CREATED_LINE.sub("", text) for text in ours if _is_compaction_note(text)}


def _user_asks_for_summary(placement: Placement) -> bool:
    messages = placement.request.messages
    if not ends_with_user_message(messages) or not any(m.role == "assistant" for m in messages):
        return False
    last = next((m for m in reversed(messages) if m.role == "user"), None)
    return last is not None and asks_for_summary(last.text)


@dataclass(frozen=True)
class BranchNote:
    """Tells the model that a branch begins or resumes with this request."""

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
    """Adds what waits to be copied to this path. Recorded before it is added: a lost copy is better than a second
    one."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        branches, request = placement.path_state.branches, placement.request
        if not branches.pending_injections or not self.note_writer.may_add_note(request):
            return placement
        words = render_pending_injections(branches, self.policy.nonce_of(placement.conversation))
        if not words:
            return placement
        return self.note_writer.add_note(
            self.note_writer.record_events(placement, [InjectionDelivered(branches.current)]), words
        )


@dataclass(frozen=True)
class UserCommandNote:
    """Tells what a person did to the frames since the last note. A model that accepts no text behind results gets it
    with the next user message."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        request, tree = placement.request, placement.path_state.tree
        if not tree.unannounced_commands or placement.mode != "active":
            return placement
        if not self.note_writer.may_add_note(request):
            return placement
        words = commands_note(tree, self.policy.nonce_of(placement.conversation))
        announced = UserCommandsAnnounced(sha256(words.encode()).hexdigest()[:12])
        return self.note_writer.add_note(self.note_writer.record_events(placement, [announced]), words)


async def attach_parent_task(placement: Placement, conversations: ConversationCache, teller: NoteWriter) -> Placement:
    """Attach the parent's task to a subagent's request, if it can be told now and was not before."""
    request, tree = placement.request, placement.path_state.tree
    if placement.mode != "active" or tree.parents_announced or not placement.ledger.conversation.parent:
        return placement
    in_loop = tree.is_awake and teller.takes_text_after_results(request.model)
    if not (ends_with_user_message(request.messages) or in_loop):
        return placement
    return replace(
        placement, parent_task=await attach_subagent.find_parent_task(conversations, placement.ledger.conversation)
    )


@dataclass(frozen=True)
class ParentsNote:
    """Tells a subagent the frames above its call. Recorded before it is added: a lost note is better than a second
    one."""

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
        announced = ParentsAnnounced(conversation, sha256(words.encode()).hexdigest()[:12])
        return self.note_writer.add_note(self.note_writer.record_events(placement, [announced]), words)


@dataclass(frozen=True)
class BlockNote:
    """Adds the block that is due: of a new root, or of the frame in which a thread woke; in a fork that opens, behind
    its directive. It is true as it is written, and history afterwards. A model that accepts no text behind results
    gets it with the next user message."""

    note_writer: NoteWriter
    policy: ContextPolicy

    def __call__(self, placement: Placement) -> Placement:
        tree, request = placement.path_state.tree, placement.request
        if not tree.unannounced_frame or not placement.guides_model:
            return placement
        if not self.note_writer.may_add_note(request):
            return placement
        path = path_to(tree, tree.active)
        frame = tree.unannounced_frame if tree.unannounced_frame in {each.id for each in path} else tree.active
        placement = self.note_writer.record_events(placement, [RootAnnounced(frame)])
        if placement.match_kind is MatchKind.COMPACTED or uncalled_frame(tree).id != tree.active:
            return placement  # it was told otherwise, or has become false
        block = self.policy.render_block(policy_input_of(placement), MAX_NOTE_BLOCK_TOKENS, frame)
        return self.note_writer.add_note(placement, block, placement.directive_entry)
