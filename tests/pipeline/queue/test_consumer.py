"""Consume a queue into a spool, on both brokers, without Spark."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from recado.amqp.properties import Properties
from recado.client import (
    AuthenticationError,
    CannotConnectError,
    ChannelClosedByBrokerError,
    Connection,
    RobustConnection,
    connect_blocking,
)
from recado.client.publish_encoding import encode_publish
from recado.journal.disk import FolderInUseError
from recado.pipeline.queue import consumer as module
from recado.pipeline.queue import spool_record
from recado.pipeline.queue.consumer import SpoolingConsumer
from recado.pipeline.queue.options import QueueReadOptions
from workshop import peers
from workshop.peers import Server

Name = Callable[[str], str]


@contextmanager
def taking(url: str, queue: str, spool: Path, **options: int | bool) -> Iterator[SpoolingConsumer]:
    """A source that is open, and stopped in the end."""
    read_options = QueueReadOptions(url=url, queue=queue, spool=str(spool), **options)  # type: ignore[arg-type]
    found = SpoolingConsumer(read_options)
    try:
        found.open()
        yield found
    finally:
        found.stop()


def publish(url: str, queue: str, numbers: Sequence[int], *, ids: bool = True) -> None:
    with connect_blocking(url) as connection:
        channel = connection.channel()
        channel.declare_queue(queue, durable=True)
        for number in numbers:
            named = Properties(message_id=f"id-{number}" if ids else None, delivery_mode=2)
            channel.publish("", queue, b"%d" % number, named)
        channel.wait_for_confirms()


def left(url: str, queue: str) -> int:
    with connect_blocking(url) as connection:
        return connection.channel().declare_queue(queue, passive=True).message_count


def numbers_in(consuming: SpoolingConsumer, spool: Path, start: int, end: int) -> list[int]:
    pieces = consuming.slice_rows(start, end)
    return [
        int(body)
        for piece in pieces
        for rows in spool_record.read_slice(spool, piece)
        for body in rows.batch.column("body").to_pylist()
    ]


def all_of(consuming: SpoolingConsumer, upto: int) -> int:
    """Wait until so many rows are there."""
    consuming.wait_until(lambda: consuming.durable_end() >= upto)
    return consuming.durable_end()


def test_what_is_there_is_taken_and_acknowledged(
    server: Server, name: Name, tmp_path: Path
) -> None:
    queue = name("orders")
    publish(server.url, queue, range(100))
    with taking(server.url, queue, tmp_path) as source:
        source.start(available_now=True)
        assert source.wait_for_rows(0) == 100
        publish(server.url, queue, range(100, 110))  # too late for this one
        assert source.wait_for_rows(100) == 100
        assert numbers_in(source, tmp_path, 0, 100) == list(range(100))
        source.commit(60)
    assert left(server.url, queue) == 10
    with taking(server.url, queue, tmp_path) as source:
        assert source.committed == 60
        source.start()
        assert all_of(source, 110) == 110
        assert numbers_in(source, tmp_path, 60, 110) == list(range(60, 110))
    assert left(server.url, queue) == 0


def test_a_queue_that_is_empty_is_done_at_once(server: Server, name: Name, tmp_path: Path) -> None:
    queue = name("empty")
    with taking(server.url, queue, tmp_path, declare=True) as source:
        source.start(available_now=True)
        assert source.wait_for_rows(0) == 0


def test_nobody_waits_for_the_broker_to_part(
    server: Server, name: Name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = RobustConnection.close

    async def late(connection: RobustConnection) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await close(connection)

    monkeypatch.setattr(module, "_CLOSE_TIMEOUT_S", 0.0)
    queue = name("parting")
    publish(server.url, queue, range(10))
    with taking(server.url, queue, tmp_path) as source, monkeypatch.context() as patch:
        patch.setattr(RobustConnection, "close", late)
        source.start(available_now=True)
        assert source.wait_for_rows(0) == 10


def test_others_may_take_messages_meanwhile(server: Server, name: Name, tmp_path: Path) -> None:
    queue = name("shared")
    publish(server.url, queue, range(20))
    with (
        connect_blocking(server.url) as connection,
        taking(server.url, queue, tmp_path) as source,
    ):
        channel = connection.channel()
        channel.qos(5)
        with channel.consume(queue) as other:
            held = other.next_batch(timeout=20)
            source.start(available_now=True)
            assert source.wait_for_rows(0) <= 20 - len(held)


@pytest.mark.parametrize("server", ["rabbitmq"], indirect=True)
def test_a_key_that_is_not_utf_8_is_taken_like_any_other(
    server: Server, name: Name, tmp_path: Path
) -> None:
    """recado refuses such a publish; RabbitMQ does not, and gives it to whoever consumes."""
    queue = name("odd-key")

    async def publish_odd() -> None:
        async with await Connection.open(server.url) as connection:
            channel = await connection.channel(confirms=True)
            await channel.declare_queue(queue, durable=True)
            await channel.bind_queue(queue, "amq.fanout")
            whole = encode_publish(channel.number, "amq.fanout", "KEY", b"7", b"\0\0", False, 4096)
            channel.protocol.session.write(whole.replace(b"\x03KEY", b"\x03\xff\xfeY"))
            await channel.declare_queue(queue, passive=True)

    asyncio.run(publish_odd())
    with taking(server.url, queue, tmp_path) as source:
        source.start()
        assert all_of(source, 1) == 1
        [piece] = source.slice_rows(0, 1)
        [rows] = spool_record.read_slice(tmp_path, piece)
        assert rows.batch.column("routing_key").to_pylist() == [b"\xff\xfeY"]


KILLED = """
import os, sys
from recado.pipeline.queue.consumer import SpoolingConsumer
from recado.pipeline.queue.options import QueueReadOptions
from recado.pipeline.queue.spool import Spool

