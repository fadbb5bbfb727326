"""The first store. Written out in full: what a migration builds must not change when `schema` does."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
TABLES = (
    "conversations",
    "entries",
    "rounds",
    "messages",
    "events",
    "threads",
    "anchors",
    "requests",
    "sent",
    "blobs",
    "holds",
    "meta",
)


def upgrade() -> None:
    op.create_table(
        "conversations",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("parent", sa.Text, nullable=False),
        sa.Column("parent_entry", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("newest", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_index("conversations_by_age", "conversations", ["created"])
    op.create_index("conversations_by_hint", "conversations", ["tenant", "hint", "created"])
    op.create_table(
        "entries",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("parent", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("thread", sa.Text, nullable=False),
        sa.Column("adopts", sa.Text, nullable=False),
        sa.Column("alias", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "conversation", "id"),
    )
    op.create_table(
        "rounds",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("turn", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("results", sa.BigInteger, nullable=False),
        sa.Column("last", sa.Integer, nullable=False),
        sa.Column("finish", sa.Text, nullable=False),
        sa.Column("usage", sa.Text, nullable=True),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("complete", sa.Integer, nullable=False),
        sa.Column("hidden_truncated", sa.Integer, nullable=False),
        sa.Column("extra", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "conversation", "turn", "number"),
    )
    op.create_table(
        "messages",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("entry", sa.Text, nullable=False),
        sa.Column("round", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("position", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("wire", sa.LargeBinary, nullable=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=True),
        sa.Column("calls", sa.Text, nullable=False),
        sa.Column("answers", sa.Text, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("final", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "conversation", "entry", "round", "position"),
    )
    op.create_table(
        "events",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("entry", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("round", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "conversation", "entry", "kind", "subject"),
    )
    op.create_index("events_by_subject", "events", ["subject", "kind", "tenant"])
    op.create_table(
        "threads",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("system_hash", sa.Text, nullable=False),
        sa.Column("tool_names", sa.Text, nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "conversation", "id"),
    )
    op.create_table(
        "anchors",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("hint", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "hint", "key", "conversation"),
        sqlite_with_rowid=False,
    )
    op.create_index("anchors_by_age", "anchors", ["tenant", "hint", "key", "created"])
    op.create_index("anchors_by_conversation", "anchors", ["tenant", "conversation"])
    op.create_table(
        "requests",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("thread", sa.Text, nullable=False),
        sa.Column("frame", sa.Text, nullable=False),
        sa.Column("entry", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("receipt", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "id"),
    )
    op.create_index("requests_by_age", "requests", ["created"])
    op.create_index("requests_by_conversation", "requests", ["conversation", "created"])
    op.create_index("requests_by_id", "requests", ["id"])
    op.create_table(
        "sent",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("round", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "request", "round"),
    )
    op.create_table(
        "blobs",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "digest"),
    )
    op.create_table(
        "holds",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "holder", "digest"),
        sqlite_with_rowid=False,
    )
    op.create_index("holds_by_digest", "holds", ["tenant", "digest"])
    op.create_table(
        "meta",
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "name"),
    )


def downgrade() -> None:
    for table in reversed(TABLES):
        op.drop_table(table)
