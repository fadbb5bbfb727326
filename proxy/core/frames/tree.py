"""Frames and the tree they form: values, allowed status changes, and queries.

A frame is a function call: a push calls, a pop returns, and the parent sees only the call and the returned value.
`ALLOWED` lists the status changes. Title and criteria are fixed once a frame begins. When a root has ended, the user's
next message begins another beside it; a blocked root continues.

Entries are owned by segments of frames. A frame that is resumed after it was blocked gets a new segment, so its old
entries do not return. The context holds the current segments of the frames from the root to the active one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property

import msgspec
from msgspec.structs import replace

from proxy.core.frames.suggestion_log import SuggestionState
from proxy.core.text import cell_width, cut_for_display


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
FINAL_STATUSES = frozenset({Status.COMPLETED, Status.FAILED, Status.INVALIDATED})
RETURN_STATUSES = frozenset({Status.COMPLETED, Status.FAILED, Status.BLOCKED})
"""Statuses that a pop may set."""


INFERRED_ORIGINS = frozenset({"request", "plan", "part", "subagent", "auto"})
"""Origins of frames that no call pushed: a user request, an item of the client's plan, a finished part of long work, a
subagent's conversation, or work that the proxy split off (autonomy `auto`)."""
REQUEST_ORIGIN = "request"
"""Origin of a frame that is a request of the user."""
PLAN_ORIGIN = "plan"
"""Origin of a frame that is an item of the client's plan."""
PART_ORIGIN = "part"
"""Origin of a frame that the proxy cut off work that goes on."""
USER_ORIGIN = "human"
"""Origin of a frame that a person planned or began."""


# ------------------------------------------------------------------------------------------------------------- values
class OpeningCall(msgspec.Struct, frozen=True):
    """The call whose result stands for a frame: the frame block while it runs, its results afterwards.

    `preceding_text` precedes that result: the value of a pop in the same group of calls.
    """

    turn: str
    call: str
    preceding_text: str = ""
    view: str = "fork"
    block: str = ""


class FrameNote(msgspec.Struct, frozen=True):
    """A text that a tool keeps on a frame. `kind` is the name of its list, such as "findings"."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Frame(msgspec.Struct, frozen=True):
    """A unit of work. Times are ms since the epoch. `order` is the order of creation in the tree; `segment` counts its
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
    opening: OpeningCall | None = None
    tokens: int = 0
    """Tokens of its work, known after a pop."""
    client_key: str = ""
    """The item's id in the client's plan; for a subagent's frame the id of the delegating call."""
    conversation: str = ""
    """The subagent's own conversation."""
    uncalled_owners: tuple[str, ...] = ()
    """Owners of earlier segments without an opening call: their entries stay in the parent's context."""
    was_planned: bool = False
    was_stopped_in_place: bool = False
    """It was stopped and its opening call forgotten, so no result stands for its work until then."""
    kept_notes: tuple[FrameNote, ...] = ()

    @property
    def noted(self) -> tuple[str, ...]:
        """Its decisions, and what else is noted on it, each behind its kind."""
        return (*self.decisions, *map(str, self.kept_notes))

    def notes_by_kind(self) -> dict[str, list[str]]:
        """Its notes beside artifacts and decisions."""
        kinds = dict.fromkeys(note.kind for note in self.kept_notes)
        return {kind: [note.text for note in self.kept_notes if note.kind == kind] for kind in kinds}

    @property
    def owner(self) -> str:
        """What its entries of now are marked with: `frame_id_of` reads the frame from it."""
        return f"{self.id}#{self.segment}"

    @property
    def is_inferred(self) -> bool:
        """Inferred from the client's messages, which may end it as well."""
        return self.origin in INFERRED_ORIGINS

    @property
    def label(self) -> str:
        """`f7 (Its title)`."""
        return f"{self.id} ({cut_for_display(self.title)})"

    @property
    def status_text(self) -> str:
        """The status in words: an item that the client left when its request ended was not blocked by anything."""
        is_left = self.status is Status.BLOCKED and self.is_inferred and not self.results
        return "left open" if is_left else str(self.status)

    @property
    def has_no_task(self) -> bool:
        """Whether it is a root of a conversation in which nothing was asked for yet."""
        return not self.parent and self.title == CONVERSATION

    @property
    def is_part(self) -> bool:
        """Whether the proxy cut it off work that goes on. A part is no task: no position or list counts it."""
        return self.origin == PART_ORIGIN

    @property
    def leaves_only_by_fold(self) -> bool:
        """No result stands for it, so only a fold removes it from the context."""
        return self.is_inferred or (self.opening is None and (self.origin == USER_ORIGIN or self.was_stopped_in_place))


