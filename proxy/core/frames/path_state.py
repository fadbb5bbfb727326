"""A path of the ledger, folded: the tree at its end, and everything on it with its owner.

The law: **state is folded, never edited**. The story of a path is the story of its beginning and one more entry; the
same path always gives the same story, so what is known of a beginning may be kept or forgotten at will.

Where the work was branched (`lines`), a story is that of the line the path ends on, and the others are kept beside it:
nothing that stands on one of them is known on another.

What this module does not do: it renders nothing and decides nothing about the line.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from proxy.core.frames.branches import BRANCH_EVENT_KINDS, BranchState, reduce_branches
from proxy.core.frames.events import (
    HISTORY_REWRITTEN_KIND,
    ROOT_ANNOUNCED_KIND,
    BranchSwitched,
    QueuedMessagesDelivered,
    begins_root,
    decode_event,
)
from proxy.core.frames.reducer import reduce, reopen_root
from proxy.core.frames.tree import Tree
from proxy.core.ledger import Entry, EntryKind, Ledger, LedgerEvent, Round

_NO_EVENTS: Mapping[str, Sequence[LedgerEvent]] = {}


class PathEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry (for a turn: one round of it) and the segment of a frame that owns it.

    `at` is the entry of the path it stands for: itself, or the alias that a client's rewriting made of it.
    """

    entry: Entry
    owner: str
    round: Round | None = None
    path_id: str = ""


class PathState(msgspec.Struct, frozen=True, dict=True):
    """A path of the ledger, folded: the tree at its end, and everything on it with its owner, oldest first. `adopted`
    is what stands on the path whose state this one took over, by entry: later entries may be another form of it, with
    what was said beside them where that goes `along`.

    Where the work was branched this is the current line of it: `lines` tells which there are, `aside` holds the others
    as they were left.
    """

    tree: Tree = msgspec.field(default_factory=Tree)
    entries: tuple[PathEntry, ...] = ()
    tip: str = ""
    adopted: Mapping[str, Sequence[PathEntry]] = msgspec.field(default_factory=dict)
    carries_overlays: bool = False
    branches: BranchState = msgspec.field(default_factory=BranchState)
    other_branches: Mapping[str, PathState] = msgspec.field(default_factory=dict)

    @cached_property
    def visible_entries(self) -> tuple[PathEntry, ...]:
        """What the frames on the path to the active one own, in ledger order; without a frame everything."""
        tree = self.tree
        if not tree.active:
            return self.entries
        owners = tree.visible_owners
        if not (carried := tree.carried_owners):
            return tuple(p for p in self.entries if p.owner in owners)
        # `context.owner_of`, written out: this is asked of every entry of the path.
        return tuple(p for p in self.entries if (carried.get(p.path_id) or carried.get(p.entry.id, p.owner)) in owners)

    @cached_property
    def newest_client_entries(self) -> tuple[PathEntry, ...]:
        """What the client sent behind the last answer that it has (L4), oldest first; the rounds of a turn that is
        under way behind it are none."""
        end = len(self.entries)
        while end and (self.entries[end - 1].entry.is_overlay or self._is_under_way(self.entries[end - 1])):
            end -= 1
        begin = end
        while begin and not _is_answer(self.entries[begin - 1]):
            begin -= 1
        return self.entries[begin:end]

    def _is_under_way(self, path_entry: PathEntry) -> bool:
        return path_entry.round is not None and path_entry.entry.id == self.tip and not path_entry.round.last


def _is_answer(path_entry: PathEntry) -> bool:
    return path_entry.round is not None or (
        path_entry.entry.message is not None and path_entry.entry.message.role == "assistant"
    )


def replay(ledger: Ledger, path: Sequence[Entry], known: Mapping[str, PathState]) -> PathState:
    """The story of `path` (from the first entry on). `known` holds stories of earlier tips; the longest one is gone
    on from."""
    start, path_state = _longest_known_prefix(path, known)
    return extend(ledger, path_state, path[start:])


def _longest_known_prefix(path: Sequence[Entry], known: Mapping[str, PathState]) -> tuple[int, PathState]:
    """How much of `path` is told already, and its story."""
    for at in range(len(path) - 1, -1, -1):
        if (found := known.get(path[at].id)) is not None:
            return at + 1, found
    return 0, PathState()


