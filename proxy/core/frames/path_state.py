"""Replays a path of the ledger into its state: the frame tree at its end, and all entries with their owners.

State is replayed, never edited. The state of a path is the state of its beginning plus one entry, and the same path
always gives the same state, so states of beginnings may be cached or dropped at will. With branches, a state describes
the branch on which the path ends; the others are kept beside it, and nothing passes from one to another.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
from msgspec.structs import replace

from proxy.core.frames.branches import BRANCH_EVENT_KINDS, BranchState, reduce_branches
from proxy.core.frames.events import (
    HISTORY_REWRITTEN_KIND,
    ROOT_ANNOUNCED_KIND,
    BranchSwitched,
    FrameActivated,
    FramePushed,
    QueuedMessagesDelivered,
    begins_root,
    call_key,
    decode_event,
)
from proxy.core.frames.loaded_tools import groups_that_load
from proxy.core.frames.reducer import reduce, reopen_root
from proxy.core.frames.tree import Tree
from proxy.core.ledger import Call, Entry, EntryKind, Ledger, LedgerEvent, Message, Round

_NO_EVENTS: Mapping[str, Sequence[LedgerEvent]] = {}


class PathEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry (for a turn: one round of it) and the frame segment that owns it. `path_id` is the entry of the path
    that it stands for: itself, or the form that the client rewrote it into. `inner_calls` are ids of the client's calls
    behind a push in the same message; they and their results belong to the frame that it opened, `inner_owner`."""

    entry: Entry
    owner: str
    round: Round | None = None
    path_id: str = ""
    inner_calls: tuple[str, ...] = ()
    inner_owner: str = ""

    @property
    def message(self) -> Message | None:
        """The message that the entry has in the context."""
        return self.round.spoken.message if self.round else self.entry.message

    def owner_of_call(self, call: str) -> str:
        return self.inner_owner if call in self.inner_calls else self.owner


class PathState(msgspec.Struct, frozen=True, dict=True):
    """State of a path: the tree at its end, and all entries with their owners, oldest first.

    `adopted` holds the entries of the path whose state this one continues, by entry: later entries may be rewritten
    forms of them. Their overlays move along if `carries_overlays`. `other_branches` holds the branches that are not
    current, as they were left.
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
        """Entries owned by the frames from the root to the active one, and the tool searches of the others with what
        they loaded, in ledger order; all if no frame is active."""
        tree = self.tree
        if not tree.active:
            return self.entries
        owners = tree.visible_owners
        if not (carried := tree.carried_owners):
            shown = tuple(p for p in self.entries if p.owner in owners)
        else:
            # `context.owner_of`, written out: this is asked of every entry of the path.
            shown = tuple(
                p for p in self.entries if (carried.get(p.path_id) or carried.get(p.entry.id, p.owner)) in owners
            )
        if len(shown) == len(self.entries) or not (loading := self._loading_entries):
            return shown
        wanted = loading | set(map(id, shown))
        return tuple(p for p in self.entries if id(p) in wanted)

    @cached_property
    def _loading_entries(self) -> frozenset[int]:
        """The Python ids of the entries that loaded tools: the client believes these loaded, whatever frame it was."""
        groups = groups_that_load([path_entry.message for path_entry in self.entries])
        return frozenset(id(self.entries[position]) for group in groups for position in group.positions)

    def loads_tools(self, path_entry: PathEntry) -> bool:
        """Whether this entry of the path belongs to a call group that loaded tools, which stays whole."""
        return id(path_entry) in self._loading_entries

    @cached_property
    def outliving_entries(self) -> frozenset[int]:
        """The Python ids of visible entries of frames that left the context: tool searches."""
        if not self.tree.active or not self._loading_entries:
            return frozenset()
        owners, carried = self.tree.visible_owners, self.tree.carried_owners
        visible = (p for p in self.visible_entries if id(p) in self._loading_entries)
        return frozenset(
            id(p) for p in visible if (carried.get(p.path_id) or carried.get(p.entry.id, p.owner)) not in owners
        )

    def entries_of(self, is_owner: Callable[[str], bool]) -> list[PathEntry]:
        """The entries that segments chosen by `is_owner` own now, oldest first. Calls that stand in a message of their
        parent's, behind the push, come as an entry with these calls alone."""
        found: list[PathEntry] = []
        carried = self.tree.carried_owners
        for path_entry in self.entries:
            owner = carried.get(path_entry.path_id) or carried.get(path_entry.entry.id, path_entry.owner)
            if is_owner(owner):
                found.append(path_entry)
            elif path_entry.inner_owner and is_owner(path_entry.inner_owner):
                found.append(_inner_part(path_entry))
        return found

    @cached_property
    def newest_client_entries(self) -> tuple[PathEntry, ...]:
        """The client's entries after its last answer, oldest first, without rounds of the unfinished turn."""
        end = len(self.entries)
        while end and (
            (last := self.entries[end - 1]).entry.is_overlay
            or (last.round is not None and last.entry.id == self.tip and not last.round.last)
        ):
            end -= 1
        begin = end
        while begin and not _is_answer(self.entries[begin - 1]):
            begin -= 1
        return self.entries[begin:end]


