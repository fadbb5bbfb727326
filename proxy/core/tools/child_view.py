"""What a child sees of its parents where the configuration leaves that open (`child_view: auto`).

A child that sees all of its parent's line costs nothing at its beginning, because that line is in the provider's cache,
and a read of it with every request. One that sees the task alone has to be written once and is short from then on.
The law: **isolated only where that is cheaper over the requests a child is expected to make**, and only where the
parent's line is long enough for it to matter.

What this module does not do: it counts nothing and knows no prices; both come in.
"""

from __future__ import annotations

from statistics import median

import msgspec

from proxy.core.compaction import CachePrices, original_tokens, tokens_in_context
from proxy.core.context import owner_of
from proxy.core.frames import RETURN_STATUSES, PathEntry, PathState, path_to
from proxy.core.text import CountTokens

AUTO_VIEW = "auto"
ISOLATED_BLOCK_TOKENS = 1_500
"""Tokens of the text that opens an isolated child, beside the user's messages."""
DEFAULT_CHILD_REQUESTS = 12
"""Of a child, where no frame of the conversation has ended yet."""


class ViewCosts(msgspec.Struct, frozen=True):
    """`parent` and `isolated` are tokens: of the parent's line, and of what a child would see of it alone. `requests`
    are those expected in the child."""

    parent_tokens: int
    isolated_tokens: int
    request_count: int
    prices: CachePrices


def choose_view(choice: ViewCosts, above: int) -> str:
    """`isolate` where the parent's line is longer than `above` tokens and what reading it would cost in the child is
    more than writing the short one."""
    read = (choice.parent_tokens - choice.isolated_tokens) * choice.prices.read * choice.request_count
    return "isolate" if choice.parent_tokens > above and read > choice.isolated_tokens * choice.prices.write else "fork"


def view_costs_at(path_state: PathState, shown: frozenset[str], prices: CachePrices, count: CountTokens) -> ViewCosts:
    """What there is to choose from at the end of `path_state`; `shown` are the entries on the line. `count` is
    asked for what is told there in our words."""
    line = sum(
        tokens_in_context(path_state, path_entry, count)
        for path_entry in path_state.entries
        if path_entry.path_id in shown
    )
    users = sum(
        original_tokens(p) for p in _entries_on_path(path_state) if p.entry.message and p.entry.message.role == "user"
    )
    return ViewCosts(line, users + ISOLATED_BLOCK_TOKENS, expected_request_count(path_state), prices)


def _entries_on_path(path_state: PathState) -> list[PathEntry]:
    owners = {frame.owner for frame in path_to(path_state.tree, path_state.tree.active)}
    return [p for p in path_state.entries if p.round is None and owner_of(path_state, p) in owners]


def expected_request_count(path_state: PathState) -> int:
    """How many requests a child is taken to make: the median of those that have ended on this path."""
    made: dict[str, int] = {}
    for path_entry in path_state.entries:
        if path_entry.round is not None:
            frame = path_entry.owner.partition("#")[0]
            made[frame] = made.get(frame, 0) + 1
    frames = path_state.tree.frames
    over = {f.id for f in frames.values() if f.parent and f.status in RETURN_STATUSES}
    ended = [requests for frame, requests in made.items() if frame in over]
    return round(median(ended)) if ended else DEFAULT_CHILD_REQUESTS
