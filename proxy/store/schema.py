"""The tables, as SQLAlchemy Core knows them, and the version they stand at.

    conversations ─┬─ entries ── messages        a client's or our message, rendered from a blob
                   ├─ rounds ─── messages        place 0 is what was spoken, 1.. are the results
                   ├─ events, threads, anchors, queued
                   └─ requests ─ sent            bodies as lists of pages of blobs
    task_rows                                    frames for other readers, by the view `tasks`; found by `finding`
    blobs, holds                                 bytes once per tenant, and who needs them
    meta                                         what is true of the whole store (tenant is empty)
    settings                                     what was set while the proxy runs (tenant is empty)

The law: **every table has the tenant first in its primary key**. Text is stored as text (see `rows.words` for the few
characters that databases refuse), times in ms, digests as the 32 bytes of sha256. `place` is the order in which rows
were written, across restarts; it carries no other meaning.

To read a message by hand: its words stand in `messages.text`, or, where that is null, as the string `content` of the
JSON in `blobs.data` under the digest in `messages.wire`; so large texts are on disk once. What was spoken in a round
that is still a draft lies under the hash of its place instead, so that the next draft takes its room.

A change here is a new file in `migrations/versions` and a new last name in `VERSIONS`. A new store is made from these
tables directly; a test holds them equal to what the migrations build.
"""

from __future__ import annotations

from sqlalchemy import DDL, BigInteger, Column, Index, Integer, LargeBinary, MetaData, Table, Text, event
from sqlalchemy.schema import SchemaItem

VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006")
"""Every schema this program knows, oldest first. The last one is written, the others are migrated."""

VERSION_TABLE = "alembic_version"

metadata = MetaData()


def _key(name: str) -> Column[str]:
    return Column(name, Text, primary_key=True)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _whole(name: str, *, key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=key, nullable=False, autoincrement=False)


