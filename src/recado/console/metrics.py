"""Prometheus metrics: those of RabbitMQ's plugin, with its names, and recado's own (`recado_…`).

    /metrics              totals of the node
    /metrics/per-object   a time series for each queue, channel and connection
    /metrics/detailed     chosen families per object: ?family=queue_coarse_metrics&vhost=…&queue=REGEX

The functions are generators, and the text is written while it is rendered, a slice at a time, so that a
scrape of 20,000 queues does not delay messages. The Prometheus client library is not used, because it builds
all samples as objects in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from recado.broker.broker import DeletedQueueCounters
from recado.broker.channel import Channel
from recado.broker.pattern import compile_name_pattern
from recado.broker.queue import Queue
from recado.server import memory
from recado.server.connection import Connection

from .query import QueryError, Steps
from .resources.connections import connection_name
from .resources.statistics import QUEUE_FIELDS, read_queue

if TYPE_CHECKING:
    from .console import Console

T = TypeVar("T")

TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_FORMAT: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """One metric: its name without the prefix `rabbitmq_`, its type, its help, and how to read it."""

    name: str
    kind: str
    help: str
    read: Callable[[Any], float]


class ObjectGroup(NamedTuple):
    """Families of one kind of object, selected together by `family=` of the detailed metrics."""

    name: str
    families: tuple[Family, ...]


_QUEUE_INDEX: Final = {name: index for index, name in enumerate(QUEUE_FIELDS)}


def _queue_field(name: str) -> Callable[[Queue], float]:
    index = _QUEUE_INDEX[name]
    return lambda queue: read_queue(queue)[index]


QUEUE_GROUPS: Final = (
    ObjectGroup(
        "queue_coarse_metrics",
        (
            Family(
                "queue_messages_ready",
                "gauge",
                "Messages ready to be delivered to consumers",
                lambda queue: queue.ready,
            ),
            Family(
                "queue_messages_unacked",
                "gauge",
                "Messages delivered to consumers but not yet acknowledged",
                lambda queue: queue.unacked,
            ),
            Family(
                "queue_messages",
                "gauge",
                "Sum of ready and unacknowledged messages",
                lambda queue: queue.ready + queue.unacked,
            ),
        ),
    ),
    ObjectGroup(
        "queue_consumer_count",
        (
            Family(
                "queue_consumers",
                "gauge",
                "Consumers on a queue",
                lambda queue: len(queue.consumers),
            ),
        ),
    ),
    ObjectGroup(
        "queue_delivery_metrics",
        (
            Family(
                "queue_messages_published_total",
                "counter",
                "Messages that entered a queue",
                _queue_field("publish"),
            ),
            Family(
                "queue_messages_delivered_ack_total",
                "counter",
                "Messages delivered with manual acknowledgement",
                _queue_field("deliver"),
            ),
            Family(
                "queue_messages_delivered_total",
                "counter",
                "Messages delivered with automatic acknowledgement",
                _queue_field("deliver_no_ack"),
            ),
            Family(
                "queue_messages_redelivered_total",
                "counter",
                "Messages delivered again",
                _queue_field("redeliver"),
            ),
            Family(
                "queue_messages_acked_total",
                "counter",
                "Messages acknowledged",
                _queue_field("ack"),
            ),
            Family(
                "queue_get_ack_total",
                "counter",
                "Messages got with manual acknowledgement",
                _queue_field("get"),
            ),
            Family(
                "queue_get_total",
                "counter",
                "Messages got with automatic acknowledgement",
                _queue_field("get_no_ack"),
            ),
            Family(
                "queue_get_empty_total",
                "counter",
                "Gets on an empty queue",
                _queue_field("get_empty"),
            ),
        ),
    ),
)
CHANNEL_GROUPS: Final = (
    ObjectGroup(
        "channel_metrics",
        (
            Family(
                "channel_consumers",
                "gauge",
                "Consumers on a channel",
                lambda channel: len(channel.consumers),
            ),
            Family(
                "channel_messages_unacked",
                "gauge",
                "Delivered but not yet acknowledged messages",
                lambda channel: channel.unacked.count_unsettled(),
            ),
            Family(
                "channel_messages_unconfirmed",
                "gauge",
                "Published but not yet confirmed messages",
                lambda channel: (
                    channel.publisher.published - channel.publisher.confirmed
                    if channel.publisher.confirms_enabled
                    else 0
                ),
            ),
            Family(
                "channel_prefetch",
                "gauge",
                "Total limit of unacknowledged messages of all consumers of a channel",
                lambda channel: channel.global_prefetch,
            ),
            Family(
                "consumer_prefetch",
                "gauge",
                "Limit of unacknowledged messages for each consumer",
                lambda channel: channel.consumer_prefetch,
            ),
        ),
    ),
    ObjectGroup(
        "channel_exchange_metrics",
        (
            Family(
                "channel_messages_published_total",
                "counter",
                "Messages published on a channel",
                lambda channel: channel.publisher.published,
            ),
            Family(
                "channel_messages_confirmed_total",
                "counter",
                "Messages published and confirmed on a channel",
                lambda channel: channel.publisher.confirmed,
            ),
            Family(
                "channel_messages_acked_total",
                "counter",
                "Messages acknowledged by consumers of a channel",
                lambda channel: channel.acknowledged_count,
            ),
        ),
    ),
)
CONNECTION_GROUPS: Final = (
    ObjectGroup(
        "connection_coarse_metrics",
        (
            Family(
                "connection_incoming_bytes_total",
                "counter",
                "Bytes received on a connection",
                lambda connection: connection.received_bytes,
            ),
            Family(
                "connection_outgoing_bytes_total",
                "counter",
                "Bytes sent on a connection",
                lambda connection: connection.sent_bytes,
            ),
        ),
    ),
    ObjectGroup(
        "connection_metrics",
        (
            Family(
                "connection_incoming_packets_total",
                "counter",
                "Reads of a connection",
                lambda connection: connection.io_counts[0],
            ),
            Family(
                "connection_outgoing_packets_total",
                "counter",
                "Writes of a connection",
                lambda connection: connection.io_counts[1],
            ),
            Family(
                "connection_channels",
                "gauge",
                "Channels on a connection",
                lambda connection: len(connection.session.channels),
            ),
        ),
    ),
)


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────


class Writer:
    """Writes samples in the text format of Prometheus, or in OpenMetrics."""

    def __init__(self, *, openmetrics: bool) -> None:
        self._openmetrics = openmetrics

    def head(self, name: str, kind: str, text: str) -> bytes:
        if self._openmetrics:
            name = name.removesuffix("_total") if kind == "counter" else name
            kind = "unknown" if kind == "untyped" else kind
        return f"# TYPE {name} {kind}\n# HELP {name} {text}\n".encode()

    def sample(self, name: str, labels: Labels, value: float) -> bytes:
        inner = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
        # All digits: Prometheus computes rates from differences of large counters.
        number = int(value) if value == int(value) else value
        return (f"{name}{{{inner}}} {number}\n" if inner else f"{name} {number}\n").encode()

    def single(self, name: str, kind: str, text: str, value: float, labels: Labels = ()) -> bytes:
        return self.head(name, kind, text) + self.sample(name, labels, value)

    def end(self) -> bytes:
        return b"# EOF\n" if self._openmetrics else b""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _queue_labels(queue: Queue) -> Labels:
    return (("vhost", queue.vhost.name), ("queue", queue.name))


def _channel_labels(entry: tuple[Connection, Channel]) -> Labels:
    connection, channel = entry
    name = f"{connection_name(connection)} ({channel.number})"
    return (("channel", name), ("vhost", channel.access.vhost.name))


def _connection_labels(connection: Connection) -> Labels:
    return (("channel", connection_name(connection)),)


# ── pages ───────────────────────────────────────────────────────────────────────────────────────────


def render_totals(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render the metrics of the node; queues, channels and connections are summed."""
    yield from _render_node(console, writer, "aggregated")
    for groups, objects in (
        (QUEUE_GROUPS, _queues(console)),
        (CHANNEL_GROUPS, _channels(console)),
        (CONNECTION_GROUPS, _connections(console)),
    ):
        sums: dict[str, float] = {}
        for each in objects:
            for family in _families(groups):
                sums[family.name] = sums.get(family.name, 0) + family.read(each)
            yield b""
        for family in _families(groups):
            name = f"rabbitmq_{family.name}"
            yield writer.single(name, family.kind, family.help, sums.get(family.name, 0))
    yield writer.end()


