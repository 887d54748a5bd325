"""The transaction of stores in SQL databases, and their tables.

SQLite and PostgreSQL share all statements but those of `Dialect`. Keys are stored as bytes, because PostgreSQL
orders texts by the rules of a language and refuses some that messages contain.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

import msgspec

from ..errors import StateError
from .store import OutputRow, check_key, encode_key

SCHEMA_VERSION: Final = 1
ROWS_PER_SCAN: Final = 200
INSERT_OUTPUT: Final = (
    "INSERT INTO recado_output (part, key, added_at, content) VALUES (?, ?, ?, ?)"
)


class SqlCursor(Protocol):
    """The part of a DB-API cursor that transactions use."""

    @property
    def rowcount(self) -> int: ...

    def execute(self, statement: Any, parameters: Any = ..., /) -> Any: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Dialect(msgspec.Struct, frozen=True):
    """The differences between two databases."""

    placeholder: str
    blob_type: str
    float_type: str
    serial_type: str
    table_option: str
    begin: str
    lock: (
        str  # a statement with one parameter, the name; empty if transactions do not overlap anyway
    )
    lease_clock: str  # an expression for the time of the database; empty: the clock of the process
    row_lock: str  # suffix of a SELECT that locks its rows until the end of the transaction

    def adapt(self, statement: str) -> str:
        """Return a statement with the placeholders of the database."""
        return statement.replace("?", self.placeholder)

    def schema(self) -> list[str]:
        """Return the statements that create missing tables."""
        types = {"BLOB": self.blob_type, "REAL": self.float_type, "SERIAL": self.serial_type}
        statements = []
        for statement in _SCHEMA:
            for name, type_name in types.items():
                statement = statement.replace(f" {name} ", f" {type_name} ")
            option = self.table_option if "PRIMARY KEY (" in statement else ""
            statements.append(statement + option)
        return statements


SQLITE: Final = Dialect(
    placeholder="?",
    blob_type="BLOB",
    float_type="REAL",
    serial_type="INTEGER PRIMARY KEY AUTOINCREMENT",
    table_option=" WITHOUT ROWID",
    begin="BEGIN IMMEDIATE",
    lock="",
    lease_clock="",
    row_lock="",
)

POSTGRES: Final = Dialect(
    placeholder="%s",
    blob_type="BYTEA",
    float_type="DOUBLE PRECISION",
    serial_type="BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    table_option="",
    begin="BEGIN",
    lock="SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
    lease_clock="extract(epoch FROM clock_timestamp())::float8",
    row_lock=" FOR NO KEY UPDATE",
)

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS recado_schema (
    id INTEGER PRIMARY KEY, number INTEGER NOT NULL)""",
    f"INSERT INTO recado_schema VALUES (1, {SCHEMA_VERSION}) ON CONFLICT (id) DO NOTHING",
    """CREATE TABLE IF NOT EXISTS recado_state (
    step TEXT NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, deadline REAL NULL, PRIMARY KEY (step, key))""",
    """CREATE INDEX IF NOT EXISTS recado_state_deadline
    ON recado_state (step, deadline) WHERE deadline IS NOT NULL""",
    """CREATE TABLE IF NOT EXISTS recado_inbox (
    consumer TEXT NOT NULL, message_id BLOB NOT NULL, number BIGINT NOT NULL, processed_at REAL NOT NULL,
    PRIMARY KEY (consumer, message_id))""",
    "CREATE INDEX IF NOT EXISTS recado_inbox_number ON recado_inbox (consumer, number)",
    "CREATE INDEX IF NOT EXISTS recado_inbox_age ON recado_inbox (consumer, processed_at)",
    """CREATE TABLE IF NOT EXISTS recado_output (
    id SERIAL , part TEXT NOT NULL, key BLOB NOT NULL, added_at REAL NOT NULL, content BLOB NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS recado_output_part ON recado_output (part, id)",
    """CREATE TABLE IF NOT EXISTS recado_lease (
    name TEXT NOT NULL, owner TEXT NOT NULL, expires_at REAL NOT NULL, PRIMARY KEY (name))""",
)


def create_tables(cursor: SqlCursor, dialect: Dialect) -> None:
    """Create missing tables; raises `StateError` if another version of recado has created them."""
    for statement in dialect.schema():
        cursor.execute(statement)
    cursor.execute("SELECT number FROM recado_schema WHERE id = 1")
    (number,) = cursor.fetchone()
    if number != SCHEMA_VERSION:
        raise StateError(
            f"the tables of stateful patterns have version {number}; this recado uses {SCHEMA_VERSION}"
        )


class SqlTransaction:
    """A transaction on a cursor. `database_errors` ends the transaction if a statement in its block fails."""

    def __init__(
        self,
        cursor: SqlCursor,
        dialect: Dialect,
        now: float,
        database_errors: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._cursor = cursor
        self._dialect = dialect
        self._now = now
        self._database_errors = database_errors

    @property
    def now(self) -> float:
        return self._now

    def _execute(self, statement: str, *parameters: object) -> SqlCursor:
        with self._database_errors():
            self._cursor.execute(self._dialect.adapt(statement), parameters)
        return self._cursor

    def _first(self, statement: str, *parameters: object) -> Any:
        """Return the first column of the first row, or None."""
        row = self._execute(statement, *parameters).fetchone()
        return None if row is None else row[0]

    @property
    def dialect(self) -> Dialect:
        """The dialect of `execute`."""
        return self._dialect

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> SqlCursor:
        """Execute a statement of the program in this transaction, with the placeholders of its database."""
        self._cursor.execute(statement, tuple(parameters))
        return self._cursor

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, table: str, key: str) -> bytes | None:
        value: bytes | None = self._first(
            "SELECT value FROM recado_state WHERE step = ? AND key = ?", table, _to_bytes(key)
        )
        return value

    def put(self, table: str, key: str, value: bytes, *, deadline: float | None = None) -> None:
        self._execute(
            "INSERT INTO recado_state (step, key, value, deadline) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (step, key) DO UPDATE SET value = excluded.value, deadline = excluded.deadline",
            table,
            _to_bytes(key),
            value,
            deadline,
        )

    def delete(self, table: str, key: str) -> None:
        self._execute("DELETE FROM recado_state WHERE step = ? AND key = ?", table, _to_bytes(key))

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        first = encode_key(prefix)
        comparison = ">="
        while True:
            rows = self._execute(
                f"SELECT key, value FROM recado_state WHERE step = ? AND key {comparison} ?"
                f" ORDER BY key LIMIT {ROWS_PER_SCAN}",
                table,
                first,
            ).fetchall()
            for key, value in rows:
                text = _to_text(key)
                if not text.startswith(prefix):
                    return
                yield text, value
            if len(rows) < ROWS_PER_SCAN:
                return
            first, comparison = rows[-1][0], ">"

    def due(self, table: str, limit: int) -> list[tuple[str, bytes]]:
        rows = self._execute(
            "SELECT key, value FROM recado_state WHERE step = ? AND deadline <= ?"
            " ORDER BY deadline, key LIMIT ?",
            table,
            self._now,
            limit,
        ).fetchall()
        return [(_to_text(key), value) for key, value in rows]

    def next_deadline(self, tables: Iterable[str]) -> float | None:
        deadlines: list[float | None] = [
            self._first(
                "SELECT min(deadline) FROM recado_state WHERE step = ? AND deadline IS NOT NULL",
                table,
            )
            for table in tables
        ]
        return min((each for each in deadlines if each is not None), default=None)

    # ── inbox ─────────────────────────────────────────────────────────────────────────────────────────────

    def has_processed(self, consumer: str, message_id: str) -> bool:
        found = self._first(
            "SELECT 1 FROM recado_inbox WHERE consumer = ? AND message_id = ?",
            consumer,
            _to_bytes(message_id),
        )
        return found is not None

    def mark_processed(self, consumer: str, message_id: str) -> bool:
        added = self._execute(
            "INSERT INTO recado_inbox (consumer, message_id, number, processed_at)"
            " SELECT ?, ?, coalesce(max(number), 0) + 1, ? FROM recado_inbox WHERE consumer = ?"
            " ON CONFLICT (consumer, message_id) DO NOTHING",
            consumer,
            _to_bytes(message_id),
            self._now,
            consumer,
        )
        return added.rowcount == 1

    def forget_processed(self, consumer: str, *, age_max: float, count_max: int) -> None:
        self._execute(
            "DELETE FROM recado_inbox WHERE consumer = ? AND processed_at < ?",
            consumer,
            self._now - age_max,
        )
        newest = self._first("SELECT max(number) FROM recado_inbox WHERE consumer = ?", consumer)
        if newest is not None:
            self._execute(
                "DELETE FROM recado_inbox WHERE consumer = ? AND number <= ?",
                consumer,
                newest - count_max,
            )

    # ── outputs ───────────────────────────────────────────────────────────────────────────────────────────

    def add_output(self, partition: str, content: bytes, *, key: str = "") -> int:
        number: int = self._first(
            f"{INSERT_OUTPUT} RETURNING id", *output_parameters(partition, content, key, self._now)
        )
        return number

    def outputs(self, partition: str, *, after: int = 0, limit: int = 100) -> list[OutputRow]:
        rows = self._execute(
            "SELECT id, key, content, added_at FROM recado_output WHERE part = ? AND id > ?"
            " ORDER BY id LIMIT ?",
            partition,
            after,
            limit,
        ).fetchall()
        return [
            OutputRow(number, _to_text(key), content, added_at)
            for number, key, content, added_at in rows
        ]

    def remove_outputs(self, ids: Sequence[int]) -> None:
        for each in ids:
            self._execute("DELETE FROM recado_output WHERE id = ?", each)

    def oldest_output(self, partition: str) -> float | None:
        added_at: float | None = self._first(
            "SELECT added_at FROM recado_output WHERE part = ? ORDER BY id LIMIT 1", partition
        )
        return added_at

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────

    def _lease_time(self) -> float:
        if not self._dialect.lease_clock:
            return self._now
        time: float = self._first(f"SELECT {self._dialect.lease_clock}")
        return time

    def acquire_lease(self, name: str, owner: str, duration: float) -> bool:
        time = self._lease_time()
        return bool(
            self._execute(
                "INSERT INTO recado_lease (name, owner, expires_at) VALUES (?, ?, ?)"
                " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at"
                " WHERE recado_lease.owner = excluded.owner OR recado_lease.expires_at <= ?",
                name,
                owner,
                time + duration,
                time,
            ).rowcount
        )

    def renew_lease(self, name: str, owner: str, duration: float) -> bool:
        """Prolong a lease; it is written only when a third of its time has passed."""
        expires_at: float | None = self._first(
            f"SELECT expires_at FROM recado_lease WHERE name = ? AND owner = ?{self._dialect.row_lock}",
            name,
            owner,
        )
        if expires_at is None:
            return False
        time = self._lease_time()
        if expires_at - time < duration * 2 / 3:
            self._execute(
                "UPDATE recado_lease SET expires_at = ? WHERE name = ?", time + duration, name
            )
        return True

    def release_lease(self, name: str, owner: str) -> None:
        self._execute("DELETE FROM recado_lease WHERE name = ? AND owner = ?", name, owner)

    def leases(self, prefix: str = "") -> dict[str, str]:
        rows = self._execute(
            "SELECT name, owner FROM recado_lease WHERE substr(name, 1, ?) = ? AND expires_at > ?"
            " ORDER BY name",
            len(prefix),
            prefix,
            self._lease_time(),
        ).fetchall()
        return dict(rows)


def output_parameters(
    partition: str, content: bytes, key: str, added_at: float
) -> tuple[object, ...]:
    """Return the parameters of `INSERT_OUTPUT`."""
    return partition, _to_bytes(key), added_at, content


def _to_bytes(key: str) -> bytes:
    return encode_key(check_key(key))


def _to_text(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")
