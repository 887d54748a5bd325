"""kombu on py-amqp: Celery's messaging library, without Celery."""

# kombu says that it has types, but most of its functions have none.
# mypy: allow-untyped-calls

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from amqp.exceptions import AccessRefused
from kombu import pools
from kombu.common import Broadcast
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer
from kombu.mixins import ConsumerMixin
from kombu.pidbox import Mailbox
from kombu.simple import SimpleQueue

from workshop.peers import Server
from workshop.time_limit import scale

from .proxy import Proxy, proxy_to
from .traffic import PATIENCE


def kombu_connection(server: Server | Proxy, **options: object) -> Connection:
    """A connection over py-amqp with confirms: a message published on it has arrived."""
    url = server.url.replace("amqp://", "pyamqp://")
    return Connection(url, transport_options={"confirm_publish": True}, **options)


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    """One connection of its own for the test."""
    with kombu_connection(server) as connection:
        yield connection


def drain(connection: Connection, holds: Callable[[], object]) -> None:
    """Let kombu handle what arrives until the condition holds."""
    deadline = time.monotonic() + scale(PATIENCE)
    while not holds():
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s in vain"
        try:
            connection.drain_events(timeout=1)
        except TimeoutError:
            connection.heartbeat_check()


def test_producer_and_consumer(connection: Connection, name: Callable[[str], str]) -> None:
    exchange = Exchange(name("media"), "topic", durable=False, auto_delete=True)
    queue = Queue(name("video"), exchange, "video.#", durable=False, auto_delete=True)
    received: list[object] = []

    def receive(body: object, message: Any) -> None:
        received.append((body, message.headers.get("n"), message.content_type))
        message.ack()

    with Consumer(connection.channel(), queue, callbacks=[receive]):
        producer = Producer(connection.channel(), exchange, serializer="json")
        for number in range(3):
            document = {"title": "ü", "parts": [number, None, 1.5]}
            producer.publish(document, routing_key="video.new", headers={"n": number})
        producer.publish("compressed " * 100, routing_key="video.old", compression="zlib")
        drain(connection, lambda: len(received) == 4)
    assert received == [
        *(({"title": "ü", "parts": [n, None, 1.5]}, n, "application/json") for n in range(3)),
        ("compressed " * 100, None, "application/json"),
    ]


def test_publishing_with_a_retry_policy(connection: Connection, name: Callable[[str], str]) -> None:
    queue = Queue(name("confirmed"), durable=False, exclusive=True)(connection.default_channel)
    queue.declare()
    producer = Producer(connection.default_channel)
    for number in range(10):
        producer.publish(number, routing_key=queue.name, retry=True)
    assert [queue.get(no_ack=True).decode() for _ in range(10)] == list(range(10))
    assert queue.get() is None


def test_simple_queue(connection: Connection, name: Callable[[str], str]) -> None:
    options = {"durable": False, "auto_delete": True}
    queue = SimpleQueue(
        connection.channel(), name("simple"), queue_opts=options, exchange_opts=options
    )
    for number in range(5):
        queue.put({"number": number})
    assert len(queue) == 5
    first = queue.get(timeout=scale(PATIENCE))
    assert first.payload == {"number": 0}
    first.reject(requeue=True)
    numbers = []
    for _ in range(5):
        message = queue.get(timeout=scale(PATIENCE))
        numbers.append(message.payload["number"])
        message.ack()
    # The consumer behind a SimpleQueue had fetched the others before the first was rejected.
    assert numbers == [1, 2, 3, 4, 0]
    with pytest.raises(queue.Empty):
        queue.get(block=False)
    queue.close()


def test_a_broadcast_reaches_every_listener(
    connection: Connection, name: Callable[[str], str]
) -> None:
    fanout = name("broadcast")
    heard: list[tuple[str, object]] = []
    consumers = []
    for listener in ("one", "two"):

        def hear(body: object, message: Any, listener: str = listener) -> None:
            heard.append((listener, body))
            message.ack()

        consumers.append(
            Consumer(connection.channel(), Broadcast(fanout, unique=True), callbacks=[hear])
        )
        consumers[-1].consume()
    exchange = Exchange(fanout, "fanout")
    Producer(connection.channel()).publish("all hands", exchange=exchange, declare=[exchange])
    drain(connection, lambda: len(heard) == 2)
    assert sorted(heard) == [("one", "all hands"), ("two", "all hands")]
    for consumer in consumers:
        consumer.cancel()
    connection.default_channel.exchange_delete(fanout)


