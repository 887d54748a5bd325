"""The management API next to that of a real RabbitMQ: the same requests, the same statuses, keys and types.

Fields of RabbitMQ that describe Erlang, its storage or its cluster have no counterpart; `ABSENT` lists them, and
docs/management.md says why. Nothing else may differ.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest

import recado
from tests.console.http import Api, Reply
from workshop import peers

ABSENT = {
    # Erlang processes and its garbage collector
    "garbage_collection",
    "reductions",
    "reductions_details",
    "context_switches",
    "gc_num",
    "gc_bytes_reclaimed",
    "run_queue",
    "proc_used_details",
    "metrics_gc_queue_length",
    "ra_open_file_metrics",
    # the stores of RabbitMQ
    "backing_queue_status",
    "mnesia_disk_tx_count",
    "mnesia_ram_tx_count",
    "msg_store_read_count",
    "msg_store_write_count",
    "queue_index_read_count",
    "queue_index_write_count",
    "io_read_avg_time",
    "io_read_bytes",
    "io_read_count",
    "io_reopen_count",
    "io_seek_avg_time",
    "io_seek_count",
    "io_sync_avg_time",
    "io_sync_count",
    "io_write_avg_time",
    "io_write_bytes",
    "io_write_count",
    "disk_reads",
    "disk_writes",
    # not measured: where a message is held, and its bytes
    "memory",
    "message_bytes",
    "message_bytes_paged_out",
    "message_bytes_persistent",
    "message_bytes_ram",
    "message_bytes_ready",
    "message_bytes_unacknowledged",
    "messages_paged_out",
    "messages_persistent",
    "messages_ram",
    "messages_ready_ram",
    "messages_unacknowledged_ram",
    "head_message_timestamp",
    "consumer_capacity",
    "consumer_utilisation",
    "recoverable_slaves",
    "single_active_consumer_ctag",  # of quorum queues, beside single_active_consumer_tag
    "message_bytes_dlx",
    "messages_dlx",
    "open_files",
    "idle_since",  # RabbitMQ knows when an Erlang process was last busy; queues without consumers have it
    "readers",
    # rates of the node's own gauges
    "channel_closed_details",
    "channel_created_details",
    "connection_closed_details",
    "connection_created_details",
    "disk_free_details",
    "fd_used_details",
    "mem_used_details",
    "queue_created_details",
    "queue_declared_details",
    "queue_deleted_details",
    "sockets_used_details",
    # counted per queue and node, not per channel and vhost
    "confirm",
    "drop_unroutable",
    "return_unroutable",
    "message_stats",
    "recv_oct",
    "send_oct",
    "messages_details",
    "messages_ready_details",
    "messages_unacknowledged_details",
}

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
)  # fmt: skip

READS = [
    "/api/overview",
    "/api/cluster-name",
    "/api/nodes",
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
    "/api/aliveness-test/%2F",
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
    "/api/queues?page=9&page_size=2",
    "/api/queues?page=0",
    "/api/queues?page=1&page_size=501",
    "/api/queues?page=1&name=%5B&use_regex=true",
    "/api/queues?sort=name&sort_reverse=true&columns=name",
    "/api/queues?sort=nope",
    "/api/queues?page=1&page_size=2&pagination=false",
    "/api/consumers?page=1",
    "/api/bindings?page=1&page_size=1",
]

# As a user with the tag monitoring.
MONITOR_READS = [path for path in READS if "?" not in path]


class Sides:
    """Both brokers after the same writes, and the replies to them."""

    def __init__(self, ours: Api, theirs: Api) -> None:
        self.apis = (ours, theirs)
        self.writes = [
            tuple(api.request(method, path, body) for api in self.apis)
            for method, path, body in WRITES
        ]

    def read(self, path: str, user: str = "guest", password: str = "guest") -> list[Reply]:
        return [Api(api.port, user, password).request("GET", path) for api in self.apis]


def use(url: str) -> pika.BlockingConnection:
    """Publish and consume a little, so that there are connections, channels, consumers and counters."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=5)
    channel.confirm_delivery()
    channel.basic_consume("quo", lambda *_: None)
    for _ in range(20):
        channel.basic_publish("ex", "c d/e", b"x" * 10)
    return connection


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    settings = {"collect_statistics_interval": "1000"}
    with (
        peers.rabbitmq(management=True, settings=settings) as rabbit,
        recado.Broker(config={"management": {"port": 0}}) as broker,
    ):
        assert rabbit.http_port is not None
        assert broker.management_port is not None
        theirs = Api(rabbit.http_port)
        wait_until(lambda: ready(theirs))
        both = Sides(Api(broker.management_port), theirs)
        connections = [use(broker.url), use(rabbit.url)]
        wait_until(lambda: has_statistics(theirs, connections))
        yield both
        for connection in connections:
            connection.close()


