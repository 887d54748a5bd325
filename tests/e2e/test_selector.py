"""pika: consumers of a stream that want some of its messages, on a broker that keeps it on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from .durable_broker import durable_broker
from .streams import STREAM, declared
from .traffic import Delivery, Inbox

pytestmark = pytest.mark.parametrize("server", ["recado"], indirect=True)

COUNT = 600


@pytest.fixture
def stream(connect: Callable[..., BlockingConnection], name: Callable[[str], str]) -> Iterator[str]:
    found = name("stream")
    with declared(connect, found):
        yield found


def fill(channel: BlockingChannel, stream: str) -> None:
    """Prices that grow, of every third message in euros."""
    for i in range(COUNT):
        headers = {"currency": "EUR" if i % 3 == 0 else "BRL"}
        body = b'{"price": %d, "note": "\xc3\xa9 %s"}' % (i, b"x" * (i % 50))
        channel.basic_publish("", stream, body, BasicProperties(headers=headers, priority=i % 10))


def offsets_of(deliveries: list[Delivery]) -> list[int]:
    return [int(each.properties.headers["x-stream-offset"]) for each in deliveries]


def reading(
    channel: BlockingChannel, stream: str, selector: str, offset: object = "first"
) -> Inbox:
    arguments = {"x-stream-offset": offset, "x-selector": selector}
    return Inbox(channel, stream, arguments=arguments)


@pytest.mark.parametrize(
    ("selector", "offsets"),
    [
        ("headers.currency = 'EUR'", list(range(0, COUNT, 3))),
        ("priority BETWEEN 3 AND 4", [i for i in range(COUNT) if i % 10 in (3, 4)]),
        ("json.price >= 590 AND body LIKE '%é x%'", [i for i in range(590, COUNT) if i % 50]),
        ("offset IN (5, 599)", [5, 599]),
    ],
)
def test_only_what_is_wanted_comes(
    connect: Callable[..., BlockingConnection], stream: str, selector: str, offsets: list[int]
) -> None:
    channel = connect().channel()
    channel.basic_qos(prefetch_count=7)
    inbox = reading(channel, stream, selector)
    fill(connect().channel(), stream)
    while len(inbox.deliveries) < len(offsets):
        got = inbox.wait(min(len(inbox.deliveries) + 7, len(offsets)))
        channel.basic_ack(got[-1].tag, multiple=True)
    assert offsets_of(inbox.deliveries) == offsets


def test_filter_values_are_filtered_exactly(
    connect: Callable[..., BlockingConnection], stream: str
) -> None:
    channel = connect().channel()
    channel.basic_qos(prefetch_count=100)
    arguments = {"x-stream-filter": ["eu", "us"], "x-stream-offset": "first"}
    inbox = Inbox(channel, stream, arguments=arguments)
    publisher = connect().channel()
    for value in ("eu", "asia", "us", None, "eu"):
        headers = {} if value is None else {"x-stream-filter-value": value}
        publisher.basic_publish("", stream, b"tick", BasicProperties(headers=headers))
    assert offsets_of(inbox.wait(3)) == [0, 2, 4]


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        ("json.price >", "line 1, column 13: expected a value, found the end"),
        ("publisher = 'a'", "line 1, column 1: the field publisher is not available here"),
        (5, "{unacceptable_type,signedint}"),
    ],
)
def test_what_means_nothing_is_refused(
    connect: Callable[..., BlockingConnection], stream: str, selector: object, told: str
) -> None:
    channel = connect().channel()
    channel.basic_qos(prefetch_count=7)
    with pytest.raises(ChannelClosedByBroker) as refusal:
        channel.basic_consume(stream, lambda *_: None, arguments={"x-selector": selector})
    assert refusal.value.reply_code == 406
    assert told in refusal.value.reply_text


def test_queues_that_are_no_streams_have_none(
    connect: Callable[..., BlockingConnection], name: Callable[[str], str]
) -> None:
    channel = connect().channel()
    queue = channel.queue_declare(name("queue"), exclusive=True).method.queue
    with pytest.raises(
        ChannelClosedByBroker,
        match=r"invalid arg .x-selector..*it needs a stream, but the queue type is classic",
    ):
        channel.basic_consume(queue, lambda *_: None, arguments={"x-selector": "TRUE"})


@pytest.mark.usefixtures("server")
def test_after_a_kill(tmp_path: Path) -> None:
    with durable_broker(tmp_path / "data") as channel:
        channel.queue_declare("s", durable=True, arguments=STREAM)
        fill(channel, "s")
    with durable_broker(tmp_path / "data") as channel:
        channel.basic_qos(prefetch_count=1000)
        inbox = reading(channel, "s", "headers.currency = 'EUR'", offset=300)
        assert offsets_of(inbox.wait(100)) == list(range(300, COUNT, 3))