def _inner_part(path_entry: PathEntry) -> PathEntry:
    """What of a message belongs to the frame that it opened. Its bytes are those of the whole message."""
    done = path_entry.round
    if done is None:
        return path_entry
    said = done.spoken.message
    calls = tuple(call for call in said.calls if call.id in path_entry.inner_calls)
    part = replace(done, spoken=replace(done.spoken, message=replace(said, calls=calls, text="", tokens=0)), results=())
    return replace(path_entry, owner=path_entry.inner_owner, round=part, inner_calls=(), inner_owner="")


def _is_answer(path_entry: PathEntry) -> bool:
    return path_entry.round is not None or (
        path_entry.entry.message is not None and path_entry.entry.message.role == "assistant"
    )


def replay(ledger: Ledger, path: Sequence[Entry], known: Mapping[str, PathState]) -> PathState:
    """State of `path`, which starts at the first entry. `known` caches states by tip; the longest prefix is reused."""
    start, path_state = _longest_known_prefix(path, known)
    return extend(ledger, path_state, path[start:])


def _longest_known_prefix(path: Sequence[Entry], known: Mapping[str, PathState]) -> tuple[int, PathState]:
    """Length of the longest prefix with a known state, and that state."""
    for index in range(len(path) - 1, -1, -1):
        if (path_state := known.get(path[index].id)) is not None:
            return index + 1, path_state
    return 0, PathState()


def extend(
    ledger: Ledger,
    path_state: PathState,
    entries: Iterable[Entry],
    fresh: Mapping[str, Sequence[LedgerEvent]] = _NO_EVENTS,
) -> PathState:
    """`path_state` with further entries; `fresh` are events at them that the ledger does not have yet."""
    entries = tuple(entries)
    if not entries:
        return path_state
    builder = PathBuilder(ledger, path_state, {})
    for entry in entries:
        builder.add(entry, (*ledger.events.get(entry.id, ()), *fresh.get(entry.id, ())))
    return builder.build()


def switch_branch(
    ledger: Ledger,
    path_state: PathState,
    event: BranchSwitched,
    created: int,
    known: dict[str, PathState] | None = None,
) -> PathState:
    """`path_state` with another current branch. The old one is put aside as it is. `known`: see `path_state_at`."""
    other_branches = {
        **path_state.other_branches,
        path_state.branches.current: replace(path_state, adopted={}, other_branches={}),
    }
    target = other_branches.pop(event.branch, None)
    if target is None:
        target = path_state_at(ledger, event.at, {} if known is None else known)
    branches = reduce_branches(path_state.branches, event, created)
    return replace(target, tip=path_state.tip, adopted={}, branches=branches, other_branches=other_branches)


