"""The same declarations and traffic for two brokers, and what is asked of their management APIs afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

import pika
import pika.exceptions
from pika import BasicProperties, BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel

HEARTBEAT_S: Final = 600
DELIVERIES_S: Final = 60.0  # the longest wait for a message that is certain to come

# Objects that `Traffic` and `DECLARATIONS` make.
QUEUES = (
    "work",
    "dead",
    "capped",
    "expired",
    "single",
    "quorum",
    "stream",
    "empty",
    "e-shared",
    "e-temporary",
)
CONNECTIONS = ("{publisher}", "{getter}", "{consumer}", "{holder}", "{transaction}", "{idle}")
SERIES = "/api/queues/shop/work?msg_rates_age=60&msg_rates_incr=5&lengths_age=60&lengths_incr=5"
CHANNELS = tuple(
    f"{name} ({number})"
    for name, number in (
        ("{publisher}", 1),
        ("{getter}", 1),
        ("{consumer}", 1),
        ("{consumer}", 2),
        ("{consumer}", 3),
        ("{consumer}", 4),
        ("{holder}", 1),
        ("{transaction}", 1),
    )
)

WRITES: tuple[tuple[str, str, object], ...] = (
    ("PUT", "/api/vhosts/v1", {"description": "d", "tags": "a,b"}),
    ("PUT", "/api/users/u1", {"password": "p", "tags": "monitoring"}),
    ("PUT", "/api/users/u2", {"tags": ""}),
    ("PUT", "/api/users/u3", {"password_hash": "xx", "tags": ""}),
    ("PUT", "/api/users/u4", {}),
    ("PUT", "/api/permissions/%2F/u1", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/api/permissions/%2F/u1", {"configure": ".*"}),
    ("PUT", "/api/permissions/%2F/u1", {"configure": "[", "write": ".*", "read": ".*"}),
    ("PUT", "/api/permissions/%2F/nobody", {"configure": "", "write": "", "read": ""}),
    ("PUT", "/api/topic-permissions/%2F/u1", {"exchange": "amq.topic", "write": "^a", "read": ""}),
    ("PUT", "/api/queues/%2F/my%2Fq%20x", {"durable": True, "arguments": {"x-max-length": 10}}),
    ("PUT", "/api/queues/%2F/my%2Fq%20x", {"durable": True, "arguments": {"x-max-length": 11}}),
    ("PUT", "/api/queues/%2F/quo", {"durable": True, "arguments": {"x-queue-type": "quorum"}}),
    ("PUT", "/api/queues/%2F/str", {"durable": True, "arguments": {"x-queue-type": "stream"}}),
    ("PUT", "/api/queues/%2F/strings", {"durable": "true", "auto_delete": "false"}),
    ("PUT", "/api/queues/%2F/bad", {"durable": "x"}),
    ("PUT", "/api/queues/%2F/bad", "not an object"),
    ("PUT", "/api/queues/%2F/bad", b"{"),
    ("PUT", "/api/queues/no-vhost/q", {}),
    ("PUT", "/api/exchanges/%2F/ex", {"type": "topic", "durable": True}),
    ("PUT", "/api/exchanges/%2F/bad", {"type": "nope"}),
    ("PUT", "/api/exchanges/%2F/plain", {}),
    ("PUT", "/api/exchanges/%2F/amq.bad", {"type": "direct"}),
    ("DELETE", "/api/exchanges/%2F/amq.direct", None),
    ("DELETE", "/api/exchanges/%2F/nope", None),
    ("DELETE", "/api/queues/%2F/nope", None),
    ("DELETE", "/api/vhosts/nope", None),
    ("DELETE", "/api/users/nope", None),
    ("POST", "/api/bindings/%2F/e/ex/q/my%2Fq%20x", {"routing_key": "a.b", "arguments": {"k": 1}}),
    ("POST", "/api/bindings/%2F/e/ex/q/quo", {"routing_key": "c d/e"}),
    ("POST", "/api/bindings/%2F/e/ex/e/amq.fanout", {"routing_key": ""}),
    ("POST", "/api/bindings/%2F/e/nope/q/quo", {"routing_key": "c"}),
    (
        "PUT",
        "/api/policies/%2F/p1",
        {"pattern": "^my", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"},
    ),
    ("PUT", "/api/policies/%2F/bad", {"pattern": "^my", "definition": {"nope": 5}}),
    ("PUT", "/api/policies/%2F/bad", {"pattern": "[", "definition": {"max-length": 5}}),
    (
        "PUT",
        "/api/operator-policies/%2F/o1",
        {"pattern": "^my", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues"},
    ),
    ("PUT", "/api/global-parameters/gp", {"name": "gp", "value": {"a": 1}}),
    ("PUT", "/api/parameters/nope/%2F/x", {"value": 1}),
    ("PUT", "/api/parameters/vhost-limits/%2F/limits", {"value": {"max-queues": 50}}),
    ("PUT", "/api/parameters/vhost-limits/%2F/limits", {"value": {"nope": 50}}),
    ("PUT", "/api/parameters/vhost-limits/%2F/limits", {"value": {"max-queues": "x"}}),
    ("PUT", "/api/parameters/vhost-limits/%2F/limits", {"value": 7}),
    ("DELETE", "/api/parameters/vhost-limits/%2F/limits", None),
    ("PUT", "/api/vhost-limits/%2F/max-queues", {"value": 1000}),
    ("PUT", "/api/vhost-limits/%2F/nope", {"value": 1}),
    ("PUT", "/api/vhost-limits/%2F/max-queues", {"value": "x"}),
    ("PUT", "/api/user-limits/u1/max-channels", {"value": 10}),
    ("PUT", "/api/cluster-name", {"name": "rabbit@x"}),
    (
        "POST",
        "/api/exchanges/%2F/ex/publish",
        {
            "properties": {"delivery_mode": 2, "headers": {"h": 1}},
            "routing_key": "a.b",
            "payload": "hello",
            "payload_encoding": "string",
        },
    ),
    ("POST", "/api/exchanges/%2F/ex/publish", {"properties": {}, "routing_key": "zz"}),
    (
        "POST",
        "/api/exchanges/%2F/nope/publish",
        {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "string"},
    ),
    (
        "POST",
        "/api/queues/%2F/my%2Fq%20x/get",
        {"count": 2, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 3},
    ),
    ("POST", "/api/queues/%2F/my%2Fq%20x/get", {"count": 2}),
    ("POST", "/api/queues/%2F/nope/get", {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}),
    ("POST", "/api/queues/%2F/quo/actions", {"action": "sync"}),
    ("POST", "/api/queues", {}),
    ("GET", "/api/aliveness-test/%2F", None),  # creates a queue
)  # fmt: skip

READS = [
    "/api/overview",
    "/api/cluster-name",
    "/api/nodes",
    "/api/healthchecks/node",
    "/api/healthchecks/node/none",
    "/api/auth/attempts/none",
    "/api/nodes/none/memory/relative",
    "/api/connections",
    "/api/vhosts/%2F/connections",
    "/api/channels",
    "/api/vhosts/%2F/channels",
    "/api/consumers",
    "/api/consumers/%2F",
    "/api/exchanges",
    "/api/exchanges/%2F",
    "/api/exchanges/%2F/ex",
    "/api/exchanges/%2F/ex/bindings/source",
    "/api/exchanges/%2F/ex/bindings/destination",
    "/api/queues",
    "/api/queues/%2F",
    "/api/queues/%2F/my%2Fq%20x",
    "/api/queues/%2F/str",
    "/api/queues/%2F/quo/bindings",
    "/api/bindings",
    "/api/bindings/%2F",
    "/api/bindings/%2F/e/ex/q/my%2Fq%20x",
    "/api/bindings/%2F/e/ex/q/quo",
    "/api/bindings/%2F/e/ex/q/quo/c%20d%252Fe",
    "/api/bindings/%2F/e/ex/e/amq.fanout",
    "/api/vhosts",
    "/api/vhosts/%2F",
    "/api/vhosts/v1",
    "/api/vhosts/%2F/permissions",
    "/api/vhosts/%2F/topic-permissions",
    "/api/users",
    "/api/users/without-permissions",
    "/api/users/u1",
    "/api/users/u1/permissions",
    "/api/users/u1/topic-permissions",
    "/api/user-limits",
    "/api/user-limits/u1",
    "/api/whoami",
    "/api/permissions",
    "/api/permissions/%2F/u1",
    "/api/topic-permissions",
    "/api/topic-permissions/%2F/u1",
    "/api/parameters",
    "/api/parameters/federation-upstream",
    "/api/global-parameters/gp",
    "/api/policies",
    "/api/policies/%2F",
    "/api/policies/%2F/p1",
    "/api/operator-policies",
    "/api/operator-policies/%2F",
    "/api/vhost-limits",
    "/api/vhost-limits/%2F",
    "/api/health/checks/alarms",
    "/api/health/checks/local-alarms",
    "/api/health/checks/certificate-expiration/1/months",
    "/api/health/checks/protocol-listener/amqp",
    "/api/health/checks/virtual-hosts",
    "/api/health/checks/node-is-quorum-critical",
    "/api/health/checks/node-is-mirror-sync-critical",
    "/api/rebalance/queues",
    "/api/federation-links",
    "/api/shovels",
    "/api/queues/novhost",
    "/api/queues/%2F/nope",
    "/api/nonsense",
    "/api/queues?page=1&page_size=2",
    "/api/queues?page=1&page_size=2&name=q&use_regex=false",
    "/api/queues?page=99&page_size=2",
    "/api/queues?page=0",
    "/api/queues?page=1&page_size=501",
    "/api/queues?page=1&name=%5B&use_regex=true",
    "/api/queues?sort=name&sort_reverse=true&columns=name",
    "/api/queues?sort=nope",
    "/api/queues?page=1&page_size=2&pagination=false",
    "/api/consumers?page=1",
    "/api/bindings?page=1&page_size=1",
    # after `DECLARATIONS` and `Traffic`
    "/api/exchanges/shop",
    "/api/exchanges/shop/orders",
    "/api/exchanges/shop/dead",
    "/api/exchanges/shop/inner",
    "/api/exchanges/shop/amq.default",
    "/api/exchanges/shop/amq.default/bindings/source",
    "/api/exchanges/shop/orders/bindings/source",
    "/api/exchanges/shop/inner/bindings/destination",
    "/api/queues/shop",
    *(f"/api/queues/shop/{name}" for name in QUEUES),
    "/api/queues/shop/work/bindings",
    SERIES,
    "/api/queues/shop?sort=messages&sort_reverse=true&columns=name,messages,arguments.x-max-length",
    "/api/queues/shop?sort=message_stats.ack&columns=name,message_stats.publish",
    "/api/queues/shop?page=2&page_size=3&sort=name",
    "/api/queues/shop?page=1&name=%5Ee&use_regex=true&sort=name",
    "/api/queues/shop?page=1&name=MPT",
    "/api/channels?sort=name&page=1&page_size=100",  # all: names contain ports, so pages would differ
    "/api/connections?columns=name,user_provided_name,client_properties.product",
    "/api/bindings/shop",
    "/api/bindings/shop/e/orders/q/work",
    "/api/bindings/shop/e/orders/e/inner",
    "/api/bindings/shop/e/inner/q/capped",
    "/api/vhosts/shop",
    "/api/vhosts/shop/permissions",
    "/api/vhosts/shop/topic-permissions",
    "/api/vhosts/shop/connections",
    "/api/vhosts/shop/channels",
    "/api/consumers/shop",
    "/api/users/eva",
    "/api/users/eva/permissions",
    "/api/permissions/shop/eva",
    "/api/topic-permissions/shop/eva",
    "/api/user-limits/eva",
    "/api/vhost-limits/shop",
    "/api/global-parameters",
    "/api/global-parameters/own",
    "/api/policies/shop",
    "/api/policies/shop/long",
    "/api/operator-policies/shop",
    "/api/operator-policies/shop/short",
    "/api/parameters/vhost-limits",
    "/api/parameters/vhost-limits/shop",
    "/api/parameters/vhost-limits/shop/limits",
    "/api/connections/username/eva",
    *(f"/api/connections/{name}" for name in CONNECTIONS),
    *(f"/api/connections/{name}/channels" for name in CONNECTIONS),
    *(f"/api/channels/{name}" for name in CHANNELS),
    "/api/definitions",
    "/api/definitions/shop",
    "/api/connections/none",
    "/api/channels/none",
    "/api/health/checks/port-listener/1",
    "/api/health/checks/protocol-listener/none",
]

# A monitor in one vhost, a policymaker in another, a user of the API without vhosts; and their passwords.
OTHER_USERS = {"u1": "p", "eva": "e", "out": "o"}

DECLARATIONS: tuple[tuple[str, str, object], ...] = (
    ("PUT", "/api/vhosts/shop", {"description": "orders", "tags": "a,b"}),
    ("PUT", "/api/users/eva", {"password": "e", "tags": "management,policymaker"}),
    ("PUT", "/api/users/out", {"password": "o", "tags": "management"}),
    ("PUT", "/api/permissions/shop/eva", {"configure": "^(e|amq.gen)", "write": ".*", "read": "^e"}),
    ("PUT", "/api/permissions/shop/guest", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "/api/topic-permissions/shop/eva", {"exchange": "amq.topic", "write": "^a", "read": ""}),
    ("PUT", "/api/vhost-limits/shop/max-queues", {"value": 20}),
    ("PUT", "/api/vhost-limits/shop/max-connections", {"value": 30}),
    ("PUT", "/api/user-limits/eva/max-channels", {"value": 10}),
    ("PUT", "/api/global-parameters/own", {"name": "own", "value": {"list": [1, "a", {"b": True}]}}),
    (
        "PUT",
        "/api/policies/shop/long",
        {"pattern": "^e", "definition": {"max-length": 50, "message-ttl": 3_600_000}, "priority": 2},
    ),
    (
        "PUT",
        "/api/policies/shop/alternate",
        {"pattern": "^dead$", "definition": {"alternate-exchange": "spare"}, "apply-to": "exchanges"},
    ),
    (
        "PUT",
        "/api/operator-policies/shop/short",
        {"pattern": "^ex", "definition": {"max-length": 40}, "priority": 1, "apply-to": "queues"},
    ),
    ("PUT", "/api/exchanges/shop/spare", {"type": "fanout", "durable": True}),
    ("PUT", "/api/exchanges/shop/dead", {"type": "direct", "durable": True}),
    ("PUT", "/api/exchanges/shop/inner", {"type": "headers", "internal": True}),
    (
        "PUT",
        "/api/exchanges/shop/orders",
        {"type": "topic", "durable": True, "arguments": {"alternate-exchange": "spare"}},
    ),
    (
        "PUT",
        "/api/queues/shop/work",
        {"durable": True, "arguments": {"x-dead-letter-exchange": "dead"}},
    ),
    ("PUT", "/api/queues/shop/dead", {"durable": True, "arguments": {"x-queue-mode": "lazy"}}),
    ("PUT", "/api/queues/shop/capped", {"arguments": {"x-max-length": 2, "x-max-priority": 5}}),
    (
        "PUT",
        "/api/queues/shop/expired",
        {"arguments": {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}},
    ),
    ("PUT", "/api/queues/shop/single", {"arguments": {"x-single-active-consumer": True}}),
    ("PUT", "/api/queues/shop/quorum", {"durable": True, "arguments": {"x-queue-type": "quorum"}}),
    ("PUT", "/api/queues/shop/stream", {"durable": True, "arguments": {"x-queue-type": "stream"}}),
    ("PUT", "/api/queues/shop/e-shared", {"auto_delete": True}),
    ("PUT", "/api/queues/shop/empty", {"arguments": {"odd": [1, "a", {"b": True}], "float": 1.5}}),
    ("POST", "/api/bindings/shop/e/orders/q/work", {"routing_key": "work.#"}),
    ("POST", "/api/bindings/shop/e/orders/e/inner", {"routing_key": "a"}),
    ("POST", "/api/bindings/shop/e/dead/q/dead", {"routing_key": "work.1"}),
    (
        "POST",
        "/api/bindings/shop/e/inner/q/capped",
        {"arguments": {"x-match": "any", "size": 5, "blue": True}},
    ),
)  # fmt: skip


class Traffic:
    """Open connections to one broker, which have published, consumed and settled messages."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self._url = url.removesuffix("/%2F") + "/shop"
        self._stack = stack
        self.connections: dict[str, BlockingConnection] = {}
        self.names: dict[str, str] = {}

    def connect(
        self, name: str, user: str = "guest", password: str = "guest"
    ) -> BlockingConnection:
        parameters = pika.URLParameters(self._url)
        parameters.credentials = pika.PlainCredentials(user, password)
        parameters.heartbeat = HEARTBEAT_S
        parameters.client_properties = {"connection_name": name}
        connection = BlockingConnection(parameters)
        self._stack.callback(lambda: connection.is_open and connection.close())
        self.connections[name] = connection
        return connection

    def consume(
        self, channel: BlockingChannel, queue: str, tag: str, count: int, **options: Any
    ) -> list[tuple[int, BasicProperties, bytes]]:
        """Consume, and return the messages when as many as expected are there."""
        got: list[tuple[int, BasicProperties, bytes]] = []

        def take(_: object, method: Any, properties: BasicProperties, body: bytes) -> None:
            got.append((method.delivery_tag, properties, body))

        channel.basic_consume(queue, take, consumer_tag=tag, **options)
        for _ in range(int(DELIVERIES_S)):
            if len(got) >= count:
                return got
            channel.connection.process_data_events(time_limit=1.0)
        raise AssertionError(f"{tag} got {len(got)} of {count} messages")

    def run(self) -> None:
        self._publish()
        self._settle()
        self._consume()
        self._leave_open()

    def _publish(self) -> None:
        """Publish to every kind of queue, and messages that nobody gets."""
        channel = self.connect("publisher").channel()
        channel.confirm_delivery()
        self.publisher = channel
        durable = BasicProperties(delivery_mode=2, headers={"h": [1, {"a": None}]}, message_id="m")
        for number in range(12):
            channel.basic_publish("orders", f"work.{number}", b"x" * 100, durable)
        for number in range(3):
            channel.basic_publish(
                "orders", "a", b"y", BasicProperties(headers={"blue": True}, priority=number)
            )
        for _ in range(2):
            channel.basic_publish("", "expired", b"z")
        for _ in range(4):
            channel.basic_publish("", "quorum", b"q")
            channel.basic_publish("", "stream", b"s")
            channel.basic_publish("", "single", b"1", BasicProperties(timestamp=1_700_000_000))
        channel.basic_publish("orders", "nowhere", b"n")  # the alternate exchange has no queues
        with suppress(pika.exceptions.UnroutableError):
            channel.basic_publish("dead", "nowhere", b"n", mandatory=True)

    def _settle(self) -> None:
        """Get messages in all ways, and settle them in all ways."""
        channel = self.connect("getter").channel()
        tags = [channel.basic_get("work")[0].delivery_tag for _ in range(5)]
        channel.basic_ack(tags[0])
        channel.basic_reject(tags[1], requeue=False)
        channel.basic_nack(tags[2], requeue=False)
        channel.basic_reject(tags[3], requeue=True)
        channel.basic_nack(tags[4], requeue=True)
        channel.basic_get("work", auto_ack=True)
        channel.basic_get("empty")
        channel.basic_get("capped")  # stays unacknowledged
        channel.queue_declare("work", passive=True)

    def _consume(self) -> None:
        connection = self.connect("consumer")
        channel = connection.channel()
        channel.basic_qos(prefetch_count=3)
        got = self.consume(channel, "work", "limited", 3, arguments={"x-priority": 4})
        channel.basic_ack(got[0][0])
        self.consume(channel, "quorum", "safe", 3)
        shared = connection.channel()
        shared.basic_qos(prefetch_count=2)
        shared.basic_qos(prefetch_count=7, global_qos=True)
        self.consume(shared, "e-shared", "shared", 0)
        other = connection.channel()
        other.basic_qos(prefetch_count=2)
        self.consume(other, "stream", "reader", 2, arguments={"x-stream-offset": "first"})
        for tag, count in (("first", 2), ("second", 0)):
            self.consume(other, "single", tag, count)
        greedy = connection.channel()
        self.consume(greedy, "dead", "greedy", 1, auto_ack=True, exclusive=True)

    def _leave_open(self) -> None:
        """Connections that hold exclusive queues, a transaction and nothing at all."""
        connection = self.connect("holder", "eva", "e")
        channel = connection.channel()
        name = channel.queue_declare("", exclusive=True).method.queue
        self.names[name] = "amq.gen-1"
        channel.queue_declare("e-temporary", auto_delete=True)
        self.consume(channel, "e-temporary", "waiting", 0)
        transacted = self.connect("transaction").channel()
        transacted.tx_select()
        for _ in range(3):
            transacted.basic_publish("", "empty", b"t")
        self.connect("idle")


@contextmanager
def running(url: str) -> Iterator[Traffic]:
    """Run the traffic, and keep its connections open during the block."""
    with ExitStack() as stack:
        traffic = Traffic(url, stack)
        traffic.run()
        yield traffic
