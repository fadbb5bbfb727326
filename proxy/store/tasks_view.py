"""Rows of the view `tasks`: frames as tasks, for other programs that open the database and for the search.

They are written with the records that changed them, and show the path that grew last. Trees of recent conversations are
kept and follow each entry and event; otherwise the conversation is replayed. A failure here loses rows, never records:
they are built anew with the next write.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from sqlalchemy import Connection, select

from proxy.core.frames import (
    BRANCH_SWITCHED_KIND,
    Frame,
    Tree,
    begins_root,
    decode_event,
    extend,
    reduce,
    reopen_root,
    replay,
    task_of,
)
from proxy.core.ledger import Entry, EntryKind, Ledger, LedgerEvent
from proxy.store import read, rows, schema
from proxy.store.database_errors import DATABASE_ERRORS

log = logging.getLogger(__name__)

MAX_FOLLOWED_CONVERSATIONS = 1_000
"""Conversations with kept trees: about 2 KB each, and 1 KB for each frame."""
MAX_TREES_PER_CONVERSATION = 64
"""Newest entries whose trees are kept: a retry, an edit or a second loop continues from one of them."""
MAX_CRITERIA_CHARS = 2_000
"""Stored characters of the criteria; for a request, of the user's message."""
MAX_NOTED_CHARS = 4_000
"""Stored characters of files and decisions."""

ConversationKey = tuple[str, str]


@dataclass
class ConversationChanges:
    """Entries and events of one conversation in writing order. `is_new`: the conversation is new."""

    entries: list[Entry] = field(default_factory=list)
    events: list[LedgerEvent] = field(default_factory=list)
    is_new: bool = False


class _NotAtNewestEntries(Exception):
    """The changes do not continue from one of the newest entries."""


class TaskRowUpdater:
    """Belongs to the writer's thread."""

    def __init__(self) -> None:
        self._trees_by_conversation: OrderedDict[ConversationKey, _NewestTrees] = OrderedDict()

    def forget(self) -> None:
        """Drop the kept trees: their changes may not be in the store."""
        self._trees_by_conversation.clear()

    def forget_conversation(self, owner: ConversationKey) -> None:
        """Drop the trees of a conversation that another process wrote to."""
        self._trees_by_conversation.pop(owner, None)

    def changed_rows(
        self, connection: Connection, news: Mapping[ConversationKey, ConversationChanges]
    ) -> list[rows.RowValues]:
        """The rows that `news` adds or changes. Runs in the transaction that writes `news`."""
        changed: list[rows.RowValues] = []
        for owner, written in news.items():
            if written.entries or written.events:
                try:
                    changed += self._update(connection, owner, written)
                except DATABASE_ERRORS:
                    raise
                except Exception as caught:  # the edge of the fold: what is stored may have been written by others
                    self._trees_by_conversation.pop(owner, None)
                    log.warning("tasks not followed", extra={"conversation": owner[1], "cause": type(caught).__name__})
        while len(self._trees_by_conversation) > MAX_FOLLOWED_CONVERSATIONS:
            self._trees_by_conversation.popitem(last=False)
        return changed

    def _update(
        self, connection: Connection, owner: ConversationKey, written: ConversationChanges
    ) -> list[rows.RowValues]:
        paths = self._trees_by_conversation.pop(owner, None)
        if written.is_new:
            paths = _NewestTrees()
        try:
            if paths is not None:
                paths.apply_changes(written)
        except _NotAtNewestEntries:
            paths = None
        if paths is None:
            paths = _trees_of(read.load_outline(connection, *owner))
        self._trees_by_conversation[owner] = paths
        return list(_build_rows(owner, *paths.take_changed_frames()))


def all_task_rows(connection: Connection) -> Iterator[rows.RowValues]:
    """Rows of all conversations that can be read, for a store without any."""
    table = schema.conversations
    for row in connection.execute(select(table.c.tenant, table.c.id)).all():
        owner = rows.unescape_text(row.tenant), rows.unescape_text(row.id)
        try:
            yield from task_rows_of(owner, read.load_outline(connection, *owner))
        except DATABASE_ERRORS:
            raise
        except Exception as caught:  # as in `changed_rows`
            log.warning("tasks not told", extra={"conversation": owner[1], "cause": type(caught).__name__})


def task_rows_of(owner: ConversationKey, ledger: Ledger | None) -> Iterator[rows.RowValues]:
    yield from _build_rows(owner, *_trees_of(ledger).take_changed_frames())