class WakeState(msgspec.Struct, frozen=True):
    """What a thread was given when it woke, repeated in every request since: at the start of the context, or as one
    message (`appended`) behind the entry `at`. `brief`: the client's rarely used tools have brief descriptions."""

    guidance: str
    tools: str
    appended: str = ""
    at: str = ""
    brief: bool = False


class Removal(msgspec.Struct, frozen=True):
    """Entries that left the context, and the text that replaces them."""

    entries: frozenset[str]
    trace: str
    at: str
    """The entry behind which the text stands; empty: at the start."""
    frame: str = ""
    """The folded frame; empty if entries of several frames left because the context did not fit."""
    summary: str = ""
    """A model's later summary, for the next trace that includes this one."""


class FrameInterimSummary(msgspec.Struct, frozen=True):
    """The model's summary of an unfinished frame up to the entry `at`, made at `made_at` (ms): for the model
    (`model_text`) and for people (`text`)."""

    at: str
    model_text: str
    text: str
    made_at: int


class Loop(msgspec.Struct, frozen=True):
    """A loop that was warned of. `calls` are its call signatures (of a failed task its title), `shown` the same in
    words, `count` its repetitions, `at` the entry that closed it."""

    kind: str
    calls: tuple[str, ...]
    shown: tuple[str, ...]
    count: int
    at: str = ""


class DeferredPop(msgspec.Struct, frozen=True, gc=False):
    """A pop or a change of a plan's item that waits (`events.PopDeferred`). `turn`: the entry of its message."""

    turn: str
    status: Status
    results: str
    compacted: str


CONVERSATION = "Conversation"
"""How a root is titled that is no task: its requests stand below it."""


class Tree(msgspec.Struct, frozen=True, dict=True):
    """The state at one entry. `result_texts` maps (turn, `call_key`) to the current result of that stack call."""

    frames: Mapping[str, Frame] = msgspec.field(default_factory=dict)
    active: str = ""
    wake_state: WakeState | None = None
    result_texts: Mapping[tuple[str, str], str] = msgspec.field(default_factory=dict)
    carried_owners: Mapping[str, str] = msgspec.field(default_factory=dict)
    """New owners of entries that passed to another frame: entry -> owner."""
    removals: tuple[Removal, ...] = ()
    stale_blocks: frozenset[str] = frozenset()
    """Frames whose block should be rendered anew."""
    without_reasoning: frozenset[str] = frozenset()
    """Entries (turn ids, or `turn/number`) whose reasoning was removed for good."""
    interim_summaries: Mapping[str, FrameInterimSummary] = msgspec.field(default_factory=dict)
    """The newest interim summary by frame."""
    kept_frames: Mapping[str, bool] = msgspec.field(default_factory=dict)
    """Frames that are never folded again. True: back in the context at any price; False: when that is cheap."""
    replaced_results: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Results whose text is replaced in the context: entry -> text."""
    provider_compactions: frozenset[str] = frozenset()
    """Entries (also turn ids) that hold a compaction that only the provider can read."""
    provider_edited_context: bool = False
    """The provider edited its input, so its cache state is unknown."""
    loops: tuple[Loop, ...] = ()
    """Loops that were warned of, oldest first."""
    loops_cleared_at: str = ""
    """A person dismissed loops up to this entry: earlier entries count for none."""
    is_pressure_warned: bool = False
    """The model was warned of a full window, and the context has not become shorter since."""
    suggestion_state: SuggestionState = msgspec.field(default_factory=SuggestionState)
    deferred_pops: Mapping[str, DeferredPop] = msgspec.field(default_factory=dict)
    """By frame: pops that were refused beside calls of the client, and items of the client's plan that were ticked off,
    begun or put back inside a pushed frame."""
    unannounced_commands: tuple[str, ...] = ()
    """User commands of which the model was not told yet, as text, oldest first."""
    unannounced_frame: str = ""
    """A frame whose block is due behind the newest message: a root that began while the thread was awake, or the active
    frame of a thread that woke in mid-work."""
    parents_announced: bool = False
    """The model was told of the frames of its parent conversation."""
    holder_by_owner: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Owners of what was done in a plan item before it moved: owner -> the frame that it belongs to."""
    retired_owners: frozenset[str] = frozenset()
    """Owners of work below a blocked frame that its call's result stands for; it does not return."""

    @property
    def is_awake(self) -> bool:
        return self.wake_state is not None

    @property
    def offers_frames(self) -> bool:
        """Whether the model was offered the tools that begin and end frames, not `stack_recall` alone."""
        return self.wake_state is not None and bool(self.wake_state.guidance or self.wake_state.appended)

    @cached_property
    def removed_entries(self) -> frozenset[str]:
        """Entries that left the context by a fold or a trim."""
        return frozenset().union(*(trim.entries for trim in self.removals))

    @cached_property
    def visible_owners(self) -> frozenset[str]:
        """Owners whose entries are in the context of the active frame."""
        return visible_owners_of(self, path_to(self, self.active))

    @cached_property
    def root(self) -> Frame:
        """The root of the active frame; other roots have ended."""
        outermost = path_to(self, self.active)[0] if self.active else None
        return (
            outermost if outermost and not outermost.parent else next(f for f in self.frames.values() if not f.parent)
        )

    @property
    def active_frame(self) -> Frame:
        return self.frames[self.active]

    @cached_property
    def as_shown(self) -> Tree:
        """The tree as the model and people see it: the user's requests are its top. From the second request on a root
        is the conversation, which has no task of its own, and what came of the first request stands below that request,
        whose frame was made when it ended."""
        shown_frames: dict[str, Frame] = {}
        at_work = {f.id for f in path_to(self, self.active)} if self.active else set()
        for root in children(self, ""):
            below = children(self, root.id)
            if (first := next((f for f in below if f.origin == REQUEST_ORIGIN), None)) is None:
                continue
            shown_frames[root.id] = replace(root, title=CONVERSATION, criteria="", criteria_compacted="")
            older = (f for f in below if f.order < first.order and f.id not in at_work)
            shown_frames |= {f.id: replace(f, parent=first.id) for f in older}
        return replace(self, frames={**self.frames, **shown_frames}) if shown_frames else self

    @cached_property
    def children_by_parent(self) -> Mapping[str, tuple[Frame, ...]]:
        """Children of each frame in order of creation; the empty id has the roots."""
        by_parent: dict[str, list[Frame]] = {}
        for frame in self.frames.values():
            by_parent.setdefault(frame.parent, []).append(frame)
        return {parent: tuple(frames) for parent, frames in by_parent.items()}


