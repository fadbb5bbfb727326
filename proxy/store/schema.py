"""The tables in SQLAlchemy Core, and the versions of the schema.

    conversations ─┬─ entries ── messages        a client's or our message, rendered from a blob
                   ├─ rounds ─── messages        place 0 is the answer, 1.. are the results
                   ├─ events, threads, anchors, queued
                   └─ requests ─ sent            bodies as lists of pages of blobs
    task_rows                                    frames for the view `tasks` and `search_index`
    frame_vectors                                finished frames as an embedding model has them
    blobs, holds                                 bytes once per tenant, and their holders
    meta, settings                               of the whole store (tenant is empty)
    usage_days                                   what a tenant used in a day (UTC); stays when conversations are deleted
    reservations                                 what its requests under way may cost; on a server alone

Primary keys begin with the tenant. Times are in ms, digests are 32 bytes of sha256, `place` is the order of writing.
The text of a message is in `messages.text` or, if null, in `content` of the JSON in `blobs.data` under `messages.wire`.
A change of the tables adds to them, with a default for what earlier versions write, and a new last name to `VERSIONS`:
`database.migrate` gives older stores what they lack.
"""

from __future__ import annotations

from sqlalchemy import DDL, BigInteger, Column, Double, Index, Integer, LargeBinary, MetaData, Table, Text, event
from sqlalchemy.schema import SchemaItem

VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010")
"""All schema versions, oldest first. The last is current; the others are migrated."""

VERSION_TABLE = "alembic_version"

metadata = MetaData()


BYTE_ORDERED_TEXT = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that sorts by its bytes, as in SQLite, whatever language a server is set up for."""


def _key_column(name: str) -> Column[str]:
    return Column(name, BYTE_ORDERED_TEXT, primary_key=True)


def _text_column(name: str) -> Column[str]:
    return Column(name, BYTE_ORDERED_TEXT, nullable=False)


def _integer_column(name: str, *, key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=key, nullable=False, autoincrement=False)


def _bytes_column(name: str) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=False)


def _table(name: str, *items: SchemaItem, small: bool = False) -> Table:
    """`small`: a row is little more than its key, so it is stored in the key's tree (WITHOUT ROWID, SQLite only)."""
    return Table(name, metadata, *items, sqlite_with_rowid=not small)


