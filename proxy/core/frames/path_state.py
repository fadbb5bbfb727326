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

from proxy.core.frames.branches import KINDS, Lines, after
from proxy.core.frames.events import REWRITTEN, ROOT_TOLD, Dequeued, Switched, begins_root, read_event
from proxy.core.frames.reducer import apply, reopened
from proxy.core.frames.tree import Tree
from proxy.core.ledger.ledger import Entry, Event, Kind, Ledger, Round

_NOTHING: Mapping[str, Sequence[Event]] = {}


class Placed(msgspec.Struct, frozen=True, gc=False):
    """An entry (for a turn: one round of it) and the segment of a frame that owns it.

    `at` is the entry of the path it stands for: itself, or the alias that a client's rewriting made of it.
    """

    entry: Entry
    owner: str
    round: Round | None = None
    at: str = ""


class Story(msgspec.Struct, frozen=True, dict=True):
    """A path of the ledger, folded: the tree at its end, and everything on it with its owner, oldest first. `adopted`
    is what stands on the path whose state this one took over, by entry: later entries may be another form of it, with
    what was said beside them where that goes `along`.

    Where the work was branched this is the current line of it: `lines` tells which there are, `aside` holds the others
    as they were left.
    """

    tree: Tree = msgspec.field(default_factory=Tree)
    placed: tuple[Placed, ...] = ()
    tip: str = ""
    adopted: Mapping[str, Sequence[Placed]] = msgspec.field(default_factory=dict)
    along: bool = False
    lines: Lines = msgspec.field(default_factory=Lines)
    aside: Mapping[str, Story] = msgspec.field(default_factory=dict)

    @cached_property
    def owned(self) -> tuple[Placed, ...]:
        """What the frames on the path to the active one own, in ledger order; without a frame everything."""
        tree = self.tree
        if not tree.active:
            return self.placed
        owners = tree.shown
        if not (carried := tree.carried):
            return tuple(p for p in self.placed if p.owner in owners)
        # `context.owner_of`, written out: this is asked of every entry of the path.
        return tuple(p for p in self.placed if (carried.get(p.at) or carried.get(p.entry.id, p.owner)) in owners)

    @cached_property
    def newest(self) -> tuple[Placed, ...]:
        """What the client sent behind the last answer that it has (L4), oldest first; the rounds of a turn that is
        under way behind it are none."""
        end = len(self.placed)
        while end and (self.placed[end - 1].entry.is_beside or self._is_under_way(self.placed[end - 1])):
            end -= 1
        begin = end
        while begin and not _is_answer(self.placed[begin - 1]):
            begin -= 1
        return self.placed[begin:end]

    def _is_under_way(self, placed: Placed) -> bool:
        return placed.round is not None and placed.entry.id == self.tip and not placed.round.last


def _is_answer(placed: Placed) -> bool:
    return placed.round is not None or (placed.entry.message is not None and placed.entry.message.role == "assistant")


def follow(ledger: Ledger, path: Sequence[Entry], known: Mapping[str, Story]) -> Story:
    """The story of `path` (from the first entry on). `known` holds stories of earlier tips; the longest one is gone
    on from."""
    start, story = _longest(path, known)
    return extend(ledger, story, path[start:])


def _longest(path: Sequence[Entry], known: Mapping[str, Story]) -> tuple[int, Story]:
    """How much of `path` is told already, and its story."""
    for at in range(len(path) - 1, -1, -1):
        if (found := known.get(path[at].id)) is not None:
            return at + 1, found
    return 0, Story()


def extend(
    ledger: Ledger, story: Story, entries: Iterable[Entry], fresh: Mapping[str, Sequence[Event]] = _NOTHING
) -> Story:
    """`story` with further entries behind it; `fresh` are events at them that the ledger does not have yet."""
    entries = tuple(entries)
    if not entries:
        return story
    walk = _Walk(ledger, story, {})
    for entry in entries:
        walk.put(entry, (*ledger.events.get(entry.id, ()), *fresh.get(entry.id, ())))
    return walk.story()


def turned(ledger: Ledger, story: Story, event: Switched, created: int, known: dict[str, Story] | None = None) -> Story:
    """`story` with another line current: what stood on this one is put aside as it is, and nothing of it goes along.
    `known`: see `story_at`."""
    kept = {**story.aside, story.lines.current: replace(story, adopted={}, aside={})}
    found = kept.pop(event.line, None)
    if found is None:
        found = story_at(ledger, event.at, {} if known is None else known)
    lines = after(story.lines, event, created)
    return replace(found, tip=story.tip, adopted={}, lines=lines, aside=kept)


