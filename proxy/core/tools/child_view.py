"""Chooses what a child frame sees of its parents under `child_view: auto`. A fork reads the parent's whole context from
the prompt cache at every request; an isolated child writes a short context once. The child is isolated only where that
is cheaper over the expected requests, and only where the parent's context is long enough to matter."""

from __future__ import annotations

from statistics import median

import msgspec

from proxy.core.compaction import CachePrices, original_tokens, tokens_in_context
from proxy.core.context import owner_of
from proxy.core.frames import RETURN_STATUSES, PathState, frame_id_of, path_to
from proxy.core.text import CountTokens

AUTO_VIEW = "auto"
ISOLATED_BLOCK_TOKENS = 1_500  # of the text that opens an isolated child, without the user's messages
DEFAULT_CHILD_REQUESTS = 12  # while no frame of the conversation has ended


class ViewCosts(msgspec.Struct, frozen=True):
    """Tokens of the parent's context and of an isolated child's, the expected requests in the child, and the prices."""

    parent_tokens: int
    isolated_tokens: int
    request_count: int
    prices: CachePrices


def choose_view(costs: ViewCosts, min_parent_tokens: int) -> str:
    """`isolate` where the parent's context exceeds `min_parent_tokens` tokens and reading it in the child costs more
    than writing the short context."""
    read = (costs.parent_tokens - costs.isolated_tokens) * costs.prices.read * costs.request_count
    return (
        "isolate"
        if costs.parent_tokens > min_parent_tokens and read > costs.isolated_tokens * costs.prices.write
        else "fork"
    )


def view_costs_at(
    path_state: PathState, visible_entries: frozenset[str], prices: CachePrices, count: CountTokens
) -> ViewCosts:
    """The costs at the end of `path_state`; `visible_entries` are the entries in the context. `count` is asked for
    texts of the proxy."""
    line_tokens = sum(
        tokens_in_context(path_state, path_entry, count)
        for path_entry in path_state.entries
        if path_entry.path_id in visible_entries
    )
    owners = {frame.owner for frame in path_to(path_state.tree, path_state.tree.active)}
    on_path = [p for p in path_state.entries if p.round is None and owner_of(path_state, p) in owners]
    users = sum(original_tokens(p) for p in on_path if p.entry.message and p.entry.message.role == "user")
    return ViewCosts(line_tokens, users + ISOLATED_BLOCK_TOKENS, expected_request_count(path_state), prices)


def expected_request_count(path_state: PathState) -> int:
    """The median number of requests in the frames that have ended on this path."""
    made: dict[str, int] = {}
    for path_entry in path_state.entries:
        if path_entry.round is not None:
            frame = frame_id_of(path_entry.owner)
            made[frame] = made.get(frame, 0) + 1
    frames = path_state.tree.frames
    over = {f.id for f in frames.values() if f.parent and f.status in RETURN_STATUSES}
    ended = [requests for frame, requests in made.items() if frame in over]
    return round(median(ended)) if ended else DEFAULT_CHILD_REQUESTS