synced = Spool.sync

def sync_and_die(spool):
    durable = synced(spool)
    if durable:
        os.kill(os.getpid(), 9)  # safe, and not acknowledged
    return durable

Spool.sync = sync_and_die
url, queue, spool = sys.argv[1:]
consumer = SpoolingConsumer(QueueReadOptions(url=url, queue=queue, spool=spool))
consumer.open()
consumer.start()
consumer.wait_until(lambda: False)
"""


@pytest.mark.parametrize("ids", [True, False])
def test_killed_between_sync_and_acknowledgement(
    server: Server, name: Name, tmp_path: Path, ids: bool
) -> None:
    """The broker gives all of it again: once with ids, twice without, as is promised."""
    queue = name("killed")
    publish(server.url, queue, range(50), ids=ids)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, server.url, queue, str(tmp_path)], check=False
    )
    assert killed.returncode == -9
    with taking(server.url, queue, tmp_path) as source:
        before = source.durable_end()
        assert before > 0
        source.start(available_now=True)
        end = source.wait_for_rows(before)
        found = numbers_in(source, tmp_path, 0, end)
        assert sorted(set(found)) == list(range(50))
        assert end == (50 if ids else 50 + before)
    assert left(server.url, queue) == 0


def test_a_full_spool_takes_no_more_until_what_it_has_is_in_a_batch(
    server: Server, name: Name, tmp_path: Path
) -> None:
    queue = name("full")
    publish(server.url, queue, range(40))
    with taking(server.url, queue, tmp_path, prefetch=5, max_spool_bytes=2_000) as source:
        source.start(available_now=True)
        seen = source.wait_for_rows(0)
        assert 0 < seen < 40
        assert source.durable_end() == seen
        while True:
            source.mark_planned(seen)
            end = source.wait_for_rows(seen)
            if end == seen:
                break
            assert end - seen < 40
            source.commit(seen)  # as Spark does: only now that there are rows for another batch
            assert numbers_in(source, tmp_path, seen, end) == list(range(seen, end))
            seen = end
        assert seen == 40


def test_what_no_attempt_would_mend_is_an_error(server: Server, name: Name, tmp_path: Path) -> None:
    with taking(server.url, name("nobody-declared"), tmp_path / "a") as source:
        source.start()
        with pytest.raises(ChannelClosedByBrokerError, match="404"):
            all_of(source, 1)
    wrong = server.url.replace("guest:guest", "guest:wrong")
    with taking(wrong, "any", tmp_path / "b") as source:
        source.start()
        with pytest.raises(AuthenticationError):
            all_of(source, 1)


def test_the_first_connection_is_not_waited_for(tmp_path: Path) -> None:
    [port] = peers.free_ports(1)
    with taking(f"amqp://127.0.0.1:{port}", "any", tmp_path) as source:
        source.start()
        with pytest.raises(CannotConnectError):
            all_of(source, 1)


def test_one_query_at_a_time_has_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_TIMEOUT_S", 0.0)
    with (
        taking("amqp://127.0.0.1:1", "any", tmp_path),
        pytest.raises(FolderInUseError),
        taking("amqp://127.0.0.1:1", "any", tmp_path),
    ):
        pass


@pytest.mark.parametrize("broker", ["recado", "rabbitmq"])
@pytest.mark.timeout(180)
def test_a_broker_that_goes_away_is_waited_for(broker: str, name: Name, tmp_path: Path) -> None:
    """While the source runs; and when the source, too, is started again meanwhile."""
    [port] = peers.free_ports(1)
    data, spool, queue = tmp_path / "data", tmp_path / "spool", name("patient")

    def life() -> AbstractContextManager[Server]:
        begin = peers.recado if broker == "recado" else peers.rabbitmq
        return begin(port=port, data=data)

    with life() as server:
        publish(server.url, queue, range(10))
        source = SpoolingConsumer(QueueReadOptions(url=server.url, queue=queue, spool=str(spool)))
        source.open()
        source.start()
        assert all_of(source, 10) == 10
    try:
        source.wait_until(lambda: bool(source.outage))
        source.stop()
        source = SpoolingConsumer(QueueReadOptions(url=server.url, queue=queue, spool=str(spool)))
        source.open()
        source.start()
        source.wait_until(lambda: bool(source.outage))
        assert source.durable_end() == 10
        with life() as server:
            publish(server.url, queue, range(10, 20))
            assert all_of(source, 20) == 20
            assert not source.outage
            assert numbers_in(source, spool, 0, 20) == list(range(20))
    finally:
        source.stop()
