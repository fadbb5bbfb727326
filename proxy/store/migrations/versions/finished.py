"""What finished frames are found by: beside title and result what was asked for, and files and decisions.

`proxy.store.tasks_view` makes the rows, all of them anew: those there are say nothing of it. `written` is the place
at which one was written last, so that whoever looks again knows where to go on.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("task_rows", sa.Column("criteria", sa.Text, nullable=False, server_default=""))
    op.add_column("task_rows", sa.Column("noted", sa.Text, nullable=False, server_default=""))
    op.add_column("task_rows", sa.Column("written", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("tasks_by_writing", "task_rows", ["written"])
    op.execute("DELETE FROM task_rows")
