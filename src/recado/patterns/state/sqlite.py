"""State in a SQLite file, which several processes of one machine can share.

The write-ahead log is synced at each commit (`synchronous=FULL`), so a committed transaction survives the loss of
power. One transaction of all processes writes at a time (`BEGIN IMMEDIATE`); the next waits up to
`LOCK_TIMEOUT_S`.
"""

import sqlite3
import time
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Final

from .sql import SQLITE
from .sql_store import SqlConnection, SqlStore

LOCK_TIMEOUT_S: Final = 30.0
WAL_RETRY_S: Final = 0.02


class SqliteStore(SqlStore):
    """A store in a SQLite file; the folder is created if it is missing."""

    dialect = SQLITE
    errors = (sqlite3.Error, OSError)

    def __init__(
        self, path: str | PathLike[str], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._path = Path(path)
        super().__init__(str(self._path), clock)

    def _connect(self) -> SqlConnection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous = FULL")
        return connection


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file to WAL. SQLite does not wait for other processes here, so this tries again."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(WAL_RETRY_S)
