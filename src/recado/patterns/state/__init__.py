"""State of patterns: what aggregators, resequencers, idempotent receivers, process managers and other steps remember.

store.py           the port: a store runs functions in transactions
memory.py          a store in memory
sql.py             the transaction in SQL, and the tables
sql_store.py       a store whose connection belongs to a thread
sqlite.py          SQLite
postgres.py        PostgreSQL; imports psycopg, so it is not imported here
location.py        the store at a path or URL
lease_owner.py     owners of leases, and whether their process has ended
stored_message.py  messages as values
"""

from .location import to_store
from .memory import MemoryStore, StoredState
from .sqlite import SqliteStore
from .store import OutputRow, StateStore, StoreTransaction

__all__ = [
    "MemoryStore",
    "OutputRow",
    "SqliteStore",
    "StateStore",
    "StoreTransaction",
    "StoredState",
    "to_store",
]
