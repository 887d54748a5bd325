"""Delayed exchanges for tests: declaring, publishing, and reading the released messages."""

from typing import Any

from recado.amqp.frames import extract_body, extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import FieldTable
from recado.broker.broker import Broker
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue

from .stage import new_queue, open_channel, published


def delayed(
    broker: Broker, name: str = "later", kind: str = "direct", **more: Any
) -> Exchange[Queue]:
    arguments: FieldTable = {"x-delayed-type": kind}
    return broker.vhosts["/"].declare_exchange(
        name, "x-delayed-message", arguments=arguments, **more
    )


def held(exchange: Exchange[Queue]) -> int:
    assert exchange.delayed_queue is not None
    return exchange.delayed_queue.ready


def bound(broker: Broker, name: str = "q", exchange: str = "later", key: str = "key") -> Queue:
    queue = new_queue(broker, name, durable=True)
    broker.vhosts["/"].bind_queue(name, exchange, key)
    return queue


def publish(
    broker: Broker, body: bytes, delay: Any = None, now: int = 0, key: str = "key", **more: Any
) -> None:
    headers: FieldTable = more.pop("headers", {}) | ({} if delay is None else {"x-delay": delay})
    event = published(key, body, exchange="later", properties=Properties(headers=headers, **more))
    open_channel(broker).publisher.publish(event, now)


def bodies(queue: Queue, now: int = 0) -> list[bytes]:
    return [body for body, _ in messages(queue, now)]


def messages(queue: Queue, now: int = 0) -> list[tuple[bytes, FieldTable]]:
    found = []
    while (run := queue.get(now)) is not None:
        content = run.contents()[0]
        found.append(
            (extract_body(content), decode_properties(extract_properties(content)).headers or {})
        )
        queue.settle(run)
    return found
