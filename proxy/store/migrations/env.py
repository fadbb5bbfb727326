"""What alembic runs before a migration: our connection, in the transaction it already has.

Alembic takes SQLite's statements that make tables for not transactional by default; they are, and a migration that is
killed halfway must leave nothing behind.
"""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
