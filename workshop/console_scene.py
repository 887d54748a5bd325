"""A broker that has something of everything that the web console shows, for its tests and screenshots."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pika

import recado

MARKUP: Final = "<img src=x onerror=\"document.title='executed'\">"
"""Executed by a page that mistakes text for HTML."""
LONG_NAME: Final = "a-very-long-name-of-a-queue-" + "segment." * 22 + "end"
RTL_NAME: Final = "طلبات.جديدة"
SECRET: Final = "a long one"
MASKED_FIELDS: Final = ("json.card.number", "headers.authorization")
CARD_NUMBER: Final = "4111 1111 1111 1111"
BASIC: Final = f"Basic {base64.b64encode(b'guest:guest').decode()}"
_EVERYTHING: Final = {"configure": ".*", "write": ".*", "read": ".*"}
BINDING_COUNT: Final = 1_000
_BATCH_PERIOD_S: Final = 0.1

DEFINITIONS: Final[dict[str, Any]] = {
    "vhosts": [
        {"name": "/"},
        {"name": "shop", "description": "orders and payments of the shop"},
    ],
    "users": [
        {"name": "guest", "password": "guest", "tags": "administrator"},
        {"name": "mara", "password": SECRET, "tags": "monitoring"},
        {"name": "app", "password": SECRET, "tags": ""},
    ],
    "permissions": [
        {"vhost": "/", "user": "guest", **_EVERYTHING},
        {"vhost": "shop", "user": "guest", **_EVERYTHING},
        {"vhost": "/", "user": "mara", **_EVERYTHING},
        {"vhost": "shop", "user": "app", "configure": "", "write": "^orders", "read": "^orders"},
    ],
    "topic_permissions": [
        {
            "vhost": "shop",
            "user": "app",
            "exchange": "orders",
            "write": "^order\\.",
            "read": ".*",
        }
    ],
    "policies": [
        {
            "vhost": "/",
            "name": "short",
            "pattern": "^orders\\.",
            "apply-to": "queues",
            "definition": {"max-length": 1_000_000, "dead-letter-exchange": "dead"},
            "priority": 1,
        }
    ],
    "exchanges": [
        {
            "vhost": "/",
            "name": name,
            "type": kind,
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": arguments,
        }
        for name, kind, arguments in (
            ("orders", "topic", {"alternate-exchange": "unrouted"}),
            ("dead", "fanout", {}),
            ("unrouted", "fanout", {}),
            ("by-kind", "headers", {}),
        )
    ],
    "queues": [
        {
            "vhost": vhost,
            "name": name,
            "durable": True,
            "auto_delete": False,
            "arguments": arguments,
        }
        for vhost, name, arguments in (
            ("/", "orders.new", {}),
            ("/", "orders.paid", {"x-max-priority": 5}),
            ("/", "orders.audit", {"x-queue-type": "stream"}),
            ("/", "invoices", {"x-queue-type": "quorum"}),
            ("/", "dead.letters", {}),
            ("/", "unrouted", {}),
            ("/", "payments", {}),
            ("/", MARKUP, {}),
            ("/", LONG_NAME, {}),
            ("/", RTL_NAME, {}),
            ("shop", "carts", {}),
        )
    ],
    "bindings": [
        {
            "vhost": "/",
            "source": source,
            "destination": destination,
            "destination_type": "queue",
            "routing_key": key,
            "arguments": arguments,
        }
        for source, destination, key, arguments in (
            ("orders", "orders.new", "order.*.new", {}),
            ("orders", "orders.paid", "order.*.paid", {}),
            ("orders", "orders.audit", "order.#", {}),
            ("orders", "invoices", "order.*.paid", {}),
            ("orders", MARKUP, MARKUP, {}),
            ("dead", "dead.letters", "", {}),
            ("unrouted", "unrouted", "", {}),
            ("by-kind", "invoices", "", {"x-match": "all", "kind": "invoice"}),
        )
    ],
}


@contextmanager
def running(data: Path | None = None, **management: Any) -> Iterator[recado.Broker]:
    """Run a broker with the definitions and messages."""
    shown = {"status": True, "masked_fields": list(MASKED_FIELDS)}
    config: dict[str, Any] = {"management": {"port": 0, **shown, **management}}
    if data is not None:
        config["node"] = {"data": str(data)}
        config["feeds"] = {"archives": {"archive-1": {"feed": "prices"}}}
    with recado.Broker(config=config) as broker:
        broker.import_definitions(DEFINITIONS)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            publish_samples(connection.channel())
            _publish_status(connection.channel())
        if data is not None:
            _publish_on_feed(broker.url)
        _make_audited_changes(broker)
        yield broker


def _make_audited_changes(broker: recado.Broker) -> None:
    """Change something over HTTP, so that the audit log has lines."""
    changes: list[tuple[str, str, Any]] = [
        ("PUT", "queues/shop/returns", {"durable": True}),
        ("PUT", "user-limits/app/max-connections", {"value": 50}),
        (
            "PUT",
            "policies/shop/expire",
            {"pattern": "^carts", "definition": {"message-ttl": 60_000}},
        ),
        ("POST", "queues/%2F/payments/reveal", {"offset": 1}),
        ("PUT", f"queues/%2F/{quote(MARKUP, safe='')}", {"durable": True}),
    ]
    for method, path, body in changes:
        request = urllib.request.Request(
            f"http://127.0.0.1:{broker.management_port}/api/{path}",
            method=method,
            data=json.dumps(body).encode(),
            headers={"authorization": BASIC, "content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()


def _publish_on_feed(url: str) -> None:
    command = [sys.executable, "-m", "recado", "feed", "publish", "prices", "--url", url]
    lines = "".join(f"price {number}\n" for number in range(200))
    subprocess.run(command, input=lines, text=True, check=True, capture_output=True)


def _publish_status(channel: Any) -> None:
    """Publish the records of an actor system and of a pipeline, once."""
    now = int(time.time() * 1_000)
    common: dict[str, Any] = {
        "at": now,
        "started_at": now - 3_600_000,
        "interval": 3_600.0,
        "state": "running",
    }
    actors: list[dict[str, Any]] = [
        {"name": "orders", "type": "OrderBook", "supervisor": None, "depth": 0, "waiting": 12},
        {"name": "pricing", "type": "Pricer", "supervisor": 1, "depth": 1, "waiting": 0},
        {"name": MARKUP, "type": "Worker", "supervisor": 1, "depth": 1, "waiting": 3},
        {"name": "", "type": "Worker", "supervisor": 2, "depth": 2, "waiting": 0},
    ]
    failure = {
        "at": now,
        "actor": "pricing",
        "outcome": "restarted",
        "error": f"ValueError: {MARKUP}",
    }
    counts = {"actor_count": 4, "waiting": 15, "restarts": 1, "handled": 91_234, "dead_letters": 2}
    system = {
        **common,
        **counts,
        "kind": "actors",
        "name": "exchange",
        "peers": [{"node": "risk", "unreachable": False}, {"node": "audit", "unreachable": True}],
        "failures": [failure],
        "actors": [
            {**each, "uid": number, "state": "started", "restarts": number % 2, "handled": 10}
            for number, each in enumerate(actors, 1)
        ],
    }
    pipeline = {
        **common,
        "kind": "pipeline",
        "name": "bars",
        "run": "1f0c9a2b",
        "batch": 41,
        "batches": 42,
        "batch_seconds": 0.84,
        "rows": 1_204_331,
        "rows_per_second": 5_120.5,
        "lag": 1_730,
        "dead_letters": 3,
        "late": 12,
        "duplicates": 0,
        "sources": {"prices": {"rows": 1_204_331, "rows_per_second": 5_120.5, "lag": 1_730}},
        "sinks": {"lake": 20_412},
        "dead": {"parse": 3},
    }
    for key, record in (("actors.exchange", system), ("pipeline.bars", pipeline)):
        channel.basic_publish("recado.status", key, json.dumps(record))


def publish_samples(channel: Any) -> None:
    for number in range(40):
        body = json.dumps({"id": number, "price": 3 * number, "lines": [{"sku": "A-1", "n": 2}]})
        properties = pika.BasicProperties(
            content_type="application/json",
            delivery_mode=2,
            message_id=f"m-{number}",
            timestamp=1_790_000_000 + number,
            headers={"tenant": "acme", "attempt": number},
        )
        key = f"order.{number}.{'paid' if number % 3 else 'new'}"
        channel.basic_publish("orders", key, body, properties)
    hostile = pika.BasicProperties(headers={MARKUP: MARKUP}, content_type=MARKUP, reply_to=MARKUP)
    channel.basic_publish(
        "", MARKUP, f"{MARKUP}<script>document.title='executed'</script>", hostile
    )
    channel.basic_publish("", MARKUP, bytes(range(256)))
    _publish_payments(channel)
    channel.basic_publish("", LONG_NAME, "x" * 200_000)
    channel.basic_publish("", RTL_NAME, "مرحبا")
    for number in range(3):
        channel.basic_publish("", "orders.new", f"refused {number}")
    for method, _, body in iter(lambda: channel.basic_get("orders.new"), (None, None, None)):
        if body.startswith(b"refused"):
            channel.basic_reject(method.delivery_tag, requeue=False)


def _publish_payments(channel: Any) -> None:
    """Publish messages with masked fields, and one whose body is withheld because it is not valid JSON."""
    for number in range(3):
        payment = {"id": number, "card": {"number": CARD_NUMBER, "holder": "Ana"}, "amount": 12.5}
        properties = pika.BasicProperties(
            content_type="application/json",
            headers={"authorization": "Bearer x", "tenant": "acme"} if number else None,
        )
        channel.basic_publish("", "payments", json.dumps(payment), properties)
    channel.basic_publish("", "payments", f'{{"card": {{"number": "{CARD_NUMBER}"')


def publish_traced(url: str, api: str) -> None:
    """Start a trace, and publish an order that dies once, and a request with its reply."""
    document = {"vhost": "/", "selector": "message_id like 'traced-%'", "duration": 3_600}
    token = base64.b64encode(b"guest:guest").decode()
    request = urllib.request.Request(
        f"{api}/api/traces",
        method="POST",
        data=json.dumps(document).encode(),
        headers={"authorization": f"Basic {token}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:
        assert reply.status == 201
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        order = pika.BasicProperties(
            message_id="traced-1", correlation_id="order-7", headers={"tenant": "acme"}
        )
        channel.basic_publish("orders", "order.7.new", b'{"id": 7, "price": 21}', order)
        for method, properties, _ in iter(lambda: channel.basic_get("orders.new"), (None,) * 3):
            if properties.message_id == "traced-1":
                channel.basic_reject(method.delivery_tag, requeue=False)
                break
        channel.basic_publish("", "nowhere", b"lost", pika.BasicProperties(message_id="traced-2"))
        channel.queue_declare("prices.requests", auto_delete=True)
        replies: list[bytes] = []
        channel.basic_consume(
            "amq.rabbitmq.reply-to", lambda *each: replies.append(each[3]), auto_ack=True
        )
        question = pika.BasicProperties(
            message_id="traced-3", correlation_id="q-1", reply_to="amq.rabbitmq.reply-to"
        )
        channel.basic_publish("", "prices.requests", b'{"sku": "A-1"}', question)
        _serve_price(url)
        while not replies:
            connection.process_data_events(1)


def _serve_price(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for method, asked, _ in channel.consume("prices.requests"):
            answer = pika.BasicProperties(
                message_id="traced-4", correlation_id=asked.correlation_id
            )
            channel.basic_publish("", asked.reply_to, b'{"price": 21}', answer)
            channel.basic_ack(method.delivery_tag)
            break
        channel.cancel()


def bind_many(broker: recado.Broker) -> None:
    """Declare an exchange with a thousand bindings."""
    exchange = {"vhost": "/", "name": "stores", "type": "topic", "durable": True, "arguments": {}}
    bindings: list[dict[str, Any]] = [
        {
            "vhost": "/",
            "source": "stores",
            "destination": ("invoices", "orders.new", "orders.paid")[number % 3],
            "destination_type": "queue",
            "routing_key": f"store.{number:04}.#",
            "arguments": {},
        }
        for number in range(BINDING_COUNT)
    ]
    broker.import_definitions(
        {
            "exchanges": [{**exchange, "auto_delete": False, "internal": False}],
            "bindings": bindings,
        }
    )


class Load:
    """A client that publishes, and one that consumes with some deliveries unacknowledged, until `stop`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=run) for run in (self._publish_orders, self._consume_orders)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _connect(self, name: str) -> pika.BlockingConnection:
        parameters = pika.URLParameters(self._url)
        parameters.client_properties = {"connection_name": name}
        return pika.BlockingConnection(parameters)

    def _publish_orders(self) -> None:
        with self._connect("shop-frontend") as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            number = 0
            while not self._stopped.wait(_BATCH_PERIOD_S):
                for _ in range(8 + number // 10 % 7):
                    number += 1
                    kind = "new" if number % 3 else "paid"
                    channel.basic_publish("orders", f"order.{number}.{kind}", b'{"price": 7}')

    def _consume_orders(self) -> None:
        with self._connect("billing-worker") as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=40)
            pending: list[int] = []

            def keep(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
                pending.append(method.delivery_tag)
                if len(pending) > 20:
                    channel.basic_ack(pending.pop(0))

            channel.basic_consume("orders.paid", keep)
            while not self._stopped.is_set():
                connection.process_data_events(_BATCH_PERIOD_S)
