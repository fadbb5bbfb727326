"""Warns the model once before a full window forces outputs out of the context. The warning is repeated only after the
context has become clearly shorter and has grown again. There is no warning if the window size is unknown."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proxy.core.compaction.segments import tokens_in_context
from proxy.core.context import context_entries
from proxy.core.frames import ContextPressureRelieved, ContextPressureWarned, PathState
from proxy.core.text import element, escape_xml

RELIEVED_SHARE = 0.8
"""Below this share of the warning threshold the pressure counts as relieved."""
MAX_BOUND_SHARE = 0.95
"""Largest threshold, as a share of the prompt limit; above it, outputs would leave before the warning."""


class WindowLimits(msgspec.Struct, frozen=True):
    """`window_tokens` in all, of which a prompt may fill `prompt_limit`; `warning_share` of the window is the
    threshold."""

    window_tokens: int
    prompt_limit: int
    warning_share: float

    @property
    def warning_tokens(self) -> int:
        """Request size from which the model is warned."""
        return int(min(self.warning_share * self.window_tokens, MAX_BOUND_SHARE * self.prompt_limit))


def pressure_change(
    path_state: PathState, filled: int, room: WindowLimits
) -> ContextPressureWarned | ContextPressureRelieved | None:
    """The event for a request of `filled` tokens; None if nothing changed."""
    if path_state.tree.is_pressure_warned:
        return ContextPressureRelieved() if filled < RELIEVED_SHARE * room.warning_tokens else None
    return (
        ContextPressureWarned(path_state.tree.active, filled, room.window_tokens)
        if filled >= room.warning_tokens
        else None
    )


def count_context_tokens(path_state: PathState, count: Callable[[str], int]) -> int:
    """Estimated tokens of the context; `count` is used for texts of the proxy."""
    tokens = sum(tokens_in_context(path_state, path_entry, count) for path_entry in context_entries(path_state))
    return tokens + sum(count(trim.trace) for trim in path_state.tree.removals)


def pressure_note(event: ContextPressureWarned, nonce: str) -> str:
    """The warning. Tool output cannot forge it without the nonce."""
    words = (
        f"The context window is {event.filled / event.window:.0%} full: {event.filled:,} of {event.window:,} tokens. "
        "Before long, older outputs will leave it; they stay stored, and stack_recall brings them back. Finish what is "
        "open: when the criteria of the current frame are met, pop it with results that name what matters. Put further "
        "work with many steps into a frame of its own, and read large files in parts."
    )
    return element("stack-context", {"note": "memory-pressure", "nonce": nonce}, escape_xml(words))