def path_state_at(ledger: Ledger, tip: str, known: dict[str, PathState]) -> PathState:
    """State of the path to `tip`. `known` caches states while one path is walked: branches of branches would double the
    work each time. Adopted paths are computed first, in a loop instead of by recursion: a client that drops its oldest
    message with every request rewrites its history a thousand times."""
    pending = {} if tip in known else {tip: None}
    while pending:
        tip_id = next(reversed(pending))
        path = ledger.path(tip_id)
        start, path_state = _longest_known_prefix(path, known)
        earlier = [e.adopts for e in path[start:] if e.adopts and e.adopts not in known and e.adopts not in pending]
        if earlier:
            pending |= dict.fromkeys(earlier)
            continue
        builder = PathBuilder(ledger, path_state, known)
        for entry in path[start:]:
            builder.add(entry, ledger.events.get(entry.id, ()))
        known[tip_id] = builder.build()
        del pending[tip_id]
    return known[tip]


class PathBuilder:
    """Builds a path state entry by entry. Each `build` copies the path, so a long one is built only where it is read.
    `known`: see `path_state_at`."""

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
        self._call_owners = _CallOwners(path_entries)

    @property
    def tree(self) -> Tree:
        return self._tree

    def build(self) -> PathState:
        other_branches = self._base.other_branches
        if self._aliases:
            names, other_branches = self._aliases, dict(other_branches)  # the rewritten forms of their entries
            for name, branch in other_branches.items():
                renamed = tuple(replace(p, path_id=names.get(p.path_id, p.path_id)) for p in branch.entries)
                other_branches[name] = replace(branch, entries=renamed)
        entries = tuple(self._entries)
        return PathState(
            self._tree, entries, self._tip, self._adopted, self._carries_overlays, self._branches, other_branches
        )

    def add(self, entry: Entry, events: Sequence[LedgerEvent]) -> None:
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
            adopted = self._adopted.get(overlay.id, ()) if overlay.kind is EntryKind.OVERLAY else ()
            self._entries += adopted or [PathEntry(overlay, _active_owner(self._tree), path_id=overlay.id)]
        self._tip = entry.id

    def _new_overlays(self, entry: Entry) -> Sequence[Entry]:
        """Overlays of an entry that are not on the path yet; those of a turn's rounds are."""
        hanging = _overlays_at(self._ledger, entry, older=not self._carries_overlays)
        if not hanging:
            return ()
        # Only what came since is looked at: a thousand notes on a path of ten thousand entries took 0.3 s.
        self._seen_ids.update(p.path_id for p in self._entries[self._scanned_count :])
        self._scanned_count = len(self._entries)
        return [overlay for overlay in hanging if overlay.id not in self._seen_ids]

    def _assign_owners_before(self, entry: Entry) -> None:
        """Messages that the client rewrote right before `entry`, itself a form of a known one, belong to the owner of
        the message that they replace, else to the owner of `entry`. The frame that is active now would take them along
        when it ends."""
        first = self._adopted[entry.alias][0]
        replaced = self._ledger.entries[entry.alias].parent
        for position in reversed(self._rewritten_positions()):
            rewritten = self._entries[position]
            predecessor = self._adopted.get(replaced, (first,))[-1]
            role = predecessor.message.role if predecessor.message else ""
            same_role = rewritten.entry.message is not None and role == rewritten.entry.message.role
            self._entries[position] = replace(rewritten, owner=self._current_owner(predecessor if same_role else first))
            replaced = self._ledger.entries[replaced].parent if replaced in self._ledger.entries else ""
        self._call_owners = _CallOwners(self._entries)

    def _rewritten_positions(self) -> list[int]:
        """Positions at the end, in order, of messages added since a state was adopted that are no form of a known
        one."""
        positions: list[int] = []
        for position in range(len(self._entries) - 1, -1, -1):
            path_entry = self._entries[position]
            if path_entry.entry.is_overlay:
                continue
            if path_entry.round or path_entry.path_id != path_entry.entry.id:
                return positions[::-1] if path_entry.path_id != path_entry.entry.id else []
            positions.append(position)
            if path_entry.entry.adopts:
                return positions[::-1]
        return []

    def _current_owner(self, path_entry: PathEntry) -> str:
        carried = self._tree.carried_owners
        return carried.get(path_entry.path_id) or carried.get(path_entry.entry.id, path_entry.owner)

    def _apply_entry(self, entry: Entry, events: Sequence[LedgerEvent]) -> None:
        branch_events = [event for event in events if event.kind in BRANCH_EVENT_KINDS]
        for event in branch_events:
            self._apply_branch_event(entry, event)
        self._tree, path_entries = _apply_entry(self._ledger, self._tree, entry, events, self._call_owners)
        self._entries += path_entries

    def _apply_branch_event(self, entry: Entry, event: LedgerEvent) -> None:
        """A switch happens before its message is placed, which is the first on the new branch."""
        decoded = decode_event(event)
        if not isinstance(decoded, BranchSwitched):
            self._branches = reduce_branches(self._branches, decoded, event.created)
        elif self._can_switch(entry, decoded):
            switched = switch_branch(self._ledger, self.build(), decoded, event.created, self._known)
            self._reset(switched, list(switched.entries))

    def _can_switch(self, entry: Entry, switch: BranchSwitched) -> bool:
        """Whether the branch exists, or begins at an entry older than this one."""
        start = self._ledger.entries.get(switch.at)
        exists = switch.branch in self._base.other_branches or (start is not None and start.seq < entry.seq)
        return exists and switch.branch != self._branches.current

    def _adopt_state(self, other: PathState, *, along: bool) -> None:
        """Continue from the state of another path; shared entries keep the owners of that state."""
        path_entries = self._entries
        if other.other_branches:
            shared = {p.path_id for p in other.entries}
            path_entries = [p for p in path_entries if p.path_id in shared]
        adopted = _group_by_path_id(other.entries, along=along)
        self._reset(replace(other, tip=self._tip, adopted=adopted, carries_overlays=along), path_entries)

    def _entries_on_other_branches(self) -> Container[str]:
        if self._other_branch_by_entry is None:
            self._other_branch_by_entry = {
                p.path_id: name for name, branch in self._base.other_branches.items() for p in branch.entries
            }
        return self._other_branch_by_entry


