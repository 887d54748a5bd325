"""pika: queues with a maximum length, and the three things that may happen when it is reached."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError

from .traffic import Inbox, bodies, depth, get, put, take


@pytest.fixture
def limited(channel: BlockingChannel, name: Callable[[str], str]) -> Callable[..., str]:
    """Declares queues with limits: `limited(max_length=2)`."""

    def declare(**arguments: object) -> str:
        queue = name("limited")
        given = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        channel.queue_declare(queue, exclusive=True, arguments=given)
        return queue

    return declare


def test_drop_head_keeps_the_newest(channel: BlockingChannel, limited: Callable[..., str]) -> None:
    queue = limited(max_length=3, overflow="drop-head")
    put(channel, queue, *(b"%d" % number for number in range(10)))
    assert bodies(take(channel, queue, 3)) == [b"7", b"8", b"9"]
    assert get(channel, queue) is None


def test_drop_head_is_the_default(channel: BlockingChannel, limited: Callable[..., str]) -> None:
    queue = limited(max_length=1)
    put(channel, queue, b"1", b"2")
    assert bodies(take(channel, queue)) == [b"2"]


def test_bytes_are_counted_by_body(channel: BlockingChannel, limited: Callable[..., str]) -> None:
    queue = limited(max_length_bytes=10)
    put(channel, queue, b"aaaa", b"bbbb", b"cc", headers={"not": "counted"})
    assert depth(channel, queue) == 3
    put(channel, queue, b"d")
    assert bodies(take(channel, queue, 3)) == [b"bbbb", b"cc", b"d"]


def test_unacknowledged_messages_do_not_count(
    channel: BlockingChannel, limited: Callable[..., str]
) -> None:
    queue = limited(max_length=2)
    put(channel, queue, b"1", b"2")
    take(channel, queue, 2, auto_ack=False)
    put(channel, queue, b"3", b"4")
    assert depth(channel, queue) == 2
    assert bodies(take(channel, queue, 2)) == [b"3", b"4"]


def test_a_message_that_a_consumer_takes_at_once_is_not_over_the_limit(
    channel: BlockingChannel, limited: Callable[..., str]
) -> None:
    queue = limited(max_length=0)
    inbox = Inbox(channel, queue, auto_ack=True)
    put(channel, queue, b"1", b"2", b"3")
    inbox.wait(3)
    assert inbox.bodies == [b"1", b"2", b"3"]


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_rejected_publishes_are_nacked_and_the_oldest_stay(
    channel: BlockingChannel, limited: Callable[..., str], overflow: str
) -> None:
    queue = limited(max_length=2, overflow=overflow)
    put(channel, queue, b"1", b"2")
    for _ in range(3):
        with pytest.raises(NackError):
            put(channel, queue, b"3")
    assert bodies(take(channel, queue, 2)) == [b"1", b"2"]
    assert get(channel, queue) is None


@pytest.mark.parametrize(
    ("overflow", "letters"), [("reject-publish", []), ("reject-publish-dlx", [b"3"])]
)
def test_only_reject_publish_dlx_sends_the_refused_to_the_dead_letter_exchange(
    channel: BlockingChannel,
    queue: str,
    limited: Callable[..., str],
    overflow: str,
    letters: list[bytes],
) -> None:
    full = limited(
        max_length=2,
        overflow=overflow,
        dead_letter_exchange="",
        dead_letter_routing_key=queue,
    )
    put(channel, full, b"1", b"2")
    with pytest.raises(NackError):
        put(channel, full, b"3")
    found = take(channel, queue, len(letters))
    assert bodies(found) == letters
    for letter in found:
        (death,) = letter.properties.headers["x-death"]
        assert (death["reason"], death["queue"]) == ("maxlen", full)
    assert get(channel, queue) is None


def test_one_full_queue_of_two_nacks_and_the_other_keeps_the_message(
    channel: BlockingChannel, queue: str, limited: Callable[..., str], name: Callable[[str], str]
) -> None:
    exchange = name("both")
    channel.exchange_declare(exchange, "fanout", auto_delete=True)
    full = limited(max_length=1, overflow="reject-publish")
    for bound in (queue, full):
        channel.queue_bind(bound, exchange)
    channel.basic_publish(exchange, "", b"1")
    with pytest.raises(NackError):
        channel.basic_publish(exchange, "", b"2")
    assert bodies(take(channel, full)) == [b"1"]
    assert bodies(take(channel, queue, 2)) == [b"1", b"2"]


def test_an_unknown_overflow_mode_is_refused(
    channel: BlockingChannel, limited: Callable[..., str]
) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        limited(max_length=1, overflow="explode")
    assert closed.value.reply_code == 406


def test_requeued_messages_count_again(
    channel: BlockingChannel, limited: Callable[..., str]
) -> None:
    queue = limited(max_length=3)
    put(channel, queue, b"1", b"2", b"3")
    take(channel, queue, 2, auto_ack=False)
    put(channel, queue, b"4", b"5")
    channel.basic_nack(0, multiple=True, requeue=True)
    channel.basic_qos(prefetch_count=0)
    assert bodies(take(channel, queue, 3)) == [b"3", b"4", b"5"]
    assert get(channel, queue) is None


def test_both_limits_hold_together(channel: BlockingChannel, limited: Callable[..., str]) -> None:
    queue = limited(max_length=3, max_length_bytes=5)
    put(channel, queue, b"aa", b"bb", b"c", b"d")
    assert bodies(take(channel, queue, 3)) == [b"bb", b"c", b"d"]
    put(channel, queue, b"e", b"fffff", b"g")
    assert bodies(take(channel, queue)) == [b"g"]
    assert get(channel, queue) is None
