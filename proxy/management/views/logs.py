"""Everything a frame did, oldest first: what `stack_recall` reads from, whole and for people.

Its law: **nothing is left out**. What left the line is here, messages that were trimmed, hidden rounds, earlier
attempts at a resumed frame, and what lies on branches that were given up; `current` says whether an item stands on the
path that grew last. The wire is the stored text, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proxy.core.context.line import owner_of
from proxy.core.frames.path_state import Placed, Story
from proxy.core.ledger.ledger import Ledger
from proxy.core.ledger.messages import Message
from proxy.management.views.lookup import newest_story, stories
from proxy.management.views.parts import is_error, place_of, states_of
from proxy.management.views.schemas import FrameLog, LogItem, MessageShown, OwnedItem, PartState


def frame_log(ledger: Ledger, story: Story, frame: str, *, raw: bool = False) -> FrameLog:
    """Its entries in the order of creation, one per message; a hidden call's result stands with the message that made
    the call. `story` is a path that knows the frame."""
    found = story.tree.frames[frame]
    return {
        "frame": frame,
        "conversation": ledger.conversation.id,
        "title": found.title,
        "status": str(found.status),
        "entries": _entries(ledger, frame, raw=raw),
    }


def _entries(ledger: Ledger, frame: str, *, raw: bool) -> list[OwnedItem]:
    current = {place_of(placed) for placed in newest_story(ledger).placed}
    found: dict[tuple[int, int], OwnedItem] = {}
    for story in stories(ledger):
        states = states_of(story.placed)
        for placed in _of_frame(story, frame):
            at = place_of(placed)
            message = placed.round.spoken.message if placed.round else placed.entry.message
            if message is not None and (placed.entry.seq, at[1]) not in found:
                item = item_of(placed, message, states.get(at, ()), current=at in current, raw=raw)
                found[placed.entry.seq, at[1]] = {**item, "frame": owner_of(story, placed).partition("#")[0]}
    return [found[place] for place in sorted(found)]


def _of_frame(story: Story, frame: str) -> Iterator[Placed]:
    """What any segment of the frame owns, or owned before a pop handed it on."""
    for placed in story.placed:
        owners = {placed.owner, owner_of(story, placed)}
        if any(owner.partition("#")[0] == frame for owner in owners):
            yield placed


def item_of(placed: Placed, said: Message, states: Sequence[PartState], *, current: bool, raw: bool) -> LogItem:
    """One line of a log: what was said there, with the states of its calls."""
    entry, done = placed.entry, placed.round
    shown = _message(said, states, raw=raw)
    return {
        "id": f"{entry.id}/{done.number}" if done else entry.id,
        "kind": str(entry.kind),
        "thread": entry.thread,
        "created": (done.created if done else 0) or entry.created,
        "current": current,
        **shown,
        "results": [_message(result, (), raw=raw) for result in done.results] if done else [],
        "finish": done.spoken.finish if done else "",
        "complete": done.spoken.complete if done else True,
    }


def _message(message: Message, states: Sequence[PartState], *, raw: bool) -> MessageShown:
    item: MessageShown = {
        "role": message.role,
        "text": message.text,
        "calls": [
            {"id": call.id, "name": call.name, "arguments": call.arguments, "state": state}
            for call, state in zip(message.calls, states, strict=True)
        ],
        "answers": message.answers,
        "error": bool(message.answers) and is_error(message),
        "tokens": message.tokens,
    }
    if raw:
        item["wire"] = as_text(message.wire)
    return item


def as_text(data: bytes) -> str:
    """Bytes as text that gives the same bytes back (`surrogateescape`), whatever they are."""
    return data.decode("utf-8", "surrogateescape")
