"""Counts the detours of a conversation: steps that were taken only because work had left the context.

A file that the model reads although its newest text left with a fold, and a recall, are detours. What the same agent
would have read again anyway is counted too, since the two look alike.
"""

from __future__ import annotations

import msgspec

from proxy.core.context import owner_of
from proxy.core.frames import READ, PathState
from proxy.core.observers import ToolRoles, iter_touched_files
from proxy.core.recall import is_recall

DETOURS_PER_FOLD = 0.4
"""Prior: of 66 folds on 36 recordings 28 took the text of an edit that followed (of cuts in unfinished work 9 of 23, of
requests that had ended 16 of 43)."""
PRIOR_FOLDS = 4
"""As many folds without a detour more, and the prior counts for half."""


class DetourHistory(msgspec.Struct, frozen=True):
    """`folds` are frames and parts that left, `detours` what followed them, `since_newest` those of the newest one."""

    folds: int = 0
    detours: int = 0
    since_newest: int = 0

    @property
    def expected(self) -> float:
        """Detours to expect of the next fold: the prior, then the conversation's own rate."""
        return (DETOURS_PER_FOLD * PRIOR_FOLDS + self.detours) / (PRIOR_FOLDS + self.folds)

    @property
    def gain_share(self) -> float:
        """Share of its gain that the next fold is trusted with: each detour of the newest one halves it."""
        return 0.5**self.since_newest


def detour_history(path_state: PathState, tool_roles: ToolRoles) -> DetourHistory:
    """What followed the folds of this path so far. A read of what left together with the read itself, in one frame or
    part, was no detour when it was made."""
    removed = path_state.tree.removed_entries
    ends: dict[str, int] = {}
    for path_entry in path_state.entries:
        if path_entry.entry.id in removed:
            ends[owner_of(path_state, path_entry)] = path_entry.entry.seq
    if not ends:
        return DetourHistory()
    first, newest = min(ends.values()), max(ends.values())
    detours = [
        path_entry.entry.seq
        for path_entry in path_state.entries
        if path_entry.round is not None
        and path_entry.entry.seq > first
        and any(map(is_recall, path_entry.round.spoken.message.calls))
    ]
    homes: dict[str, str] = {}
    for path_entry, file in iter_touched_files(path_state.entries, tool_roles):
        home = owner_of(path_state, path_entry)
        before = homes.get(file.path, home)
        if file.how == READ and before != home and path_entry.entry.seq > ends.get(before, path_entry.entry.seq):
            detours.append(path_entry.entry.seq)
        homes[file.path] = home
    return DetourHistory(len(ends), len(detours), sum(seq > newest for seq in detours))
