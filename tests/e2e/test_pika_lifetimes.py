"""pika: how long queues and exchanges live: exclusive, auto-delete, server-named, deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from .traffic import Inbox, await_that, depth, put


class Census:
    """Which queues and exchanges exist, asked on a fresh channel each time: a miss closes it."""

    def __init__(self, connection: BlockingConnection) -> None:
        self.connection = connection

    def exists(self, kind: str, name: str) -> bool:
        """Whether a passive declare of a "queue" or "exchange" finds it."""
        channel = self.connection.channel()
        declare = {"queue": channel.queue_declare, "exchange": channel.exchange_declare}[kind]
        try:
            declare(name, passive=True)
        except ChannelClosedByBroker as closed:
            if closed.reply_code != 404:
                raise
            return False
        channel.close()
        return True


@pytest.fixture
def census(connect: Callable[..., BlockingConnection]) -> Census:
    """Asks on a connection of its own."""
    return Census(connect())


def test_an_exclusive_queue_is_gone_with_its_connection(
    connect: Callable[..., BlockingConnection], census: Census, name: Callable[[str], str]
) -> None:
    queue = name("mine")
    connection = connect()
    connection.channel().queue_declare(queue, exclusive=True)
    connection.close()
    assert not census.exists("queue", queue)


@pytest.mark.parametrize(
    "use",
    [
        lambda channel, queue: channel.queue_declare(queue, passive=True),
        lambda channel, queue: channel.queue_declare(queue, exclusive=True),
        lambda channel, queue: channel.basic_get(queue),
        lambda channel, queue: channel.basic_consume(queue, print),
        lambda channel, queue: channel.queue_bind(queue, "amq.direct", queue),
        lambda channel, queue: channel.queue_unbind(queue, "amq.direct", queue),
        lambda channel, queue: channel.queue_purge(queue),
        lambda channel, queue: channel.queue_delete(queue),
    ],
    ids=["passive", "declare", "get", "consume", "bind", "unbind", "purge", "delete"],
)
def test_another_connection_may_not_use_an_exclusive_queue(
    connect: Callable[..., BlockingConnection],
    channel: BlockingChannel,
    queue: str,
    use: Callable[[BlockingChannel, str], object],
) -> None:
    channel.queue_bind(queue, "amq.direct", queue)
    with pytest.raises(ChannelClosedByBroker) as refused:
        use(connect().channel(), queue)
    assert refused.value.reply_code == 405


def test_another_connection_may_publish_to_an_exclusive_queue(
    connect: Callable[..., BlockingConnection], channel: BlockingChannel, queue: str
) -> None:
    inbox = Inbox(channel, queue, auto_ack=True)
    put(connect().channel(), queue, b"from outside")
    inbox.wait(1)
    assert inbox.bodies == [b"from outside"]


def test_an_auto_delete_queue_lives_until_its_last_consumer_leaves(
    channel: BlockingChannel, census: Census, name: Callable[[str], str]
) -> None:
    queue = name("brief")
    channel.queue_declare(queue, auto_delete=True)
    assert census.exists("queue", queue)
    first, second = Inbox(channel, queue), Inbox(channel, queue)
    channel.basic_cancel(first.tag)
    assert census.exists("queue", queue)
    channel.basic_cancel(second.tag)
    assert not census.exists("queue", queue)


def test_an_auto_delete_queue_is_gone_with_the_channel_of_its_consumer(
    connection: BlockingConnection, census: Census, name: Callable[[str], str]
) -> None:
    queue = name("brief")
    channel = connection.channel()
    channel.queue_declare(queue, auto_delete=True)
    Inbox(channel, queue)
    channel.close()
    await_that(connection, lambda: not census.exists("queue", queue))


def test_an_auto_delete_exchange_lives_until_its_last_binding_is_gone(
    channel: BlockingChannel, queue: str, census: Census, name: Callable[[str], str]
) -> None:
    exchange = name("brief")
    channel.exchange_declare(exchange, "topic", auto_delete=True)
    assert census.exists("exchange", exchange)
    channel.queue_bind(queue, exchange, "a")
    channel.queue_bind(queue, exchange, "b")
    channel.queue_unbind(queue, exchange, "a")
    assert census.exists("exchange", exchange)
    channel.queue_unbind(queue, exchange, "b")
    assert not census.exists("exchange", exchange)


def test_deleting_the_last_queue_deletes_a_chain_of_auto_delete_exchanges(
    channel: BlockingChannel, queue: str, census: Census, name: Callable[[str], str]
) -> None:
    near, far = name("near"), name("far")
    for exchange in (near, far):
        channel.exchange_declare(exchange, "fanout", auto_delete=True)
    channel.exchange_bind(near, far)
    channel.queue_bind(queue, near)
    channel.queue_delete(queue)
    assert not census.exists("exchange", near)
    assert not census.exists("exchange", far)


def test_a_server_named_queue_has_a_reserved_name(channel: BlockingChannel) -> None:
    first = channel.queue_declare("", exclusive=True).method.queue
    second = channel.queue_declare("", exclusive=True).method.queue
    assert first.startswith("amq.gen-")
    assert second.startswith("amq.gen-")
    assert first != second


def test_an_empty_name_means_the_queue_declared_last_on_the_channel(
    channel: BlockingChannel,
) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", "amq.direct", queue)
    channel.basic_publish("amq.direct", queue, b"found")
    assert channel.basic_get("", auto_ack=True)[2] == b"found"
    channel.queue_unbind("", "amq.direct", queue)
    assert channel.queue_purge("").method.message_count == 0
    channel.queue_delete("")


def test_a_queue_is_deleted_only_if_unused_and_empty_when_asked(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, b"full")
    with pytest.raises(ChannelClosedByBroker) as refused:
        connection.channel().queue_delete(queue, if_empty=True)
    assert refused.value.reply_code == 406
    consuming = connection.channel()
    Inbox(consuming, queue, auto_ack=True).wait(1)
    with pytest.raises(ChannelClosedByBroker) as refused:
        connection.channel().queue_delete(queue, if_unused=True)
    assert refused.value.reply_code == 406
    consuming.close()
    await_that(connection, lambda: declared(channel, queue) == (0, 0))
    assert channel.queue_delete(queue, if_unused=True, if_empty=True).method.message_count == 0


def declared(channel: BlockingChannel, queue: str) -> tuple[int, int]:
    """Messages and consumers, as declare-ok tells them."""
    method = channel.queue_declare(queue, passive=True).method
    return (method.message_count, method.consumer_count)


def test_declare_ok_counts_messages_and_consumers(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, b"1", b"2", b"3")
    assert declared(channel, queue) == (3, 0)
    consuming = connection.channel()
    consuming.basic_qos(prefetch_count=2)
    Inbox(consuming, queue).wait(2)
    assert declared(channel, queue) == (1, 1)


@pytest.mark.parametrize(
    ("flag", "code"), [("durable", 406), ("auto_delete", 406), ("exclusive", 405)]
)
def test_redeclaring_with_another_flag_is_refused(
    channel: BlockingChannel, name: Callable[[str], str], flag: str, code: int
) -> None:
    queue = name("flags")
    channel.queue_declare(queue)
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.queue_declare(queue, **{flag: True})
    assert refused.value.reply_code == code
    fresh = channel.connection.channel()
    assert depth(fresh, queue) == 0
    fresh.queue_delete(queue)


def test_an_exclusive_queue_is_never_durable(channel: BlockingChannel, queue: str) -> None:
    channel.queue_declare(queue, exclusive=True, durable=True)


def test_unknown_arguments_and_queue_types_are_accepted(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("arguments")
    arguments = {
        "x-queue-type": "classic",
        "x-anything": {"nested": [1, 2]},
        "x-queue-mode": "lazy",
    }
    channel.queue_declare(queue, exclusive=True, arguments=arguments)
    channel.queue_declare(queue, exclusive=True, arguments=arguments)
    quorum = name("quorum")
    channel.queue_declare(quorum, durable=True, arguments={"x-queue-type": "quorum"})
    put(channel, quorum, b"one")
    assert [body for *_, body in [channel.basic_get(quorum, auto_ack=True)]] == [b"one"]
    channel.queue_delete(quorum)