def story_at(ledger: Ledger, tip: str, known: dict[str, Story]) -> Story:
    """The story of the path to `tip`. `known` remembers what was asked for while one path is walked: a branch of a
    branch of a branch would be told twice as often with each. What a path went on from is told before it, one after
    the other: a client that drops its oldest message with every request rewrites its history a thousand times."""
    waiting = {} if tip in known else {tip: None}
    while waiting:
        at = next(reversed(waiting))
        path = ledger.path(at)
        start, story = _longest(path, known)
        earlier = [e.adopts for e in path[start:] if e.adopts and e.adopts not in known and e.adopts not in waiting]
        if earlier:
            waiting |= dict.fromkeys(earlier)
            continue
        walk = _Walk(ledger, story, known)
        for entry in path[start:]:
            walk.put(entry, ledger.events.get(entry.id, ()))
        known[at] = walk.story()
        del waiting[at]
    return known[tip]


class _Walk:
    """A story while entries are put behind it, one by one."""

    def __init__(self, ledger: Ledger, story: Story, known: dict[str, Story]) -> None:
        self._ledger = ledger
        self._known = known
        self._begin(story, list(story.placed))

    def _begin(self, story: Story, placed: list[Placed]) -> None:
        self._at = story
        self._tree, self._placed, self._tip = story.tree, placed, story.tip
        self._adopted, self._along, self._lines = story.adopted, story.along, story.lines
        self._elsewhere: Mapping[str, str] | None = None
        self._renamed: dict[str, str] = {}
        self._standing: set[str] = set()
        self._looked_at = 0

    def story(self) -> Story:
        aside = self._at.aside
        if self._renamed:
            aside = {name: _renamed(line, self._renamed) for name, line in aside.items()}
        placed = tuple(self._placed)
        return Story(self._tree, placed, self._tip, self._adopted, self._along, self._lines, aside)

    def put(self, entry: Entry, events: Sequence[Event]) -> None:
        """One more entry, with what was decided at it."""
        if entry.adopts:
            rewritten = any(event.kind == REWRITTEN for event in events)
            self._adopt(story_at(self._ledger, entry.adopts, self._known), along=rewritten)
        if entry.alias and entry.alias in self._on_other_lines():
            self._renamed[entry.alias] = entry.id
        if entry.alias in self._adopted:
            if not entry.adopts:
                self._settle_before(entry)
            self._placed += [p if p.entry.is_beside else replace(p, at=entry.id) for p in self._adopted[entry.alias]]
            for event in events:  # a person may have decided something where the client's other form of it stood
                self._tree = apply(self._tree, read_event(event), event.created)
                self._lines = after(self._lines, read_event(event), event.created)
        elif entry.alias not in self._renamed:
            self._step(entry, events)
        for overlay in self._beside(entry):
            self._tree = _heard(self._tree, overlay)
            known = self._adopted.get(overlay.id, ()) if overlay.kind is Kind.OVERLAY else ()
            self._placed += known or [Placed(overlay, _owner(self._tree), at=overlay.id)]
        self._tip = entry.id

    def _beside(self, entry: Entry) -> Sequence[Entry]:
        """What hangs on an entry and does not stand on the path yet, as what was said within a turn does."""
        hanging = _hanging(self._ledger, entry, older=not self._along)
        if not hanging:
            return ()
        # Only what came since is looked at: a thousand notes on a path of ten thousand entries took 0.3 s.
        self._standing.update(p.at for p in self._placed[self._looked_at :])
        self._looked_at = len(self._placed)
        return [overlay for overlay in hanging if overlay.id not in self._standing]

    def _settle_before(self, entry: Entry) -> None:
        """What the client wrote anew right before `entry`, which is another form of a known one, belongs where that
        belonged in whose place it stands, else where `entry` does: the frame that is active by now would take it
        along when it ends."""
        first = self._adopted[entry.alias][0]
        stood = self._ledger.entries[entry.alias].parent
        for at in reversed(self._written_anew()):
            anew = self._placed[at]
            before = self._adopted.get(stood, (first,))[-1]
            same = anew.entry.message is not None and _role_of(before) == anew.entry.message.role
            self._placed[at] = replace(anew, owner=self._owner_now(before if same else first))
            stood = self._ledger.entries[stood].parent if stood in self._ledger.entries else ""

    def _written_anew(self) -> list[int]:
        """The places at the end, in order, of what was put since a state was gone on from and is no other form of
        anything."""
        found: list[int] = []
        for at in range(len(self._placed) - 1, -1, -1):
            placed = self._placed[at]
            if placed.entry.is_beside:
                continue
            if placed.round or placed.at != placed.entry.id:
                return found[::-1] if placed.at != placed.entry.id else []
            found.append(at)
            if placed.entry.adopts:
                return found[::-1]
        return []

    def _owner_now(self, placed: Placed) -> str:
        carried = self._tree.carried
        return carried.get(placed.at) or carried.get(placed.entry.id, placed.owner)

    def _step(self, entry: Entry, events: Sequence[Event]) -> None:
        of_lines = [event for event in events if event.kind in KINDS]
        for event in of_lines:
            self._say(entry, event)
        self._tree, more = _step(self._ledger, self._tree, entry, events, self._placed)
        self._placed += more

    def _say(self, entry: Entry, event: Event) -> None:
        """Something about the lines. They turn before the message is placed: it is the first on the new one."""
        said = read_event(event)
        if not isinstance(said, Switched):
            self._lines = after(self._lines, said, event.created)
        elif self._can_turn(entry, said):
            there = turned(self._ledger, self.story(), said, event.created, self._known)
            self._begin(there, list(there.placed))

    def _can_turn(self, entry: Entry, to: Switched) -> bool:
        """Whether the line is there, or begins at an entry from before this one."""
        begins = self._ledger.entries.get(to.at)
        known = to.line in self._at.aside or (begins is not None and begins.seq < entry.seq)
        return known and to.line != self._lines.current

    def _adopt(self, elsewhere: Story, *, along: bool) -> None:
        """Go on from the state of another path; what this one shares with it stands here as it stands there."""
        placed = self._placed
        if elsewhere.aside:
            here = {p.at for p in elsewhere.placed}
            placed = [p for p in placed if p.at in here]
        adopted = _by_place(elsewhere.placed, along=along)
        self._begin(replace(elsewhere, tip=self._tip, adopted=adopted, along=along), placed)

    def _on_other_lines(self) -> Container[str]:
        if self._elsewhere is None:
            self._elsewhere = {p.at: name for name, line in self._at.aside.items() for p in line.placed}
        return self._elsewhere


