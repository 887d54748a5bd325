"""The work of a sink task, on both brokers, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from recado.amqp.values import FieldTable
from recado.client import (
    AuthenticationError,
    PublishNackedError,
    ReconnectTimeoutError,
    connect_blocking,
)
from recado.pipeline.queue.options import QueueWriteOptions
from recado.pipeline.queue.writer import PublishFailedError, QueueBatchWriter
from workshop import peers
from workshop.peers import Server

Name = Callable[[str], str]


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + count)
    return pa.RecordBatch.from_pydict(
        {"message_id": [f"id-{number}" for number in numbers], "body": [b"%d" % n for n in numbers]}
    )


def write(url: str, queue: str, *batches: pa.RecordBatch, **options: object) -> int:
    settings = QueueWriteOptions(url=url, exchange="", routing_key=queue, **options)  # type: ignore[arg-type]
    return (
        QueueBatchWriter(settings, {"message_id": "string", "body": "binary"})
        .write(iter(batches))
        .messages
    )


def test_all_is_confirmed_before_the_task_is_done(server: Server, name: Name) -> None:
    queue = name("sink")
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        channel.declare_queue(queue, durable=True)
        assert write(server.url, queue, rows(1000), rows(0), rows(500, 1000)) == 1500
        assert channel.declare_queue(queue, passive=True).message_count == 1500
        first = channel.get(queue, no_ack=True)
        assert first is not None
        assert (first.body, first.properties.message_id) == (b"0", "id-0")
        assert first.properties.delivery_mode == 2


@pytest.mark.parametrize("server", ["recado"], indirect=True)
def test_a_task_that_is_repeated_adds_nothing_within_the_window(server: Server, name: Name) -> None:
    queue = name("once")
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        window: FieldTable = {"x-message-deduplication": True, "x-cache-size": 500}
        channel.declare_queue(queue, durable=True, arguments=window)
        for _ in range(3):
            write(server.url, queue, rows(500))
        assert channel.declare_queue(queue, passive=True).message_count == 500
        write(server.url, queue, rows(501))
        write(
            server.url, queue, rows(501)
        )  # one more than the window: so they come again, as is said
        assert channel.declare_queue(queue, passive=True).message_count > 501


def test_messages_that_no_queue_wants(server: Server, name: Name) -> None:
    queue = name("nobody")
    with pytest.raises(
        PublishFailedError, match=f"5 messages were unroutable.*routing key '{queue}'"
    ):
        write(server.url, queue, rows(5))
    assert write(server.url, queue, rows(5), mandatory=False) == 5


def test_messages_that_a_queue_refuses(server: Server, name: Name) -> None:
    queue = name("short")
    with connect_blocking(server.url) as connection:
        limit: FieldTable = {"x-max-length": 2, "x-overflow": "reject-publish"}
        connection.channel().declare_queue(queue, arguments=limit)
        with pytest.raises(PublishNackedError):
            write(server.url, queue, rows(20))


def test_who_is_not_let_in_is_told_at_once(server: Server) -> None:
    with pytest.raises(AuthenticationError):
        write(server.url.replace("guest:guest", "guest:wrong"), "any", rows(1))


def test_a_broker_that_is_away_is_waited_for_and_not_for_ever(tmp_path: Path) -> None:
    [port] = peers.free_ports(1)
    url = f"amqp://127.0.0.1:{port}"
    with pytest.raises(ReconnectTimeoutError):
        write(url, "any", rows(1), confirm_timeout=0.3)
    with (
        peers.recado(port=port, data=tmp_path) as server,
        connect_blocking(server.url) as connection,
    ):
        connection.channel().declare_queue("any", durable=True)

    broker = peers.recado(port=port, data=tmp_path)

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(10)
        broker.__exit__(None, None, None)  # it ends between two batches of the task
        yield rows(10, 10)
        again.__enter__()
        yield rows(10, 20)

    broker.__enter__()
    again = peers.recado(port=port, data=tmp_path)
    settings = QueueWriteOptions(url=url, exchange="", routing_key="any")
    try:
        done = QueueBatchWriter(settings, {"message_id": "string", "body": "binary"}).write(
            batches()
        )
        assert done.messages == 30
        with connect_blocking(url) as connection:
            assert connection.channel().declare_queue("any", passive=True).message_count >= 30
    finally:
        again.__exit__(None, None, None)
