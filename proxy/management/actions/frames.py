"""What a person does to the frames of a conversation from beside it, put into the store.

It hangs on the newest entry of a path, so it holds on that path, in every process and after a restart. It takes effect
with the next request there, and the model is told of it then.

A subagent that a person ends, put into the store: its frame, and the root of its own conversation (S1-120).

It hangs on the newest entry of each, so it holds there in every process and after a restart. What cannot be done is
refused in the words the model would read.

Stopping all work in a conversation, put into the store: on the path of every thread, where it was left off.

It hangs on the last entry that stays whoever goes on from there: an answer that broke off is none. It holds in every
process and after a restart; the model is told of it with the next request of that path.

What a person asks for, put into the store: a folded frame is to come back.

It hangs on the requests at which the frame was folded, so every path that has the fold has the wish too, in every
process and after a restart. When it comes is `proxy.core.compaction.unfold`'s to say.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace
from typing_extensions import TypedDict

from proxy.accounting.token_counter import estimate
from proxy.config.model import Config
from proxy.core.commands.apply_command import Hand, did, hung
from proxy.core.commands.command_values import Deed
from proxy.core.commands.stop_work import stopped
from proxy.core.compaction.unfold import Wish, wish
from proxy.core.frames.events import FrameEvent, Kept, Popped, recorded
from proxy.core.frames.path_state import Story
from proxy.core.frames.tree import FINAL, RETURNED
from proxy.core.ledger.ledger import Entry, Event, Kind, Ledger
from proxy.core.text import cut_for_display
from proxy.core.tools.base import Mistake
from proxy.core.tools.subagent_tools import ended, tracked
from proxy.errors import NotAllowed
from proxy.exchange.resolver import tool_settings
from proxy.exchange.thread.activation import suffixed
from proxy.management.views.conversations import shortened, state
from proxy.management.views.lookup import folded, newest_story, stories, thread_tips
from proxy.management.views.schemas import FrameState, UnfoldingTold
from proxy.store import Owned, Store


class HandTold(TypedDict):
    """What came of it: the frames it was about as they are now, the active one, and the same in words."""

    conversation: str
    frames: list[FrameState]
    activeFrameID: str
    told: str


@dataclass(frozen=True, slots=True)
class At:
    """Where a person does something: a path of a conversation, at `now` (ms)."""

    ledger: Ledger
    story: Story
    now: int


async def do(store: Store, config: Config, at: At, deed: Deed) -> tuple[HandTold, Sequence[Event]]:
    """Do it; durable when this returns. Raises UnknownFrame, NotAllowed, StoreError."""
    ledger, conversation = at.ledger, at.ledger.conversation
    hand = Hand(
        at.story, ledger, secrets.token_hex(8), at.now, estimate, tool_settings(config), suffixed(config, _model(at))
    )
    done = did(hand, deed)
    events = hung(hand, done)
    await store.durable(store.write(conversation.tenant, [Owned(conversation.id, event) for event in events]))
    frames = state(ledger, replace(at.story, tree=done.tree))["frames"]
    told: HandTold = {
        "conversation": conversation.id,
        "frames": [frames[frame] for frame in done.frames],
        "activeFrameID": done.tree.active,
        "told": done.told,
    }
    return told, events


def _model(at: At) -> str:
    """Of the newest request there; empty where nobody knows it."""
    tip = at.ledger.entries.get(at.story.tip)
    thread = at.ledger.threads.get(tip.thread) if tip else None
    return thread.model if thread else ""


@dataclass(frozen=True, slots=True)
class Ended:
    """What was recorded, by conversation."""

    events: Sequence[tuple[str, Event]]


async def end(store: Store, ledger: Ledger, story: Story, wanted: tuple[str, str, str], now: int) -> Ended:
    """End a subagent at `now` (ms): `wanted` are its frame, the status and the summary. Durable when this returns.

    Raises NotAllowed, StoreError.
    """
    frame, status, summary = wanted
    try:
        event = ended(tracked(story.tree, frame), status, summary)
    except Mistake as mistake:
        raise NotAllowed(str(mistake).removeprefix("Error: "), code="not_allowed") from None
    owner = ledger.conversation
    told = [(owner.id, _hung(ledger, story.tip, event, now))]
    if (child := await store.load(owner.tenant, story.tree.frames[frame].conversation)) is not None:
        told += [(child.conversation.id, root) for root in _root(child, event, now)]
    await store.durable(store.write(owner.tenant, [Owned(conversation, made) for conversation, made in told]))
    return Ended(told)


def _root(child: Ledger, ended: Popped, now: int) -> list[Event]:
    """The end of the subagent's own conversation, where that goes on."""
    story = newest_story(child)
    root = story.tree.root if story.tree.frames else None
    if root is None or root.status in FINAL | RETURNED:
        return []
    popped = Popped(root.id, ended.status, ended.results, cut_for_display(ended.results))
    return [_hung(child, story.tip, popped, now)]


