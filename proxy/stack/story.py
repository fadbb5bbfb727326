"""A path of the ledger, folded: the tree at its end, and everything on it with its owner.

The law: **state is folded, never edited**. The story of a path is the story of its beginning and one more entry; the
same path always gives the same story, so what is known of a beginning may be kept or forgotten at will.

What this module does not do: it renders nothing and decides nothing about the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from proxy.stack.applying import apply, reopened
from proxy.stack.events import read_event
from proxy.stack.frames import Tree
from proxy.stack.ledger import Entry, Event, Kind, Ledger, Round

_NOTHING: Mapping[str, Sequence[Event]] = {}


@dataclass(frozen=True, slots=True)
class Placed:
    """An entry (for a turn: one round of it) and the segment of a frame that owns it.

    `at` is the entry of the path it stands for: itself, or the alias that a client's rewriting made of it.
    """

    entry: Entry
    owner: str
    round: Round | None = None
    at: str = ""


@dataclass(frozen=True)
class Story:
    """A path of the ledger, folded: the tree at its end, and everything on it with its owner, oldest first. `adopted`
    is what stands on the path whose state this one took over, by entry: later entries may be another form of it."""

    tree: Tree = field(default_factory=Tree)
    placed: tuple[Placed, ...] = ()
    tip: str = ""
    adopted: Mapping[str, Sequence[Placed]] = field(default_factory=dict)

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


def follow(ledger: Ledger, path: Sequence[Entry], known: Mapping[str, Story]) -> Story:
    """The story of `path` (from the first entry on). `known` holds stories of earlier tips; the longest one is gone
    on from."""
    start, story = 0, Story()
    for at in range(len(path) - 1, -1, -1):
        if (found := known.get(path[at].id)) is not None:
            start, story = at + 1, found
            break
    return extend(ledger, story, path[start:])


def extend(
    ledger: Ledger, story: Story, entries: Iterable[Entry], fresh: Mapping[str, Sequence[Event]] = _NOTHING
) -> Story:
    """`story` with further entries behind it; `fresh` are events at them that the ledger does not have yet."""
    entries = tuple(entries)
    if not entries:
        return story
    tree, placed, tip, adopted = story.tree, list(story.placed), story.tip, story.adopted
    for entry in entries:
        if entry.adopts:
            elsewhere = follow(ledger, ledger.path(entry.adopts), {})
            tree, adopted = elsewhere.tree, _by_place(elsewhere.placed)
        if entry.alias in adopted:
            placed += [replace(p, at=entry.id) for p in adopted[entry.alias]]
        else:
            events = (*ledger.events.get(entry.id, ()), *fresh.get(entry.id, ()))
            tree, more = _step(ledger, tree, entry, events, placed)
            placed += more
        placed += [Placed(overlay, _owner(tree), at=overlay.id) for overlay in ledger.overlays.get(entry.id, ())]
        tip = entry.id
    return Story(tree, tuple(placed), tip, adopted)


def _by_place(placed: Iterable[Placed]) -> Mapping[str, Sequence[Placed]]:
    found: dict[str, list[Placed]] = {}
    for standing in placed:
        found.setdefault(standing.at, []).append(standing)
    return found


def _step(
    ledger: Ledger, tree: Tree, entry: Entry, events: Sequence[Event], before: Sequence[Placed]
) -> tuple[Tree, list[Placed]]:
    """One more entry: who owns it, and the tree after it."""
    if entry.kind is Kind.TURN:
        return _told_turn(ledger, tree, entry)
    message = entry.message
    if message and message.role == "user" and entry.kind is Kind.MESSAGE:
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
            tree = apply(tree, read_event(event), event.created)
    return tree, placed


def _owner_of_result(before: Sequence[Placed], call: str) -> str:
    """A call group is never cut through: a result belongs where its call does, the newest call by that id."""
    for placed in reversed(before):
        said = placed.round.spoken.message if placed.round else placed.entry.message
        if said and any(c.id == call for c in said.calls):
            return placed.owner
    return ""