def render_objects(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render the metrics of the node, and a time series for each queue, channel and connection."""
    yield from _render_node(console, writer, "per-object")
    yield from _render_groups(console, writer, "rabbitmq_", None, None, None)
    yield writer.end()


def render_detailed(
    console: Console, writer: Writer, families: Iterable[str], vhosts: set[str], pattern: str | None
) -> Iterator[bytes]:
    """Render chosen families per object. Raises `QueryError` for an invalid pattern."""
    try:
        matches = compile_name_pattern(pattern) if pattern else None
    except ValueError as error:
        raise QueryError("bad_request", f"queue: invalid regular expression: {error}") from error
    yield from _render_groups(
        console, writer, "rabbitmq_detailed_", set(families), vhosts or None, matches
    )
    yield writer.end()


def _families(groups: Iterable[ObjectGroup]) -> Iterator[Family]:
    for group in groups:
        yield from group.families


def _render_groups(
    console: Console,
    writer: Writer,
    prefix: str,
    names: set[str] | None,
    vhosts: set[str] | None,
    matches: Callable[[str], bool] | None,
) -> Iterator[bytes]:
    def chosen(groups: Iterable[ObjectGroup]) -> Iterator[Family]:
        return _families(group for group in groups if names is None or group.name in names)

    queues = []
    for queue in _queues(console):
        is_chosen = vhosts is None or queue.vhost.name in vhosts
        if is_chosen and (matches is None or matches(queue.name)):
            queues.append(queue)
        yield b""
    for family in chosen(QUEUE_GROUPS):
        yield writer.head(prefix + family.name, family.kind, family.help)
        for queue in queues:
            yield writer.sample(prefix + family.name, _queue_labels(queue), family.read(queue))
    channels = [
        (connection, channel)
        for connection in _connections(console)
        for channel in connection.session.channels.values()
    ]
    for family in chosen(CHANNEL_GROUPS):
        yield writer.head(prefix + family.name, family.kind, family.help)
        for entry in channels:
            yield writer.sample(prefix + family.name, _channel_labels(entry), family.read(entry[1]))
    connections = list(_connections(console))
    for family in chosen(CONNECTION_GROUPS):
        yield writer.head(prefix + family.name, family.kind, family.help)
        for connection in connections:
            labels = _connection_labels(connection)
            yield writer.sample(prefix + family.name, labels, family.read(connection))


def _queues(console: Console) -> Iterator[Queue]:
    for vhost in list(console.broker.vhosts.values()):
        for queue in list(vhost.queues.values()):
            if not queue.is_reply_address:
                yield queue


def _connections(console: Console) -> Iterator[Connection]:
    for connection in list(console.server.connections):
        if connection.session.access is not None:
            yield connection


def _channels(console: Console) -> Iterator[Channel]:
    for connection in _connections(console):
        yield from list(connection.session.channels.values())


def _render_node(console: Console, writer: Writer, endpoint: str) -> Iterator[bytes]:
    limits, churn = console.read_limits(), console.read_churn()
    identity = (
        ("rabbitmq_node", console.node_name),
        ("rabbitmq_cluster", console.cluster_name),
        ("rabbitmq_cluster_permanent_id", f"recado-{console.node_name}"),
        ("rabbitmq_endpoint", endpoint),
    )
    build = (
        ("rabbitmq_version", console.compatible_version),
        ("prometheus_plugin_version", console.compatible_version),
        ("prometheus_client_version", console.version),
        ("erlang_version", "25.2.3"),
        ("product_name", "recado"),
        ("product_version", console.version),
    )
    yield writer.single("rabbitmq_build_info", "untyped", "Versions", 1, build)
    yield writer.single("rabbitmq_identity_info", "untyped", "Node and cluster", 1, identity)
    queue_count = consumer_count = 0
    for queue in _queues(console):
        queue_count += 1
        consumer_count += len(queue.consumers)
        yield b""
    gauges: Mapping[str, tuple[str, float]] = {
        "rabbitmq_connections": (
            "Connections currently open",
            sum(1 for _ in _connections(console)),
        ),
        "rabbitmq_channels": ("Channels currently open", sum(1 for _ in _channels(console))),
        "rabbitmq_consumers": (
            "Consumers currently connected",
            consumer_count,
        ),
        "rabbitmq_queues": ("Queues available", queue_count),
        "rabbitmq_process_open_fds": ("Open file descriptors", limits.open_files),
        "rabbitmq_process_max_fds": ("Limit of open file descriptors", limits.open_files_max),
        "rabbitmq_process_open_tcp_sockets": ("Open sockets", len(console.server.connections)),
        "rabbitmq_process_resident_memory_bytes": ("Memory used", memory.resident_bytes()),
        "rabbitmq_resident_memory_limit_bytes": ("Memory high watermark", limits.memory_bytes),
        "rabbitmq_disk_space_available_bytes": ("Disk space available", limits.disk_free_bytes),
        "rabbitmq_disk_space_available_limit_bytes": (
            "Free disk space low watermark",
            limits.disk_free_min_bytes,
        ),
        "rabbitmq_erlang_uptime_seconds": ("Node uptime", console.uptime_s),
        "rabbitmq_alarms_memory_used_watermark": (
            "1 if the memory alarm is in effect",
            limits.memory_alarm,
        ),
        "rabbitmq_alarms_free_disk_space_watermark": (
            "1 if the disk alarm is in effect",
            limits.disk_alarm,
        ),
    }
    for name, (text, value) in gauges.items():
        yield writer.single(name, "gauge", text, value)
    totals = {
        "rabbitmq_connections_opened_total": churn["connection_created"],
        "rabbitmq_connections_closed_total": churn["connection_closed"],
        "rabbitmq_channels_opened_total": churn["channel_created"],
        "rabbitmq_channels_closed_total": churn["channel_closed"],
        "rabbitmq_queues_declared_total": churn["queue_declared"],
        "rabbitmq_queues_created_total": churn["queue_created"],
        "rabbitmq_queues_deleted_total": churn["queue_deleted"],
    }
    for name, value in totals.items():
        yield writer.single(name, "counter", "Total since the start of the node", value)
    yield from _render_global(console, writer, consumer_count)
    yield from _render_own(console, writer)


def _run_steps(steps: Steps[T]) -> Generator[bytes, None, T]:
    """Run bounded steps within a page; nothing is written for them."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        yield b""


def _render_global(
    console: Console, writer: Writer, consumer_count: int
) -> Generator[bytes, None, None]:
    """Render the message counters of the node.

    They include closed channels and deleted queues, so they never decrease. The queues and the totals of
    the deleted ones are taken at one time: a queue that is deleted while the sum is computed is counted once.
    """
    queues: list[Queue | DeletedQueueCounters] = [*_queues(console)]
    queues.append(console.broker.deleted_queue_counters.copy())
    counters, _ = yield from _run_steps(console.read_totals(queues))
    total = console.broker.counters.total_with(_channels(console))
    labels: Labels = (("protocol", "amqp091"),)
    values = {
        "received": total.published,
        "received_confirm": total.confirmed,
        "confirmed": total.confirmed,
        "routed": counters["publish"],
        "delivered": total.delivered,
        "delivered_consume_auto_ack": counters["deliver_no_ack"],
        "delivered_consume_manual_ack": counters["deliver"],
        "delivered_get_auto_ack": counters["get_no_ack"],
        "delivered_get_manual_ack": counters["get"],
        "get_empty": counters["get_empty"],
        "redelivered": counters["redeliver"],
        "acknowledged": total.acknowledged,
    }
    for name, value in values.items():
        metric = f"rabbitmq_global_messages_{name}_total"
        yield writer.single(
            metric, "counter", "Messages since the start of the node", value, labels
        )
    publishers = sum(1 for channel in _channels(console) if channel.publisher.published)
    yield writer.single("rabbitmq_global_publishers", "gauge", "Publishers", publishers, labels)
    yield writer.single("rabbitmq_global_consumers", "gauge", "Consumers", consumer_count, labels)


def _render_own(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render the metrics that only recado has."""
    yield from console.loop_lag.render(writer)
    committer = console.server.committer
    if committer is not None:
        name = "recado_fsync_seconds"
        yield writer.head(name, "summary", "Time of fsync calls of the journal")
        yield writer.sample(f"{name}_sum", (), committer.sync_seconds)
        yield writer.sample(f"{name}_count", (), committer.sync_count)
    files = console.certificates
    if files is not None:
        name = "recado_certificate_expiry_timestamp_seconds"
        yield writer.head(
            name, "gauge", "When the first certificate of a file expires, in Unix time"
        )
        for setting, dates in (("certificate", files.certificate_expiry), ("ca", files.ca_expiry)):
            if dates:
                yield writer.sample(name, (("file", setting),), min(dates).timestamp())
