"""A conversation says which wire format its messages are in (until now there was one), a thread what reasoning made
in it is bound to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("conversations", sa.Column("dialect", sa.Text, nullable=False, server_default="openai_chat"))
    op.add_column("threads", sa.Column("tools_hash", sa.Text, nullable=False, server_default=""))
    op.add_column("threads", sa.Column("model", sa.Text, nullable=False, server_default=""))
