"""The place of a conversation's newest ledger row, by which a process sees that another one wrote to it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("conversations", sa.Column("written", sa.BigInteger, nullable=False, server_default="0"))
