"""The frame block for a model with a small window: what it needs to know now, and nothing else (S3-01 to S3-08, C2b).

The goal is the root, the task the frame above the active one, the subtask the active one. Beside them stand what comes
next (one, never two), how tests, lints and builds ended and which files were written, and the newest actions. What was
finished, what is planned later, and what other subtasks did is left out.

The law: **at most 2,000 characters**, whatever a tree holds. Long texts are cut and end in three dots; where that is
not enough, all are cut shorter. Like the other forms it is frozen.

What this module does not do: it looks at no message. What was done, and how it ended, comes in (`probes`, `actions`).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from proxy.core.context.frame_block import wrapper_attributes
from proxy.core.context.relatives import frame_and_siblings, planned_children
from proxy.core.context.relevance import next_planned
from proxy.core.frames import Frame, Tree, path_to
from proxy.core.text import CountTokens, cut_for_display, element, escape_xml, text_element

MINIMAL_BLOCK_CHARACTERS = 2_000
"""Characters of a block (S3-08)."""
MINIMAL_BLOCK_TOKENS = 500
TEXT_ELLIPSIS = "..."
TEXT_LENGTHS = (800, 400, 200, 100, 50, 20, 0)
"""Characters that one text may have, tried in this order."""
PROBE_MARKS = {True: "✓", False: "✗"}
MAX_PROBES, MAX_ACTIONS = 12, 3
"""So many of each are told (S3-03)."""
PROBE_NAME_CHARACTERS = 60
"""Characters of the name of a probe."""


class RecentWork(msgspec.Struct, frozen=True):
    """How things stand, as far as it was seen: `probes` are names with what is known of them, `actions` the newest
    ones in a few words each, oldest first."""

    probes: Sequence[tuple[str, bool]] = ()
    actions: Sequence[str] = ()


def render_minimal(  # noqa: PLR0913  as the flat form
    tree: Tree, frame_id: str, recent: RecentWork, *, nonce: str, budget: int, count: CountTokens, session: str = ""
) -> str:
    """The block of a frame as it is entered, of at most `budget` tokens where that can be, and never more than
    `MOST_TOKENS`."""
    wrapper = wrapper_attributes(session, frame_id, nonce) | {"view": "minimal"}
    block = ""
    for length in TEXT_LENGTHS:
        block = element("stack-context", wrapper, *_block_elements(tree, frame_id, recent, length))
        if len(block) <= MINIMAL_BLOCK_CHARACTERS and count(block) <= min(budget, MINIMAL_BLOCK_TOKENS):
            break
    return block


def _block_elements(tree: Tree, frame_id: str, recent: RecentWork, length: int) -> list[str]:
    root, *below = path_to(tree, frame_id)
    named = zip(("task", "subtask")[: len(below)], below[-2:], strict=True)
    parts = [
        _short_frame_element("goal", root, length),
        *(_short_frame_element(name, frame, length) for name, frame in named),
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
                "recent-actions", "\n".join(shorten_line(one, length) for one in recent.actions[-MAX_ACTIONS:])
            )
        )
    return parts


def _short_frame_element(name: str, frame: Frame, length: int) -> str:
    """A frame with its title, and its criteria where these say more."""
    title = text_element("title", cut_for_display(frame.title))
    criteria = shorten_line(frame.criteria_compacted or frame.criteria, length)
    says_more = criteria and criteria != frame.title.strip()
    return element(name, {"id": frame.id}, title, text_element("success-criteria", criteria) if says_more else "")


def shorten_line(text: str, length: int) -> str:
    """A text on one line of at most so many characters, with what its markup takes; a cut ends in three dots."""
    line = " ".join(text[: 4 * length].split())
    if len(escape_xml(line)) <= length and len(text) <= 4 * length:
        return line
    while line and len(escape_xml(line)) + len(TEXT_ELLIPSIS) > length:
        line = line[: min(len(line) - 1, length)].rstrip()
    return f"{line}{TEXT_ELLIPSIS}" if line else ""