def _group_by_path_id(path_entries: Iterable[PathEntry], *, along: bool) -> Mapping[str, Sequence[PathEntry]]:
    """Entries by the path entry they stand for. If `along`, overlays belong to the entry before them."""
    groups: dict[str, list[PathEntry]] = {}
    path_id = ""
    for path_entry in path_entries:
        path_id = path_id if along and path_entry.entry.is_overlay else path_entry.path_id
        groups.setdefault(path_id, []).append(path_entry)
    return groups


def _overlays_at(ledger: Ledger, entry: Entry, *, older: bool) -> Sequence[Entry]:
    """Overlays of an entry. If the client rewrote it and overlays did not move along (`older`), also the user's queued
    messages at its earlier forms, and the announcement of a root there."""
    overlays = list(ledger.overlays.get(entry.id, ()))
    form = entry.alias if older else ""
    while form:
        root_announced = any(event.kind == ROOT_ANNOUNCED_KIND for event in ledger.events.get(form, ()))
        overlays += [
            overlay
            for overlay in ledger.overlays.get(form, ())
            if root_announced or overlay.kind is EntryKind.USER_OVERLAY
        ]
        form = ledger.entries[form].alias if form in ledger.entries else ""
    return overlays


def _reopen_for_overlay(tree: Tree, overlay: Entry) -> Tree:
    """A queued user message reopens a root like any user message."""
    return reopen_root(tree, overlay.created) if overlay.kind is EntryKind.USER_OVERLAY else tree


