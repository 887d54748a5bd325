"""pika: which queues a message reaches: every kind of exchange, and every way between them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from .traffic import bodies, depth, get, take


class Map:
    """Exchanges and queues of one test, by short names; each delivery is told by those names."""

    def __init__(self, channel: BlockingChannel, name: Callable[[str], str]) -> None:
        self.channel = channel
        self.real: dict[str, str] = {"": ""}
        self.name = name

    def exchange(self, short: str, kind: str, **options: object) -> None:
        """Declare an exchange; it goes with its last binding or with `close`."""
        self.real[short] = self.name(short)
        self.channel.exchange_declare(self.real[short], kind, **options)

    def queue(self, short: str) -> None:
        """Declare a queue."""
        self.real[short] = self.name(short)
        self.channel.queue_declare(self.real[short], exclusive=True)

    def bind(
        self, queue: str, exchange: str, key: str = "", arguments: dict[str, object] | None = None
    ) -> None:
        """Bind a queue, declaring it first."""
        if queue not in self.real:
            self.queue(queue)
        self.channel.queue_bind(self.real[queue], self.real[exchange], key, arguments)

    def publish(self, exchange: str, key: str = "", **properties: object) -> list[str]:
        """Publish one message and take it from everywhere: the short names of where it went."""
        fields = BasicProperties(**properties)
        try:
            self.channel.basic_publish(self.real[exchange], key, b"message", fields, mandatory=True)
        except UnroutableError:
            return []
        reached = []
        for short, queue in self.real.items():
            if short.startswith("q"):
                while get(self.channel, queue):
                    reached.append(short)
        return reached


@pytest.fixture
def routes(channel: BlockingChannel, name: Callable[[str], str]) -> Map:
    """An empty map."""
    return Map(channel, name)


def test_direct(routes: Map) -> None:
    routes.exchange("e", "direct", auto_delete=True)
    for queue, key in (("q1", "red"), ("q2", "red"), ("q2", "blue"), ("q2", "red")):
        routes.bind(queue, "e", key)
    assert routes.publish("e", "red") == ["q1", "q2"]
    assert routes.publish("e", "blue") == ["q2"]
    assert routes.publish("e", "green") == []


def test_fanout(routes: Map) -> None:
    routes.exchange("e", "fanout", auto_delete=True)
    routes.bind("q1", "e", "ignored")
    routes.bind("q2", "e")
    routes.bind("q2", "e", "twice")
    assert routes.publish("e", "anything") == ["q1", "q2"]


TOPICS = [
    ("a.b", "a.b"),
    ("a.b", "a.*"),
    ("a.b", "*.*"),
    ("a.b", "#"),
    ("a.b", "a.#"),
    ("a", "a.#"),
    ("a.b.c", "a.#"),
    ("a.b.c", "#.c"),
    ("a.b.c", "a.#.c"),
    ("a.c", "a.#.c"),
    ("a.b.c", "#.#"),
    ("a.b.c", "a.#.#.#.c"),
    ("a.b.c", "*.#.*"),
    ("", "#"),
    ("", ""),
    ("a..b", "a.*.b"),
]
OTHER_TOPICS = [
    ("a.b", "a"),
    ("a", "a.*"),
    ("a.b.c", "a.*"),
    ("ab", "a#"),
    ("ab", "*b"),
    ("", "*.*"),
    ("a.b", "A.B"),
    ("a", "*.#.*"),
]


def test_topic(routes: Map) -> None:
    routes.exchange("e", "topic")
    for pattern in {pattern for _, pattern in TOPICS + OTHER_TOPICS}:
        routes.bind(f"q{pattern}", "e", pattern)
    for key in {key for key, _ in TOPICS + OTHER_TOPICS}:
        reached = {queue[1:] for queue in routes.publish("e", key)}
        assert reached >= {pattern for matched, pattern in TOPICS if matched == key}
        assert not reached & {pattern for missed, pattern in OTHER_TOPICS if missed == key}
    routes.channel.exchange_delete(routes.real["e"])


HEADERS = [
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 0}, True),
    ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
    ({"x-match": "all", "a": 1}, {"a": 2}, False),
    ({"a": 1, "b": 2}, {"a": 1}, False),
    ({"x-match": "any", "a": 1, "b": 2}, {"b": 2}, True),
    ({"x-match": "any", "a": 1, "b": 2}, {"a": 2}, False),
    ({"x-match": "any", "a": None}, {"a": "whatever"}, True),
    ({"x-match": "all", "a": None}, {"b": 1}, False),
    ({"x-match": "all"}, {}, True),
    ({"x-match": "any"}, {"a": 1}, False),
    ({"x-match": "any", "x-own": 1}, {"x-own": 1}, False),
    ({"x-match": "any-with-x", "x-own": 1}, {"x-own": 1}, True),
    ({"x-match": "all-with-x", "x-own": 1, "a": 1}, {"a": 1}, False),
    ({"x-match": "all", "x-own": 1, "a": 1}, {"a": 1}, True),
    ({"x-match": "all", "a": "1"}, {"a": 1}, False),
    ({"x-match": "all", "a": True}, {"a": True}, True),
]


@pytest.mark.parametrize(("arguments", "headers", "reached"), HEADERS)
def test_headers(
    routes: Map, arguments: dict[str, object], headers: dict[str, object], reached: bool
) -> None:
    routes.exchange("e", "headers", auto_delete=True)
    routes.bind("q", "e", arguments=arguments)
    assert routes.publish("e", headers=headers) == ["q"] * reached


def test_the_default_exchange_knows_every_queue_by_name(routes: Map) -> None:
    routes.queue("q")
    assert routes.publish("", routes.real["q"]) == ["q"]


def test_exchange_to_exchange_bindings_deliver_once_even_in_a_circle(routes: Map) -> None:
    for short in ("in", "middle", "out"):
        routes.exchange(short, "topic")
    bind = routes.channel.exchange_bind
    bind(routes.real["middle"], routes.real["in"], "a.#")
    bind(routes.real["out"], routes.real["middle"], "#")
    bind(routes.real["out"], routes.real["in"], "a.#")
    bind(routes.real["in"], routes.real["out"], "#")
    routes.bind("q1", "out", "a.b")
    routes.bind("q2", "in", "c")
    assert routes.publish("in", "a.b") == ["q1"]
    assert routes.publish("middle", "c") == ["q2"]
    routes.channel.exchange_unbind(routes.real["out"], routes.real["in"], "a.#")
    assert routes.publish("in", "a.b") == ["q1"]
    routes.channel.exchange_unbind(routes.real["middle"], routes.real["in"], "a.#")
    assert routes.publish("in", "a.b") == []
    for short in ("in", "middle", "out"):
        routes.channel.exchange_delete(routes.real[short])


def test_the_alternate_exchange_gets_what_found_no_queue(routes: Map) -> None:
    routes.exchange("last", "fanout")
    alternate = {"alternate-exchange": routes.real["last"]}
    routes.exchange("second", "direct", arguments=alternate)
    routes.exchange("first", "direct", arguments={"alternate-exchange": routes.real["second"]})
    routes.bind("q1", "first", "one")
    routes.bind("q2", "second", "two")
    routes.bind("q3", "last")
    assert routes.publish("first", "one") == ["q1"]
    assert routes.publish("first", "two") == ["q2"]
    assert routes.publish("first", "three") == ["q3"]
    routes.channel.exchange_delete(routes.real["last"])
    assert routes.publish("first", "three") == []
    for short in ("second", "first"):
        routes.channel.exchange_delete(routes.real[short])


def test_an_internal_exchange_is_reached_by_bindings_only(routes: Map) -> None:
    routes.exchange("inside", "fanout", internal=True, auto_delete=True)
    routes.exchange("outside", "fanout", auto_delete=True)
    routes.channel.exchange_bind(routes.real["inside"], routes.real["outside"])
    routes.bind("q", "inside")
    assert routes.publish("outside") == ["q"]
    with pytest.raises(ChannelClosedByBroker) as refused:
        routes.publish("inside")
    assert refused.value.reply_code == 403


def test_cc_and_bcc_are_further_keys_and_bcc_is_not_passed_on(
    channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    queues = [name("to"), name("cc"), name("cc"), name("bcc")]
    for queue in queues:
        channel.queue_declare(queue, exclusive=True)
    headers = {"CC": [queues[1], queues[2], queues[1]], "BCC": [queues[3]], "own": 1}
    properties = BasicProperties(headers=headers)
    channel.basic_publish("", queues[0], b"letter", properties)
    for queue in queues:
        (found,) = take(channel, queue)
        assert found.body == b"letter"
        assert found.properties.headers == {"CC": headers["CC"], "own": 1}
        assert found.routing_key == queues[0]
        assert get(channel, queue) is None


def test_one_copy_when_key_and_cc_name_the_same_queue(channel: BlockingChannel, queue: str) -> None:
    properties = BasicProperties(headers={"CC": [queue], "BCC": [queue]})
    channel.basic_publish("", queue, b"once", properties)
    assert depth(channel, queue) == 1
    assert bodies(take(channel, queue)) == [b"once"]


def test_cc_must_be_a_list(channel: BlockingChannel, queue: str) -> None:
    properties = BasicProperties(headers={"CC": queue})
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.basic_publish("", queue, b"letter", properties)
    assert refused.value.reply_code == 406


def test_the_same_binding_with_other_arguments_is_another_binding(routes: Map) -> None:
    routes.exchange("e", "direct", auto_delete=True)
    routes.bind("q", "e", "key", {"one": 1})
    routes.bind("q", "e", "key", {"two": 2})
    unbind = routes.channel.queue_unbind
    unbind(routes.real["q"], routes.real["e"], "key", {"one": 1})
    assert routes.publish("e", "key") == ["q"]
    unbind(routes.real["q"], routes.real["e"], "key", {"two": 2})
    with pytest.raises(ChannelClosedByBroker) as missing:
        routes.publish("e", "key")
    assert missing.value.reply_code == 404


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "match"])
def test_every_vhost_has_its_standard_exchanges(channel: BlockingChannel, kind: str) -> None:
    channel.exchange_declare(f"amq.{kind}", passive=True)
