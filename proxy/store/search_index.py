"""Full-text search of finished frames (SQLite FTS5, ranked by BM25): title, criteria, result, files and decisions.

Each tenant that searches has an index in memory; a search first reads the rows written since the last one. Results are
read in the same transaction, so deleted or reopened frames never appear. Words are compared by English stems.

The search by meaning compares the vector of a query with those that an embedding model made of frames, each time anew.
"""

from __future__ import annotations

import heapq
import operator
import sqlite3
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any

from msgspec.structs import replace
from sqlalchemy import Connection, RowMapping, Select, and_, delete, select

from proxy.core.frames import STATUSES, Status
from proxy.core.text import query_words, words_in
from proxy.errors import StoreError
from proxy.store import rows, schema
from proxy.store.delete import BeginWrite
from proxy.store.interface import EmbeddableFrame, FinishedFrame, FrameSearchResult, FrameVector, QueryVector

MAX_INDEXES = 16
"""Most recently used indexes that are kept; about 3 MB for each thousand finished frames."""
MAX_OUTDATED_ROWS = 1_000
"""Outdated rows in an index before it is rebuilt, or as many as it has current ones, if that is more."""
COLUMN_WEIGHTS = {"title": 4.0, "criteria": 2.0, "results": 1.0, "noted": 2.0}
"""Indexed columns and the weight of a word in each. `noted` holds files and decisions."""
TOKENIZER = "porter unicode61"
INSERT_SQL = f"INSERT INTO frames (rowid, {', '.join(COLUMN_WEIGHTS)}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608 - constants
BM25_WEIGHTS = ", ".join(map(str, COLUMN_WEIGHTS.values()))
RANKED_SQL = f"SELECT rowid FROM frames WHERE frames MATCH ? ORDER BY bm25(frames, {BM25_WEIGHTS}), rowid DESC"  # noqa: S608 - constants

MAX_COMPARED = 5_000
"""Newest vectors that a query is compared with: of 1,536 numbers each, 0.3 s of CPU in a thread."""

FrameKey = tuple[str, str, str]
TaskRow = rows.RowValues | RowMapping


def frame_key_of(row: TaskRow) -> FrameKey:
    return row["tenant"], row["session_id"], row["id"]


def is_finished(row: TaskRow) -> bool:
    """Whether this row is of a frame that ended with a result and was not withdrawn."""
    return row["completed_at"] is not None and row["valid_to"] is None


def search_rows(
    told: Mapping[FrameKey, rows.RowValues], query: str, limit: int, without: Collection[str]
) -> FrameSearchResult:
    with closing(FrameIndex()) as index:
        index.add_rows(told.values())
        return _best_frames(index, query_words(query), told.get, limit, without)