def ready(api: Api) -> bool:
    try:
        return api.request("GET", "/api/overview").status == 200
    except OSError:
        return False


def has_statistics(api: Api, connections: list[pika.BlockingConnection]) -> bool:
    for connection in connections:
        connection.process_data_events(time_limit=0.2)
    channels = api.get("/api/channels")
    queue = api.get("/api/queues/%2F/quo")
    return bool(channels) and "message_stats" in channels[0] and "messages" in queue


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)  # RabbitMQ collects its statistics once a second


@pytest.mark.parametrize("number", range(len(WRITES)))
def test_writes_have_the_same_status(sides: Sides, number: int) -> None:
    ours, theirs = sides.writes[number]
    assert ours.status == theirs.status, (WRITES[number], ours, theirs)
    if theirs.status >= 400 and isinstance(theirs.body, dict):
        assert ours.body.keys() == theirs.body.keys()
        assert ours.body["error"] == theirs.body["error"]


@pytest.mark.parametrize("path", READS)
def test_reads_have_the_same_status_keys_and_types(sides: Sides, path: str) -> None:
    ours, theirs = sides.read(path)
    assert ours.status == theirs.status, (ours, theirs)
    differences = list(compare(ours.body, theirs.body, ""))
    assert not differences


@pytest.mark.parametrize("path", MONITOR_READS)
def test_a_monitor_sees_the_same(sides: Sides, path: str) -> None:
    ours, theirs = sides.read(path, "u1", "p")
    assert ours.status == theirs.status, (ours, theirs)


@pytest.mark.parametrize("path", ["/api/overview", "/api/whoami", "/api/queues"])
def test_wrong_passwords_and_missing_tags(sides: Sides, path: str) -> None:
    for user, password in (("guest", "wrong"), ("u2", ""), ("", "")):
        ours, theirs = sides.read(path, user, password)
        assert ours.status == theirs.status == 401
        assert ("www-authenticate" in ours.headers) is ("www-authenticate" in theirs.headers)


def compare(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """Find keys that only one side has and values of different types; free-form objects are not entered."""
    if path.endswith((".arguments", ".client_properties", ".cluster_state", ".socket_opts")):
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(theirs.keys() - ours.keys()):
            if key.removesuffix("_details") not in ABSENT and key not in ABSENT:
                yield f"{path}.{key} is missing"
        for key in ours.keys() & theirs.keys():
            yield from compare(ours[key], theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list):
        ours_by_name = {identify(each): each for each in ours}
        for each in theirs:
            if identify(each) in ours_by_name and isinstance(each, dict):
                yield from compare(ours_by_name[identify(each)], each, f"{path}[]")
    elif kind_of(ours) != kind_of(theirs) and None not in (ours, theirs):
        yield f"{path} is {ours!r}, not {theirs!r}"


def identify(item: Any) -> Any:
    if not isinstance(item, dict):
        return item
    keys = (
        "name",
        "source",
        "destination",
        "routing_key",
        "user",
        "vhost",
        "exchange",
        "component",
    )
    return tuple(str(item.get(key)) for key in keys if key in item and "->" not in str(item[key]))


def kind_of(value: Any) -> str:
    return "number" if type(value) in (int, float) else type(value).__name__
