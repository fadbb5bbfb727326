"""Follows a path through what is new in a request: its entries, the root's events, and frames inferred from them.

It returns what is to be recorded and records nothing. A failure of our own observers costs inferred frames only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from proxy.config import Config
from proxy.core.frames import (
    BranchSwitched,
    FrameEvent,
    HistoryRewritten,
    PathBuilder,
    PathState,
    RequestFingerprint,
    RootStarted,
    Tree,
    as_ledger_event,
    reduce,
    switch_branch,
)
from proxy.core.ledger import (
    Entry,
    Ledger,
    LedgerEvent,
    Message,
    Thread,
)
from proxy.core.matching import Match, MatchKind
from proxy.core.observers import cache_names, message_of
from proxy.core.policy import (
    find_new_root,
    forgotten_frames,
    has_frames_to_infer,
    has_tool_calls,
    infer_frames,
)
from proxy.core.tools import (
    due_branch_switch,
    ends_with_tool_result,
    frame_tools,
)
from proxy.exchange.thread.bound_reasoning import newest_assistant_entry
from proxy.exchange.thread.context_policy import ContextPolicy, forbids_user_after_result
from proxy.exchange.thread.placement import ParsedRequest
from proxy.store import CachedConversation

log = logging.getLogger(__name__)

KEYWORD_SCAN_BATCH = 32
"""New messages whose names are collected at once on arrival (2 ms), because a trace needs them all later."""
RUNS_PER_SLICE = 32
"""Runs of a new history that are followed in one go: about 3 ms."""
ENTRIES_PER_SLICE = 500
"""Entries of one run, which may be the results of thousands of calls, that are followed in one go."""


@dataclass(frozen=True)
class PathFollower:
    """`policy` has the rules for inferred frames."""

    config: Config
    policy: ContextPolicy

    def follow(  # noqa: PLR0913  where the request stands, and what is new in it
        self,
        parsed: ParsedRequest,
        cached: CachedConversation,
        found: Match,
        new: Sequence[Entry],
        rooted: Sequence[LedgerEvent],
        thread: Thread | None,
        look: RequestFingerprint | None,
        *,
        infers: bool,
    ) -> Generator[Callable[[], bool] | None, Any, tuple[PathState, PathState, list[LedgerEvent]]]:
        """In slices: the path state with what is new, the one before its newest entry, and all events on it: the root's
        and inferred frames. Rewritten forms of known entries infer nothing again, and neither does a thread without
        tools or tool calls, or where it `infers` nothing. `look`: the previous request's fingerprint, to detect a
        branch switch; None where there can be none."""
        ledger = cached.ledger
        path_state = cached.path_state(found.path[-1].id) if found.path else PathState()
        if not new:
            return path_state, path_state, []
        decided = _PathEvents(ledger, ledger.next_seq + len(new), parsed.now, rooted)
        watched = infers and (
            bool(parsed.request.tool_names or (thread and thread.tool_names)) and found.kind is not MatchKind.COMPACTED
        )
        if watched and found.path:
            cache_names(entry.message for entry in new[-KEYWORD_SCAN_BATCH:] if entry.message)
        known = max((at for at, entry in enumerate(new, 1) if entry.alias), default=0)
        if known:
            decided.add(HistoryRewritten(), new[0].id)
        builder = decided.extend(PathBuilder(ledger, path_state, {}), new[:known])
        before = path_state = builder.build() if known else path_state
        called = watched and has_tool_calls(message_of(path_entry) for path_entry in path_state.entries)
        spoken = newest_assistant_entry(path_state.entries) if called else None
        said = message_of(spoken) if spoken else None
        for step, run in enumerate(_split_at_assistant(new[known:]), 1):
            if step % RUNS_PER_SLICE == 0:
                yield None
            last = run[-1]
            called = called or (watched and has_tool_calls(entry.message for entry in run))
            is_newest = last is new[-1]
            if look and is_newest and (turns := self._find_branch_switch(parsed, ledger, builder.build(), run, look)):
                decided.add(turns[0], run[0].id)
                builder = PathBuilder(ledger, turns[1], {})
            tree = cached.path_state(run[0].adopts).tree if run[0].adopts else builder.tree
            compacted = found.kind is MatchKind.COMPACTED
            if root := find_new_root(tree, new if compacted else run, newest=compacted):
                decided.add(root[1], root[0])
            yield from decided.extend_in_slices(builder, run[:-1])
            speaks = last.message is not None and last.message.role == "assistant"
            looks = called or (watched and bool(builder.tree.active) and builder.tree.root.has_no_task)
            may_infer = looks and not speaks and (yield from self._may_infer_frames(builder.tree, said, run))
            if may_infer or is_newest:
                before = builder.build()
            if may_infer:
                at = _with_new_root(last, before, root, parsed.now)
                for ended in self._end_forgotten_frames(ledger, at, run, parsed.now) if is_newest else ():
                    decided.add(ended, last.id)
                    at = replace(at, tree=reduce(at.tree, ended, parsed.now))
                for event in self._infer_frames(at, run, parsed.now):
                    decided.add(event, last.id)
            decided.extend(builder, run[-1:])
            said = last.message if speaks else said
        return builder.build(), before, decided.events

    def _may_infer_frames(
        self, tree: Tree, said: Message | None, run: Sequence[Entry]
    ) -> Generator[Callable[[], bool], bool, bool]:
        """A long run is looked at in a thread."""
        look = partial(has_frames_to_infer, tree, said, run, self.policy.inference_rules)
        try:
            return (yield look) if len(run) > ENTRIES_PER_SLICE else look()
        except Exception:  # the edge of our own observers, as in `_infer_frames`
            log.exception("frames could not be inferred")
            return False

    def _find_branch_switch(
        self,
        parsed: ParsedRequest,
        ledger: Ledger,
        path_state: PathState,
        run: Sequence[Entry],
        look: RequestFingerprint,
    ) -> tuple[BranchSwitched, PathState] | None:
        """The branch that `run`, the newest messages, turns to, and its path state; None if there is none. Not every
        model takes a user message after results."""
        turns = due_branch_switch(path_state, ledger, run, parsed.request, look)
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


def _split_at_assistant(new: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """New entries, split before and after each assistant turn: frames are inferred at the last entry of a run."""
    run: list[Entry] = []
    for entry in new:
        speaks = entry.message is not None and entry.message.role == "assistant"
        if run and speaks:
            yield run
            run = []
        run.append(entry)
        if speaks:
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
