"""What a block leaves out because its model sees it: a fork has the parent's whole context before it, and a new request
stands beside its block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from proxy.core.context.message_list import context_entries
from proxy.core.context.relatives import FrameSurroundings, finished_siblings
from proxy.core.frames import Frame, PathState, Tree, path_to
from proxy.core.observers import decode_json_or_text, messages_of, texts_in
from proxy.core.text import cut_for_display, element, on_one_line, quoted, text_element

POP_ADVICE = "When the criteria of {title} are met, pop with results."


def without_texts_in_view(
    path_state: PathState, tree: Tree, frame_id: str, said: Sequence[str]
) -> tuple[Tree, frozenset[str]]:
    """The tree without what the context at the end of `path_state` shows of the frame's path, and the finished frames
    beside that path of which it shows the results, or the work. `tree` is the state just after the frame began, by a
    call with the words `said`; without these its own criteria stay: they may stand far above."""
    messages = [*messages_of(path_state.tree, context_entries(path_state))]
    calls = (call for message in messages for call in message.calls if call.is_stack_call)
    arguments = (text for call in calls for text in texts_in(decode_json_or_text(call.arguments)))
    traces = (removal.trace for removal in path_state.tree.removals)
    in_view = on_one_line("\n".join((*(message.text for message in messages), *traces, *arguments)))
    frames = dict(tree.frames)
    for frame in path_to(tree, frame_id):
        own = frame.id == frame_id
        is_told = frame.criteria == frame.title or on_one_line(frame.criteria) in in_view
        is_seen = frame.criteria in said if own else is_told
        bare = replace(frame, criteria="", criteria_compacted="") if is_seen else frame
        frames[frame.id] = bare if own else replace(bare, artifacts=())
    finished = (frame for level in finished_siblings(tree, path_to(tree, frame_id)) for frame in level)
    seen = (
        f.id
        for f in finished
        if (not f.opening and f.origin != "subagent") or f'ref="{f.id}"' in in_view or f"({f.id}, " in in_view
    )
    return replace(tree, frames=frames), frozenset(seen)


def words_seen_by(tree: Tree, frame: Frame) -> tuple[str, ...] | None:
    """What a fork sees of the call that began it; None for a frame that does not see all of its parents' context.
    Behind a pop the call leaves with its message, and one that activates a planned frame has other words."""
    if any(f.opening and f.opening.view != "fork" for f in path_to(tree, frame.id)):
        return None
    says_more = frame.opening is not None and not frame.opening.preceding_text and not frame.was_planned
    return (frame.criteria,) if says_more else ()


def without_words_beside(tree: Tree, frame_id: str, beside: Sequence[str]) -> Tree:
    """The tree without the criteria of the frame's path that the user's messages directly beside the block are."""
    words = on_one_line("\n".join(beside))
    path = path_to(tree, frame_id)
    seen = [f for f in path if f.criteria.strip() and on_one_line(f.criteria) in words]
    bare = {f.id: replace(f, criteria="", criteria_compacted="") for f in seen}
    return replace(tree, frames={**tree.frames, **bare}) if bare else tree


def short_block(view: FrameSurroundings, wrapper: Mapping[str, str]) -> str:
    """The way to the frame and how it ends, where a block has nothing else to tell; else empty."""
    path = (*view.lineage, view.frame)
    others = (*view.sibling_levels, view.planned_children, view.planned_beside_path)
    if any(others) or not view.lineage or any(frame.criteria or frame.decisions for frame in path):
        return ""
    above = (text_element("in", cut_for_display(frame.title), id=frame.id) for frame in reversed(view.lineage))
    advice = POP_ADVICE.format(title=quoted(cut_for_display(view.frame.title)))
    return element("stack-context", wrapper, *above, text_element("next-action", advice))
