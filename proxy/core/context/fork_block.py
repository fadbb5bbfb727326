"""The block of a fork: its model has the parent's whole context before it, so only what that does not show is told."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from proxy.core.context.message_list import context_entries
from proxy.core.context.relatives import FrameSurroundings, finished_siblings
from proxy.core.frames import PathState, Tree, path_to
from proxy.core.observers import decode_json_or_text, messages_of, texts_in
from proxy.core.text import cut_for_display, element, quoted, text_element

POP_ADVICE = "When the criteria of {title} are met, pop with results."


class InView(msgspec.Struct, frozen=True):
    """`text` is all that a context shows, on one line; `said` are words of the call that begins the frame. `frames` are
    finished ones beside its path of which the context shows the results, or the work itself."""

    text: str
    said: Sequence[str]
    frames: frozenset[str]


def in_view_of(path_state: PathState, tree: Tree, frame_id: str, said: Sequence[str]) -> InView:
    """What stands before a frame that begins at the end of `path_state`. `tree` is the state just after that."""
    messages = [*messages_of(path_state.tree, context_entries(path_state))]
    calls = (call for message in messages for call in message.calls if call.is_stack_call)
    told = (text for call in calls for text in texts_in(decode_json_or_text(call.arguments)))
    traces = (removal.trace for removal in path_state.tree.removals)
    text = _on_one_line("\n".join((*(message.text for message in messages), *traces, *told)))
    finished = [frame for level in finished_siblings(tree, path_to(tree, frame_id)) for frame in level]
    return InView(
        text,
        said,
        frozenset(
            frame.id
            for frame in finished
            if frame.has_no_opening_call or f'ref="{frame.id}"' in text or f"({frame.id}, " in text
        ),
    )


def without_texts_in_view(tree: Tree, frame_id: str, in_view: InView) -> Tree:
    """The tree without what is in view of the frame's path: criteria, and what calls noted there. The criteria of the
    frame itself stay unless its own call says them: they may stand far above."""
    frames = dict(tree.frames)
    for frame in path_to(tree, frame_id):
        own = frame.id == frame_id
        is_seen = frame.criteria in in_view.said if own else _on_one_line(frame.criteria) in in_view.text
        bare = replace(frame, criteria="", criteria_compacted="") if is_seen else frame
        frames[frame.id] = bare if own else replace(bare, artifacts=())
    return replace(tree, frames=frames)


def short_block(view: FrameSurroundings, wrapper: dict[str, str]) -> str:
    """The way to the frame and how it ends, where a block has nothing else to tell; else empty."""
    path = (*reversed(view.lineage), view.frame)
    others = (*view.sibling_levels, view.planned_children, view.planned_beside_path)
    if any(others) or not view.lineage or any(frame.criteria or frame.decisions for frame in path):
        return ""
    above = (text_element("in", cut_for_display(frame.title), id=frame.id) for frame in reversed(view.lineage))
    advice = POP_ADVICE.format(title=quoted(cut_for_display(view.frame.title)))
    return element("stack-context", wrapper, *above, text_element("next-action", advice))


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