# -------------------------------------------------------------------------------------------------------------- views
def frame_id_of(owner: str) -> str:
    """The frame whose segment owns an entry; empty for no owner."""
    return owner.partition("#")[0]


def ancestors(tree: Tree, frame: str) -> Iterator[Frame]:
    """The parent first, up to the root; stops at a missing or repeated frame."""
    seen = {frame}
    current = tree.frames[frame].parent if frame in tree.frames else ""
    while current and current in tree.frames and current not in seen:
        seen.add(current)
        yield tree.frames[current]
        current = tree.frames[current].parent


def path_to(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """From the root down to `frame`, both included."""
    return (*reversed(tuple(ancestors(tree, frame))), tree.frames[frame])


def is_task(tree: Tree, frame: Frame) -> bool:
    """Whether a frame is told as a task. A part is none, and neither is the root from the user's second request on: it
    is titled by the first one, and stands for the whole conversation."""
    if frame.is_part:
        return False
    return bool(frame.parent) or not any(f.origin == REQUEST_ORIGIN for f in children(tree, frame.id))


def tasks_above(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """The tasks that a frame is part of, the nearest first; the last one is the user's request."""
    return tuple(above for above in ancestors(tree, frame) if is_task(tree, above))


def is_kept(tree: Tree, frame: str) -> bool:
    """Whether the frame, or one that it is part of, is never folded again."""
    return frame in tree.kept_frames or any(ancestor.id in tree.kept_frames for ancestor in ancestors(tree, frame))


def visible_owners_of(tree: Tree, path: Iterable[Frame]) -> frozenset[str]:
    """Owners of the entries that the frames of `path` have in the context: their own, and those of frames below without
    an opening call, which stay until a fold or until the frame around them ends. Entries of earlier roots stay too."""
    shown = {frame.id for frame in path}
    owners = {tree.frames[frame].owner for frame in shown}
    if any(not tree.frames[frame].parent for frame in shown):
        shown.add("")  # what roots stand under
    for frame in tree.frames.values():  # in order of birth: parents before their children
        if frame.uncalled_owners and frame.parent in shown:
            owners.update(frame.uncalled_owners)
        if frame.parent in shown and frame.id not in shown and (frame.leaves_only_by_fold or not frame.parent):
            shown.add(frame.id)
            owners.add(frame.owner)
    return frozenset(owners) - tree.retired_owners


def children(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """In order of creation."""
    return tree.children_by_parent.get(frame, ())


def siblings(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """Other children of the same parent in order of creation; for a root the other roots."""
    return tuple(f for f in children(tree, tree.frames[frame].parent) if f.id != frame)


def ordered_siblings(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """Children of one parent in creation order, without invalidated ones and parts, which are no tasks."""
    valid = (f for f in frames if f.status is not Status.INVALIDATED and not f.is_part)
    return tuple(sorted(valid, key=lambda f: f.order))


def position_of(frame: Frame, family: Iterable[Frame]) -> tuple[int, int]:
    """Position among the siblings and their number, counted from 1; position 0 if the frame is not one of them. An item
    of the client's list comes behind all that ended: items are put between others, where no call says so."""
    ended_first = sorted(ordered_siblings(family), key=lambda f: frame.is_inferred and f.status not in FINAL_STATUSES)
    order = [f.id for f in ended_first]
    return (order.index(frame.id) + 1 if frame.id in order else 0, len(order))


def next_planned(frame: Frame, family: Iterable[Frame]) -> Frame | None:
    """The first planned frame after `frame`, else the first one before it."""
    planned = [f for f in ordered_siblings(family) if f.status is Status.PLANNED and f.id != frame.id]
    later = (f for f in planned if f.order > frame.order)
    return next(later, planned[0] if planned else None)


def is_ended_root(tree: Tree, frame: Frame) -> bool:
    """Whether it is a root that ended before another one began."""
    return not frame.parent and frame.status in FINAL_STATUSES and frame is not tree.root


def descendants(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """All frames below `frame`, parents before their children."""
    frames: list[Frame] = []
    pending = list(children(tree, frame))
    while pending:
        following = pending.pop(0)
        frames.append(following)
        pending += children(tree, following.id)
    return tuple(frames)


def is_below_returned_frame(tree: Tree, frame: Frame) -> bool:
    """Whether an ancestor has returned, whose result stands for what was done in it. Entering the frame would put that
    ancestor's work back into the context."""
    active_path_ids = {f.id for f in path_to(tree, tree.active)}
    return any(
        not a.leaves_only_by_fold and a.parent and a.id not in active_path_ids for a in ancestors(tree, frame.id)
    )


def plan_parent(tree: Tree, frame: str = "") -> str:
    """The frame under which new items of the client's plan are planned: `frame` (default: the active one), or the
    parent of the other items."""
    parent = tree.frames[frame or tree.active]
    while parent.origin in (PLAN_ORIGIN, PART_ORIGIN, "auto") and parent.parent:
        parent = tree.frames[parent.parent]
    return parent.id


def frames_titled(tree: Tree, title: str) -> list[Frame]:
    """Frames that are told by this whole title; case does not count."""
    wanted = title.strip().casefold()
    return [tree.frames[f.id] for f in tree.as_shown.frames.values() if f.title.casefold() == wanted]


def distinct_titles(tree: Tree, frames: Iterable[Frame], cut: Callable[[str], str]) -> dict[str, str]:
    """Titles of listed frames by id, as they are told and `cut`. One that another frame has too ends with the task that
    the frame is part of, or, where that is the same, with its number."""
    shown = tree.as_shown.frames
    listed = [shown[f.id] for f in frames]
    titles = {f.id: cut(f.title) for f in listed}
    same = Counter(cut(f.title) for f in shown.values() if not f.is_part)
    places: dict[tuple[str, str], list[str]] = {}
    for frame in sorted(shown.values(), key=lambda f: f.order):
        if same[title := cut(frame.title)] > 1:
            places.setdefault((title, frame.parent), []).append(frame.id)
    for (title, parent), ids in places.items():
        for number, frame_id in enumerate(ids, 1):
            if frame_id in titles:
                within = f" in {cut(shown[parent].title)}" if parent in shown and len(ids) < same[title] else ""
                titles[frame_id] += within + (f" (no. {number})" if len(ids) > 1 else "")
    return titles


def find_frame(tree: Tree, reference: str) -> Frame | None:
    """A frame by id, whole title (case does not count), start of an id, or part of a title; each must be unique, and a
    start or a part has three letters, or two wide ones. The whole title precedes the start of an id, which it may look
    like."""
    if reference in tree.frames:
        return tree.frames[reference]
    wanted = reference.strip().casefold()
    if not wanted:
        return None
    shown = tree.as_shown.frames.values()
    by_title = frames_titled(tree, wanted)
    names_one = cell_width(wanted) > 2
    by_id = [f for f in tree.frames.values() if names_one and f.id.startswith(wanted)]
    by_part = [tree.frames[f.id] for f in shown if names_one and wanted in f.title.casefold()]
    return next((frames[0] for frames in (by_title, by_id, by_part) if len(frames) == 1), None)