def test_the_mailbox_of_remote_control(
    server: Server, connection: Connection, name: Callable[[str], str]
) -> None:
    """The fan-out with replies on which Celery's remote control is built."""
    mailbox = Mailbox(name("control"), type="fanout", accept=["json"])
    handled: list[str] = []

    def ping(state: dict[str, str], **_: object) -> str:
        handled.append(state["host"])
        return f"pong from {state['host']}"

    with kombu_connection(server) as listening:
        for hostname in ("node1", "node2"):
            node = mailbox(listening).Node(hostname, state={"host": hostname})
            node.channel = listening.channel()
            node.handlers["ping"] = ping
            node.listen()
        nodes = threading.Thread(target=drain, args=(listening, lambda: len(handled) == 2))
        nodes.start()
        replies = mailbox(connection).multi_call("ping", limit=2, timeout=scale(PATIENCE))
        nodes.join()
    answers = {host: answer for reply in replies for host, answer in reply.items()}
    assert answers == {"node1": "pong from node1", "node2": "pong from node2"}


class Worker(ConsumerMixin):
    """kombu's own consumer loop, which reconnects by itself."""

    def __init__(self, connection: Connection, queue: Queue, enough: int) -> None:
        self.connection = connection
        self.queue = queue
        self.enough = enough
        self.bodies: list[object] = []
        self.cut: Callable[[], None] = lambda: None

    def get_consumers(self, consumer: type[Consumer], _channel: object) -> list[Consumer]:
        """One consumer; called again after each reconnection."""
        return [consumer(self.queue, callbacks=[self.receive], prefetch_count=1)]

    def receive(self, body: object, message: Any) -> None:
        """Acknowledge, and cut the wire after the first message."""
        message.ack()
        self.bodies.append(body)
        if len(self.bodies) == 1:
            self.cut()
        self.should_stop = len(set(self.bodies)) == self.enough


def test_the_consumer_loop_reconnects(
    server: Server, connection: Connection, name: Callable[[str], str]
) -> None:
    queue = Queue(name("mixin"), queue_arguments={"x-expires": 60_000})
    producer = Producer(connection.default_channel)
    for number in range(5):
        producer.publish(number, routing_key=queue.name, declare=[queue])
    with proxy_to(server) as proxy:
        worker = Worker(kombu_connection(proxy), queue, 5)
        worker.cut = proxy.cut
        worker.run()
        worker.connection.release()
        assert proxy.accepted >= 2
    assert set(worker.bodies) == set(range(5))
    queue(connection.default_channel).delete()


def test_heartbeats(server: Server) -> None:
    with kombu_connection(server, heartbeat=2) as connection:
        connection.connect()
        transport = connection.connection
        received = transport.bytes_recv
        deadline = time.monotonic() + scale(PATIENCE)
        while transport.bytes_recv < received + 3:
            assert time.monotonic() < deadline
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=0.5)
            connection.heartbeat_check()
        assert connection.connected


def test_pooled_producers(server: Server, name: Callable[[str], str]) -> None:
    queue = Queue(name("pooled"), durable=False, auto_delete=True)
    with kombu_connection(server) as connection:
        with connection.ChannelPool(2).acquire() as channel:
            queue(channel).declare()
            for number in range(4):
                with pools.producers[connection].acquire(block=True) as producer:
                    producer.publish(number, routing_key=queue.name)
            found: list[object] = []
            with Consumer(channel, queue, callbacks=[lambda b, _: found.append(b)], no_ack=True):
                drain(connection, lambda: len(found) == 4)
            assert found == [0, 1, 2, 3]
        pools.reset()


def test_a_wrong_password_is_refused(server: Server) -> None:
    url = server.url.replace("amqp://guest:guest", "pyamqp://guest:wrong")
    with Connection(url) as connection, pytest.raises(AccessRefused) as refused:
        connection.connect()
    assert refused.value.code == 403