class FrameSearch:
    """Indexes by tenant; None is an operator's, who sees all. May be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._indexes: OrderedDict[str | None, FrameIndex] = OrderedDict()

    def search(
        self, connection: Connection, tenant: str | None, query: str, limit: int, without: Collection[str]
    ) -> FrameSearchResult:
        """Up to `limit` finished frames outside the conversations `without`, best first: those with all words of
        `query`, or else those with some. Raises StoreError."""
        with self._lock:
            try:
                index = self._current_index(connection, tenant)
                return _best_frames(index, query_words(query), partial(_current_row, connection), limit, without)
            except Exception as caught:
                self._drop(tenant)
                if isinstance(caught, sqlite3.Error):  # the index's: what SQLAlchemy raises is about the store
                    raise StoreError(f"finished frames cannot be searched ({caught})") from caught
                raise

    def forget(self) -> None:
        """Drop the indexes after a deletion."""
        with self._lock:
            for tenant in list(self._indexes):
                self._drop(tenant)

    def _current_index(self, connection: Connection, tenant: str | None) -> FrameIndex:
        index = self._indexes.get(tenant)
        if index is None or index.outdated > max(MAX_OUTDATED_ROWS, index.size):
            self._drop(tenant)
            index = self._indexes[tenant] = FrameIndex()
        self._indexes.move_to_end(tenant)
        while len(self._indexes) > MAX_INDEXES:
            self._drop(next(iter(self._indexes)))
        index.add_rows(connection.execute(_rows_written_since(tenant, index.last_row_number)).mappings())
        return index

    def _drop(self, tenant: str | None) -> None:
        if (index := self._indexes.pop(tenant, None)) is not None:
            index.close()


# ---------------------------------------------------------------------------------------------------------------- index
class FrameIndex:
    """Words of frames, without their texts. A changed frame gets a new number; the old number is skipped."""

    def __init__(self) -> None:
        self.last_row_number = -1
        """Rows up to this place are indexed."""
        self._numbers: dict[FrameKey, int] = {}
        self._keys: dict[int, FrameKey] = {}
        self._next = 0
        self._words = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._words.execute(
            f"CREATE VIRTUAL TABLE frames USING fts5({', '.join(COLUMN_WEIGHTS)}, content='', tokenize='{TOKENIZER}')"
        )

    @property
    def size(self) -> int:
        return len(self._numbers)

    @property
    def outdated(self) -> int:
        return self._next - self.size

    def add_rows(self, task_rows: Iterable[TaskRow]) -> None:
        """Rows of `task_rows`, in writing order."""
        self._words.execute("BEGIN")
        for row in task_rows:
            self._add_row(row)
        self._words.execute("COMMIT")

    def _add_row(self, row: TaskRow) -> None:
        key = frame_key_of(row)
        if (number := self._numbers.pop(key, None)) is not None:
            del self._keys[number]
        if is_finished(row):
            texts = (row["goal"], row["criteria"], row["result"] or "", row["noted"])
            said = (" ".join(words_in(rows.unescape_text(text))) for text in texts)
            self._words.execute(INSERT_SQL, (self._next, *said))
            self._numbers[key], self._keys[self._next] = self._next, key
            self._next += 1
        self.last_row_number = max(self.last_row_number, row["written"])

    def ranked_keys(self, words: Iterable[str], *, whole: bool) -> Iterator[FrameKey]:
        """Frames with all of `words`, or with some (not `whole`): best first, then newest."""
        fts_query = (" AND " if whole else " OR ").join(f'"{word}"' for word in words)
        with closing(self._words.execute(RANKED_SQL, (fts_query,))) as found:
            for (number,) in found:
                if (key := self._keys.get(number)) is not None:
                    yield key

    def close(self) -> None:
        self._words.close()


def _best_frames(
    index: FrameIndex,
    words: Sequence[str],
    row_of: Callable[[FrameKey], TaskRow | None],
    limit: int,
    without: Collection[str],
) -> FrameSearchResult:
    apart = frozenset(map(rows.escape_text, without))
    for whole in (True, False) if words else ():
        keys = (key for key in index.ranked_keys(words, whole=whole) if key[1] not in apart)
        current_rows = (row for key in keys if (row := row_of(key)) is not None)
        if best := tuple(map(_finished_frame, islice(current_rows, limit))):
            return FrameSearchResult(best, whole)
    return FrameSearchResult()


# -------------------------------------------------------------------------------------------------------------- meaning
def with_near_frames(  # noqa: PLR0913  a search, and what it found by words
    connection: Connection,
    found: FrameSearchResult,
    tenant: str | None,
    near: QueryVector,
    limit: int,
    without: Collection[str],
) -> FrameSearchResult:
    """`found` with up to `limit` frames that are similar to `near`, of the `MAX_COMPARED` newest vectors."""
    apart = frozenset(map(rows.escape_text, without))
    table, packed = schema.frame_vectors, struct.Struct(f"<{len(near.numbers)}f")
    query = select(table.c.tenant, table.c.conversation, table.c.frame, table.c.numbers)
    query = query.where(table.c.model == rows.escape_text(near.model)).order_by(table.c.written.desc())
    if tenant is not None:
        query = query.where(table.c.tenant == rows.escape_text(tenant))
    similar = []
    for *key, numbers in connection.execute(query.limit(MAX_COMPARED)):
        if key[1] not in apart and len(numbers) == packed.size:
            cosine = sum(map(operator.mul, near.numbers, packed.unpack(numbers)))
            if cosine >= near.least:
                similar.append((cosine, tuple(key)))
    best = (_current_row(connection, key) for _, key in heapq.nlargest(limit, similar))
    return replace(found, near=tuple(_finished_frame(row) for row in best if row is not None and is_finished(row)))


def frames_to_embed(connection: Connection, after: int, limit: int) -> tuple[EmbeddableFrame, ...]:
    """Finished frames behind a row, in the order of their rows; behind 0 only the `MAX_COMPARED` newest."""
    tasks, vectors = schema.task_rows, schema.frame_vectors
    finished = select(tasks).where(tasks.c.completed_at.is_not(None), tasks.c.valid_to.is_(None))
    if not after:
        newest = finished.with_only_columns(tasks.c.written).order_by(tasks.c.written.desc())
        after = connection.execute(newest.offset(MAX_COMPARED).limit(1)).scalar() or 0
    of_it = and_(
        vectors.c.tenant == tasks.c.tenant,
        vectors.c.conversation == tasks.c.session_id,
        vectors.c.frame == tasks.c.id,
    )
    query = finished.add_columns(vectors.c.made_of).outerjoin(vectors, of_it)
    query = query.where(tasks.c.written > after).order_by(tasks.c.written).limit(limit)
    return tuple(
        EmbeddableFrame(row["written"], _finished_frame(row), bytes(row["made_of"] or b""))
        for row in connection.execute(query).mappings()
    )


def write_vectors(connection: Connection, begin_write: BeginWrite, written: Sequence[FrameVector]) -> None:
    """Runs in the writer's thread."""
    table, conversations = schema.frame_vectors, schema.conversations
    with connection.begin():
        begin_write(connection, {vector.of.frame.tenant for vector in written})
        for vector in written:
            frame = vector.of.frame
            tenant, conversation, name = map(rows.escape_text, (frame.tenant, frame.conversation, frame.frame))
            owner = select(conversations.c.id).where(
                conversations.c.tenant == tenant, conversations.c.id == conversation
            )
            if connection.execute(owner).first() is None:
                continue
            key = {"tenant": tenant, "conversation": conversation, "frame": name}
            connection.execute(delete(table).filter_by(**key))
            values = {"model": rows.escape_text(vector.model), "made_of": vector.made_of, "numbers": vector.numbers}
            connection.execute(table.insert().values(**key, **values, written=vector.of.number))


# ---------------------------------------------------------------------------------------------------------------- store
def _rows_written_since(tenant: str | None, upto: int) -> Select[Any]:
    table = schema.task_rows
    query = select(table).where(table.c.written > upto).order_by(table.c.written)
    return query if tenant is None else query.where(table.c.tenant == rows.escape_text(tenant))


def _current_row(connection: Connection, key: FrameKey) -> TaskRow | None:
    table = schema.task_rows
    query = select(table).where(table.c.tenant == key[0], table.c.session_id == key[1], table.c.id == key[2])
    return connection.execute(query).mappings().one_or_none()


def _finished_frame(row: TaskRow) -> FinishedFrame:
    return FinishedFrame(
        tenant=rows.unescape_text(row["tenant"]),
        conversation=rows.unescape_text(row["session_id"]),
        frame=rows.unescape_text(row["id"]),
        title=rows.unescape_text(row["goal"]),
        status=Status.COMPLETED if row["status"] == STATUSES[Status.COMPLETED] else Status.FAILED,
        ended=row["completed_at"],
        criteria=rows.unescape_text(row["criteria"]),
        results=rows.unescape_text(row["result"] or ""),
        noted=rows.unescape_text(row["noted"]),
    )
