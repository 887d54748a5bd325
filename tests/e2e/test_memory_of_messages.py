"""What a queue remembers of messages, over a restart, as a client sees it."""

from pathlib import Path

import pika

from .durable_broker import durable_broker


def persistent(message_id: str) -> pika.BasicProperties:
    return pika.BasicProperties(message_id=message_id, delivery_mode=2)


def test_a_duplicate_of_what_was_consumed_before_a_restart_is_dropped(tmp_path: Path) -> None:
    with durable_broker(tmp_path) as channel:
        arguments = {"x-message-deduplication": True}
        channel.queue_declare("orders", durable=True, arguments=arguments)
        channel.basic_publish("", "orders", b"one", persistent("1"))
        assert channel.basic_get("orders", auto_ack=True)[2] == b"one"
    with durable_broker(tmp_path) as channel:
        channel.basic_publish("", "orders", b"one again", persistent("1"))
        channel.basic_publish("", "orders", b"two", persistent("2"))
        assert channel.basic_get("orders", auto_ack=True)[2] == b"two"
        assert channel.basic_get("orders", auto_ack=True)[0] is None


def test_a_restart_is_one_more_return(tmp_path: Path) -> None:
    with durable_broker(tmp_path) as channel:
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": 2}
        channel.queue_declare("orders", durable=True, arguments=arguments)
        channel.basic_publish("", "orders", b"one", persistent("1"))
        channel.basic_nack(channel.basic_get("orders")[0].delivery_tag)
        channel.basic_get("orders")
    with durable_broker(tmp_path) as channel:
        method, properties, _ = channel.basic_get("orders")
        assert method.redelivered
        assert properties.headers == {"x-delivery-count": 2}
        channel.basic_nack(method.delivery_tag)
        assert channel.basic_get("orders")[0] is None