def _hung(ledger: Ledger, entry: str, event: FrameEvent, now: int) -> Event:
    return recorded(event, entry, ledger.newest_round(entry), ledger.seq, now)


class TreeStopped(TypedDict):
    """Ids of frames: those that are blocked now, those that were given up before they began, and those that are still
    under way, because a subagent does their work in a conversation of its own."""

    blocked: list[str]
    invalidated: list[str]
    left: list[str]


async def stop_all(store: Store, config: Config, ledger: Ledger, now: int) -> tuple[TreeStopped, Sequence[Event]]:
    """Stop it at `now` (ms); durable when this returns. `ledger` is the caller's own, and has it then. Raises
    StoreError, Unreadable."""
    found: TreeStopped = {"blocked": [], "invalidated": [], "left": []}
    events: list[Event] = []
    for tip in _ends(ledger):
        story = folded(ledger, tip)
        thread = ledger.threads.get(tip.thread)
        takes_none_behind = suffixed(config, thread.model if thread else "")
        hand = Hand(story, ledger, secrets.token_hex(8), now, estimate, tool_settings(config), takes_none_behind)
        came = stopped(hand)
        for event in hung(hand, came.done) if came.done else ():
            ledger.add_event(event)
            events.append(event)
        found["blocked"] += came.blocked
        found["invalidated"] += came.invalidated
        found["left"] += came.left
    if events:
        about = ledger.conversation
        await store.durable(store.write(about.tenant, [Owned(about.id, event) for event in events]))
    return _each_once(found), events


def _ends(ledger: Ledger) -> Iterator[Entry]:
    """Where each thread was left off."""
    for tip in thread_tips(ledger).values():
        if tip.id in ledger.has_child:
            continue
        rounds = ledger.rounds.get(tip.id, ())
        broken = tip.kind is Kind.TURN and not (rounds and rounds[-1].last and rounds[-1].spoken.complete)
        yield ledger.entries[tip.parent] if broken else tip


def _each_once(found: TreeStopped) -> TreeStopped:
    blocked, invalidated, left = (list(dict.fromkeys(found[name])) for name in ("blocked", "invalidated", "left"))
    return {"blocked": blocked, "invalidated": invalidated, "left": left}


AT_ONCE = "with the next request, whatever it costs"
WHEN_CHEAP = "with the next request that finds its cache cold, or folds something else"


@dataclass(frozen=True, slots=True)
class Asked:
    """What was recorded, and what is told of it."""

    events: Sequence[Event]
    told: UnfoldingTold


async def ask_back(store: Store, ledger: Ledger, frame: str, *, now: bool, at: int) -> Asked:
    """Record at `at` (ms since the epoch) that `frame`, a frame of this conversation, is wanted back; durable when
    this returns.

    Raises NotAllowed where there is nothing to bring back, StoreError.
    """
    story, wanted = _found(ledger, frame, now=now)
    events: list[Event] = []
    if wanted.is_new:
        kept = Kept(wanted.frame, now)
        events = [recorded(kept, entry, 0, ledger.seq + n, at) for n, entry in enumerate(wanted.entries)]
        conversation = ledger.conversation
        await store.durable(store.write(conversation.tenant, [Owned(conversation.id, event) for event in events]))
    at_once = now or story.tree.kept.get(wanted.frame, False)
    return Asked(
        events,
        {
            "frame": wanted.frame,
            "title": shortened(story.tree.frames[wanted.frame].title),
            "conversation": ledger.conversation.id,
            "new": wanted.is_new,
            "now": at_once,
            "comes": AT_ONCE if at_once else WHEN_CHEAP,
        },
    )


def _found(ledger: Ledger, frame: str, *, now: bool) -> tuple[Story, Wish]:
    """The newest path on which the frame is folded. Raises NotAllowed with what the newest one says."""
    refused: NotAllowed | None = None
    for story in stories(ledger):
        if frame in story.tree.frames:
            try:
                return story, wish(ledger, story, frame, now=now)
            except NotAllowed as error:
                refused = refused or error
    raise refused or NotAllowed(f"Frame {frame} stands on no path.", code="not_folded")
