"""Follows a path through what is new in a request: its entries, the root's events, and frames inferred from them.

It returns what is to be recorded and records nothing. A failure of our own observers costs inferred frames only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from proxy.config import Config
from proxy.config.for_core import forbids_user_after_result
from proxy.core.frames import (
    BranchSwitched,
    FrameEvent,
    HistoryRewritten,
    PathBuilder,
    PathState,
    RequestFingerprint,
    RootStarted,
    as_ledger_event,
    reduce,
    switch_branch,
)
from proxy.core.ledger import Entry, Ledger, LedgerEvent, Message, Thread
from proxy.core.matching import Match, MatchKind
from proxy.core.observers import cache_names
from proxy.core.policy import find_new_root, forgotten_frames, has_frames_to_infer, has_tool_calls, infer_frames
from proxy.core.tools import due_branch_switch, ends_with_tool_result, frame_tools
from proxy.exchange.thread.bound_reasoning import newest_assistant_entry
from proxy.exchange.thread.context_policy import ContextPolicy
from proxy.exchange.thread.placement import ParsedRequest
from proxy.store import CachedConversation

log = logging.getLogger(__name__)

KEYWORD_SCAN_BATCH = 32
"""New messages whose names are collected at once on arrival (2 ms), because a trace needs them all later."""
RUNS_PER_SLICE = 32
"""Runs of a new history that are followed in one go: about 3 ms."""
ENTRIES_PER_SLICE = 500
"""Entries of one run, which may be the results of thousands of calls, that are followed in one go."""


@dataclass(frozen=True, slots=True)
class NewHistory:
    """Where a request stands, and its `entries` that are new there. `rooted` are events on them that are decided
    already; `fingerprint` is the previous request's, to detect a branch switch, None where there can be none."""

    parsed: ParsedRequest
    cached: CachedConversation
    match: Match
    entries: Sequence[Entry]
    rooted: Sequence[LedgerEvent]
    thread: Thread | None
    fingerprint: RequestFingerprint | None
    infers: bool

    @property
    def is_watched(self) -> bool:
        """Frames are inferred from it: never where no tool is offered."""
        has_tools = self.parsed.request.tool_names or (self.thread and self.thread.tool_names)
        return self.infers and bool(has_tools) and self.match.kind is not MatchKind.COMPACTED


class FollowedPath(NamedTuple):
    """The path with what is new, the same before its newest entry, and all events on what is new."""

    path_state: PathState
    before: PathState
    events: list[LedgerEvent]


@dataclass(slots=True)
class _Walk:
    """How far a history is followed: the path so far in `builder`, and it before the entry that frames were inferred at
    last. `said` is the model's newest message, `has_calls` whether a tool was ever called."""

    history: NewHistory
    decided: _PathEvents
    builder: PathBuilder
    before: PathState
    said: Message | None
    has_calls: bool


@dataclass(frozen=True)
class PathFollower:
    """`policy` has the rules for inferred frames."""

    config: Config
    policy: ContextPolicy

    def follow(self, history: NewHistory) -> Generator[Callable[[], bool] | None, Any, FollowedPath]:
        """In slices. Rewritten forms of known entries infer nothing again."""
        match, entries = history.match, history.entries
        known = history.cached.path_state(match.path[-1].id) if match.path else PathState()
        if not entries:
            return FollowedPath(known, known, [])
        rewritten = max((at for at, entry in enumerate(entries, 1) if entry.alias), default=0)
        walk = _begin_walk(history, known, entries[:rewritten])
        for step, run in enumerate(_split_at_assistant(entries[rewritten:]), 1):
            if step % RUNS_PER_SLICE == 0:
                yield None
            yield from self._add_run(walk, run)
        return FollowedPath(walk.builder.build(), walk.before, walk.decided.events)

    def _add_run(self, walk: _Walk, run: Sequence[Entry]) -> Generator[Callable[[], bool] | None, Any, None]:
        history, decided, last = walk.history, walk.decided, run[-1]
        walk.has_calls = walk.has_calls or (history.is_watched and has_tool_calls(entry.message for entry in run))
        is_newest = last is history.entries[-1]
        if is_newest and (turns := self._find_branch_switch(history, walk.builder, run)):
            decided.add(turns[0], run[0].id)
            walk.builder = PathBuilder(history.cached.ledger, turns[1], {})
        tree = history.cached.path_state(run[0].adopts).tree if run[0].adopts else walk.builder.tree
        compacted = history.match.kind is MatchKind.COMPACTED
        if root := find_new_root(tree, history.entries if compacted else run, newest=compacted):
            decided.add(root[1], root[0])
        yield from decided.extend_in_slices(walk.builder, run[:-1])
        may_infer = yield from self._may_infer_frames(walk, run)
        if may_infer or is_newest:
            walk.before = walk.builder.build()
        if may_infer:
            self._decide_frames(walk, run, _with_new_root(last, walk.before, root, history.parsed.now))
        decided.extend(walk.builder, run[-1:])
        if _speaks(last):
            walk.said = last.message

    def _decide_frames(self, walk: _Walk, run: Sequence[Entry], at: PathState) -> None:
        """What the newest entry of `run` ends and begins, `at` the path before it."""
        last, now = run[-1], walk.history.parsed.now
        if last is walk.history.entries[-1]:
            for ended in self._end_forgotten_frames(walk.history.cached.ledger, at, run, now):
                walk.decided.add(ended, last.id)
                at = replace(at, tree=reduce(at.tree, ended, now))
        for event in self._infer_frames(at, run, now):
            walk.decided.add(event, last.id)

    def _may_infer_frames(self, walk: _Walk, run: Sequence[Entry]) -> Generator[Callable[[], bool], bool, bool]:
        """A long run is looked at in a thread."""
        tree = walk.builder.tree
        looks = walk.has_calls or (walk.history.is_watched and bool(tree.active) and tree.root.has_no_task)
        if not looks or _speaks(run[-1]):
            return False
        look = partial(has_frames_to_infer, tree, walk.said, run, self.policy.inference_rules)
        try:
            return (yield look) if len(run) > ENTRIES_PER_SLICE else look()
        except Exception:  # the edge of our own observers, as in `_infer_frames`
            log.exception("frames could not be inferred")
            return False

    def _find_branch_switch(
        self, history: NewHistory, builder: PathBuilder, run: Sequence[Entry]
    ) -> tuple[BranchSwitched, PathState] | None:
        """The branch that `run`, the newest messages, turns to, and its path state; None if there is none. Not every
        model takes a user message after results."""
        if history.fingerprint is None:
            return None
        parsed, ledger, path_state = history.parsed, history.cached.ledger, builder.build()
        turns = due_branch_switch(path_state, ledger, run, parsed.request, history.fingerprint)
        there = switch_branch(ledger, path_state, turns, parsed.now) if turns else None
        if turns is None or there is None:
            return None
        refused = forbids_user_after_result(self.config, parsed.request.model) and ends_with_tool_result(there)
        return None if refused else (turns, there)

    def _infer_frames(self, before: PathState, run: Sequence[Entry], now: int) -> tuple[FrameEvent, ...]:
        """Frames inferred from the client's messages. A failure only costs these frames; the history comes again with
        every request."""
        try:
            return infer_frames(before, run, now, self.policy.inference_rules)
        except Exception:  # the edge of our own observers, which look at whatever a model or a tool has written
            log.exception("frames could not be inferred")
            return ()

    def _end_forgotten_frames(
        self, ledger: Ledger, before: PathState, run: Sequence[Entry], now: int
    ) -> tuple[FrameEvent, ...]:
        """The ends of frames in which the model has answered the user."""
        try:
            rules = self.policy.inference_rules
            ends = forgotten_frames(before, run, follows_requests=rules.follows_requests)
            if not ends:
                return ()
            return tuple(frame_tools.end_frames(self.policy.own_tool_context(before, ledger, now), ends))
        except Exception:  # as in `_infer_frames`
            log.exception("frames could not be ended")
            return ()