def _bytes(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def _table(name: str, *items: SchemaItem, small: bool = False) -> Table:
    """`small`: rows that are hardly more than their key lie in its tree (SQLite; others take no notice)."""
    return Table(name, metadata, *items, sqlite_with_rowid=not small)


conversations = _table(
    "conversations",
    _key("tenant"),
    _key("id"),
    _text("hint"),
    _text("parent"),
    _text("parent_entry"),
    _whole("created"),
    _text("mode"),
    _whole("newest"),  # `created` of the newest record of it: what retention goes by
    Column("dialect", Text, nullable=False, server_default="openai_chat"),  # the wire format of its messages
    Index("conversations_by_hint", "tenant", "hint", "created"),
    Index("conversations_by_age", "created"),
)
entries = _table(
    "entries",
    _key("tenant"),
    _key("conversation"),
    _key("id"),
    _text("parent"),
    _whole("seq"),
    _text("kind"),
    _text("thread"),
    _text("adopts"),
    _text("alias"),
    _whole("created"),
    _whole("place"),
)
rounds = _table(
    "rounds",
    _key("tenant"),
    _key("conversation"),
    _key("turn"),
    _whole("number", key=True),
    _whole("results"),  # how many of its messages are results
    Column("last", Integer, nullable=False),
    _text("finish"),
    Column("usage", Text),
    _text("model"),
    Column("complete", Integer, nullable=False),
    Column("hidden_truncated", Integer, nullable=False),
    _text("extra"),
    _whole("created"),
    _whole("place"),
)
messages = _table(
    "messages",
    _key("tenant"),
    _key("conversation"),
    _key("entry"),
    _whole("round", key=True),  # -1 for the message of an entry
    _whole("position", key=True),
    _text("role"),
    _bytes("wire"),
    _text("identity"),
    Column("text", Text),
    _text("calls"),
    _text("answers"),
    _whole("tokens"),
    Column("final", Integer, nullable=False),  # 0 for a draft, which a later one replaces
)
events = _table(
    "events",
    _key("tenant"),
    _key("conversation"),
    _key("entry"),
    _key("kind"),
    _key("subject"),
    _whole("round"),
    _whole("seq"),
    _text("data"),
    _whole("created"),
    _whole("place"),
    Index("events_by_subject", "subject", "kind", "tenant"),
)
threads = _table(
    "threads",
    _key("tenant"),
    _key("conversation"),
    _key("id"),
    _text("system_hash"),
    _text("tool_names"),
    _whole("place"),
    Column("tools_hash", Text, nullable=False, server_default=""),
    Column("model", Text, nullable=False, server_default=""),
)
queued = _table(
    "queued",
    _key("tenant"),
    _key("conversation"),
    _key("id"),
    _text("lane"),
    _text("thread"),
    _text("text"),
    _text("state"),
    _whole("created"),
    _whole("expires"),
    _whole("settled"),
    _text("entry"),
    _whole("place"),
)
anchors = _table(
    "anchors",
    _key("tenant"),
    _key("hint"),
    _key("key"),
    _key("conversation"),
    _whole("created"),
    Index("anchors_by_age", "tenant", "hint", "key", "created"),
    Index("anchors_by_conversation", "tenant", "conversation"),
    small=True,
)
requests = _table(
    "requests",
    _key("tenant"),
    _key("id"),
    _text("conversation"),
    _text("thread"),
    _text("frame"),
    _text("entry"),
    _whole("created"),
    _text("status"),
    _text("receipt"),
    _bytes("body"),
    Index("requests_by_conversation", "conversation", "created"),
    Index("requests_by_age", "created"),
    Index("requests_by_id", "id"),
)
sent = _table(
    "sent",
    _key("tenant"),
    _key("request"),
    _whole("round", key=True),
    _bytes("body"),
    _whole("created"),
)
blobs = _table(
    "blobs",
    _key("tenant"),
    Column("digest", LargeBinary, primary_key=True),
    _bytes("data"),
)
holds = _table(
    "holds",
    _key("tenant"),
    _key("holder"),  # c:conversation, r:request, or p:digest of a page in hex
    Column("digest", LargeBinary, primary_key=True),
    Index("holds_by_digest", "tenant", "digest"),
    small=True,
)
meta = _table(
    "meta",
    _key("tenant"),
    _key("name"),
    _bytes("value"),
)
settings = _table(
    "settings",
    _key("tenant"),
    _key("name"),
    _text("value"),  # JSON; null: what the configuration says
    _whole("created"),
)
task_rows = _table(  # written by `tasks`; most names are those of the view, `session_id` is a conversation
    "task_rows",
    _key("tenant"),
    _key("session_id"),
    _key("id"),
    Column("parent_id", Text),
    _text("goal"),
    Column("status", Text, nullable=False, server_default="active"),
    Column("result", Text),
    Column("depth", Integer, nullable=False, server_default="0"),
    _whole("created_at"),
    Column("completed_at", BigInteger),
    _whole("valid_from"),
    Column("valid_to", BigInteger),
    Column("criteria", Text, nullable=False, server_default=""),  # its beginning
    Column("noted", Text, nullable=False, server_default=""),  # files and decisions
    Column("written", BigInteger, nullable=False, server_default="0"),  # the place at which it was written last
    Index("tasks_by_parent", "parent_id"),
    Index("tasks_by_status", "session_id", "status"),
    Index("tasks_by_writing", "written"),
)
TASKS = (
    "CREATE VIEW tasks AS SELECT id, session_id, parent_id, goal, status, result, depth, created_at, completed_at, "
    "valid_from, valid_to FROM task_rows"
)
"""What others read. The tenant is left out: who opens the file sees everybody's."""
event.listen(metadata, "after_create", DDL(TASKS))  # type: ignore[no-untyped-call]  # SQLAlchemy's own

OF_A_CONVERSATION = (entries, messages, rounds, events, threads, anchors, queued)
"""Tables whose rows go with their conversation."""