def extend(
    ledger: Ledger,
    path_state: PathState,
    entries: Iterable[Entry],
    fresh: Mapping[str, Sequence[LedgerEvent]] = _NO_EVENTS,
) -> PathState:
    """`path_state` with further entries behind it; `fresh` are events at them that the ledger does not have yet."""
    entries = tuple(entries)
    if not entries:
        return path_state
    walk = _PathBuilder(ledger, path_state, {})
    for entry in entries:
        walk.add(entry, (*ledger.events.get(entry.id, ()), *fresh.get(entry.id, ())))
    return walk.build()


def switch_branch(
    ledger: Ledger,
    path_state: PathState,
    event: BranchSwitched,
    created: int,
    known: dict[str, PathState] | None = None,
) -> PathState:
    """`path_state` with another line current: what stood on this one is put aside as it is, and nothing of it goes
    along. `known`: see `story_at`."""
    kept = {
        **path_state.other_branches,
        path_state.branches.current: replace(path_state, adopted={}, other_branches={}),
    }
    found = kept.pop(event.line, None)
    if found is None:
        found = path_state_at(ledger, event.at, {} if known is None else known)
    lines = reduce_branches(path_state.branches, event, created)
    return replace(found, tip=path_state.tip, adopted={}, branches=lines, other_branches=kept)


def path_state_at(ledger: Ledger, tip: str, known: dict[str, PathState]) -> PathState:
    """The story of the path to `tip`. `known` remembers what was asked for while one path is walked: a branch of a
    branch of a branch would be told twice as often with each. What a path went on from is told before it, one after
    the other: a client that drops its oldest message with every request rewrites its history a thousand times."""
    waiting = {} if tip in known else {tip: None}
    while waiting:
        at = next(reversed(waiting))
        path = ledger.path(at)
        start, path_state = _longest_known_prefix(path, known)
        earlier = [e.adopts for e in path[start:] if e.adopts and e.adopts not in known and e.adopts not in waiting]
        if earlier:
            waiting |= dict.fromkeys(earlier)
            continue
        walk = _PathBuilder(ledger, path_state, known)
        for entry in path[start:]:
            walk.add(entry, ledger.events.get(entry.id, ()))
        known[at] = walk.build()
        del waiting[at]
    return known[tip]


