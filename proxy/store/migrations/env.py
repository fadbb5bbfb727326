"""What alembic runs before a migration: our connection, in the transaction it already has.

It commits nothing: the caller does, so that a migration that is killed halfway leaves nothing behind.
"""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
