"""What each tenant used in a day, for the budgets of client keys. It counts from this version on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "usage_days",
        sa.Column("tenant", key, primary_key=True),
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.Double, nullable=False),
        sa.Column("cost_untouched", sa.Double, nullable=False),
    )