conversations = _table(
    "conversations",
    _key_column("tenant"),
    _key_column("id"),
    _text_column("hint"),
    _text_column("parent"),
    _text_column("parent_entry"),
    _integer_column("created"),
    _text_column("mode"),
    _integer_column("newest"),  # `created` of the newest record of it: what retention goes by
    Column(
        "dialect", BYTE_ORDERED_TEXT, nullable=False, server_default="openai_chat"
    ),  # the wire format of its messages
    Column("written", BigInteger, nullable=False, server_default="0"),  # the place of its newest ledger row
    Index("conversations_by_hint", "tenant", "hint", "created"),
    Index("conversations_by_age", "created"),
)
entries = _table(
    "entries",
    _key_column("tenant"),
    _key_column("conversation"),
    _key_column("id"),
    _text_column("parent"),
    _integer_column("seq"),
    _text_column("kind"),
    _text_column("thread"),
    _text_column("adopts"),
    _text_column("alias"),
    _integer_column("created"),
    _integer_column("place"),
)
rounds = _table(
    "rounds",
    _key_column("tenant"),
    _key_column("conversation"),
    _key_column("turn"),
    _integer_column("number", key=True),
    _integer_column("results"),  # how many of its messages are results
    Column("last", Integer, nullable=False),
    _text_column("finish"),
    Column("usage", Text),
    _text_column("model"),
    Column("complete", Integer, nullable=False),
    Column("hidden_truncated", Integer, nullable=False),
    _text_column("extra"),
    _integer_column("created"),
    _integer_column("place"),
)
messages = _table(
    "messages",
    _key_column("tenant"),
    _key_column("conversation"),
    _key_column("entry"),
    _integer_column("round", key=True),  # -1 for the message of an entry
    _integer_column("position", key=True),
    _text_column("role"),
    _bytes_column("wire"),
    _text_column("identity"),
    Column("text", Text),
    _text_column("calls"),
    _text_column("answers"),
    _integer_column("tokens"),
    Column("final", Integer, nullable=False),  # 0 for a draft, which a later one replaces
)
events = _table(
    "events",
    _key_column("tenant"),
    _key_column("conversation"),
    _key_column("entry"),
    _key_column("kind"),
    _key_column("subject"),
    _integer_column("round"),
    _integer_column("seq"),
    _text_column("data"),
    _integer_column("created"),
    _integer_column("place"),
    Index("events_by_subject", "subject", "kind", "tenant"),
)
threads = _table(
    "threads",
    _key_column("tenant"),
    _key_column("conversation"),
    _key_column("id"),
    _text_column("system_hash"),
    _text_column("tool_names"),
    _integer_column("place"),
    Column("tools_hash", Text, nullable=False, server_default=""),
    Column("model", Text, nullable=False, server_default=""),
)
queued = _table(
    "queued",
    _key_column("tenant"),
    _key_column("conversation"),
    _key_column("id"),
    _text_column("lane"),
    _text_column("thread"),
    _text_column("text"),
    _text_column("state"),
    _integer_column("created"),
    _integer_column("expires"),
    _integer_column("settled"),
    _text_column("entry"),
    _integer_column("place"),
)
anchors = _table(
    "anchors",
    _key_column("tenant"),
    _key_column("hint"),
    _key_column("key"),
    _key_column("conversation"),
    _integer_column("created"),
    Index("anchors_by_age", "tenant", "hint", "key", "created"),
    Index("anchors_by_conversation", "tenant", "conversation"),
    small=True,
)
requests = _table(
    "requests",
    _key_column("tenant"),
    _key_column("id"),
    _text_column("conversation"),
    _text_column("thread"),
    _text_column("frame"),
    _text_column("entry"),
    _integer_column("created"),
    _text_column("status"),
    _text_column("receipt"),
    _bytes_column("body"),
    Index("requests_by_conversation", "conversation", "created"),
    Index("requests_by_age", "created"),
    Index("requests_by_id", "id"),
)
sent = _table(
    "sent",
    _key_column("tenant"),
    _key_column("request"),
    _integer_column("round", key=True),
    _bytes_column("body"),
    _integer_column("created"),
)
blobs = _table(
    "blobs",
    _key_column("tenant"),
    Column("digest", LargeBinary, primary_key=True),
    _bytes_column("data"),
)
holds = _table(
    "holds",
    _key_column("tenant"),
    _key_column("holder"),  # c:conversation, r:request, or p:digest of a page in hex
    Column("digest", LargeBinary, primary_key=True),
    Index("holds_by_digest", "tenant", "digest"),
    small=True,
)
meta = _table(
    "meta",
    _key_column("tenant"),
    _key_column("name"),
    _bytes_column("value"),
)
settings = _table(
    "settings",
    _key_column("tenant"),
    _key_column("name"),
    _text_column("value"),  # JSON; null: what the configuration says
    _integer_column("created"),
)
usage_days = _table(
    "usage_days",
    _key_column("tenant"),
    _integer_column("day", key=True),  # days since 1970
    _integer_column("requests"),
    _integer_column("tokens"),
    Column("cost", Double, nullable=False),
    Column("cost_untouched", Double, nullable=False),
)
reservations = _table(
    "reservations",
    _key_column("tenant"),
    _key_column("id"),
    _integer_column("tokens"),
    Column("usd", Double, nullable=False),
    _integer_column("until"),  # ms by the clock of the server; later it counts no more
)
task_rows = _table(  # written by `tasks`; most names are those of the view, `session_id` is a conversation
    "task_rows",
    _key_column("tenant"),
    _key_column("session_id"),
    _key_column("id"),
    Column("parent_id", Text),
    _text_column("goal"),
    Column("status", Text, nullable=False, server_default="active"),
    Column("result", Text),
    Column("depth", Integer, nullable=False, server_default="0"),
    _integer_column("created_at"),
    Column("completed_at", BigInteger),
    _integer_column("valid_from"),
    Column("valid_to", BigInteger),
    Column("criteria", Text, nullable=False, server_default=""),  # its beginning
    Column("noted", Text, nullable=False, server_default=""),  # files and decisions
    Column("written", BigInteger, nullable=False, server_default="0"),  # the place at which it was written last
    Index("tasks_by_parent", "parent_id"),
    Index("tasks_by_status", "session_id", "status"),
    Index("tasks_by_writing", "written"),
)
frame_vectors = _table(
    "frame_vectors",
    _key_column("tenant"),
    _key_column("conversation"),
    _key_column("frame"),
    _text_column("model"),
    _bytes_column("made_of"),  # the digest of what the model was sent
    _bytes_column("numbers"),  # float32, little-endian
    _integer_column("written"),  # that of the task row
    Index("vectors_by_writing", "written"),
)
TASKS_VIEW_SQL = (
    "CREATE VIEW tasks AS SELECT id, session_id, parent_id, goal, status, result, depth, created_at, completed_at, "
    "valid_from, valid_to FROM task_rows"
)
"""The view for other programs. It leaves out the tenant and shows the rows of all."""
event.listen(metadata, "after_create", DDL(TASKS_VIEW_SQL))  # type: ignore[no-untyped-call]  # SQLAlchemy's own

CONVERSATION_TABLES = (entries, messages, rounds, events, threads, anchors, queued, frame_vectors)
"""Tables whose rows are deleted with their conversation."""
