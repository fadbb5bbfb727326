"""How full the window is, and whether the model should hear of it before anything is evicted (S2-43).

The law: **once for each rise**. What was told is not told again until the line has become clearly shorter, by a fold or
a pop, and has grown anew; so a line that swings about the bound brings one note.

What this module does not do: it evicts nothing (`trim`, `pruning`), and of a window that nobody knows it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proxy.core.compaction.segments import told_tokens
from proxy.core.context.message_list import on_line
from proxy.core.frames.events import Pressed, Relieved
from proxy.core.frames.path_state import Story
from proxy.core.text import element, escape_xml

RELIEVED = 0.8
"""Of the bound: a line below this share of it has become shorter again."""
BEFORE_EVICTION = 0.95
"""Of what a prompt may fill, the most that the bound may be: what evicts would come first otherwise."""


class Room(msgspec.Struct, frozen=True):
    """What a window holds: `tokens` in all, of which a prompt may fill `limit`; `share` of it is the bound."""

    tokens: int
    limit: int
    share: float

    @property
    def bound(self) -> int:
        """Tokens of a request from which it is told of."""
        return int(min(self.share * self.tokens, BEFORE_EVICTION * self.limit))


def arisen(story: Story, filled: int, room: Room) -> Pressed | Relieved | None:
    """What has changed with a request of so many tokens; None where nothing has."""
    if story.tree.pressed:
        return Relieved() if filled < RELIEVED * room.bound else None
    return Pressed(story.tree.active, filled, room.tokens) if filled >= room.bound else None


def tokens_on_line(story: Story, count: Callable[[str], int]) -> int:
    """Tokens of the messages on the line, about; `count` is asked for our own texts among them."""
    told = sum(told_tokens(story, placed, count) for placed in on_line(story))
    return told + sum(count(trim.trace) for trim in story.tree.trims)


def note(event: Pressed, nonce: str) -> str:
    """What the model is told; no text of a tool can forge it, for none knows the nonce."""
    words = (
        f"The context window is {event.filled / event.window:.0%} full: {event.filled:,} of {event.window:,} tokens. "
        "Before long, older outputs will leave it; they stay stored, and stack_recall brings them back. Finish what is "
        "open: when the criteria of the current frame are met, pop it with results that name what matters. Put further "
        "work with many steps into a frame of its own, and read large files in parts."
    )
    return element("stack-context", {"note": "memory-pressure", "nonce": nonce}, escape_xml(words))