def _apply_entry(
    ledger: Ledger, tree: Tree, entry: Entry, events: Sequence[LedgerEvent], call_owners: _CallOwners
) -> tuple[Tree, list[PathEntry]]:
    """The tree after one more entry, and the entry with its owner."""
    if entry.kind is EntryKind.TURN:
        return _apply_turn(ledger, tree, entry)
    message = entry.message
    if message and message.role == "user" and entry.kind is EntryKind.MESSAGE and not begins_root(events):
        tree = reopen_root(tree, entry.created)
    for event in events:
        tree = reduce(tree, decode_event(event), event.created)
    owner = call_owners.owner_of(message.answers) if message and message.answers else ""
    return tree, [PathEntry(entry, owner or _active_owner(tree), path_id=entry.id)]


def _active_owner(tree: Tree) -> str:
    return tree.active_frame.owner if tree.active else ""


def _apply_turn(ledger: Ledger, tree: Tree, entry: Entry) -> tuple[Tree, list[PathEntry]]:
    """The owner of a round is the frame that was active before it; then its events apply. Calls behind a push belong to
    the frame that it opened."""
    path_entries: list[PathEntry] = []
    events = ledger.events.get(entry.id, ())
    for done in ledger.rounds.get(entry.id, ()):
        position = len(path_entries)
        path_entries.append(PathEntry(entry, _active_owner(tree), done, path_id=entry.id))
        for event in (e for e in events if e.round == done.number):
            decided = decode_event(event)
            tree = reduce(tree, decided, event.created)
            if isinstance(decided, FramePushed | FrameActivated) and decided.turn == entry.id:
                path_entries[position] = _with_inner_calls(path_entries[position], decided, tree)
            if (
                isinstance(decided, QueuedMessagesDelivered)
                and (overlay := ledger.entries.get(decided.entry)) is not None
            ):
                tree = _reopen_for_overlay(tree, overlay)
                path_entries.append(PathEntry(overlay, _active_owner(tree), path_id=overlay.id))
    return tree, path_entries


def _with_inner_calls(path_entry: PathEntry, opened: FramePushed | FrameActivated, tree: Tree) -> PathEntry:
    """A round that opened a frame, with the client's calls behind the one that did. A view that hides the message from
    its frame would hide them too."""
    spoken, frame = path_entry.round, tree.frames.get(opened.frame)
    if spoken is None or frame is None or opened.view != "fork" or path_entry.inner_calls:
        return path_entry
    calls = spoken.spoken.message.calls
    keys = [call_key(spoken.number, call.id) for call in calls]
    position = keys.index(opened.call) if opened.call in keys else len(keys)
    before = {call.id for call in calls[:position]}
    inner = tuple(c.id for c in calls[position + 1 :] if not c.is_stack_call and c.id not in before)
    return replace(path_entry, inner_calls=inner, inner_owner=frame.owner) if inner else path_entry


class _CallOwners:
    """The owners of results on a path that grows. A result belongs to the owner of the newest call with its id, so that
    no call loses its result. Each entry is read once, from the newest one back only as far as a result asks."""

    def __init__(self, path_entries: list[PathEntry]) -> None:
        self._entries = path_entries
        self._owners: dict[str, str] = {}
        self._first = self._end = len(path_entries)
        """The entries from the one to the other have been read."""

    def owner_of(self, call: str) -> str:
        for path_entry in self._entries[self._end :]:
            self._owners.update((c.id, path_entry.owner_of_call(c.id)) for c in _calls_of(path_entry))
        self._end = len(self._entries)
        while call not in self._owners and self._first:
            self._first -= 1
            path_entry = self._entries[self._first]
            for each in _calls_of(path_entry):
                self._owners.setdefault(each.id, path_entry.owner_of_call(each.id))
        return self._owners.get(call, "")


def _calls_of(path_entry: PathEntry) -> Sequence[Call]:
    message = path_entry.message
    return message.calls if message else ()
