"""Queues with at-least-once dead-lettering for tests, and their target queues."""

from typing import Any

from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.amqp.values import FieldTable
from recado.broker import at_least_once
from recado.broker.arguments import QueueSettings, parse_queue_arguments
from recado.broker.broker import Broker
from recado.broker.queue import Queue

from .stage import new_queue, run_of

PERSISTENT = Properties(delivery_mode=2)


def source(broker: Broker, name: str = "source", **more: Any) -> Queue:
    """A queue with at-least-once dead-lettering to the queue `dead`."""
    chosen: dict[str, Any] = {
        "durable": True,
        "queue_type": "quorum",
        "overflow": "reject-publish",
        "dead_letter_exchange": "",
        "dead_letter_routing_key": "dead",
        "dead_letter_strategy": "at-least-once",
    }
    return new_queue(broker, name, **(chosen | more))


def parsed(name: str, arguments: FieldTable) -> QueueSettings:
    return parse_queue_arguments(
        name, "/", durable=True, exclusive=False, auto_delete=False, arguments=arguments
    )


def target(broker: Broker, name: str = "dead", **more: Any) -> Queue:
    chosen: dict[str, Any] = {"durable": True, "overflow": "reject-publish"}
    return new_queue(broker, name, **(chosen | more))


def reject(queue: Queue, *bodies: bytes, now: int = 0) -> None:
    """Publish messages, deliver and reject them."""
    queue.publish(run_of(bodies, PERSISTENT), now)
    for _ in bodies:
        run = queue.get(now)
        assert run is not None
        queue.reject([run], now)


def take(queue: Queue, now: int = 0) -> bytes:
    run = queue.get(now)
    assert run is not None
    queue.settle(run)
    return extract_body(run.contents()[0])


def take_all(queue: Queue, now: int = 0) -> list[bytes]:
    return [take(queue, now) for _ in range(queue.ready)]


def let_pass(broker: Broker, now: int, pauses: int = 1) -> int:
    """Return the time after some retry intervals, with all work of that time done."""
    for _ in range(pauses):
        now += at_least_once.RETRY_INTERVAL_MS
        broker.tick(now)
        while broker.deadline() == 0:
            broker.tick(now)
    return now