class _PathBuilder:
    """A story while entries are put behind it, one by one."""

    def __init__(self, ledger: Ledger, path_state: PathState, known: dict[str, PathState]) -> None:
        self._ledger = ledger
        self._known = known
        self._reset(path_state, list(path_state.entries))

    def _reset(self, path_state: PathState, path_entries: list[PathEntry]) -> None:
        self._base = path_state
        self._tree, self._entries, self._tip = path_state.tree, path_entries, path_state.tip
        self._adopted, self._carries_overlays, self._branches = (
            path_state.adopted,
            path_state.carries_overlays,
            path_state.branches,
        )
        self._other_branch_by_entry: Mapping[str, str] | None = None
        self._aliases: dict[str, str] = {}
        self._seen_ids: set[str] = set()
        self._scanned_count = 0

    def build(self) -> PathState:
        aside = self._base.other_branches
        if self._aliases:
            aside = {name: _with_aliases(line, self._aliases) for name, line in aside.items()}
        path_entry = tuple(self._entries)
        return PathState(
            self._tree, path_entry, self._tip, self._adopted, self._carries_overlays, self._branches, aside
        )

    def add(self, entry: Entry, events: Sequence[LedgerEvent]) -> None:
        """One more entry, with what was decided at it."""
        if entry.adopts:
            rewritten = any(event.kind == HISTORY_REWRITTEN_KIND for event in events)
            self._adopt_state(path_state_at(self._ledger, entry.adopts, self._known), along=rewritten)
        if entry.alias and entry.alias in self._entries_on_other_branches():
            self._aliases[entry.alias] = entry.id
        if entry.alias in self._adopted:
            if not entry.adopts:
                self._assign_owners_before(entry)
            self._entries += [
                p if p.entry.is_overlay else replace(p, path_id=entry.id) for p in self._adopted[entry.alias]
            ]
            for event in events:  # a person may have decided something where the client's other form of it stood
                self._tree = reduce(self._tree, decode_event(event), event.created)
                self._branches = reduce_branches(self._branches, decode_event(event), event.created)
        elif entry.alias not in self._aliases:
            self._apply_entry(entry, events)
        for overlay in self._new_overlays(entry):
            self._tree = _reopen_for_overlay(self._tree, overlay)
            known = self._adopted.get(overlay.id, ()) if overlay.kind is EntryKind.OVERLAY else ()
            self._entries += known or [PathEntry(overlay, _active_owner(self._tree), path_id=overlay.id)]
        self._tip = entry.id

    def _new_overlays(self, entry: Entry) -> Sequence[Entry]:
        """What hangs on an entry and does not stand on the path yet, as what was said within a turn does."""
        hanging = _overlays_at(self._ledger, entry, older=not self._carries_overlays)
        if not hanging:
            return ()
        # Only what came since is looked at: a thousand notes on a path of ten thousand entries took 0.3 s.
        self._seen_ids.update(p.path_id for p in self._entries[self._scanned_count :])
        self._scanned_count = len(self._entries)
        return [overlay for overlay in hanging if overlay.id not in self._seen_ids]

    def _assign_owners_before(self, entry: Entry) -> None:
        """What the client wrote anew right before `entry`, which is another form of a known one, belongs where that
        belonged in whose place it stands, else where `entry` does: the frame that is active by now would take it
        along when it ends."""
        first = self._adopted[entry.alias][0]
        stood = self._ledger.entries[entry.alias].parent
        for at in reversed(self._rewritten_positions()):
            anew = self._entries[at]
            before = self._adopted.get(stood, (first,))[-1]
            same = anew.entry.message is not None and _role_of(before) == anew.entry.message.role
            self._entries[at] = replace(anew, owner=self._current_owner(before if same else first))
            stood = self._ledger.entries[stood].parent if stood in self._ledger.entries else ""

    def _rewritten_positions(self) -> list[int]:
        """The places at the end, in order, of what was put since a state was gone on from and is no other form of
        anything."""
        found: list[int] = []
        for at in range(len(self._entries) - 1, -1, -1):
            path_entry = self._entries[at]
            if path_entry.entry.is_overlay:
                continue
            if path_entry.round or path_entry.path_id != path_entry.entry.id:
                return found[::-1] if path_entry.path_id != path_entry.entry.id else []
            found.append(at)
            if path_entry.entry.adopts:
                return found[::-1]
        return []

    def _current_owner(self, path_entry: PathEntry) -> str:
        carried = self._tree.carried_owners
        return carried.get(path_entry.path_id) or carried.get(path_entry.entry.id, path_entry.owner)

    def _apply_entry(self, entry: Entry, events: Sequence[LedgerEvent]) -> None:
        of_lines = [event for event in events if event.kind in BRANCH_EVENT_KINDS]
        for event in of_lines:
            self._apply_branch_event(entry, event)
        self._tree, more = _apply_entry(self._ledger, self._tree, entry, events, self._entries)
        self._entries += more

    def _apply_branch_event(self, entry: Entry, event: LedgerEvent) -> None:
        """Something about the lines. They turn before the message is placed: it is the first on the new one."""
        said = decode_event(event)
        if not isinstance(said, BranchSwitched):
            self._branches = reduce_branches(self._branches, said, event.created)
        elif self._can_switch(entry, said):
            there = switch_branch(self._ledger, self.build(), said, event.created, self._known)
            self._reset(there, list(there.entries))

    def _can_switch(self, entry: Entry, to: BranchSwitched) -> bool:
        """Whether the line is there, or begins at an entry from before this one."""
        begins = self._ledger.entries.get(to.at)
        known = to.line in self._base.other_branches or (begins is not None and begins.seq < entry.seq)
        return known and to.line != self._branches.current

    def _adopt_state(self, elsewhere: PathState, *, along: bool) -> None:
        """Go on from the state of another path; what this one shares with it stands here as it stands there."""
        path_entries = self._entries
        if elsewhere.other_branches:
            here = {p.path_id for p in elsewhere.entries}
            path_entries = [p for p in path_entries if p.path_id in here]
        adopted = _group_by_path_id(elsewhere.entries, along=along)
        self._reset(replace(elsewhere, tip=self._tip, adopted=adopted, carries_overlays=along), path_entries)

    def _entries_on_other_branches(self) -> Container[str]:
        if self._other_branch_by_entry is None:
            self._other_branch_by_entry = {
                p.path_id: name for name, line in self._base.other_branches.items() for p in line.entries
            }
        return self._other_branch_by_entry


