"""Transactional outbox: messages become part of a program's own database transaction.

    with connection:                                     # a transaction of sqlite3 or psycopg
        connection.execute("UPDATE accounts SET …")
        outbox.add(connection, "payments", Payment(…), key="account 7")

The message is a row of the same database, so it is stored exactly if the transaction is committed. A dispatcher
publishes the rows and removes each after the broker has confirmed it. Any number of programs may add rows and
dispatch them. The rows are divided into partitions by their keys; a lease assigns each partition to one dispatcher,
and the dispatchers share them evenly. When one dies, the others take its partitions: at once if it ran on the same
machine, otherwise when its leases have expired.

POB1  A message whose transaction was committed is published at least once; one that was rolled back never is.
POB2  Messages with the same key, unless it is empty, are published in the order in which they were added, each
      after the broker has confirmed the one before. A message that the broker refuses holds up its key only, and
      is published again every `RETRY_S`.
POB3  A dispatcher publishes only while it holds the lease of the partition.
POB4  The table has only rows that were not confirmed, or are about to be removed.
POB5  A repeated message has the same message id, so that its receiver recognises it.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from itertools import count
from typing import Any, Final, Protocol, TypeAlias
from zlib import crc32

import msgspec

from .destination import Destination, DestinationLike, to_destination
from .errors import StateError
from .message import Message
from .publisher import EncodedPublish
from .state import OutputRow, StateStore, StoreTransaction
from .state.lease_owner import is_dead, new_owner
from .state.sql import (
    INSERT_OUTPUT,
    POSTGRES,
    SQLITE,
    Dialect,
    SqlTransaction,
    output_parameters,
)

log = logging.getLogger("recado.patterns")

PARTITIONS_COUNT: Final = 8  # the same in all programs, since a key belongs to one partition
LEASE_S: Final = 3.0
RETRY_S: Final = 1.0
POLL_S: Final = 0.1
ROWS_PER_READ: Final = 200
READS_MAX: Final = 20  # in search of a key that is not held up

_SQLITE_MODULES: Final = ("sqlite3", "aiosqlite", "apsw")

EncodeMessage: TypeAlias = Callable[[Message[Any], Destination], EncodedPublish]
PublishAndConfirm: TypeAlias = Callable[[EncodedPublish], Awaitable[object]]


class SqlExecutor(Protocol):
    """A connection or cursor of a database driver, within a transaction."""

    def execute(self, statement: Any, parameters: Any = ..., /) -> Any: ...


class Outbox:
    """Messages that are stored in a database and published from there.

    Args:
        store: a store in the program's database, open. It creates the tables.
        encode: encodes a message for a destination.
        publish: publishes an encoded message, and returns when the broker has confirmed it.
        name: outboxes of different names in one database are independent.
        poll: seconds between two looks for new rows; `wake` makes it look at once.
    """

    def __init__(
        self,
        store: StateStore,
        *,
        encode: EncodeMessage,
        publish: PublishAndConfirm,
        name: str = "outbox",
        poll: float = POLL_S,
        lease: float = LEASE_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name: Final = name
        self.store: Final = store
        self.published_count = 0
        self.failed_count = 0
        self._encode = encode
        self._publish = publish
        self._poll = poll
        self._lease = lease
        self._clock = clock
        self._owner = new_owner()
        self._presence_prefix = f"outbox {name} dispatcher "
        self._partitions = [f"outbox {name} {number}" for number in range(PARTITIONS_COUNT)]
        self._numbers = count()
        self._held: frozenset[str] = frozenset()
        self._leaving: frozenset[str] = (
            frozenset()
        )  # too many; their last messages are being published
        self._held_until = 0.0  # by the clock of the event loop
        self._dispatching: dict[str, asyncio.Task[None]] = {}
        self._retry_at: dict[str, float] = {}  # by key, of those that are held up
        self._wakeup = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    # ── adding ────────────────────────────────────────────────────────────────────────────────────────────

    def add(
        self, connection: SqlExecutor, to: DestinationLike, body: object, *, key: str | None = None
    ) -> None:
        """Add a message, or an object as its body, within the transaction of a connection or cursor.

        The connection is one of sqlite3 or psycopg, to the database of the store. `key` is the key by which
        messages are ordered; None means the routing key of the message.
        """
        connection.execute(*self._insertion(connection, to, body, key))

    async def add_async(
        self, connection: SqlExecutor, to: DestinationLike, body: object, *, key: str | None = None
    ) -> None:
        """Do the same with an asynchronous connection of psycopg or aiosqlite."""
        executed = connection.execute(*self._insertion(connection, to, body, key))
        if isawaitable(executed):
            await executed

    def _insertion(
        self, connection: SqlExecutor, to: DestinationLike, body: object, key: str | None
    ) -> tuple[str, tuple[object, ...]]:
        """Return the statement that inserts a row, and its parameters."""
        message = body if isinstance(body, Message) else Message(body=body)
        key = message.key if key is None else key
        # Messages without a key have no order, so they are spread.
        number = crc32(key.encode("utf-8", "surrogatepass")) if key else next(self._numbers)
        content = msgspec.msgpack.encode(self._encode(message, to_destination(to)))
        return _dialect_of(connection).adapt(INSERT_OUTPUT), output_parameters(
            self._partitions[number % PARTITIONS_COUNT], content, key, self._clock()
        )

    def wake(self) -> None:
        """Look for new rows now; called after a commit, it saves the message up to `poll` seconds."""
        self._wakeup.set()

    async def oldest_age(self) -> float:
        """Return the age of the oldest row in seconds, 0 if there is none. A metric: an alarm when it grows."""
        added_at = await self.store.run(
            lambda transaction: [transaction.oldest_output(each) for each in self._partitions]
        )
        found = [each for each in added_at if each is not None]
        return max(0.0, self._clock() - min(found)) if found else 0.0

    # ── dispatching ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def partitions(self) -> frozenset[str]:
        """The partitions whose leases this dispatcher holds."""
        return self._held

    async def start(self) -> None:
        """Publish rows in the background until `stop`."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._keep_leases(), name=f"leases of {self.name}"),
                asyncio.create_task(self._dispatch_all(), name=f"dispatcher of {self.name}"),
            ]

    async def stop(self, grace: float = 10.0) -> None:
        """Wait up to `grace` seconds for the confirms of messages that are being published, and free the leases."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        held = self._held | self._leaving
        self._held = self._leaving = frozenset()  # so the next message of each key is not published
        dispatching = list(self._dispatching.values())
        if dispatching:
            _, late = await asyncio.wait(dispatching, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if tasks:
            with suppress(StateError):  # otherwise they expire
                await self.store.run(partial(self._release, held))

    def _release(self, names: frozenset[str], transaction: StoreTransaction) -> None:
        for name in (*names, self._presence_prefix + self._owner):
            transaction.release_lease(name, self._owner)

    async def _keep_leases(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            asked_at = loop.time()
            leaving = frozenset(self._leaving)
            released = leaving - self._dispatching.keys()
            share = partial(self._share, frozenset(self._held), leaving, released)
            try:
                held, surplus = await self.store.run(share, locks=[f"outbox {self.name}"])
            except StateError as error:
                log.warning("leases not renewed (outbox=%s error=%s)", self.name, error)
            else:
                # The store renews a lease when a third of its time has passed.
                self._held_until = asked_at + self._lease * 2 / 3
                self._held = held
                self._leaving = leaving - released | surplus
                self._wakeup.set()
            await asyncio.sleep(self._lease / 4)

    def _share(
        self,
        held: frozenset[str],
        leaving: frozenset[str],
        released: frozenset[str],
        transaction: StoreTransaction,
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Renew and take leases, so that each dispatcher has its share.

        Returns the partitions held now, and those that are too many. These get no more messages from here on, and
        are released in the next round, if all their messages are confirmed then.
        """
        transaction.acquire_lease(self._presence_prefix + self._owner, self._owner, self._lease)
        for name, owner in transaction.leases(f"outbox {self.name} ").items():
            if is_dead(owner):
                transaction.release_lease(name, owner)
        for name in released:
            transaction.release_lease(name, self._owner)
        for name in leaving - released:
            transaction.renew_lease(name, self._owner, self._lease)
        share = -(-PARTITIONS_COUNT // len(transaction.leases(self._presence_prefix)))
        kept = [
            name for name in sorted(held) if transaction.renew_lease(name, self._owner, self._lease)
        ]
        for name in self._partitions:
            if (
                len(kept) < share
                and name not in held | leaving
                and transaction.acquire_lease(name, self._owner, self._lease)
            ):
                kept.append(name)
        return frozenset(kept[:share]), frozenset(kept[share:])

    @property
    def _is_holding(self) -> bool:
        """Whether the leases have been renewed lately."""
        return asyncio.get_running_loop().time() < self._held_until

    async def _dispatch_all(self) -> None:
        while True:
            self._wakeup.clear()
            idle = self._held - self._dispatching.keys()
            if idle and self._is_holding:
                try:
                    found = await self.store.run(partial(self._read, idle, self._held_up_keys()))
                except StateError as error:
                    log.warning("outbox not read (outbox=%s error=%s)", self.name, error)
                    found = {}
                for name, rows in found.items():
                    task = asyncio.create_task(self._dispatch(name, rows))
                    self._dispatching[name] = task
            with suppress(TimeoutError):
                # `wait_for` loses a cancellation that comes together with the event (Python 3.11).
                async with asyncio.timeout(self._poll):
                    await self._wakeup.wait()

    def _held_up_keys(self) -> frozenset[str]:
        now = asyncio.get_running_loop().time()
        self._retry_at = {key: at for key, at in self._retry_at.items() if at > now}
        return frozenset(self._retry_at)

    def _read(
        self, partitions: frozenset[str], held_up: frozenset[str], transaction: StoreTransaction
    ) -> dict[str, list[OutputRow]]:
        """Return the first rows of each partition, without the keys that are held up."""
        found = {}
        for name in partitions:
            after = 0
            for _ in range(READS_MAX):
                rows = transaction.outputs(name, after=after, limit=ROWS_PER_READ)
                ready = [row for row in rows if _chain(row) not in held_up]
                if ready:
                    found[name] = ready
                if ready or len(rows) < ROWS_PER_READ:
                    break
                after = rows[-1].id
        return found

    async def _dispatch(self, partition: str, rows: Sequence[OutputRow]) -> None:
        """Publish rows of a partition, those of each key one after another, and remove the confirmed ones."""
        by_key: dict[str, list[OutputRow]] = {}
        for row in rows:
            by_key.setdefault(_chain(row), []).append(row)
        try:
            confirmed = await asyncio.gather(
                *(self._publish_key(partition, each) for each in by_key.values())
            )
            ids = [number for numbers in confirmed for number in numbers]
            if ids:
                await self.store.run(lambda transaction: transaction.remove_outputs(ids))
                self.published_count += len(ids)
        except StateError as error:
            log.warning("published messages not removed (outbox=%s error=%s)", self.name, error)
        finally:
            del self._dispatching[partition]
            self._wakeup.set()

    async def _publish_key(self, partition: str, rows: Sequence[OutputRow]) -> list[int]:
        """Publish rows in order, until one fails; return the ids of those that were confirmed."""
        confirmed: list[int] = []
        for row in rows:
            if not self._is_holding or partition not in self._held | self._leaving:
                break
            try:
                await self._publish(_decode_publish(row.content))
            except Exception as error:  # noqa: BLE001 - whatever it is, the row stays
                self.failed_count += 1
                log.warning(
                    "message not published, trying again (outbox=%s id=%d key=%.100r age_s=%.0f error=%s)",
                    self.name,
                    row.id,
                    row.key,
                    self._clock() - row.added_at,
                    error,
                )
                loop = asyncio.get_running_loop()
                self._retry_at[_chain(row)] = loop.time() + RETRY_S
                break
            confirmed.append(row.id)
        return confirmed


def _dialect_of(connection: SqlExecutor) -> Dialect:
    if isinstance(connection, SqlTransaction):  # of a handler with an inbox
        return connection.dialect
    module = type(connection).__module__.partition(".")[0]
    is_sqlite = module in _SQLITE_MODULES or isinstance(
        connection, sqlite3.Connection | sqlite3.Cursor
    )
    return SQLITE if is_sqlite else POSTGRES


def _chain(row: OutputRow) -> str:
    """Return the key of a row; a row without a key is a chain of its own."""
    return row.key or f"\0{row.id}"


_decode_publish: Final = msgspec.msgpack.Decoder(EncodedPublish).decode
