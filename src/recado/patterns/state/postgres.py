"""State in PostgreSQL, which processes of several machines can share (extra `postgres`).

Transactions of different processes run at the same time; those that need the same locks wait for each other
(`pg_advisory_xact_lock`). A process has one connection, which runs one transaction at a time. Leases expire by the
clock of the database.
"""

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import psycopg

from .sql import POSTGRES
from .sql_store import SqlConnection, SqlStore

CONNECT_TIMEOUT_S: Final = 10
STATEMENT_TIMEOUT_MS: Final = 60_000


class PostgresStore(SqlStore):
    """A store in the PostgreSQL database of a URL or a libpq connection string."""

    dialect = POSTGRES
    errors = (psycopg.Error,)

    def __init__(self, conninfo: str, *, clock: Callable[[], float] = time.time) -> None:
        self._conninfo = conninfo
        super().__init__(_name(conninfo), clock)

    def _connect(self) -> SqlConnection:
        connection: SqlConnection = psycopg.connect(
            self._conninfo,
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            application_name="recado",
            # Notice within seconds that the server's machine has gone, and let the server notice the opposite.
            keepalives_idle=5,
            keepalives_interval=1,
            keepalives_count=5,
            tcp_user_timeout=10_000,
            options=f"-c statement_timeout={STATEMENT_TIMEOUT_MS}",
        )
        return connection


def _name(conninfo: str) -> str:
    """Return the database of a connection string without its password, for messages."""
    if "://" in conninfo:
        parts = urlsplit(conninfo)
        return f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
    words = psycopg.conninfo.conninfo_to_dict(conninfo)
    return f"{words.get('host', '')}/{words.get('dbname', '')}"