def _renamed(line: Story, names: Mapping[str, str]) -> Story:
    """A line put aside, at the entries that are another form of its own."""
    return replace(line, placed=tuple(replace(p, at=names.get(p.at, p.at)) for p in line.placed))


def _by_place(placed: Iterable[Placed], *, along: bool) -> Mapping[str, Sequence[Placed]]:
    """What stands on a path, by the entry it stands for; with `along` what was said beside one goes with it."""
    found: dict[str, list[Placed]] = {}
    place = ""
    for standing in placed:
        place = place if along and standing.entry.is_beside else standing.at
        found.setdefault(place, []).append(standing)
    return found


def _hanging(ledger: Ledger, entry: Entry, *, older: bool) -> Sequence[Entry]:
    """What hangs on an entry. Where the client rewrote it, and nothing went along with that (`older`), what the user
    said behind its older forms stays, and what the model was told of a root there."""
    hanging = list(ledger.overlays.get(entry.id, ()))
    form = entry.alias if older else ""
    while form:
        told = any(event.kind == ROOT_TOLD for event in ledger.events.get(form, ()))
        hanging += [overlay for overlay in ledger.overlays.get(form, ()) if told or overlay.kind is Kind.SAID]
        form = ledger.entries[form].alias if form in ledger.entries else ""
    return hanging


def _role_of(placed: Placed) -> str:
    said = placed.round.spoken.message if placed.round else placed.entry.message
    return said.role if said else ""


def _heard(tree: Tree, overlay: Entry) -> Tree:
    """What the user says from beside the client opens a root again, where none began with it."""
    return reopened(tree, overlay.created) if overlay.kind is Kind.SAID else tree


def _step(
    ledger: Ledger, tree: Tree, entry: Entry, events: Sequence[Event], before: Sequence[Placed]
) -> tuple[Tree, list[Placed]]:
    """One more entry: who owns it, and the tree after it."""
    if entry.kind is Kind.TURN:
        return _told_turn(ledger, tree, entry)
    message = entry.message
    if message and message.role == "user" and entry.kind is Kind.MESSAGE and not begins_root(events):
        tree = reopened(tree, entry.created)
    for event in events:
        tree = apply(tree, read_event(event), event.created)
    owner = _owner_of_result(before, message.answers) if message and message.answers else ""
    return tree, [Placed(entry, owner or _owner(tree), at=entry.id)]


def _owner(tree: Tree) -> str:
    return tree.current.owner if tree.active else ""


def _told_turn(ledger: Ledger, tree: Tree, entry: Entry) -> tuple[Tree, list[Placed]]:
    """Each round belongs to the frame that was active when it was produced; then what was decided in it happens."""
    placed = []
    events = ledger.events.get(entry.id, ())
    for done in ledger.rounds.get(entry.id, ()):
        placed.append(Placed(entry, _owner(tree), done, at=entry.id))
        for event in (e for e in events if e.round == done.number):
            decided = read_event(event)
            tree = apply(tree, decided, event.created)
            if isinstance(decided, Dequeued) and (said := ledger.entries.get(decided.entry)) is not None:
                tree = _heard(tree, said)
                placed.append(Placed(said, _owner(tree), at=said.id))
    return tree, placed


def _owner_of_result(before: Sequence[Placed], call: str) -> str:
    """A call group is never cut through: a result belongs where its call does, the newest call by that id."""
    for placed in reversed(before):
        said = placed.round.spoken.message if placed.round else placed.entry.message
        if said and any(c.id == call for c in said.calls):
            return placed.owner
    return ""