def _speaks(entry: Entry) -> bool:
    """Whether the model said this."""
    return entry.message is not None and entry.message.role == "assistant"


def _begin_walk(history: NewHistory, known: PathState, rewritten: Sequence[Entry]) -> _Walk:
    """The walk behind the `known` path and the new forms of its entries."""
    entries, ledger = history.entries, history.cached.ledger
    decided = _PathEvents(ledger, ledger.next_seq + len(entries), history.parsed.now, history.rooted)
    if history.is_watched and history.match.path:
        cache_names(entry.message for entry in entries[-KEYWORD_SCAN_BATCH:] if entry.message)
    if rewritten:
        decided.add(HistoryRewritten(), entries[0].id)
    builder = decided.extend(PathBuilder(ledger, known, {}), rewritten)
    before = builder.build() if rewritten else known
    has_calls = history.is_watched and has_tool_calls(path_entry.message for path_entry in before.entries)
    spoken = newest_assistant_entry(before.entries) if has_calls else None
    return _Walk(history, decided, builder, before, spoken.message if spoken else None, has_calls)


def _split_at_assistant(new: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """New entries, split before and after each assistant turn: frames are inferred at the last entry of a run."""
    run: list[Entry] = []
    for entry in new:
        if run and _speaks(entry):
            yield run
            run = []
        run.append(entry)
        if _speaks(entry):
            yield run
            run = []
    if run:
        yield run


class _PathEvents:
    """Events decided while a path is followed: `events` in order, `by_entry` for fast lookup in long histories. `seq`
    is that of the first, `now` in ms; `rooted` were decided before."""

    def __init__(self, ledger: Ledger, seq: int, now: int, rooted: Iterable[LedgerEvent]) -> None:
        self._ledger = ledger
        self.events: list[LedgerEvent] = []
        self.by_entry: dict[str, list[LedgerEvent]] = {}
        self._seq, self._now = seq, now
        for event in rooted:
            self._append(event)

    def extend(self, builder: PathBuilder, entries: Iterable[Entry]) -> PathBuilder:
        """Adds entries to a path, with the events that the ledger has at them and the decided ones."""
        for entry in entries:
            builder.add(entry, (*self._ledger.events.get(entry.id, ()), *self.by_entry.get(entry.id, ())))
        return builder

    def extend_in_slices(self, builder: PathBuilder, entries: Sequence[Entry]) -> Generator[None, None, None]:
        for at in range(0, len(entries), ENTRIES_PER_SLICE):
            if at:
                yield
            self.extend(builder, entries[at : at + ENTRIES_PER_SLICE])

    def add(self, event: FrameEvent, entry: str) -> None:
        self._append(as_ledger_event(event, entry, 0, self._seq + len(self.events), self._now))

    def _append(self, event: LedgerEvent) -> None:
        self.events.append(event)
        self.by_entry.setdefault(event.entry, []).append(event)


def _with_new_root(entry: Entry, before: PathState, root: tuple[str, RootStarted] | None, now: int) -> PathState:
    if root is None or root[0] != entry.id:
        return before
    return replace(before, tree=reduce(before.tree, root[1], now))
