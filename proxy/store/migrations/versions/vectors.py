"""Finished frames as an embedding model has them, for the search by meaning."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "frame_vectors",
        sa.Column("tenant", text, primary_key=True),
        sa.Column("conversation", text, primary_key=True),
        sa.Column("frame", text, primary_key=True),
        sa.Column("model", text, nullable=False),
        sa.Column("made_of", sa.LargeBinary, nullable=False),
        sa.Column("numbers", sa.LargeBinary, nullable=False),
        sa.Column("written", sa.BigInteger, nullable=False),
    )
    op.create_index("vectors_by_writing", "frame_vectors", ["written"])
