"""A store in an SQL database, whose connection belongs to a thread of its own.

Transactions run one after another in that thread, so a slow disk or a lock of another process never blocks the
event loop.
"""

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeVar

from ..errors import StateError
from .sql import Dialect, SqlCursor, SqlTransaction, create_tables
from .store import StateStore, StoreTransaction

T = TypeVar("T")


class SqlConnection(Protocol):
    """The part of a DB-API connection that stores use; it is in autocommit mode."""

    def cursor(self) -> SqlCursor: ...

    def close(self) -> None: ...


class SqlStore(StateStore):
    """A store with one connection, which is opened again after an error of the database."""

    dialect: Dialect
    errors: tuple[type[Exception], ...]

    def __init__(self, name: str, clock: Callable[[], float] = time.time) -> None:
        self._name: Final = name
        self._clock: Final = clock
        self._executor: ThreadPoolExecutor | None = None
        self._connection: SqlConnection | None = None  # used by the thread only

    @abstractmethod
    def _connect(self) -> SqlConnection:
        """Open a connection; runs in the thread."""

    async def open(self) -> None:
        if self._executor is not None:
            return
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="recado-state")
        try:
            await self.run(_do_nothing)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(executor, self._disconnect)
            executor.shutdown(wait=False)  # its thread is idle

    async def run(
        self, function: Callable[[StoreTransaction], T], *, locks: Iterable[str] = ()
    ) -> T:
        if self._executor is None:
            raise StateError(f"the store of stateful patterns in {self._name} is not open")
        names = sorted(set(locks))  # one order in all processes, so that they cannot deadlock
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._run, function, names)

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────

    def _run(self, function: Callable[[StoreTransaction], T], locks: list[str]) -> T:
        with self._database_errors():
            cursor = self._ready_connection().cursor()
            cursor.execute(self.dialect.begin)
            for name in locks if self.dialect.lock else ():
                cursor.execute(self.dialect.lock, (name,))
        transaction = SqlTransaction(cursor, self.dialect, self._clock(), self._database_errors)
        try:
            result = function(transaction)
        except BaseException as error:
            self._roll_back(cursor)
            if isinstance(error, StopIteration):  # a future cannot carry it
                raise RuntimeError("a function in a transaction raised StopIteration") from error
            raise
        with self._database_errors():
            cursor.execute("COMMIT")
        return result

    def _roll_back(self, cursor: SqlCursor) -> None:
        if self._connection is not None:  # otherwise closing it has rolled back
            try:
                cursor.execute("ROLLBACK")
            except self.errors:
                self._disconnect()

    @contextmanager
    def _database_errors(self) -> Iterator[None]:
        """Disconnect after an error of the database, which ends the transaction, and raise it as `StateError`."""
        try:
            yield
        except self.errors as error:
            self._disconnect()
            raise StateError(f"cannot use the state in {self._name}: {error}") from error

    def _ready_connection(self) -> SqlConnection:
        if self._connection is None:
            self._connection = self._connect()
            cursor = self._connection.cursor()
            cursor.execute(self.dialect.begin)
            if self.dialect.lock:  # two processes cannot create one table at the same time
                cursor.execute(self.dialect.lock, ("recado_schema",))
            create_tables(cursor, self.dialect)
            cursor.execute("COMMIT")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*self.errors):
                connection.close()


def _do_nothing(transaction: StoreTransaction) -> None:
    """Opening a store connects by an empty transaction."""
