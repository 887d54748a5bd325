"""Routing that only recado has: regex exchanges, and dead-letter bindings of an exchange."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from .traffic import bodies, get, take

pytestmark = pytest.mark.parametrize("server", ["recado"], indirect=True)

LAST_RESORT = {"x-dead-letter-binding": True}


@pytest.fixture
def regex(channel: BlockingChannel, name: Callable[[str], str]) -> str:
    """An exchange of type regex."""
    exchange = name("regex")
    channel.exchange_declare(exchange, "regex", auto_delete=True)
    return exchange


def reaches(channel: BlockingChannel, exchange: str, key: str, queue: str) -> bool:
    """Whether a message with that key comes to the queue; takes it away again."""
    try:
        channel.basic_publish(exchange, key, key.encode(), BasicProperties(), mandatory=True)
    except UnroutableError:
        return False
    return bodies(take(channel, queue)) == [key.encode()]


def test_a_regex_must_match_the_whole_key(channel: BlockingChannel, regex: str, queue: str) -> None:
    channel.queue_bind(queue, regex, r"order\.(new|paid)\.\d{4}")
    assert reaches(channel, regex, "order.new.2026", queue)
    assert reaches(channel, regex, "order.paid.1999", queue)
    assert not reaches(channel, regex, "order.lost.2026", queue)
    assert not reaches(channel, regex, "order.new.20266", queue)
    assert not reaches(channel, regex, "my.order.new.2026", queue)


def test_a_bad_pattern_is_refused_and_the_exchange_stays(
    connection: BlockingConnection, channel: BlockingChannel, regex: str, queue: str
) -> None:
    for bad in ("(", "a{2,1}", r"(a)\1"):
        with pytest.raises(ChannelClosedByBroker) as refused:
            connection.channel().queue_bind(queue, regex, bad)
        assert refused.value.reply_code == 406
    channel.queue_bind(queue, regex, "good")
    assert reaches(channel, regex, "good", queue)


def test_a_pattern_that_would_hang_others_does_not(
    channel: BlockingChannel, regex: str, queue: str
) -> None:
    channel.queue_bind(queue, regex, "(a*)*b")
    assert not reaches(channel, regex, "a" * 250, queue)
    assert reaches(channel, regex, "a" * 250 + "b", queue)


def test_a_regex_exchange_takes_part_in_chains(
    channel: BlockingChannel, regex: str, queue: str
) -> None:
    channel.exchange_bind(regex, "amq.topic", f"{queue}.#")
    channel.queue_bind(queue, regex, r".*\.(red|blue)")
    assert reaches(channel, "amq.topic", f"{queue}.light.red", queue)
    assert not reaches(channel, "amq.topic", f"{queue}.light.green", queue)


@pytest.fixture
def resort(channel: BlockingChannel, name: Callable[[str], str]) -> str:
    """The queue of last resort."""
    queue = name("resort")
    channel.queue_declare(queue, exclusive=True)
    return queue


@pytest.mark.parametrize("kind", ["direct", "topic", "headers", "regex"])
def test_a_dead_letter_binding_is_used_only_when_nothing_else_matches(
    channel: BlockingChannel, queue: str, resort: str, name: Callable[[str], str], kind: str
) -> None:
    exchange = name(kind)
    channel.exchange_declare(exchange, kind, auto_delete=True)
    channel.queue_bind(queue, exchange, "known", {"a": 1})
    everything = {"direct": "unknown", "topic": "#", "headers": "", "regex": ".*"}[kind]
    channel.queue_bind(resort, exchange, everything, {"x-match": "any", **LAST_RESORT, "b": 1})

    def publish(key: str, **headers: int) -> None:
        channel.basic_publish(exchange, key, key.encode(), BasicProperties(headers=headers))

    publish("known", a=1, b=1)
    publish("unknown", b=1)
    assert bodies(take(channel, queue)) == [b"known"]
    assert bodies(take(channel, resort)) == [b"unknown"]
    assert get(channel, resort) is None


def test_a_dead_letter_binding_comes_before_the_alternate_exchange(
    channel: BlockingChannel, queue: str, resort: str, name: Callable[[str], str]
) -> None:
    exchange, alternate = name("first"), name("alternate")
    channel.exchange_declare(alternate, "fanout", auto_delete=True)
    channel.queue_bind(queue, alternate)
    arguments = {"alternate-exchange": alternate}
    channel.exchange_declare(exchange, "topic", auto_delete=True, arguments=arguments)
    channel.queue_bind(resort, exchange, "a.#", LAST_RESORT)
    channel.basic_publish(exchange, "a.b", b"resort")
    channel.basic_publish(exchange, "b.a", b"alternate")
    assert bodies(take(channel, resort)) == [b"resort"]
    assert bodies(take(channel, queue)) == [b"alternate"]


def test_a_dead_letter_binding_makes_a_mandatory_message_routable(
    channel: BlockingChannel, resort: str, name: Callable[[str], str]
) -> None:
    exchange = name("direct")
    channel.exchange_declare(exchange, "direct", auto_delete=True)
    channel.queue_bind(resort, exchange, "key", LAST_RESORT)
    assert reaches(channel, exchange, "key", resort)
    channel.queue_unbind(resort, exchange, "key", LAST_RESORT)
    with pytest.raises(ChannelClosedByBroker):
        channel.exchange_declare(exchange, passive=True)
