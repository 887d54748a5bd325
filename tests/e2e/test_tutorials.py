"""The shapes of RabbitMQ's seven tutorials, with pika, in our own words.

Each test has the roles of its tutorial on connections of their own, as the programs there would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pika import BasicProperties, BlockingConnection, DeliveryMode
from pika.exceptions import NackError, UnroutableError

from .traffic import Inbox, await_that, depth

Connect = Callable[..., BlockingConnection]
Name = Callable[[str], str]


@pytest.fixture
def durable_queue(connect: Connect, name: Name) -> Iterator[str]:
    """A durable queue that outlives its connections, and not the test."""
    queue = name("task_queue")
    with connect() as connection:
        connection.channel().queue_declare(queue, durable=True)
    yield queue
    with connect() as connection:
        connection.channel().queue_delete(queue)


def test_1_hello_world(connect: Connect, name: Name) -> None:
    hello = name("hello")
    with connect() as sending:
        channel = sending.channel()
        channel.queue_declare(hello)
        channel.basic_publish(exchange="", routing_key=hello, body=b"Hello World!")
    with connect() as receiving:
        channel = receiving.channel()
        channel.queue_declare(hello)
        received = []

        def callback(_channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
            received.append(body)
            channel.stop_consuming()

        channel.basic_consume(queue=hello, auto_ack=True, on_message_callback=callback)
        channel.start_consuming()
        assert received == [b"Hello World!"]
        channel.queue_delete(hello)


def test_2_work_queues(connect: Connect, durable_queue: str) -> None:
    """A worker that dies in the middle of a task loses nothing; the slow one is not overrun."""
    with connect() as sending:
        channel = sending.channel()
        channel.queue_declare(durable_queue, durable=True)
        channel.confirm_delivery()
        properties = BasicProperties(delivery_mode=DeliveryMode.Persistent)
        for number in range(10):
            channel.basic_publish("", durable_queue, b"task %d" % number, properties)
    workers = [connect().channel() for _ in range(2)]
    for worker in workers:
        worker.basic_qos(prefetch_count=1)
    slow, quick = (Inbox(worker, durable_queue) for worker in workers)
    slow.wait(1)
    done: set[bytes] = set()
    while len(done) < 9:
        delivery = quick.wait(len(done) + 1)[-1]
        done.add(delivery.body)
        workers[1].basic_ack(delivery.tag)
    assert len(slow.bodies) == 1
    workers[0].connection.close()
    (*_, redelivered) = quick.wait(10)
    assert redelivered.redelivered
    workers[1].basic_ack(redelivered.tag)
    assert done | {redelivered.body} == {b"task %d" % number for number in range(10)}
    assert depth(workers[1], durable_queue) == 0


def test_3_publish_subscribe(connect: Connect, name: Name) -> None:
    logs = name("logs")
    inboxes = []
    for _ in range(3):
        channel = connect().channel()
        channel.exchange_declare(logs, exchange_type="fanout", auto_delete=True)
        queue = channel.queue_declare(queue="", exclusive=True).method.queue
        channel.queue_bind(exchange=logs, queue=queue)
        inboxes.append(Inbox(channel, queue, auto_ack=True))
    with connect() as sending:
        sending.channel().basic_publish(exchange=logs, routing_key="", body=b"info: hello")
    for inbox in inboxes:
        inbox.wait(1)
        assert inbox.bodies == [b"info: hello"]


def test_4_routing(connect: Connect, name: Name) -> None:
    logs = name("direct_logs")
    wanted = {"file": ["error"], "screen": ["info", "warning", "error"]}
    inboxes = {}
    for receiver, severities in wanted.items():
        channel = connect().channel()
        channel.exchange_declare(logs, exchange_type="direct", auto_delete=True)
        queue = channel.queue_declare("", exclusive=True).method.queue
        for severity in severities:
            channel.queue_bind(queue, logs, routing_key=severity)
        inboxes[receiver] = Inbox(channel, queue, auto_ack=True)
    with connect() as sending:
        for severity in ("info", "debug", "error", "warning"):
            sending.channel().basic_publish(logs, severity, severity.encode())
    inboxes["screen"].wait(3)
    inboxes["file"].wait(1)
    assert sorted(inboxes["screen"].bodies) == [b"error", b"info", b"warning"]
    assert inboxes["file"].bodies == [b"error"]


def test_5_topics(connect: Connect, name: Name) -> None:
    logs = name("topic_logs")
    patterns = {"all": ["#"], "kernel": ["kern.*"], "critical": ["*.critical"], "both": ["kern.*"]}
    patterns["both"].append("*.critical")
    inboxes = {}
    for receiver, keys in patterns.items():
        channel = connect().channel()
        channel.exchange_declare(logs, exchange_type="topic", auto_delete=True)
        queue = channel.queue_declare("", exclusive=True).method.queue
        for key in keys:
            channel.queue_bind(queue, logs, key)
        inboxes[receiver] = Inbox(channel, queue, auto_ack=True)
    with connect() as sending:
        channel = sending.channel()
        for key in ("kern.critical", "kern.info", "cron.critical", "cron.info"):
            channel.basic_publish(logs, key, key.encode())
    expected = {
        "all": [b"kern.critical", b"kern.info", b"cron.critical", b"cron.info"],
        "kernel": [b"kern.critical", b"kern.info"],
        "critical": [b"kern.critical", b"cron.critical"],
        "both": [b"kern.critical", b"kern.info", b"cron.critical"],
    }
    for receiver, bodies in expected.items():
        inboxes[receiver].wait(len(bodies))
        assert inboxes[receiver].bodies == bodies


def fibonacci(number: int) -> int:
    """The function of the tutorial, only faster."""
    first, second = 0, 1
    for _ in range(number):
        first, second = second, first + second
    return first


def test_6_rpc(connect: Connect, name: Name) -> None:
    requests = name("rpc_queue")
    serving = connect().channel()
    serving.queue_declare(requests, exclusive=True)
    serving.basic_qos(prefetch_count=1)

    def serve(_channel: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        answer = BasicProperties(correlation_id=properties.correlation_id)
        result = str(fibonacci(int(body))).encode()
        serving.basic_publish("", properties.reply_to, result, answer)
        serving.basic_ack(method.delivery_tag)

    serving.basic_consume(requests, serve)
    asking = connect().channel()
    replies = asking.queue_declare("", exclusive=True).method.queue
    inbox = Inbox(asking, replies, auto_ack=True)
    for number in range(10):
        properties = BasicProperties(reply_to=replies, correlation_id=str(number))
        asking.basic_publish("", requests, str(number).encode(), properties)

    def answered() -> bool:
        asking.connection.process_data_events()
        return len(inbox.deliveries) == 10

    await_that(serving.connection, answered)
    answers = {int(each.properties.correlation_id): int(each.body) for each in inbox.deliveries}
    assert answers == {number: fibonacci(number) for number in range(10)}


def test_7_publisher_confirms(connect: Connect, durable_queue: str, name: Name) -> None:
    """One by one, with the answer that nobody could take it, and with a refusal."""
    channel = connect().channel()
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish("", durable_queue, b"%d" % number, mandatory=True)
    assert depth(channel, durable_queue) == 20
    with pytest.raises(UnroutableError):
        channel.basic_publish("", name("nowhere"), b"lost", mandatory=True)
    full = name("full")
    limit = {"x-max-length": 0, "x-overflow": "reject-publish"}
    channel.queue_declare(full, exclusive=True, arguments=limit)
    with pytest.raises(NackError):
        channel.basic_publish("", full, b"refused")
