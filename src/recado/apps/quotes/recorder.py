"""Record ticks in a database, each exactly once, however often the process is killed.

The position in the feed is stored in the same file, and updated in the same transaction, as the ticks up
to it. After a kill the file has both or neither, and the recorder resumes from the stored position.

QR1  The ticks in the file are exactly those up to the position. (publisher, sequence) is their primary key,
     so a duplicate would be an error instead of being counted twice.
QR2  A message that is not a tick is skipped and counted. Any program may publish on the feed, and if the
     recorder failed at such a message, it would fail at it again after every restart.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Self

from recado.apps.quotes.tick import Bell, Quote, Tick, TickError, Trade, decode

if TYPE_CHECKING:
    from recado.feeds.message import Message
    from recado.feeds.subscription import Subscription

SCHEMA = """
CREATE TABLE IF NOT EXISTS position (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    vector TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS tick (
    publisher BLOB NOT NULL,
    sequence INTEGER NOT NULL,
    at INTEGER NOT NULL,            -- µs since 1970, in the market's time
    kind TEXT NOT NULL,             -- quote, trade, bell
    symbol TEXT,
    bid REAL, ask REAL, bid_size INTEGER, ask_size INTEGER,
    price REAL, size INTEGER, side TEXT,
    phase TEXT,
    PRIMARY KEY (publisher, sequence)
) WITHOUT ROWID;
"""
_INSERT_TICK = "INSERT INTO tick VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
TRANSACTION_TICK_COUNT_MAX = 10_000  # exceeded by less than a batch, because batches are not split
_SAVE_POSITION = (
    "INSERT INTO position VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET vector = excluded.vector"
)

log = logging.getLogger("recado.quotes")


class TickDatabase:
    """The SQLite database, for one recorder at a time.

    A second recorder would store ticks that the first one has stored already, and fails at the primary key (QR1).
    """

    def __init__(self, file: Path) -> None:
        # Each write runs in a thread of asyncio's pool, one at a time, so the thread can change.
        self._database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.executescript(SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()

    @property
    def position(self) -> str:
        """The vector up to which the ticks are stored, as text; empty if there are none."""
        row = self._database.execute("SELECT vector FROM position").fetchone()
        return row[0] if row else ""

    def __len__(self) -> int:
        (count,) = self._database.execute("SELECT count(*) FROM tick").fetchone()
        return int(count)

    def record(self, messages: Iterable[Message], vector: str) -> int:
        """Store ticks and the position after them in one transaction; return the skipped count (QR2)."""
        database = self._database
        skipped: list[TickError] = []
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(_INSERT_TICK, _tick_rows(messages, skipped))
            database.execute(_SAVE_POSITION, (vector,))
            database.execute("COMMIT")
        except BaseException:
            database.execute("ROLLBACK")
            raise
        if skipped:
            log.warning(
                "messages skipped because they are not ticks (count=%d): %s",
                len(skipped),
                skipped[0],
            )
        return len(skipped)


async def record_ticks(
    subscription: Subscription,
    database: TickDatabase,
    *,
    limit: int | None = None,
    on_transaction: Callable[[int], None] = lambda recorded: None,
) -> int:
    """Record ticks until there are `limit` of them, or for ever; return their number.

    `on_transaction` is called with the number so far after each transaction.
    """
    recorded, remaining = 0, inf if limit is None else limit
    # A transaction waits for the disk, and a batch can be a single tick, so all batches that have arrived share one
    # transaction.
    while batches := await subscription.next_batches(
        int(min(TRANSACTION_TICK_COUNT_MAX, remaining))
    ):
        messages = [message for batch in batches for message in batch]
        if len(messages) > remaining:
            taken = await asyncio.to_thread(_take_ticks, messages, int(remaining))
            if len(taken) < len(messages):  # all others are in the last batch
                messages = taken
                subscription.mark_finished(messages[-1])
        skipped = await asyncio.to_thread(database.record, messages, subscription.vector.to_text())
        recorded += len(messages) - skipped
        remaining -= len(messages) - skipped
        on_transaction(recorded)
        if remaining <= 0:
            break
    return recorded


def _take_ticks(messages: list[Message], count: int) -> list[Message]:
    """Return the messages up to the tick with this number, including those that are not ticks."""
    for index, message in enumerate(messages):
        with suppress(TickError):
            decode(message.key, message.body)
            count -= 1
        if not count:
            return messages[: index + 1]
    return messages


def _tick_rows(
    messages: Iterable[Message], skipped: list[TickError]
) -> Iterator[tuple[object, ...]]:
    """Yield the rows of ticks; errors of other messages are added to `skipped`."""
    for message in messages:
        try:
            tick = decode(message.key, message.body)
        except TickError as error:
            skipped.append(error)
            continue
        yield message.publisher, message.sequence, *tick_columns(tick)


def tick_columns(tick: Tick) -> tuple[object, ...]:
    nulls = (None,) * 4
    match tick:
        case Quote(symbol, at):
            return at, "quote", symbol, tick.bid, tick.ask, tick.bid_size, tick.ask_size, *nulls
        case Trade(symbol, at):
            traded = tick.price, tick.size, tick.side.value
            return at, "trade", symbol, *nulls, *traded, None
        case Bell(at, phase):
            return at, "bell", None, *nulls, None, None, None, phase.value
