"""Subagents: conversations that a tool call in another one began, and their frames in the parent.

The delegating call begins the frame and its result ends it; silence does not, because models think for minutes. A fork,
or a session that only names its parent, gets a frame when it has gone idle. Nothing here changes a context.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.config import SubagentSettings
from proxy.config.runtime import is_long_enough
from proxy.core.frames import (
    FINAL_STATUSES,
    MAX_CRITERION_CHARACTERS,
    RETURN_STATUSES,
    FrameEvent,
    FramePopped,
    Status,
    SubagentStarted,
    Tree,
    as_ledger_event,
    decode_event,
    subagent_frame_id,
    title_of,
)
from proxy.core.ledger import Conversation, Ledger, visible_calls
from proxy.core.matching import guess_subagent_parent, lookup_keys
from proxy.core.text import cut_for_display, remove_illegal_xml
from proxy.errors import StoreError
from proxy.store import CachedConversation, ConversationCache

MAX_RESULT_CHARACTERS = 4_000
NO_RESULT_TEXT = "Ended without a word."


class ParentTask(NamedTuple):
    """What a subagent works for: the parent's `tree` as of the call, and the subagent's `frame` in it."""

    conversation: str
    tree: Tree
    frame: str


async def begin_subagent(  # noqa: PLR0913  who delegated what to whom, and when
    conversations: ConversationCache, tenant: str, origin: tuple[str, str], child: str, prompt: str, now: int
) -> None:
    """Open a frame for `child` under the frame of the call. `origin` is the parent conversation and the turn of the
    call; without a turn (a fork, a session's parent) no frame is opened."""
    parent = await conversations.get(tenant, origin[0]) if all(origin) else None
    rounds = parent.ledger.rounds.get(origin[1], ()) if parent else ()
    call = lookup_keys.delegating_call(rounds, prompt)
    if parent is not None and call is None:  # none says these words: it was presumed by a title
        call = guess_subagent_parent.longest_unclaimed_call(parent.ledger, origin[1], rounds)
    if parent is None or call is None:
        return
    tree, turn = parent.path_state(origin[1]).tree, origin[1]
    frame = subagent_frame_id(turn, [c.id for c in visible_calls(rounds)].index(call.id))
    if tree.active:
        title, criterion = title_of(prompt), prompt.strip()[:MAX_CRITERION_CHARACTERS]
        _record_event(
            conversations, parent, SubagentStarted(frame, tree.active, title, criterion, child, call.id), turn, now
        )


def guess_parent(conversations: ConversationCache, tenant: str, since: int, conversation: str = "") -> tuple[str, str]:
    """The conversation and turn with the newest call pending since `since` (ms) or later: the likely parent of a
    subagent known by its title only. Two empty strings where there is none. `conversation` restricts the search."""
    found = ("", "", since)
    for cached in conversations.recent_conversations(tenant):
        known = cached.ledger.conversation.id
        if conversation in ("", known) and (
            waiting := guess_subagent_parent.guess_parent_call(cached.ledger, found[2])
        ):
            found = (known, waiting.turn, waiting.since)
    return found[:2]


async def find_parent_task(conversations: ConversationCache, child: Conversation) -> ParentTask | None:
    """The task that a call delegated to `child`; None for a fork, a session that only names its parent, or an
    unreadable parent."""
    try:
        parent = await conversations.get(child.tenant, child.parent) if child.parent else None
    except StoreError:  # nothing is lost but a help
        return None
    if parent is None or child.parent_entry not in parent.ledger.entries:
        return None
    tree = parent.path_state(child.parent_entry).tree
    called = (f.id for f in tree.frames.values() if f.conversation == child.id and f.client_key)
    return next((ParentTask(child.parent, tree, frame) for frame in called), None)


async def end_returned_subagents(
    conversations: ConversationCache, ledger: Ledger, known: Tree, node: str, now: int
) -> None:
    """End the root of each subagent whose result arrived with the request at `node`, with that result. `known` are the
    frames there."""
    for event in ledger.events.get(node, ()):
        ended = decode_event(event) if event.kind == "popped" else None
        frame = known.frames.get(ended.frame) if isinstance(ended, FramePopped) else None
        does = frame.conversation if frame else ""
        child = await conversations.get(ledger.conversation.tenant, does) if does else None
        tip = child.ledger.newest_tip() if child else None
        if child is None or tip is None or not isinstance(ended, FramePopped):
            continue
        tree = child.path_state(tip.id).tree
        if tree.frames and tree.root.status not in FINAL_STATUSES | RETURN_STATUSES:
            words = (ended.results, cut_for_display(ended.results))
            _record_event(conversations, child, FramePopped(tree.root.id, ended.status, *words), tip.id, now)


async def attach_unannounced(
    conversations: ConversationCache, tenant: str, child: str, least: SubagentSettings, now: int
) -> None:
    """Give an idle conversation that has a parent but no delegating call an ended frame there, with its last text, if
    it is long enough and has none. Where only people may end frames, it stays open. Raises StoreError."""
    known = await conversations.get(tenant, child)
    parent = await conversations.get(tenant, known.ledger.conversation.parent) if known else None
    if known is None or parent is None or not is_long_enough(known.ledger, least):
        return
    async with conversations.lock(tenant, parent.ledger.conversation.hint):
        tip, own = parent.ledger.newest_tip(), known.ledger.newest_tip()
        tree = parent.path_state(tip.id).tree if tip else Tree()
        if tip is None or own is None or not tree.active or has_subagent_frame(parent.ledger, child):
            return
        root, frame = known.path_state(own.id).tree.root, subagent_frame_id(child)
        said = (
            cut_for_display(remove_illegal_xml(_last_assistant_text(known.ledger, own.id)), MAX_RESULT_CHARACTERS)
            or NO_RESULT_TEXT
        )
        _record_event(
            conversations,
            parent,
            SubagentStarted(frame, tree.active, root.title, root.criteria, child, ""),
            tip.id,
            now,
        )
        if least.auto_complete:
            _record_event(
                conversations, parent, FramePopped(frame, Status.COMPLETED, said, cut_for_display(said)), tip.id, now
            )


def has_subagent_frame(ledger: Ledger, child: str) -> bool:
    events = (event for events in ledger.events.values() for event in events if event.kind == "delegated")
    return any(
        isinstance(started := decode_event(event), SubagentStarted) and started.conversation == child
        for event in events
    )


def _last_assistant_text(ledger: Ledger, tip: str) -> str:
    for entry in reversed(ledger.path(tip)):
        texts = [done.spoken.message.text for done in ledger.rounds.get(entry.id, ())]
        if entry.message is not None and entry.message.role == "assistant":
            texts.append(entry.message.text)
        if said := next((text for text in reversed(texts) if text.strip()), ""):
            return said
    return ""


def _record_event(
    conversations: ConversationCache, cached: CachedConversation, event: FrameEvent, entry: str, now: int
) -> None:
    ledger = cached.ledger
    conversations.record(
        cached, [as_ledger_event(event, entry, ledger.newest_round_number(entry), ledger.next_seq, now)]
    )
    cached.path_states.clear()
