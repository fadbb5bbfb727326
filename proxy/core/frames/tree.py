"""Frames: units of work, their lifecycle, and the tree they stand in.

A frame is a function call: a push is the call, a pop the return, and the parent sees only the call and the returned
value.

The law: **what may happen is the table `ALLOWED`**. Identity (title, success criteria) is immutable from activation
on. A final status is final: when the root has ended, its tree has, and the user's next message begins another root
beside it. One that ended as blocked goes on with that message.

A frame that is resumed after it was blocked gets a new *segment*: its old entries do not come back to the line.
Entries are owned by segments, and the line of a frame is made of the current segments on the path from the root to
it.

What this module does not do: nothing happens here. What changes a tree is in `applying`, what a path of the ledger
amounts to in `path_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property

import msgspec

from proxy.core.frames.suggestion_log import SuggestionState


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
"""What a pop may end a frame as."""


INFERRED_ORIGINS = frozenset({"request", "plan", "part", "subagent", "auto"})
"""Origins of frames that nobody pushed: a request of the user, an item of the client's plan, a part of long work, work
that a subagent does in a conversation of its own, work that the proxy parted off by itself (autonomy `auto`)."""
USER_ORIGIN = "human"
"""The origin of a frame that a person planned or began."""


# ------------------------------------------------------------------------------------------------------------- values
class OpeningCall(msgspec.Struct, frozen=True):
    """The call whose result stands for a frame: the frame block while it runs, its compaction afterwards.

    `before` is what that result says ahead of it: the value of the pop that ran in the same group.
    """

    turn: str
    call: str
    preceding_text: str = ""
    view: str = "fork"
    block: str = ""


class Frame(msgspec.Struct, frozen=True):
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
    opening: OpeningCall | None = None
    tokens: int = 0
    """Tokens of what it did, known once it was popped."""
    client_key: str = ""
    """How the client's own plan calls it; of a subagent's frame the id of the call that delegated it."""
    conversation: str = ""
    """The conversation of its own in which a subagent does the work."""
    uncalled_owners: tuple[str, ...] = ()
    """Owners of earlier segments that no call opened: what was done in them stays on the line of its parent."""
    was_planned: bool = False
    """It was laid out before it began."""
    was_stopped_in_place: bool = False
    """It was stopped where it stood, with the call that opened it: no result stands for what it did until then."""

    @property
    def owner(self) -> str:
        return f"{self.id}#{self.segment}"

    @property
    def is_inferred(self) -> bool:
        """Seen in what the client says, which may end it as well."""
        return self.origin in INFERRED_ORIGINS

    @property
    def has_no_opening_call(self) -> bool:
        """No call opened it, so no result stands for it: it leaves the line by a fold alone."""
        return self.is_inferred or (self.opening is None and (self.origin == USER_ORIGIN or self.was_stopped_in_place))


class WakeState(msgspec.Struct, frozen=True):
    """What a thread was given when it woke, as it is replayed ever after: in front of all, or as one message
    (`appended`) behind the entry `at`."""

    guidance: str
    tools: str
    appended: str = ""
    at: str = ""


class Removal(msgspec.Struct, frozen=True):
    """Entries that left the line because it did not fit, and the text that stands for them."""

    entries: frozenset[str]
    trace: str
    at: str
    """The entry behind which the text stands; empty: in front of all."""
    frame: str = ""
    """The folded frame; empty where entries of several left because the line did not fit."""
    summary: str = ""
    """What a model wrote of it since, for the next trace that tells of it."""


class FrameInterimSummary(msgspec.Struct, frozen=True):
    """Where a frame stood that goes on, as the model summed it up (`words`) and as people are shown it (`text`): all
    up to the entry `at`, at `made_at` (ms)."""

    at: str
    model_text: str
    text: str
    made_at: int


class Loop(msgspec.Struct, frozen=True):
    """A pattern that was warned of. `calls` are the signatures in it (of a failed task its title), `shown` the same in
    words, `count` how often it had run, `at` the entry it closed with."""

    kind: str
    calls: tuple[str, ...]
    shown: tuple[str, ...]
    count: int
    at: str = ""


class Tree(msgspec.Struct, frozen=True, dict=True):
    """The state at one entry. `told` maps (turn, `call_key`) to what the result of that stack call says on the line
    now."""

    frames: Mapping[str, Frame] = msgspec.field(default_factory=dict)
    active: str = ""
    wake_state: WakeState | None = None
    result_texts: Mapping[tuple[str, str], str] = msgspec.field(default_factory=dict)
    carried_owners: Mapping[str, str] = msgspec.field(default_factory=dict)
    """User messages that a pop handed to the frame it returned to: entry -> owner."""
    removals: tuple[Removal, ...] = ()
    stale_blocks: frozenset[str] = frozenset()
    """Frames whose block somebody wants written anew."""
    without_reasoning: frozenset[str] = frozenset()
    """Entries (turn ids, or `turn/number`) whose reasoning has been left out, once and for good."""
    interim_summaries: Mapping[str, FrameInterimSummary] = msgspec.field(default_factory=dict)
    """The newest summary of a frame that was made while it went on, by frame."""
    kept_frames: Mapping[str, bool] = msgspec.field(default_factory=dict)
    """Frames that a person wants on the line, none of which is folded again, and whether at any price: the others come
    back when that is cheap."""
    replaced_results: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Entries of results whose text is told in other words on the line: entry -> text."""
    provider_compactions: frozenset[str] = frozenset()
    """Entries (turn ids too) with what stands for all before them, readable by the provider alone."""
    provider_edited_context: bool = False
    """The provider edited by itself what it was sent, so nobody knows what it has cached."""
    loops: tuple[Loop, ...] = ()
    """Loops that were warned of, the oldest first."""
    loops_cleared_at: str = ""
    """The entry up to which a person cleared them: what came before it is no part of any."""
    is_pressure_warned: bool = False
    """The model was told that its window fills up, and the line has not become shorter since."""
    suggestion_state: SuggestionState = msgspec.field(default_factory=SuggestionState)
    """What was suggested to the model here, and what somebody set about that."""
    unannounced_commands: tuple[str, ...] = ()
    """What a person did to the tree and the model was not told of yet, in words, the oldest first."""
    unannounced_root: str = ""
    """A root that began while the thread was awake, of which the model was not told yet."""
    parents_announced: bool = False
    """The model was told of the frames that its conversation was delegated by."""
    retired_owners: frozenset[str] = frozenset()
    """Owners of what was done below a frame in an attempt that the result of its call stands for: it does not come back
    with the next one."""

    @property
    def is_awake(self) -> bool:
        return self.wake_state is not None

    @cached_property
    def removed_entries(self) -> frozenset[str]:
        """Entries that left the line: they were folded, or did not fit."""
        return frozenset().union(*(trim.entries for trim in self.removals))

    @cached_property
    def visible_owners(self) -> frozenset[str]:
        """Owners of what the frames from the root to the active one have on the line."""
        return visible_owners_of(self, path_to(self, self.active))

    @cached_property
    def root(self) -> Frame:
        """The one that the active frame stands under; the others are those of trees that have ended (C20)."""
        above = path_to(self, self.active)[0] if self.active else None
        return above if above and not above.parent else next(f for f in self.frames.values() if not f.parent)

    @property
    def active_frame(self) -> Frame:
        return self.frames[self.active]

    @cached_property
    def children_by_parent(self) -> Mapping[str, tuple[Frame, ...]]:
        """The children of each frame that has any, in order of birth; under the empty id the roots. Whoever goes
        through a tree asks for those of every frame."""
        found: dict[str, list[Frame]] = {}
        for frame in self.frames.values():
            found.setdefault(frame.parent, []).append(frame)
        return {parent: tuple(frames) for parent, frames in found.items()}


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


