"""The frame block for models with a small window: goal (the user's request), task (parent), subtask (active frame),
the next subtask, probe results and the newest actions. Texts are cut shorter until the block has at most 2,000
characters and `MINIMAL_BLOCK_TOKENS` tokens."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.core.context.relatives import frame_and_siblings, planned_children
from proxy.core.context.write_frame_block import wrapper_attributes
from proxy.core.frames import Frame, Tree, next_planned, tasks_above
from proxy.core.text import CountTokens, cut_for_display, element, escape_xml, text_element

MINIMAL_BLOCK_CHARACTERS = 2_000
MINIMAL_BLOCK_TOKENS = 500
TEXT_ELLIPSIS = "..."
TEXT_LENGTHS = (800, 400, 200, 100, 50, 20, 0)
"""Maximum characters of one text, tried in this order until the block fits."""
PROBE_MARKS = {True: "✓", False: "✗"}
MAX_PROBES, MAX_ACTIONS = 12, 3
PROBE_NAME_CHARACTERS = 60


class RecentWork(msgspec.Struct, frozen=True):
    """`probes` are pairs of name and success; `actions` are one-line texts, oldest first."""

    probes: Sequence[tuple[str, bool]] = ()
    actions: Sequence[str] = ()


def render_minimal(  # noqa: PLR0913  as the flat form
    tree: Tree, frame_id: str, recent: RecentWork, *, nonce: str, budget: int, count: CountTokens, session: str = ""
) -> str:
    """The block of a frame on entry: at most `budget` tokens if possible, never more than `MINIMAL_BLOCK_TOKENS`."""
    wrapper = wrapper_attributes(session, frame_id, nonce) | {"view": "minimal"}
    block = ""
    for length in TEXT_LENGTHS:
        block = element("stack-context", wrapper, *_block_elements(tree, frame_id, recent, length))
        if len(block) <= MINIMAL_BLOCK_CHARACTERS and count(block) <= min(budget, MINIMAL_BLOCK_TOKENS):
            break
    return block


def _block_elements(tree: Tree, frame_id: str, recent: RecentWork, length: int) -> list[str]:
    goal, *below = (*reversed(tasks_above(tree, frame_id)), tree.frames[frame_id])
    tasks = zip(("task", "subtask")[: len(below)], below[-2:], strict=True)
    parts = [
        _short_frame_element("goal", goal, length),
        *(_short_frame_element(name, frame, length) for name, frame in tasks),
    ]
    following = next(iter(planned_children(tree, frame_id)), None)
    following = following or next_planned(tree.frames[frame_id], frame_and_siblings(tree, tree.frames[frame_id]))
    if following:
        parts.append(element("next-subtask", {"id": following.id, "title": cut_for_display(following.title)}))
    if recent.probes and length:
        longest = min(length, PROBE_NAME_CHARACTERS)
        marked = (
            f"{shorten_line(name, longest)} {PROBE_MARKS[is_well]}" for name, is_well in recent.probes[:MAX_PROBES]
        )
        parts.append(text_element("state", "\n".join(marked)))
    if recent.actions and length:
        parts.append(
            text_element(
                "recent-actions", "\n".join(shorten_line(action, length) for action in recent.actions[-MAX_ACTIONS:])
            )
        )
    return parts


def _short_frame_element(name: str, frame: Frame, length: int) -> str:
    title = text_element("title", cut_for_display(frame.title))
    criteria = shorten_line(frame.criteria_compacted or frame.criteria, length)
    says_more = criteria and criteria != frame.title.strip()
    return element(name, {"id": frame.id}, title, text_element("success-criteria", criteria) if says_more else "")


def shorten_line(text: str, length: int) -> str:
    """`text` on one line, at most `length` characters after XML escaping; a cut text ends in three dots."""
    line = " ".join(text[: 4 * length].split())
    if len(escape_xml(line)) <= length and len(text) <= 4 * length:
        return line
    while line and len(escape_xml(line)) + len(TEXT_ELLIPSIS) > length:
        line = line[: min(len(line) - 1, length)].rstrip()
    return f"{line}{TEXT_ELLIPSIS}" if line else ""
