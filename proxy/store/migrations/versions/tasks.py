"""Frames as tasks, for readers that know SQL and nothing of us. `proxy.store.tasks_view` fills the table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
COLUMNS = "id, session_id, parent_id, goal, status, result, depth, created_at, completed_at, valid_from, valid_to"


def upgrade() -> None:
    op.create_table(
        "task_rows",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("parent_id", sa.Text),
        sa.Column("goal", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False, server_default="active"),
        sa.Column("result", sa.Text),
        sa.Column("depth", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("completed_at", sa.BigInteger),
        sa.Column("valid_from", sa.BigInteger, nullable=False),
        sa.Column("valid_to", sa.BigInteger),
    )
    op.create_index("tasks_by_parent", "task_rows", ["parent_id"])
    op.create_index("tasks_by_status", "task_rows", ["session_id", "status"])
    op.execute(f"CREATE VIEW tasks AS SELECT {COLUMNS} FROM task_rows")  # noqa: S608 - constants
