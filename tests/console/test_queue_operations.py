"""Operations on queues over HTTP that RabbitMQ does not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import recado

from .http import Api

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@contextmanager
def connected(broker: recado.Broker) -> Iterator[BlockingChannel]:
    """A channel with confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    with connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def channel(broker: recado.Broker) -> Iterator[BlockingChannel]:
    with connected(broker) as opened:
        yield opened


def api_of(broker: recado.Broker) -> Api:
    assert broker.management_port is not None
    return Api(broker.management_port)


def drain(channel: BlockingChannel, queue: str) -> list[tuple[bytes, bool]]:
    """Return all messages, each with its redelivered flag."""
    found: list[tuple[bytes, bool]] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None or body is None:
            return found
        found.append((body, method.redelivered))


# ── peek ────────────────────────────────────────────────────────────────────────────────────────────


def payloads(api: Api, queue: str, **body: Any) -> list[str]:
    reply = api.post(f"/api/queues/%2F/{queue}/peek", body)
    assert reply.status == 200, reply
    return [message["payload"] for message in reply.body]


def test_peek_changes_nothing(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    headers = {"n": 1, "nested": {"x": [True, None]}}
    for body in (b"one", b"\xff\x00", b"three"):
        properties = pika.BasicProperties(headers=headers, message_id="m", priority=3)
        channel.basic_publish("", "q", body, properties)
    for _ in range(3):
        reply = api.post("/api/queues/%2F/q/peek", {"count": 2})
        assert reply.status == 200
        assert reply.body == [
            {
                "offset": 0,
                "payload_bytes": 3,
                "redelivered": False,
                "exchange": "",
                "routing_key": "q",
                "properties": {"headers": headers, "message_id": "m", "priority": 3},
                "payload": "one",
                "payload_encoding": "string",
            },
            {**reply.body[1], "offset": 1, "payload": "/wA=", "payload_encoding": "base64"},
        ]
    assert payloads(api, "q", encoding="base64", count=1) == ["b25l"]
    assert drain(channel, "q") == [(b"one", False), (b"\xff\x00", False), (b"three", False)]


def test_peek_sees_what_the_next_get_would_return(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q", arguments={"x-max-priority": 5})
    for priority in (1, 4, 2):
        properties = pika.BasicProperties(priority=priority)
        channel.basic_publish("", "q", b"%d" % priority, properties)
    assert payloads(api, "q") == ["4", "2", "1"]
    method, _, _ = channel.basic_get("q")
    assert payloads(api, "q") == ["2", "1"]
    channel.basic_nack(method.delivery_tag)
    assert payloads(api, "q", skip=1, count=1) == ["2"]
    (first, *_) = api.post("/api/queues/%2F/q/peek", {}).body
    assert (first["payload"], first["redelivered"]) == ("4", True)
    get = {"count": 3, "encoding": "auto", "ackmode": "ack_requeue_false"}
    got = api.post("/api/queues/%2F/q/get", get).body
    assert [(each["payload"], each["redelivered"]) for each in got] == [
        ("4", True),
        ("2", False),
        ("1", False),
    ]


def test_peek_with_a_selector(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    for i in range(20):
        channel.basic_publish("", "q", b'{"price": %d}' % i)
    assert payloads(api, "q", selector="json.price > 17") == ['{"price": 18}', '{"price": 19}']
    assert payloads(api, "q", selector="offset = 4", truncate=3) == ['{"p']
    reply = api.post("/api/queues/%2F/q/peek", {"selector": "priority >"})
    assert reply.status == 400
    assert reply.body["reason"] == "selector: line 1, column 11: expected a value, found the end"


def test_peek_at_a_stream(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    for i in range(5):
        channel.basic_publish("", "s", b"%d" % i)
    assert payloads(api, "s") == ["0", "1", "2", "3", "4"]
    assert payloads(api, "s", offset=3) == ["3", "4"]
    assert payloads(api, "s", offset="last") == ["4"]
    assert payloads(api, "s", offset="1h", skip=1, count=2) == ["1", "2"]
    assert payloads(api, "s", offset="next") == []
    assert payloads(api, "s", selector="offset > 2") == ["3", "4"]
    for wrong in ("soon", -1, True, 1.5):
        reply = api.post("/api/queues/%2F/s/peek", {"offset": wrong})
        assert (reply.status, "offset" in reply.body["reason"]) == (400, True), reply
    channel.queue_declare("q")
    reply = api.post("/api/queues/%2F/q/peek", {"offset": 3})
    assert (reply.status, "only a stream" in reply.body["reason"]) == (400, True)


def test_peek_at_messages_on_disk(tmp_path: Path) -> None:
    """After a restart all messages are paged out, and stay so."""
    config: dict[str, Any] = {"management": {"port": 0}}
    sent = [b"%06d" % i for i in range(3_000)]
    with recado.Broker(data=tmp_path, config=config) as broker, connected(broker) as channel:
        channel.queue_declare("q", durable=True)
        unconfirmed = channel.connection.channel()
        for body in sent:
            unconfirmed.basic_publish("", "q", body, PERSISTENT)
        unconfirmed.close()
    with recado.Broker(data=tmp_path, config=config) as broker, connected(broker) as channel:
        api = api_of(broker)
        assert payloads(api, "q", count=3, skip=2_500) == ["002500", "002501", "002502"]
        assert payloads(api, "q", selector="body LIKE '%999'") == ["000999", "001999", "002999"]
        assert drain(channel, "q") == [(body, False) for body in sent]


def test_peek_needs_an_accessible_queue(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("mine", exclusive=True)
    assert api.post("/api/queues/%2F/none/peek", {}).status == 404
    assert api.post("/api/queues/none/none/peek", {}).status == 404
    reply = api.post("/api/queues/%2F/mine/peek", {})
    assert (reply.status, "exclusive" in reply.body["reason"]) == (400, True)


@pytest.mark.parametrize("name", ["count", "skip", "selector", "encoding", "truncate"])
def test_wrong_fields_are_named(channel: BlockingChannel, api: Api, name: str) -> None:
    channel.queue_declare("q")
    wrong: tuple[object, ...] = ({}, [1], True, None)
    for value in wrong:
        reply = api.post("/api/queues/%2F/q/peek", {name: value})
        assert (reply.status, name in reply.body["reason"]) == (400, True), reply
