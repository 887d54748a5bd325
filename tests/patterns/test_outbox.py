"""The transactional outbox in SQLite and PostgreSQL: POB1 to POB5."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from recado.patterns.errors import StateError
from recado.patterns.message import Message
from recado.patterns.outbox import PARTITIONS_COUNT, ROWS_PER_READ, Outbox
from recado.patterns.publisher import EncodedPublish
from recado.patterns.state import SqliteStore, StateStore, StoreTransaction
from recado.patterns.state.postgres import PostgresStore
from tests.client.running import in_a_loop, soon
from tests.patterns.conftest import opened
from tests.patterns.flows import BreakdownError, encode

POLL_S = 0.01


class Database:
    """A database of a program, with a table of its own, and its connection."""

    def __init__(self, make_store: Callable[[], StateStore], connect: Callable[[], Any]) -> None:
        self.make_store = make_store
        self.connect = connect

    def is_sqlite(self) -> bool:
        return isinstance(self.make_store(), SqliteStore)


@pytest.fixture(params=["sqlite", "postgres"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        path = tmp_path / "program.db"
        return Database(lambda: SqliteStore(path), lambda: sqlite3.connect(path, timeout=30))
    url = request.getfixturevalue("database")
    return Database(lambda: PostgresStore(url), lambda: psycopg.connect(url))


class Broker:
    """Confirms messages, except those that it refuses or holds back."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        self.refused: list[Any] = []
        self.may_confirm = asyncio.Event()
        self.may_confirm.set()
        self._is_changed = asyncio.Condition()

    async def publish(self, publish: EncodedPublish) -> None:
        body = json.loads(publish.body)
        await self.may_confirm.wait()
        await asyncio.sleep(0)
        if body in self.refused:
            raise BreakdownError(f"{body} is refused")
        self.received.append(body)
        async with self._is_changed:
            self._is_changed.notify_all()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(60), self._is_changed:
            await self._is_changed.wait_for(lambda: len(self.received) >= count)


def make_outbox(store: StateStore, broker: Broker, **options: Any) -> Outbox:
    return Outbox(store, encode=encode, publish=broker.publish, poll=POLL_S, **options)


@asynccontextmanager
async def running(outbox: Outbox) -> AsyncIterator[Outbox]:
    await outbox.start()
    try:
        yield outbox
    finally:
        await outbox.stop()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def is_empty(outbox: Outbox) -> bool:
    return await outbox.oldest_age() == 0.0


@in_a_loop
async def test_messages_of_committed_transactions_are_published(program: Database) -> None:
    """POB1, POB4"""
    async with opened(program.make_store()) as store:
        broker = Broker()
        outbox = make_outbox(store, broker)
        connection = program.connect()
        connection.execute("CREATE TABLE account (money INTEGER)")
        connection.commit()
        connection.execute("INSERT INTO account VALUES (10)")
        outbox.add(connection, "payments", {"paid": 10})
        connection.rollback()
        connection.execute("INSERT INTO account VALUES (20)")
        outbox.add(connection.cursor(), "payments", {"paid": 20})
        async with running(outbox):
            connection.commit()
            outbox.wake()
            await broker.wait_for(1)
            await until(lambda: is_empty(outbox))
        assert broker.received == [{"paid": 20}]
        assert outbox.published_count == 1
        connection.close()


@in_a_loop
async def test_messages_of_a_key_are_published_in_order(program: Database) -> None:
    """POB2, with more messages than one read, and more keys than partitions."""
    keys, total = 20, 2 * ROWS_PER_READ
    async with opened(program.make_store()) as store:
        broker = Broker()
        outbox = make_outbox(store, broker)
        async with running(outbox):
            with program.connect() as connection:
                for number in range(total):
                    outbox.add(connection, "q", [number % keys, number], key=f"k{number % keys}")
                    if number % 50 == 0:
                        connection.commit()
                for number in range(10):
                    outbox.add(connection, "q", Message(body=[-1, number]))
            await broker.wait_for(total + 10)
            await until(lambda: is_empty(outbox))
        connection.close()
        for key in range(keys):
            assert [n for k, n in broker.received if k == key] == list(range(key, total, keys))
        assert sorted(n for k, n in broker.received if k == -1) == list(range(10))


@in_a_loop
async def test_a_refused_message_holds_up_its_key_only(program: Database) -> None:
    """POB2: also if more messages of that key wait than are read at once."""
    async with opened(program.make_store()) as store:
        broker = Broker()
        broker.refused = [0]
        outbox = make_outbox(store, broker)
        with program.connect() as connection:
            for number in range(ROWS_PER_READ + 10):
                outbox.add(connection, "q", number, key="refused")
            for number in range(PARTITIONS_COUNT * 4):
                outbox.add(connection, "q", -1 - number, key=f"good {number}")
        async with running(outbox):
            await broker.wait_for(PARTITIONS_COUNT * 4)
            assert all(body < 0 for body in broker.received)
            assert outbox.failed_count >= 1
            assert await outbox.oldest_age() > 0
            broker.refused.clear()
            await broker.wait_for(PARTITIONS_COUNT * 4 + ROWS_PER_READ + 10)
            await until(lambda: is_empty(outbox))
        connection.close()
        assert [n for n in broker.received if n >= 0] == list(range(ROWS_PER_READ + 10))


