"""Frames: units of work, their lifecycle, and the fold that makes a tree of them from what happened.

A frame is a function call: a push is the call, a pop the return, and the parent sees only the call and the returned
value. State is never edited; it is folded from the events on one path of the ledger, so forks, retries and edits of
history need no code of their own: the tree at an entry is what the events before it say.

The law: **what may happen is the table `ALLOWED`**. Identity (title, success criteria) is immutable from activation
on. The only way out of a final status is a new user message after the root was popped: it reopens the root.

A frame that is resumed after it was blocked gets a new *segment*: its old entries do not come back to the line.
Entries are owned by segments, and the line of a frame is made of the current segments on the path from the root to
it.

What this module does not do: it renders nothing and decides nothing about the line; it only knows what is the case.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256

import msgspec

from proxy.stack.ledger import Entry, Event, Kind, Ledger, Round


class Status(StrEnum):
    PLANNED = "planned"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    INVALIDATED = "invalidated"


ALLOWED: Mapping[Status, frozenset[Status]] = {
    Status.PLANNED: frozenset({Status.IN_PROGRESS, Status.INVALIDATED}),
    Status.IN_PROGRESS: frozenset({Status.COMPLETED, Status.FAILED, Status.BLOCKED, Status.INVALIDATED}),
    Status.BLOCKED: frozenset({Status.IN_PROGRESS, Status.INVALIDATED}),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset(),
    Status.INVALIDATED: frozenset(),
}
FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.INVALIDATED})
RETURNED = frozenset({Status.COMPLETED, Status.FAILED, Status.BLOCKED})
"""What a pop may end a frame as."""


# ------------------------------------------------------------------------------------------------------------- values
@dataclass(frozen=True, slots=True)
class Opening:
    """The call whose result stands for a frame: the frame block while it runs, its compaction afterwards.

    `before` is what that result says ahead of it: the value of the pop that ran in the same group.
    """

    turn: str
    call: str
    before: str = ""
    view: str = "fork"
    block: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """A unit of work. Times are ms since the epoch. `order` is its birth order in the tree; `segment` counts its
    attempts from 1."""

    id: str
    parent: str
    title: str
    criteria: str
    criteria_compacted: str
    status: Status
    order: int
    origin: str
    created_at: int
    updated_at: int
    results: str = ""
    results_compacted: str = ""
    artifacts: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    invalidation_reason: str = ""
    invalidated_at: int = 0
    retry_of: str = ""
    segment: int = 1
    opening: Opening | None = None
    tokens: int = 0
    """Tokens of what it did, known once it was popped."""

    @property
    def owner(self) -> str:
        return f"{self.id}#{self.segment}"


@dataclass(frozen=True, slots=True)
class Waking:
    """What a thread was given when it woke, as it is replayed ever after."""

    guidance: str
    tools: str


@dataclass(frozen=True, slots=True)
class Trim:
    """Entries that left the line because it did not fit, and the text that stands for them."""

    entries: frozenset[str]
    trace: str
    at: str
    """The entry behind which the text stands; empty: in front of all."""


@dataclass(frozen=True)
class Tree:
    """The state at one entry. `told` maps (turn, `call_key`) to what the result of that stack call says on the line
    now."""

    frames: Mapping[str, Frame] = field(default_factory=dict)
    active: str = ""
    waking: Waking | None = None
    told: Mapping[tuple[str, str], str] = field(default_factory=dict)
    carried: Mapping[str, str] = field(default_factory=dict)
    """User messages that a pop handed to the frame it returned to: entry -> owner."""
    trims: tuple[Trim, ...] = ()
    mute: frozenset[str] = frozenset()
    """Entries (turn ids, or `turn/number`) whose reasoning has been left out, once and for good."""

    @property
    def awake(self) -> bool:
        return self.waking is not None

    @property
    def root(self) -> Frame:
        return next(f for f in self.frames.values() if not f.parent)

    @property
    def current(self) -> Frame:
        return self.frames[self.active]


# ------------------------------------------------------------------------------------------------------------- events
class Rooted(msgspec.Struct, frozen=True, tag="rooted"):
    """A conversation began."""

    frame: str
    title: str
    criteria: str


class Planned(msgspec.Struct, frozen=True, tag="planned"):
    frame: str
    parent: str
    title: str
    criteria: str
    compacted: str = ""
    origin: str = "model"


class Replanned(msgspec.Struct, frozen=True, tag="replanned"):
    """A planned frame was given other words; allowed only while it is planned."""

    frame: str
    title: str
    criteria: str
    compacted: str = ""


class Pushed(msgspec.Struct, frozen=True, tag="pushed"):
    """A frame began. `turn`, `call` name the opening call; `block` is the text the child is told as its result."""

    frame: str
    parent: str
    title: str
    criteria: str
    turn: str
    call: str
    block: str
    compacted: str = ""
    before: str = ""
    view: str = "fork"
    retry_of: str = ""
    origin: str = "model"


class Activated(msgspec.Struct, frozen=True, tag="activated"):
    """A planned frame began, or a blocked one was resumed; `through` are the planned frames between it and the one it
    was called from, the outermost first: they begin with it."""

    frame: str
    turn: str
    call: str
    block: str
    before: str = ""
    view: str = "fork"
    through: tuple[str, ...] = ()


class Popped(msgspec.Struct, frozen=True, tag="popped"):
    """A frame ended. `told` is what the result of its opening call says from now on; `closed` are frames below it
    that closed as blocked; `carried` are the user messages of the unfinished turn, handed to the frame it returns
    to."""

    frame: str
    status: Status
    results: str
    compacted: str
    told: str = ""
    carried: tuple[str, ...] = ()
    tokens: int = 0


class Invalidated(msgspec.Struct, frozen=True, tag="invalidated"):
    """`cascade`: planned descendants that go with it."""

    frame: str
    reason: str
    told: str = ""
    cascade: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()


class ArtifactAdded(msgspec.Struct, frozen=True, tag="artifact"):
    frame: str
    artifact: str


class Decided(msgspec.Struct, frozen=True, tag="decision"):
    frame: str
    decision: str


class Woken(msgspec.Struct, frozen=True, tag="woken"):
    """The thread woke: tools and guidance, as rendered then."""

    guidance: str
    tools: str


class Trimmed(msgspec.Struct, frozen=True, tag="trim"):
    """The line did not fit the window: these entries left it."""

    entries: tuple[str, ...]
    trace: str
    at: str = ""


class ReasoningRemoved(msgspec.Struct, frozen=True, tag="reasoning removed"):
    """From the first item that no longer fits its prefix all are left out, never put back."""

    turns: tuple[str, ...]


FrameEvent = (
    Rooted
    | Planned
    | Replanned
    | Pushed
    | Activated
    | Popped
    | Invalidated
    | ArtifactAdded
    | Decided
    | Woken
    | Trimmed
    | ReasoningRemoved
)
_decoder: msgspec.json.Decoder[FrameEvent] = msgspec.json.Decoder(FrameEvent)


def recorded(event: FrameEvent, entry: str, number: int, seq: int, now: int) -> Event:
    """The event as the ledger keeps it.

    A frame is born once. What may happen to it again in the same turn (popped as blocked, resumed, popped) is told
    apart by its round and its words, or the second time would count as another writer's first.
    """
    data = msgspec.json.encode(event)
    subject = getattr(event, "frame", "")
    if isinstance(event, Replanned | Activated | Popped | Invalidated | ArtifactAdded | Decided):
        subject += f"/{number}/" + sha256(data).hexdigest()[:12]
    return Event(entry, number, seq, str(event.__struct_config__.tag), subject, data, now)


def read_event(event: Event) -> FrameEvent:
    return _decoder.decode(event.data)


def call_key(number: int, call: str) -> str:
    """A call within its turn: providers repeat ids from round to round."""
    return f"{number}/{call}"


def frame_id(turn: str, call_number: int) -> str:
    """`f` and 8 letters: base32 of a hash over the turn and the number of the call in it."""
    digest = sha256(f"{turn}\n{call_number}".encode()).digest()
    return "f" + base64.b32encode(digest[:5]).decode().lower()


# --------------------------------------------------------------------------------------------------------------- fold
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
    """A path of the ledger, folded: the tree at its end, and everything on it with its owner, oldest first."""

    tree: Tree = field(default_factory=Tree)
    placed: tuple[Placed, ...] = ()
    tip: str = ""


def follow(ledger: Ledger, path: Sequence[Entry], known: Mapping[str, Story]) -> Story:
    """The story of `path` (from the first entry on). `known` holds stories of earlier tips; the longest one is gone
    on from."""
    start, story = 0, Story()
    for at in range(len(path) - 1, -1, -1):
        if (found := known.get(path[at].id)) is not None:
            start, story = at + 1, found
            break
    return extend(ledger, story, path[start:])


def extend(ledger: Ledger, story: Story, entries: Iterable[Entry]) -> Story:
    """`story` with further entries behind it."""
    tree, placed, tip = story.tree, list(story.placed), story.tip
    adopted: dict[str, list[Placed]] = {}
    for entry in entries:
        if entry.adopts:
            elsewhere = follow(ledger, ledger.path(entry.adopts), {})
            tree = elsewhere.tree
            adopted = {}
            for standing in elsewhere.placed:
                adopted.setdefault(standing.at, []).append(standing)
        if entry.alias in adopted:
            placed += [replace(p, at=entry.id) for p in adopted[entry.alias]]
        else:
            tree, more = _step(ledger, tree, entry, placed)
            placed += more
        placed += [Placed(overlay, _owner(tree), at=overlay.id) for overlay in ledger.overlays.get(entry.id, ())]
        tip = entry.id
    return Story(tree, tuple(placed), tip)


def _step(ledger: Ledger, tree: Tree, entry: Entry, before: Sequence[Placed]) -> tuple[Tree, list[Placed]]:
    """One more entry: who owns it, and the tree after it."""
    if entry.kind is Kind.TURN:
        return _told_turn(ledger, tree, entry)
    message = entry.message
    if message and message.role == "user" and entry.kind is Kind.MESSAGE:
        tree = _reopened(tree, entry.created)
    for event in ledger.events.get(entry.id, ()):
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


def _reopened(tree: Tree, now: int) -> Tree:
    if not tree.frames or tree.root.status not in RETURNED:
        return tree
    return _with(tree, replace(tree.root, status=Status.IN_PROGRESS, updated_at=now), active=tree.root.id)


# -------------------------------------------------------------------------------------------------------------- apply
def apply(tree: Tree, event: FrameEvent, now: int) -> Tree:
    """The tree after `event`. What the table does not allow changes nothing: two writers may have decided at once."""
    match event:
        case Rooted():
            return _with(tree, _born(tree, event, Status.IN_PROGRESS, now), active=event.frame)
        case Planned():
            return _with(tree, _born(tree, event, Status.PLANNED, now))
        case Replanned():
            return _replanned(tree, event, now)
        case Pushed():
            return _pushed(tree, event, now)
        case Activated():
            return _activated(tree, event, now)
        case Popped():
            return _popped(tree, event, now)
        case Invalidated():
            return _invalidated(tree, event, now)
        case _:
            return _noted(tree, event, now)


def _noted(tree: Tree, event: FrameEvent, now: int) -> Tree:
    """Events that change no status."""
    match event:
        case ArtifactAdded() if event.frame in tree.frames:
            frame = tree.frames[event.frame]
            known = event.artifact in frame.artifacts
            return (
                tree
                if known
                else _with(tree, replace(frame, artifacts=(*frame.artifacts, event.artifact), updated_at=now))
            )
        case Decided() if event.frame in tree.frames:
            frame = tree.frames[event.frame]
            return _with(tree, replace(frame, decisions=(*frame.decisions, event.decision), updated_at=now))
        case Woken():
            return replace(tree, waking=Waking(event.guidance, event.tools))
        case Trimmed():
            return replace(tree, trims=(*tree.trims, Trim(frozenset(event.entries), event.trace, event.at)))
        case ReasoningRemoved():
            return replace(tree, mute=tree.mute | set(event.turns))
        case _:
            return tree


def _born(tree: Tree, event: Rooted | Planned | Pushed, status: Status, now: int) -> Frame:
    if isinstance(event, Rooted):
        return Frame(event.frame, "", event.title, event.criteria, "", status, len(tree.frames), "root", now, now)
    words = (event.frame, event.parent, event.title, event.criteria, event.compacted)
    return Frame(*words, status, len(tree.frames), event.origin, now, now)


def _with(tree: Tree, *frames: Frame, active: str = "", told: Mapping[tuple[str, str], str] | None = None) -> Tree:
    return replace(
        tree,
        frames={**tree.frames, **{f.id: f for f in frames}},
        active=active or tree.active,
        told={**tree.told, **told} if told else tree.told,
    )


def _replanned(tree: Tree, event: Replanned, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or frame.status is not Status.PLANNED:
        return tree
    words = replace(
        frame, title=event.title, criteria=event.criteria, criteria_compacted=event.compacted, updated_at=now
    )
    return _with(tree, words)


def _pushed(tree: Tree, event: Pushed, now: int) -> Tree:
    opening = Opening(event.turn, event.call, event.before, event.view, event.block)
    frame = replace(_born(tree, event, Status.IN_PROGRESS, now), opening=opening, retry_of=event.retry_of)
    return _with(tree, frame, active=frame.id, told=_opened(opening))


def _opened(opening: Opening) -> Mapping[tuple[str, str], str]:
    return {(opening.turn, opening.call): joined(opening.before, opening.block)}


def joined(before: str, text: str) -> str:
    """Two texts that share the result of one call."""
    return f"{before}\n\n{text}" if before and text else before or text


def _activated(tree: Tree, event: Activated, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or Status.IN_PROGRESS not in ALLOWED[frame.status]:
        return tree
    opening = Opening(event.turn, event.call, event.before, event.view, event.block)
    begun = [_begun(tree.frames[i], opening, now) for i in (*event.through, event.frame) if i in tree.frames]
    return _with(tree, *begun, active=frame.id, told=_opened(opening))


def _begun(frame: Frame, opening: Opening, now: int) -> Frame:
    """Planned, it begins; blocked, it is resumed as a new segment."""
    segment = frame.segment + 1 if frame.status is Status.BLOCKED else frame.segment
    return replace(frame, status=Status.IN_PROGRESS, updated_at=now, opening=opening, segment=segment)


def _popped(tree: Tree, event: Popped, now: int) -> Tree:
    frame = tree.frames.get(event.frame)
    if frame is None or event.status not in ALLOWED[frame.status]:
        return tree
    ended = replace(
        frame,
        status=event.status,
        results=event.results,
        results_compacted=event.compacted,
        tokens=event.tokens,
        updated_at=now,
    )
    return _returned(_with(tree, ended), frame, event.told, event.carried)


def _returned(tree: Tree, frame: Frame, told: str, carried: Sequence[str]) -> Tree:
    """Back in the frame it returns to, whose line now says `told` where the way down to `frame` begins."""
    way = way_back(tree, frame.id)
    home = tree.frames.get(way[-1].parent)
    if home is None:
        return _with(tree, active=way[-1].id)
    opening = way[-1].opening
    said = {(opening.turn, opening.call): joined(opening.before, told)} if opening else None
    back = _with(tree, active=home.id, told=said)
    return replace(back, carried={**back.carried, **dict.fromkeys(carried, home.owner)})


def way_back(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """The frames that are left when `frame` ends: itself, and those above it that were invalidated while it was at
    work. The parent of the last one is where it returns to; the root is never passed."""
    left = [tree.frames[frame]]
    for above in ancestors(tree, frame):
        if above.status not in FINAL or not above.parent:
            break
        left.append(above)
    return tuple(left)


def _invalidated(tree: Tree, event: Invalidated, now: int) -> Tree:
    gone = [
        replace(
            tree.frames[i],
            status=Status.INVALIDATED,
            invalidation_reason=event.reason if i == event.frame else f"Parent frame invalidated: {event.reason}",
            invalidated_at=now,
            updated_at=now,
        )
        for i in (event.frame, *event.cascade)
        if i in tree.frames and Status.INVALIDATED in ALLOWED[tree.frames[i].status]
    ]
    after = _with(tree, *gone)
    target = tree.frames.get(event.frame)
    if target is None or event.frame != tree.active:
        return after
    return _returned(after, target, event.told, event.carried)


# -------------------------------------------------------------------------------------------------------------- views
def ancestors(tree: Tree, frame: str) -> Iterator[Frame]:
    """The parent first, then its parent, up to the root; stops at a missing or repeated one."""
    seen = {frame}
    at = tree.frames[frame].parent if frame in tree.frames else ""
    while at and at in tree.frames and at not in seen:
        seen.add(at)
        yield tree.frames[at]
        at = tree.frames[at].parent


def path_to(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """From the root down to `frame`, both included."""
    return (*reversed(tuple(ancestors(tree, frame))), tree.frames[frame])


def children(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """In order of birth."""
    return tuple(f for f in tree.frames.values() if f.parent == frame)


def siblings(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """The other children of the same parent, in order of birth."""
    parent = tree.frames[frame].parent
    return tuple(f for f in children(tree, parent) if f.id != frame) if parent else ()


def descendants(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """All below `frame`, parents before their children."""
    found: list[Frame] = []
    todo = list(children(tree, frame))
    while todo:
        following = todo.pop(0)
        found.append(following)
        todo += children(tree, following.id)
    return tuple(found)


def find(tree: Tree, reference: str) -> Frame | None:
    """A frame by id, by a unique beginning of an id, or by a unique title (case does not count)."""
    if reference in tree.frames:
        return tree.frames[reference]
    wanted = reference.strip().casefold()
    if not wanted:
        return None
    by_id = [f for f in tree.frames.values() if len(wanted) > 2 and f.id.startswith(wanted)]
    by_title = [f for f in tree.frames.values() if f.title.casefold() == wanted]
    partly = [f for f in tree.frames.values() if wanted in f.title.casefold()]
    return next((found[0] for found in (by_id, by_title, partly) if len(found) == 1), None)
