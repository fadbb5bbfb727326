"""What the requests of a tenant that are under way may cost, for budgets that several proxies hold together."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    key = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "reservations",
        sa.Column("tenant", key, primary_key=True),
        sa.Column("id", key, primary_key=True),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("usd", sa.Double, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
