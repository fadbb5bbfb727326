"""Counts the detours of a conversation: steps that were taken only because work had left the context.

A recall is a detour, and so is reading a file whose newest text left with a fold. Some agents read again what they
have in sight: as many of these readings are not counted. `recall.reread_stats` counts readings exactly, with what was
in each context, for receipts; here only the path is known.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    unneeded, needed = _readings_again(path_state, ends, tool_roles)
    detours += needed[unneeded:]
    return DetourHistory(len(ends), len(detours), sum(seq > newest for seq in detours))


def _readings_again(path_state: PathState, ends: Mapping[str, int], tool_roles: ToolRoles) -> tuple[int, list[int]]:
    """How many files were read again while their text was in sight, and the sequence numbers of the readings of those
    whose text had left, oldest first. `ends` has the last number of each segment that left."""
    unneeded, needed = 0, []
    newest: dict[str, tuple[str, bool]] = {}
    for path_entry, file in iter_touched_files(path_state.entries, tool_roles):
        home = owner_of(path_state, path_entry)
        before, was_read = newest.get(file.path, ("", False))
        if file.how == READ and before:
            if before != home and path_entry.entry.seq > ends.get(before, path_entry.entry.seq):
                needed.append(path_entry.entry.seq)
            else:
                unneeded += was_read
        newest[file.path] = home, file.how == READ
    return unneeded, needed
