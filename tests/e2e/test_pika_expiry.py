"""pika: messages and queues that live for a limited time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

from .traffic import Inbox, await_depth, await_that, bodies, get, put, take


def test_messages_of_a_queue_with_ttl_expire(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("ttl")
    channel.queue_declare(queue, exclusive=True, arguments={"x-message-ttl": 50})
    put(channel, queue, b"1", b"2")
    await_depth(channel, queue, 0)
    assert get(channel, queue) is None


def test_a_message_with_expiration_expires_and_its_neighbours_stay(
    channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, b"short", expiration="50")
    put(channel, queue, b"stays")
    await_depth(channel, queue, 1)
    assert bodies(take(channel, queue)) == [b"stays"]


def test_the_shorter_of_queue_and_message_ttl_holds(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("ttl")
    channel.queue_declare(queue, exclusive=True, arguments={"x-message-ttl": 60_000})
    put(channel, queue, b"short", expiration="30")
    await_depth(channel, queue, 0)
    other = name("ttl")
    channel.queue_declare(other, exclusive=True, arguments={"x-message-ttl": 30})
    put(channel, other, b"long", expiration="60000")
    await_depth(channel, other, 0)


def test_ttl_zero_reaches_a_waiting_consumer_and_nobody_later(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queue = name("now")
    channel.queue_declare(queue, exclusive=True, arguments={"x-message-ttl": 0})
    put(channel, queue, b"nobody waits")
    assert get(channel, queue) is None
    inbox = Inbox(channel, queue, auto_ack=True)
    put(channel, queue, b"somebody waits")
    inbox.wait(1)
    assert inbox.bodies == [b"somebody waits"]


def test_ttl_zero_is_over_when_the_message_is_requeued(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    """However soon: requeued in the millisecond in which it came, it is not delivered again."""
    queue, letters = name("now"), name("letters")
    channel.queue_declare(letters, exclusive=True)
    given = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": letters}
    channel.queue_declare(queue, exclusive=True, arguments=given)
    seen = []

    def requeue(_channel: object, method: Any, _properties: object, body: bytes) -> None:
        seen.append((body, method.redelivered))
        channel.basic_nack(method.delivery_tag, requeue=True)

    channel.basic_consume(queue, requeue)
    contents = [b"%d" % number for number in range(20)]
    for body in contents:
        put(channel, queue, body, expiration="0")
        assert bodies(take(channel, letters)) == [body]
    assert seen == [(body, False) for body in contents]


def test_the_expiration_property_reaches_the_consumer(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"in time", expiration="60000")
    (found,) = take(channel, queue)
    assert found.properties.expiration == "60000"


def test_an_unused_queue_expires(channel: BlockingChannel, name: Callable[[str], str]) -> None:
    queue = name("fleeting")
    channel.queue_declare(queue, arguments={"x-expires": 400})

    def is_gone() -> bool:
        # Publishing is no use of a queue; a passive declare would renew its lease.
        try:
            channel.basic_publish("", queue, b"there?", mandatory=True)
        except UnroutableError:
            return True
        return False

    assert not is_gone()
    await_that(channel.connection, is_gone)


def test_a_consumed_queue_does_not_expire(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    used, unused = name("used"), name("unused")
    for queue in (used, unused):
        channel.queue_declare(queue, arguments={"x-expires": 400, "x-message-ttl": 0})
    inbox = Inbox(channel, used, auto_ack=True)

    def unused_is_gone() -> bool:
        channel.basic_publish("", used, b"still here", mandatory=True)
        try:
            channel.basic_publish("", unused, b"there?", mandatory=True)
        except UnroutableError:
            return True
        return False

    await_that(channel.connection, unused_is_gone)
    assert inbox.wait(1)
    channel.queue_delete(used)