def is_kept(tree: Tree, frame: str) -> bool:
    """Whether it, or what it is part of, is never folded again."""
    return frame in tree.kept_frames or any(above.id in tree.kept_frames for above in ancestors(tree, frame))


def visible_owners_of(tree: Tree, path: Iterable[Frame]) -> frozenset[str]:
    """Owners of what the frames of `path` have on the line: their own entries, and those of frames under them that no
    call opened. Such a frame takes nothing off the line when it ends; only a fold does, or the end of what it is part
    of. Nor does a root: what stands on its line stands on that of the next one."""
    shown = {frame.id for frame in path}
    owners = {tree.frames[frame].owner for frame in shown}
    if any(not tree.frames[frame].parent for frame in shown):
        shown.add("")  # what roots stand under
    for frame in tree.frames.values():  # in order of birth: parents before their children
        if frame.uncalled_owners and frame.parent in shown:
            owners.update(frame.uncalled_owners)
        if frame.parent in shown and frame.id not in shown and (frame.has_no_opening_call or not frame.parent):
            shown.add(frame.id)
            owners.add(frame.owner)
    return frozenset(owners) - tree.retired_owners


def children(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """In order of birth."""
    return tree.children_by_parent.get(frame, ())


def siblings(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """The other children of the same parent, of a root the other roots, in order of birth."""
    return tuple(f for f in children(tree, tree.frames[frame].parent) if f.id != frame)


def is_ended_root(tree: Tree, frame: Frame) -> bool:
    """Whether it is a root that has ended, with another one begun beside it."""
    return not frame.parent and frame.status in FINAL_STATUSES and frame is not tree.root


def descendants(tree: Tree, frame: str) -> tuple[Frame, ...]:
    """All below `frame`, parents before their children."""
    found: list[Frame] = []
    todo = list(children(tree, frame))
    while todo:
        following = todo.pop(0)
        found.append(following)
        todo += children(tree, following.id)
    return tuple(found)


def find_frame(tree: Tree, reference: str) -> Frame | None:
    """A frame by id, by its title (case does not count), by a beginning of an id, or by a part of a title, each unique.
    The whole title goes first, for an id may begin like a short one."""
    if reference in tree.frames:
        return tree.frames[reference]
    wanted = reference.strip().casefold()
    if not wanted:
        return None
    by_title = [f for f in tree.frames.values() if f.title.casefold() == wanted]
    by_id = [f for f in tree.frames.values() if len(wanted) > 2 and f.id.startswith(wanted)]
    partly = [f for f in tree.frames.values() if wanted in f.title.casefold()]
    return next((found[0] for found in (by_title, by_id, partly) if len(found) == 1), None)
