"""How full the window is, and whether the model should hear of it before anything is evicted (S2-43).

The law: **once for each rise**. What was told is not told again until the line has become clearly shorter, by a fold or
a pop, and has grown anew; so a line that swings about the bound brings one note.

What this module does not do: it evicts nothing (`trim`, `pruning`), and of a window that nobody knows it says nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proxy.core.compaction.segments import tokens_in_context
from proxy.core.context import context_entries
from proxy.core.frames import ContextPressureRelieved, ContextPressureWarned, PathState
from proxy.core.text import element, escape_xml

RELIEVED_SHARE = 0.8
"""Of the bound: a line below this share of it has become shorter again."""
MAX_BOUND_SHARE = 0.95
"""Of what a prompt may fill, the most that the bound may be: what evicts would come first otherwise."""


class WindowLimits(msgspec.Struct, frozen=True):
    """What a window holds: `tokens` in all, of which a prompt may fill `limit`; `share` of it is the bound."""

    window_tokens: int
    prompt_limit: int
    warning_share: float

    @property
    def warning_tokens(self) -> int:
        """Tokens of a request from which it is told of."""
        return int(min(self.warning_share * self.window_tokens, MAX_BOUND_SHARE * self.prompt_limit))


def pressure_change(
    path_state: PathState, filled: int, room: WindowLimits
) -> ContextPressureWarned | ContextPressureRelieved | None:
    """What has changed with a request of so many tokens; None where nothing has."""
    if path_state.tree.is_pressure_warned:
        return ContextPressureRelieved() if filled < RELIEVED_SHARE * room.warning_tokens else None
    return (
        ContextPressureWarned(path_state.tree.active, filled, room.window_tokens)
        if filled >= room.warning_tokens
        else None
    )


def count_context_tokens(path_state: PathState, count: Callable[[str], int]) -> int:
    """Tokens of the messages on the line, about; `count` is asked for our own texts among them."""
    told = sum(tokens_in_context(path_state, path_entry, count) for path_entry in context_entries(path_state))
    return told + sum(count(trim.trace) for trim in path_state.tree.removals)


def pressure_note(event: ContextPressureWarned, nonce: str) -> str:
    """What the model is told; no text of a tool can forge it, for none knows the nonce."""
    words = (
        f"The context window is {event.filled / event.window:.0%} full: {event.filled:,} of {event.window:,} tokens. "
        "Before long, older outputs will leave it; they stay stored, and stack_recall brings them back. Finish what is "
        "open: when the criteria of the current frame are met, pop it with results that name what matters. Put further "
        "work with many steps into a frame of its own, and read large files in parts."
    )
    return element("stack-context", {"note": "memory-pressure", "nonce": nonce}, escape_xml(words))
