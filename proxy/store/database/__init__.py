"""The databases that a store may stand on, behind one interface: a SQLite file, or a PostgreSQL server."""

from proxy.store.database.interface import READERS, SEARCHERS, Database
from proxy.store.database.postgresql import PostgresDatabase
from proxy.store.database.sqlite import SqliteFile, replacing_damaged_text
