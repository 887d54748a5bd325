"""The loads by which one client keeps a broker busy, while another one waits for replies.

An attack has three parts: the preparation, the attack itself, and the removal of what it left. The bytes of the
attack are encoded during the preparation, so that the attacker is never slower than the broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import ClassVar

from bench.fairness.wire import Client, published, rendered
from recado.amqp.methods import (
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from recado.amqp.properties import Properties
from recado.amqp.values import FieldValue

WORDS = "abcdefgh"
IDLE_S = (0.5, 2.0)  # quick, full
PUBLISH_S = (0.5, 5.0)
PATIENCE_S = (3.0, 30.0)  # with RabbitMQ, for an attack that ruins it
AFTERMATH_S = (0.2, 1.0)  # a broker may reply at once and do the work later
BLOCK_MESSAGES = 3_000
TOPIC_BINDINGS = 3_000
TOPIC_KEYS = 100
KEY_WORDS = 100
REGEX_BINDINGS = 4_500
REGEX_KEYS = 200
METHODS_PER_SEND = 10_000


class Attack:
    """No attack: the waits of a client on an idle broker."""

    name: ClassVar[str] = "idle"
    title: ClassVar[str] = "idle broker"
    needs_disk: ClassVar[bool] = False
    suits_peer: ClassVar[bool] = True
    ruins_peer: ClassVar[bool] = False
    """Whether RabbitMQ is busy for hours, and of no use afterwards."""
    takes_peer_long: ClassVar[bool] = False
    """Whether RabbitMQ needs more than ten seconds for the quick form, with the removal."""
    sizes: ClassVar[tuple[int, int] | None] = None
    """The number of objects in the title, in the quick and in the full form, if they differ."""

    def __init__(self, rng: Random, *, quick: bool) -> None:
        self.rng = rng
        self.quick = quick
        # Unique names: objects that an attack could not remove must not affect the next one.
        self.queue = f"fairness.{self.name}.queue"
        self.exchange = f"fairness.{self.name}.exchange"

    def prepare(self, client: Client) -> None:
        """Declare the objects of the attack, and encode it."""

    def run(self, client: Client) -> None:
        """Return when the broker has handled all of it."""
        time.sleep(self.seconds(IDLE_S))

    def clean(self, client: Client) -> None:
        """Delete the declared objects."""

    def seconds(self, seconds: tuple[float, float]) -> float:
        return seconds[0] if self.quick else seconds[1]

    def count(self) -> int:
        assert self.sizes is not None
        return self.sizes[0] if self.quick else self.sizes[1]

    def bindings(self, patterns: list[str]) -> bytes:
        return rendered(
            *(QueueBind(self.queue, self.exchange, each, no_wait=True) for each in patterns)
        )

    def long_key(self) -> str:
        return ".".join(self.rng.choices(WORDS, k=KEY_WORDS))


class Publishing(Attack):
    """Full-rate publishing of messages with an id each, which a broker cannot treat as equal."""

    name = "publish"
    title = "publishing, distinct ids"

    def prepare(self, client: Client) -> None:
        client.call(QueueDeclare(self.queue), QueueDeclareOk)
        self._block = block_of_messages(self.rng, self.queue)

    def run(self, client: Client) -> None:
        end = time.monotonic() + self.seconds(PUBLISH_S)
        while time.monotonic() < end:
            client.send(self._block)
        client.sync()

    def clean(self, client: Client) -> None:
        client.call(QueueDelete(self.queue), QueueDeleteOk)


class Routing(Attack):
    """Messages that are expensive to route, from an exchange with many bindings."""

    exchange_type: ClassVar[str] = "topic"
    ruins_peer = True  # it follows every possibility of several # by itself

    def prepare(self, client: Client) -> None:
        client.call(QueueDeclare(self.queue), QueueDeclareOk)
        client.call(ExchangeDeclare(self.exchange, self.exchange_type), ExchangeDeclareOk)
        for patterns in portions(self.patterns()):
            client.send(self.bindings(patterns))
        client.sync()
        self._messages = self.messages()

    def run(self, client: Client) -> None:
        client.send(self._messages)
        client.sync()

    def clean(self, client: Client) -> None:
        client.call(ExchangeDelete(self.exchange), ExchangeDeleteOk)
        client.call(QueueDelete(self.queue), QueueDeleteOk)

    def patterns(self) -> Iterator[str]:
        for _ in range(TOPIC_BINDINGS):
            yield "#.{}.#.{}.#.{}.#.{}.#".format(*self.rng.choices(WORDS, k=4))

    def messages(self) -> bytes:
        raise NotImplementedError


class TopicKeys(Routing):
    name = "topic"
    title = "3,000 topics, 100 keys"

    def messages(self) -> bytes:
        return b"".join(published(self.exchange, self.long_key(), b"x") for _ in range(TOPIC_KEYS))


class CarbonCopies(Routing):
    name = "cc"
    title = "3,000 topics, 100 CC keys"

    def messages(self) -> bytes:
        copies: list[FieldValue] = [self.long_key() for _ in range(TOPIC_KEYS)]
        return published(self.exchange, "z", b"x", Properties(headers={"CC": copies}))


class RegexKeys(Routing):
    name = "regex"
    title = "4,500 regexes, 200 keys"
    exchange_type = "regex"
    suits_peer = False  # it has no such exchange

    def patterns(self) -> Iterator[str]:
        for i in range(REGEX_BINDINGS):
            yield f"x{i}.*[a-z]+y"

    def messages(self) -> bytes:
        return b"".join(
            published(self.exchange, f"x{i}{'z' * 200}", b"x") for i in range(REGEX_KEYS)
        )


class Declaring(Attack):
    name = "declare"
    title = "20,000 durable queues"
    needs_disk = True
    takes_peer_long = True
    sizes = (5_000, 20_000)

    def prepare(self, client: Client) -> None:
        self._names = [f"{self.queue}.{i}" for i in range(self.count())]
        self._declarations = rendered(
            *(QueueDeclare(name, durable=True, no_wait=True) for name in self._names)
        )

    def run(self, client: Client) -> None:
        client.send(self._declarations)
        client.sync()

    def clean(self, client: Client) -> None:
        for names in portions(iter(self._names)):
            client.send(rendered(*(QueueDelete(name, no_wait=True) for name in names)))
        client.sync()


class Binding(Attack):
    name = "bind"
    title = "100,000 durable bindings"
    needs_disk = True
    takes_peer_long = True
    sizes = (10_000, 100_000)

    def prepare(self, client: Client) -> None:
        client.call(QueueDeclare(self.queue, durable=True), QueueDeclareOk)
        client.call(ExchangeDeclare(self.exchange, "topic", durable=True), ExchangeDeclareOk)
        patterns = (f"a.{i}.*.#" for i in range(self.count()))
        self._bindings = [self.bindings(portion) for portion in portions(patterns)]

    def run(self, client: Client) -> None:
        for portion in self._bindings:
            client.send(portion)
        client.sync()

    def clean(self, client: Client) -> None:
        client.call(ExchangeDelete(self.exchange), ExchangeDeleteOk)
        client.call(QueueDelete(self.queue), QueueDeleteOk)


class Unbinding(Binding):
    name = "exchange-delete"
    title = "100,000 bindings deleted"

    def prepare(self, client: Client) -> None:
        super().prepare(client)
        super().run(client)

    def run(self, client: Client) -> None:
        client.call(ExchangeDelete(self.exchange), ExchangeDeleteOk)
        client.sync()


class Purging(Attack):
    """The queue is filled with messages that have an id each."""

    name = "purge"
    title = "5 M messages purged"
    sizes = (99_000, 4_998_000)  # in whole blocks

    def prepare(self, client: Client) -> None:
        client.call(QueueDeclare(self.queue), QueueDeclareOk)
        block = block_of_messages(self.rng, self.queue)
        for _ in range(self.count() // BLOCK_MESSAGES):
            client.send(block)
        client.sync()

    def run(self, client: Client) -> None:
        client.call(QueuePurge(self.queue), QueuePurgeOk)
        client.sync()

    def clean(self, client: Client) -> None:
        client.call(QueueDelete(self.queue), QueueDeleteOk)


class Deleting(Purging):
    name = "delete"
    title = "5 M messages deleted"

    def run(self, client: Client) -> None:
        client.call(QueueDelete(self.queue), QueueDeleteOk)
        client.sync()


ATTACKS: tuple[type[Attack], ...] = (
    Attack,
    Publishing,
    TopicKeys,
    CarbonCopies,
    RegexKeys,
    Declaring,
    Binding,
    Unbinding,
    Purging,
    Deleting,
)
BY_NAME = {attack.name: attack for attack in ATTACKS}


def block_of_messages(rng: Random, queue: str) -> bytes:
    """Messages of different sizes, with an id each."""
    return b"".join(
        published("", queue, bytes(i % 50), Properties(message_id=f"{rng.getrandbits(64):x}"))
        for i in range(BLOCK_MESSAGES)
    )


def portions(names: Iterator[str]) -> Iterator[list[str]]:
    """As many as are sent at a time."""
    while portion := [name for _, name in zip(range(METHODS_PER_SEND), names, strict=False)]:
        yield portion