# ---------------------------------------------------------------------------------------------------------------- fold
class _NewestTrees:
    """The trees at the newest entries of a conversation; `tip` is the entry written last."""

    def __init__(self, tip: str = "", trees: Mapping[str, Tree] | None = None) -> None:
        self.tip = tip
        self._trees: OrderedDict[str, Tree] = OrderedDict(trees or {tip: Tree()})
        self._inner_entries = set(self._trees) - {tip}
        """Entries with others behind them: an event at one of them changes those too."""
        self._written_frames: Mapping[str, Frame] = {}

    def apply_changes(self, written: ConversationChanges) -> None:
        """Apply written changes. Raises _NotAtNewestEntries, after which this object must not be used."""
        at: dict[str, list[LedgerEvent]] = {}
        for event in written.events:
            at.setdefault(event.entry, []).append(event)
        for known in at.keys() - {entry.id for entry in written.entries}:
            self._apply_events(known, at[known])
        for entry in written.entries:
            decided = at.get(entry.id, ())
            self._add_entry(entry, begins=begins_root(decided))
            self._apply_events(entry.id, decided)
        while len(self._trees) > MAX_TREES_PER_CONVERSATION:
            gone, _ = self._trees.popitem(last=False)
            self._inner_entries.discard(gone)

    def _add_entry(self, entry: Entry, *, begins: bool) -> None:
        if entry.kind is EntryKind.OVERLAY or entry.id in self._trees:
            return
        if entry.parent not in self._trees or entry.adopts or entry.alias:
            raise _NotAtNewestEntries
        tree = self._trees[entry.parent]
        self._trees.move_to_end(entry.parent)  # as many attempts at it as there may be, the next one stands there too
        if entry.is_overlay:
            self._replace_tree(entry.parent, reopen_root(tree, entry.created))
            return
        of_user = entry.kind is EntryKind.MESSAGE and entry.message is not None and entry.message.role == "user"
        self._trees[entry.id] = reopen_root(tree, entry.created) if of_user and not begins else tree
        self._inner_entries.add(entry.parent)
        self.tip = entry.id

    def _apply_events(self, entry: str, events: Sequence[LedgerEvent]) -> None:
        for event in sorted(events, key=lambda each: (each.round, each.seq)):
            if event.kind == BRANCH_SWITCHED_KIND or entry not in self._trees:
                raise _NotAtNewestEntries
            self._replace_tree(entry, reduce(self._trees[entry], decode_event(event), event.created))

    def _replace_tree(self, entry: str, tree: Tree) -> None:
        """Keep only the frames of a tree: the rest is large and unused here."""
        known = self._trees[entry]
        if tree.frames is known.frames and tree.active == known.active:
            return
        if entry in self._inner_entries:
            raise _NotAtNewestEntries
        self._trees[entry] = Tree(tree.frames, tree.active)

    def take_changed_frames(self) -> tuple[Tree, list[Frame]]:
        """The tree at the tip, and its frames that differ from their rows. They count as written from now on."""
        tree, told = self._trees[self.tip], self._written_frames
        if tree.frames is told:
            return tree, []
        new = [frame for frame in tree.frames.values() if told.get(frame.id) is not frame]
        self._written_frames = {**tree.frames, **{frame.id: _without_texts(frame) for frame in new}}
        self._trees[self.tip] = Tree(self._written_frames, tree.active)
        return tree, new


def _trees_of(ledger: Ledger | None) -> _NewestTrees:
    tip = ledger.newest_tip() if ledger else None
    if ledger is None or tip is None:
        return _NewestTrees()
    *before, last = ledger.path(tip.id)
    path_state = replay(ledger, before, {})
    trees = {path_state.tip: path_state.tree} if before else {}
    return _NewestTrees(last.id, {**trees, last.id: extend(ledger, path_state, [last]).tree})


def _without_texts(frame: Frame) -> Frame:
    """The part of a frame that later events and rows need."""
    opening = frame.opening
    if opening and (opening.preceding_text or opening.block):
        opening = replace(opening, preceding_text="", block="")
    elif not (frame.criteria or frame.criteria_compacted or frame.results_compacted):
        return frame  # like most that change: they lost their texts when they changed before
    return replace(frame, criteria="", criteria_compacted="", results_compacted="", opening=opening)


# ---------------------------------------------------------------------------------------------------------------- rows
def _build_rows(owner: ConversationKey, tree: Tree, frames: Iterable[Frame]) -> Iterator[rows.RowValues]:
    """The writer sets `written`. Empty criteria leave the stored ones as they are."""
    tenant, conversation = map(rows.escape_text, owner)
    for frame in frames:
        task = task_of(tree, frame)
        yield {
            "tenant": tenant,
            "session_id": conversation,
            "id": rows.escape_text(task.id),
            "parent_id": rows.escape_text(task.parent_id) if task.parent_id is not None else None,
            "goal": rows.escape_text(task.goal),
            "status": task.status,
            "result": rows.escape_text(task.result) if task.result is not None else None,
            "depth": task.depth,
            "created_at": task.created_at,
            "completed_at": task.completed_at,
            "valid_from": task.valid_from,
            "valid_to": task.valid_to,
            "criteria": rows.escape_text(frame.criteria[:MAX_CRITERIA_CHARS]),
            "noted": rows.escape_text("\n".join((*frame.artifacts, *frame.noted))[:MAX_NOTED_CHARS]),
            "written": 0,
        }