@in_a_loop
async def test_dispatchers_share_the_partitions(program: Database) -> None:
    """POB3"""
    async with opened(program.make_store()) as one, opened(program.make_store()) as two:
        broker = Broker()
        first, second = make_outbox(one, broker), make_outbox(two, broker)
        other = make_outbox(two, broker, name="other")

        async def is_shared() -> bool:
            return len(first.partitions) == len(second.partitions) == PARTITIONS_COUNT // 2

        async def has_all() -> bool:
            return len(second.partitions) == PARTITIONS_COUNT

        async with running(first), running(other), running(second):
            await until(is_shared)
            assert not first.partitions & second.partitions
            assert len(other.partitions) == PARTITIONS_COUNT
            with program.connect() as connection:
                for number in range(100):
                    first.add(connection, "q", number, key=f"{number}")
            connection.close()
            await broker.wait_for(100)
            assert sorted(broker.received) == list(range(100))
            await until(lambda: is_empty(first))
            assert 0 < first.published_count < 100
            await first.stop()
            await until(has_all)


@in_a_loop
async def test_a_partition_is_given_away_when_its_messages_are_confirmed(
    program: Database,
) -> None:
    """POB3: a second dispatcher does not publish messages that the first one is publishing."""
    async with opened(program.make_store()) as one, opened(program.make_store()) as two:
        broker = Broker()
        broker.may_confirm.clear()
        first, second = make_outbox(one, broker, lease=0.4), make_outbox(two, broker, lease=0.4)
        with program.connect() as connection:
            for number in range(100):
                first.add(connection, "q", number, key=f"{number % 30}")
        connection.close()

        async def has_all() -> bool:
            return len(first.partitions) == PARTITIONS_COUNT

        async def has_given_up_half() -> bool:
            return len(first.partitions) == PARTITIONS_COUNT // 2

        async def is_shared() -> bool:
            return len(second.partitions) == PARTITIONS_COUNT // 2

        async with running(first):
            await until(has_all)
            async with running(second):
                await until(has_given_up_half)
                await asyncio.sleep(0.5)  # longer than a lease
                assert not second.partitions
                broker.may_confirm.set()
                await broker.wait_for(100)
                await until(is_shared)
        assert sorted(broker.received) == list(range(100))


@in_a_loop
async def test_an_asynchronous_connection_adds_messages(program: Database) -> None:
    async with opened(program.make_store()) as store:
        broker = Broker()
        outbox = make_outbox(store, broker)
        if program.is_sqlite():
            with program.connect() as connection:
                await outbox.add_async(connection, "q", 1)
            connection.close()
        else:
            url = program.connect().info.dsn
            async with await psycopg.AsyncConnection.connect(url) as connection:
                await outbox.add_async(connection, "q", 1)
        async with running(outbox):
            await broker.wait_for(1)
            await until(lambda: is_empty(outbox))


class FailingStore(SqliteStore):
    """Fails every second time."""

    calls = 0

    async def run(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls % 2 == 0:
            raise StateError("the disk is on fire")
        return await super().run(*arguments, **options)


@in_a_loop
async def test_the_dispatcher_survives_errors_of_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(FailingStore(tmp_path / "program.db")) as store:
        broker = Broker()
        outbox = make_outbox(store, broker, lease=0.2)
        with sqlite3.connect(tmp_path / "program.db", timeout=30) as connection:
            for number in range(20):
                outbox.add(connection, "q", number, key="k")
        connection.close()
        await outbox.start()
        await broker.wait_for(20)
        async with asyncio.timeout(60):
            while outbox.published_count < 20:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await outbox.stop()
        # Some are repeated, because their removal failed, but never before the previous one (POB2).
        first = list(dict.fromkeys(broker.received))
        assert first == list(range(20))
        assert "the disk is on fire" in caplog.text


@in_a_loop
async def test_stopping_waits_for_confirms_and_not_for_ever(program: Database) -> None:
    async with opened(program.make_store()) as store:
        broker = Broker()
        broker.may_confirm.clear()
        outbox = make_outbox(store, broker)
        with program.connect() as connection:
            outbox.add(connection, "q", 1)
        connection.close()
        await outbox.start()

        async def is_held() -> bool:
            return bool(outbox.partitions)

        await until(is_held)
        await soon(outbox.stop(grace=0.05))
        assert await outbox.oldest_age() > 0
        assert not await store.run(lambda transaction: transaction.leases())
        broker.may_confirm.set()
        async with running(outbox):
            await broker.wait_for(1)


@in_a_loop
async def test_the_ids_of_messages_stay_the_same(tmp_path: Path) -> None:
    """POB5: the row has the message as it was encoded when it was added."""

    def read(transaction: StoreTransaction) -> bytes:
        (row,) = [
            row
            for n in range(PARTITIONS_COUNT)
            for row in transaction.outputs(f"outbox outbox {n}")
        ]
        return row.content

    async with opened(SqliteStore(tmp_path / "program.db")) as store:
        outbox = make_outbox(store, Broker())
        with sqlite3.connect(tmp_path / "program.db", timeout=30) as connection:
            outbox.add(connection, "q", Message(body=1, message_id="m1", key="k"))
        connection.close()
        assert b"m1" in await store.run(read)


@pytest.mark.parametrize("turns", range(5))
@in_a_loop
async def test_a_dispatcher_that_wakes_up_can_be_stopped(tmp_path: Path, turns: int) -> None:
    """However many turns of the event loop are between both."""
    async with opened(SqliteStore(tmp_path / "program.db")) as store:
        outbox = Outbox(store, encode=encode, publish=Broker().publish, poll=60)
        await outbox.start()

        async def is_held() -> bool:
            return bool(outbox.partitions)

        await until(is_held)
        await asyncio.sleep(0.05)  # it waits for the next message
        outbox.wake()
        for _ in range(turns):
            await asyncio.sleep(0)
        await soon(outbox.stop())
