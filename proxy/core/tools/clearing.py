"""The tool that has what the model was told of its frames written anew (S1-114).

    stack_cache_clear     the block of one frame, or of all on the way to the active one

The law: **a block is not rewritten under the model's feet**: all behind it would have to be paid for in full again. So
this is a wish; `renewing` says when it comes true, and until then the tools that look tell how things are now.

What this module does not do: it changes no line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.core.context.block_refresh import holder, told_of
from proxy.core.frames.events import BlockStale
from proxy.core.frames.frames import Frame
from proxy.core.text import cut_for_display
from proxy.core.tools.base import Desk, Mistake, Outcome, Tool, text_of
from proxy.core.tools.inspect import frame_named

NOTHING = (
    "Error: no frame block stands in your context, so there is nothing to write anew. stack_status tells the frames."
)


def clear(desk: Desk, arguments: Mapping[str, Any]) -> Outcome:
    """Have blocks written anew when that breaks nothing."""
    known = told_of(desk.tree)
    if not known:
        raise Mistake(NOTHING)
    reference = text_of(arguments, "sessionID", "frameID", "frame_id", "frame")
    wanted = [_one_of(known, holder(desk.tree, frame_named(desk.tree, reference)))] if reference else list(known)
    named = ", ".join(f"{f.id} ({cut_for_display(f.title)})" for f in wanted)
    told = (
        f"What you were told of {named} is written anew with the next request that finds nothing of your context in "
        "the provider's cache, or that changes what stands before it anyway. That breaks the prefix: done now, all "
        "behind it would be paid for in full again. stack_status and stack_tree tell how things are now."
    )
    return Outcome(told, (BlockStale(tuple(f.id for f in wanted)),))


def _one_of(known: tuple[Frame, ...], frame: Frame) -> Frame:
    if frame not in known:
        named = ", ".join(f"{f.id} ({cut_for_display(f.title)})" for f in known)
        raise Mistake(f"Error: no block of {frame.id} stands in your context. There are those of {named}.")
    return frame


TOOLS = (
    Tool(
        "stack_cache_clear",
        "cache_clear",
        "Have what you were told of your frames written anew, when that breaks no cache.",
        {"type": "object", "properties": {"sessionID": {"type": "string", "description": "default: all"}}},
        clear,
        listed=False,
    ),
)
