"""The rows behind the view `tasks`: frames as tasks, for whoever opens the database with something else than us.

They are written in the transaction that writes what made them so, whoever writes that: a request, the management API,
a command, an import. What they say is the fold of the path that grew last, like all that we show; of frames that stand
on other paths alone, what was so while theirs was the newest. So of every conversation that is written to, the tree at
the end of that path is kept here, without its texts, and goes on with each entry and event. Where that is not all that
happened (another path grew, an event hangs further back, the conversation was not at hand), it is folded anew.

The law: **a fault here costs rows, never a record**: what cannot be folded is left as it stands, and folded anew with
the next write. Nothing of ours reads these rows; all of them can be made again.

What this module does not do: it knows no message, only who spoke.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace

from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from proxy.stack.applying import apply, reopened
from proxy.stack.events import read_event
from proxy.stack.frames import Frame, Tree
from proxy.stack.ledger import Entry, Event, Kind, Ledger
from proxy.stack.lines import SWITCHED
from proxy.stack.story import follow
from proxy.stack.tasks import task_of
from proxy.store import reading, rows, schema

log = logging.getLogger(__name__)

CONVERSATIONS = 1_000
"""Conversations of which the tree is kept, about 2 KB for each and 1 KB for each frame."""
TEXT = frozenset({"goal", "result", "parent_id"})

Owner = tuple[str, str]
"""Tenant and conversation."""


@dataclass
class News:
    """Entries and events of one conversation, in the order they were written. `opened`: it is new with them."""

    entries: list[Entry] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    opened: bool = False


@dataclass(frozen=True, slots=True)
class _Grown:
    """The newest path: its last entry and the tree there."""

    tip: str = ""
    tree: Tree = field(default_factory=Tree)


class _Elsewhere(Exception):
    """What was written does not simply go on where the newest path ended."""


class Tasks:
    """Belongs to the writer's thread."""

    def __init__(self) -> None:
        self._at: OrderedDict[Owner, _Grown] = OrderedDict()

    def forget(self) -> None:
        """What was followed may not be in the store."""
        self._at.clear()

    def after(self, connection: Connection, news: Mapping[Owner, News]) -> list[rows.Values]:
        """The rows that `news` make new or change; in the transaction in which they were written."""
        changed: list[rows.Values] = []
        for owner, written in news.items():
            if written.entries or written.events:
                try:
                    changed += self._followed(connection, owner, written)
                except DBAPIError:
                    raise
                except Exception as caught:  # the edge of the fold: what is stored may have been written by others
                    self._at.pop(owner, None)
                    log.warning("tasks not followed", extra={"conversation": owner[1], "cause": type(caught).__name__})
        while len(self._at) > CONVERSATIONS:
            self._at.popitem(last=False)
        return changed

    def _followed(self, connection: Connection, owner: Owner, written: News) -> list[rows.Values]:
        before = self._at.pop(owner, None)
        try:
            after = _gone_on(_Grown() if written.opened else before, written)
            known: Mapping[str, Frame] = before.tree.frames if before else {}
        except _Elsewhere:
            after, known = _folded(reading.outline(connection, *owner)), {}
        frames = after.tree.frames
        same = frames is known
        kept = frames if same else {i: f if known.get(i) is f else _without_texts(f) for i, f in frames.items()}
        self._at[owner] = _Grown(after.tip, Tree(kept, after.tree.active))
        return [] if same else list(_changed(owner, known, after.tree))


def all_rows(connection: Connection) -> Iterator[rows.Values]:
    """The rows of every conversation there is, for a store that had none."""
    table = schema.conversations
    for row in connection.execute(select(table.c.tenant, table.c.id)).all():
        owner = rows.plain(row.tenant), rows.plain(row.id)
        yield from _changed(owner, {}, _folded(reading.outline(connection, *owner)).tree)


# ---------------------------------------------------------------------------------------------------------------- fold
def _gone_on(before: _Grown | None, written: News) -> _Grown:
    """Raises _Elsewhere."""
    if before is None:
        raise _Elsewhere
    tip, tree = before.tip, before.tree
    at: dict[str, list[Event]] = {}
    for event in written.events:
        at.setdefault(event.entry, []).append(event)
    tree = _decided(tree, at.pop(tip, ()))
    for entry in written.entries:
        tip, tree = _placed(tip, tree, entry)
        tree = _decided(tree, at.pop(entry.id, ()))
    if at:
        raise _Elsewhere
    return _Grown(tip, tree)


def _placed(tip: str, tree: Tree, entry: Entry) -> tuple[str, Tree]:
    """The end of the path, and the tree there, with one more entry. Raises _Elsewhere."""
    if entry.is_beside:
        return tip, reopened(tree, entry.created) if entry.kind is Kind.SAID else tree
    if entry.parent != tip or entry.adopts or entry.alias:
        raise _Elsewhere
    speaks = entry.kind is Kind.MESSAGE and entry.message is not None and entry.message.role == "user"
    return entry.id, reopened(tree, entry.created) if speaks else tree


def _decided(tree: Tree, events: Iterable[Event]) -> Tree:
    """Raises _Elsewhere."""
    for event in sorted(events, key=lambda each: (each.round, each.seq)):
        if event.kind == SWITCHED:
            raise _Elsewhere
        tree = apply(tree, read_event(event), event.created)
    return tree


def _folded(ledger: Ledger | None) -> _Grown:
    tip = ledger.newest_tip() if ledger else None
    if ledger is None or tip is None:
        return _Grown()
    return _Grown(tip.id, follow(ledger, ledger.path(tip.id), {}).tree)


def _without_texts(frame: Frame) -> Frame:
    """What later events and rows need of it."""
    opening = replace(frame.opening, before="", block="") if frame.opening else None
    return replace(frame, criteria="", criteria_compacted="", results_compacted="", opening=opening)


# ---------------------------------------------------------------------------------------------------------------- rows
def _changed(owner: Owner, known: Mapping[str, Frame], tree: Tree) -> Iterator[rows.Values]:
    tenant, conversation = map(rows.words, owner)
    for frame in tree.frames.values():
        if known.get(frame.id) is not frame:
            told = asdict(task_of(tree, frame))
            texts = {name: rows.words(value) for name in TEXT if (value := told[name]) is not None}
            yield {**told, **texts, "id": rows.words(frame.id), "tenant": tenant, "session_id": conversation}
