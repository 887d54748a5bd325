"""pika: streams over AMQP 0-9-1, which keep what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pika
import pytest
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel

from workshop.peers import Server

from .streams import declared
from .traffic import Inbox, await_that, put


def number(delivery: object) -> int:
    """The offset of a delivery."""
    return int(delivery.properties.headers["x-stream-offset"])  # type: ignore[attr-defined]


@pytest.fixture
def stream(connect: Callable[..., BlockingConnection], name: Callable[[str], str]) -> Iterator[str]:
    """An empty stream."""
    found = name("stream")
    with declared(connect, found):
        yield found


@pytest.fixture
def read(connect: Callable[..., BlockingConnection], stream: str) -> Callable[..., Inbox]:
    """Consumers on connections of their own: `read("first", prefetch=10)`."""

    def consume(offset: object = None, prefetch: int = 100, queue: str = stream) -> Inbox:
        channel = connect().channel()
        channel.basic_qos(prefetch_count=prefetch)
        arguments = {} if offset is None else {"x-stream-offset": offset}
        return Inbox(channel, queue, arguments=arguments)

    return consume


def publish(channel: BlockingChannel, stream: str, count: int, first: int = 0) -> list[bytes]:
    bodies = [b"%d" % i for i in range(first, first + count)]
    put(channel, stream, *bodies)
    return bodies


def test_everybody_reads_everything(
    channel: BlockingChannel, stream: str, read: Callable[..., Inbox]
) -> None:
    sent = publish(channel, stream, 20)
    for _ in range(2):
        inbox = read("first")
        found = inbox.wait(20)
        assert inbox.bodies == sent
        assert [number(each) for each in found] == list(range(20))
        assert {each.redelivered for each in found} == {False}
        inbox.channel.basic_ack(0, multiple=True)
        inbox.channel.close()


def test_what_is_delivered_is_what_was_published(
    channel: BlockingChannel, stream: str, read: Callable[..., Inbox]
) -> None:
    channel.queue_bind(stream, "amq.topic", "streams.#")
    properties = BasicProperties(
        content_type="text/plain",
        content_encoding="utf-8",
        headers={"a": 1, "b": "two"},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="1000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        app_id="app",
    )
    large = b"x" * 300_000
    channel.basic_publish("amq.topic", "streams.1", large, properties)
    channel.basic_publish("", stream, b"", BasicProperties(headers={"x-stream-offset": "mine"}))
    first, second = read("first").wait(2)
    assert (first.exchange, first.routing_key, first.body) == ("amq.topic", "streams.1", large)
    properties.headers["x-stream-offset"] = 0
    assert first.properties == properties
    assert (second.exchange, second.routing_key, second.body) == ("", stream, b"")
    assert second.properties.headers == {"x-stream-offset": 1}


def test_prefetch_is_the_limit_and_acks_raise_it(
    channel: BlockingChannel, stream: str, read: Callable[..., Inbox]
) -> None:
    inbox = read("first", prefetch=2)
    for i in range(6):  # RabbitMQ counts by the batches in which messages came
        publish(channel, stream, 1, first=i)
        if i < 2:
            inbox.wait(i + 1)
    inbox.channel.basic_ack(1)
    inbox.wait(3)
    inbox.channel.basic_ack(3, multiple=True)
    inbox.wait(5)
    assert inbox.bodies[:5] == [b"0", b"1", b"2", b"3", b"4"]


def test_next_is_where_one_begins(
    channel: BlockingChannel, stream: str, read: Callable[..., Inbox]
) -> None:
    publish(channel, stream, 3)
    inboxes = [read(), read("next")]
    publish(channel, stream, 2, first=3)
    for inbox in inboxes:
        inbox.wait(2)
        assert inbox.bodies == [b"3", b"4"]


def test_last_has_the_last(
    channel: BlockingChannel, stream: str, read: Callable[..., Inbox]
) -> None:
    for i in range(3):
        publish(channel, stream, 1, first=i)
    inbox = read("last")
    inbox.wait(1)
    assert inbox.bodies == [b"2"]


@pytest.mark.parametrize(
    ("offset", "begins"),
    [
        (3, 3),
        (0, 0),
        (-5, 0),
        ("1h", 0),
        (datetime.now(UTC) - timedelta(hours=1), 0),
        (datetime(1970, 1, 2, tzinfo=UTC), 0),
    ],
    ids=["three", "zero", "negative", "an hour ago", "a time", "long ago"],
)
def test_other_offsets(
    channel: BlockingChannel,
    stream: str,
    read: Callable[..., Inbox],
    offset: object,
    begins: int,
) -> None:
    sent = publish(channel, stream, 5)
    inbox = read(offset)
    inbox.wait(5 - begins)
    assert inbox.bodies == sent[begins:]


@pytest.mark.parametrize("offset", [7, datetime.now(UTC) + timedelta(hours=1)])
def test_offsets_that_are_yet_to_come(
    channel: BlockingChannel, stream: str, read: Callable[..., Inbox], offset: object
) -> None:
    publish(channel, stream, 5)
    inbox = read(offset)
    publish(channel, stream, 5, first=5)
    wanted = [b"7", b"8", b"9"] if offset == 7 else [b"5", b"6", b"7", b"8", b"9"]
    inbox.wait(len(wanted))
    assert inbox.bodies == wanted


def test_old_segments_go(
    connect: Callable[..., BlockingConnection],
    channel: BlockingChannel,
    name: Callable[[str], str],
    read: Callable[..., Inbox],
) -> None:
    short = name("short")
    limits = {"max_length_bytes": 20_000, "stream_max_segment_size_bytes": 5_000}
    with declared(connect, short, **limits):
        for i in range(200):
            put(channel, short, b"%03d" % i + b"x" * 1000)

        def oldest() -> int:
            """RabbitMQ lets go in the background, and may do so under a reader."""
            inbox = read("first", queue=short)
            try:
                return number(inbox.wait(1)[0])
            except pika.exceptions.AMQPError:
                return 0

        await_that(channel.connection, lambda: oldest() > 100)
        inbox = read("first", queue=short)
        await_that(inbox.channel.connection, lambda: inbox.bodies[-1:] == [b"199" + b"x" * 1000])
        assert 5 <= len(inbox.bodies) <= 25


def test_a_stream_that_is_deleted_cancels_its_consumers(
    connect: Callable[..., BlockingConnection],
    channel: BlockingChannel,
    name: Callable[[str], str],
    read: Callable[..., Inbox],
) -> None:
    short = name("short")
    with declared(connect, short):
        inbox = read("first", queue=short)
        cancelled: list[object] = []
        inbox.channel.add_on_cancel_callback(cancelled.append)
    await_that(inbox.channel.connection, lambda: cancelled)


# --- what recado does and RabbitMQ 3.10 does not --------------------------------------------------------------


@pytest.mark.parametrize("server", ["recado"], indirect=True)
def test_nack_and_reject_are_acks(
    server: Server, channel: BlockingChannel, stream: str, read: Callable[..., Inbox]
) -> None:
    sent = publish(channel, stream, 6)
    inbox = read("first", prefetch=1)
    for tag in range(1, 6):
        inbox.wait(tag)
        if tag % 2:
            inbox.channel.basic_nack(tag, requeue=tag < 4)
        else:
            inbox.channel.basic_reject(tag)
    inbox.wait(6)
    assert inbox.bodies == sent
    assert channel.queue_declare(stream, passive=True).method.message_count == 6