def _with_aliases(line: PathState, names: Mapping[str, str]) -> PathState:
    """A line put aside, at the entries that are another form of its own."""
    return replace(line, entries=tuple(replace(p, path_id=names.get(p.path_id, p.path_id)) for p in line.entries))


def _group_by_path_id(path_entries: Iterable[PathEntry], *, along: bool) -> Mapping[str, Sequence[PathEntry]]:
    """What stands on a path, by the entry it stands for; with `along` what was said beside one goes with it."""
    found: dict[str, list[PathEntry]] = {}
    place = ""
    for placement in path_entries:
        place = place if along and placement.entry.is_overlay else placement.path_id
        found.setdefault(place, []).append(placement)
    return found


def _overlays_at(ledger: Ledger, entry: Entry, *, older: bool) -> Sequence[Entry]:
    """What hangs on an entry. Where the client rewrote it, and nothing went along with that (`older`), what the user
    said behind its older forms stays, and what the model was told of a root there."""
    hanging = list(ledger.overlays.get(entry.id, ()))
    form = entry.alias if older else ""
    while form:
        told = any(event.kind == ROOT_ANNOUNCED_KIND for event in ledger.events.get(form, ()))
        hanging += [
            overlay for overlay in ledger.overlays.get(form, ()) if told or overlay.kind is EntryKind.USER_OVERLAY
        ]
        form = ledger.entries[form].alias if form in ledger.entries else ""
    return hanging


def _role_of(path_entry: PathEntry) -> str:
    said = path_entry.round.spoken.message if path_entry.round else path_entry.entry.message
    return said.role if said else ""


def _reopen_for_overlay(tree: Tree, overlay: Entry) -> Tree:
    """What the user says from beside the client opens a root again, where none began with it."""
    return reopen_root(tree, overlay.created) if overlay.kind is EntryKind.USER_OVERLAY else tree


def _apply_entry(
    ledger: Ledger, tree: Tree, entry: Entry, events: Sequence[LedgerEvent], before: Sequence[PathEntry]
) -> tuple[Tree, list[PathEntry]]:
    """One more entry: who owns it, and the tree after it."""
    if entry.kind is EntryKind.TURN:
        return _apply_turn(ledger, tree, entry)
    message = entry.message
    if message and message.role == "user" and entry.kind is EntryKind.MESSAGE and not begins_root(events):
        tree = reopen_root(tree, entry.created)
    for event in events:
        tree = reduce(tree, decode_event(event), event.created)
    owner = _owner_of_result(before, message.answers) if message and message.answers else ""
    return tree, [PathEntry(entry, owner or _active_owner(tree), path_id=entry.id)]


def _active_owner(tree: Tree) -> str:
    return tree.active_frame.owner if tree.active else ""


def _apply_turn(ledger: Ledger, tree: Tree, entry: Entry) -> tuple[Tree, list[PathEntry]]:
    """Each round belongs to the frame that was active when it was produced; then what was decided in it happens."""
    path_entry = []
    events = ledger.events.get(entry.id, ())
    for done in ledger.rounds.get(entry.id, ()):
        path_entry.append(PathEntry(entry, _active_owner(tree), done, path_id=entry.id))
        for event in (e for e in events if e.round == done.number):
            decided = decode_event(event)
            tree = reduce(tree, decided, event.created)
            if isinstance(decided, QueuedMessagesDelivered) and (said := ledger.entries.get(decided.entry)) is not None:
                tree = _reopen_for_overlay(tree, said)
                path_entry.append(PathEntry(said, _active_owner(tree), path_id=said.id))
    return tree, path_entry


def _owner_of_result(before: Sequence[PathEntry], call: str) -> str:
    """A call group is never cut through: a result belongs where its call does, the newest call by that id."""
    for path_entry in reversed(before):
        said = path_entry.round.spoken.message if path_entry.round else path_entry.entry.message
        if said and any(c.id == call for c in said.calls):
            return path_entry.owner
    return ""
