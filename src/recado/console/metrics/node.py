"""The metrics of the node as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from recado.broker.arguments import QUEUE_TYPES, QueueType
from recado.broker.broker import DeletedQueueCounters
from recado.server import memory

from .exposition import Labels, Writer
from .families import channels_of, connections_of, queues_of

if TYPE_CHECKING:
    from ..console import ArchiveEntry, Console

PROTOCOL: Final = ("protocol", "amqp091")


def render_identity(console: Console, writer: Writer, endpoint: str) -> Iterator[bytes]:
    """Render the two metrics whose labels dashboards join with all others."""
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
        ("erlang_version", "25.2.3"),  # that of RabbitMQ 3.10: its dashboards show this label
        ("product_name", "recado"),
        ("product_version", console.version),
    )
    yield writer.single("rabbitmq_build_info", "untyped", "Versions", 1, build)
    yield writer.single("rabbitmq_identity_info", "untyped", "Node and cluster", 1, identity)


def render_node(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render everything that is not about a single queue, channel or connection."""
    yield from _render_resources(console, writer)
    yield from _render_churn(console, writer)
    yield from _render_channels(console, writer)
    yield from _render_queues(console, writer)
    yield from writer.histogram(
        "recado_event_loop_lag_seconds",
        "How late timers of the event loop run",
        console.loop_lag.histogram,
    )
    yield from _render_journal(console, writer)
    yield from _render_certificates(console, writer)
    yield from _render_archives(console, writer)
    yield from _render_status(console, writer)


def _render_resources(console: Console, writer: Writer) -> Iterator[bytes]:
    limits = console.read_limits()
    yield writer.single(
        "process_start_time_seconds",
        "gauge",
        "Start of the node, in seconds since 1970",
        console.started_at,
    )
    gauges = {
        "process_open_fds": ("Open file descriptors", limits.open_files),
        "process_max_fds": ("Limit of open file descriptors", limits.open_files_max),
        "process_open_tcp_sockets": ("Open sockets", len(console.server.connections)),
        "process_max_tcp_sockets": ("Limit of open sockets", limits.open_files_max),
        "process_resident_memory_bytes": ("Memory used", memory.resident_bytes()),
        "resident_memory_limit_bytes": ("Memory high watermark", limits.memory_bytes),
        "disk_space_available_bytes": ("Disk space available", limits.disk_free_bytes),
        "disk_space_available_limit_bytes": (
            "Free disk space low watermark",
            limits.disk_free_min_bytes,
        ),
        "erlang_uptime_seconds": ("Node uptime", console.uptime_s),
    }
    for name, (text, value) in gauges.items():
        yield writer.single(f"rabbitmq_{name}", "gauge", text, value)
    alarms = {
        "memory_used_watermark": ("1 if the memory alarm is in effect", limits.memory_alarm),
        "free_disk_space_watermark": ("1 if the disk alarm is in effect", limits.disk_alarm),
        "file_descriptor_limit": ("0: there is no such alarm", False),
    }
    for name, (text, is_active) in alarms.items():
        yield writer.single(f"rabbitmq_alarms_{name}", "untyped", text, is_active)


def _render_churn(console: Console, writer: Writer) -> Iterator[bytes]:
    churn = console.read_churn()
    for plural, events in (
        ("connections", {"opened": "connection_created", "closed": "connection_closed"}),
        ("channels", {"opened": "channel_created", "closed": "channel_closed"}),
        (
            "queues",
            {"declared": "queue_declared", "created": "queue_created", "deleted": "queue_deleted"},
        ),
    ):
        for event, field in events.items():
            name, text = f"rabbitmq_{plural}_{event}_total", f"{plural.capitalize()} {event}"
            yield writer.single(name, "counter", text, churn[field])


def _render_channels(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render what clients published, including closed channels, so that counters never decrease.

    The channels and the totals of the closed ones are taken at one time: a channel that is closed while the
    sum is computed is counted once.
    """
    channels = [channel for _, channel in channels_of(console)]
    total = console.broker.counters.total_with(())
    publisher_count = 0
    for channel in channels:
        total.add_channel(channel)
        publisher_count += bool(channel.publisher.published)
        yield b""
    connection_count = sum(1 for _ in connections_of(console))
    yield writer.single("rabbitmq_connections", "gauge", "Open connections", connection_count)
    yield writer.single("rabbitmq_channels", "gauge", "Open channels", len(channels))
    counters = {
        "received": ("Messages received from publishers", total.published),
        "received_confirm": (
            "Messages received from publishers that expect confirms",
            total.published_for_confirm,
        ),
        "confirmed": ("Messages confirmed to publishers", total.confirmed),
        "routed": ("Messages routed, once for each queue", total.routed),
        "unroutable_dropped": ("Unroutable messages that were dropped", total.dropped),
        "unroutable_returned": (
            "Unroutable messages that were returned, because they were mandatory",
            total.returned,
        ),
    }
    for name, (text, value) in counters.items():
        metric = f"rabbitmq_global_messages_{name}_total"
        yield writer.single(metric, "counter", text, value, (PROTOCOL,))
    text = "Channels that have published"
    yield writer.single("rabbitmq_global_publishers", "gauge", text, publisher_count, (PROTOCOL,))
    yield from writer.histogram(
        "rabbitmq_message_size_bytes",
        "Size of messages received from publishers",
        console.broker.message_sizes,
        (PROTOCOL,),
    )


def _render_queues(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render what was delivered, by type of queue, including deleted queues."""
    queues = list(queues_of(console))
    totals: dict[QueueType, DeletedQueueCounters] = {
        queue_type: counters.copy()
        for queue_type, counters in console.broker.deleted_queue_counters.items()
    }
    consumer_count = 0
    paged_out: Counter[str] = Counter()
    for queue in queues:
        totals[queue.declared_settings.queue_type].add(queue)
        consumer_count += len(queue.consumers)
        if queue.paged_out_count:
            paged_out["messages"] += queue.paged_out_count
            paged_out["bytes"] += queue.paged_out_bytes
        yield b""
    yield writer.single("rabbitmq_queues", "gauge", "Queues", len(queues))
    yield writer.single("rabbitmq_consumers", "gauge", "Consumers", consumer_count)
    name = "rabbitmq_global_consumers"
    yield writer.single(name, "gauge", "Consumers", consumer_count, (PROTOCOL,))
    counters = {
        "delivered": "Messages delivered",
        "delivered_consume_auto_ack": "Messages delivered to consumers with automatic acknowledgement",
        "delivered_consume_manual_ack": "Messages delivered to consumers with manual acknowledgement",
        "delivered_get_auto_ack": "Messages got with automatic acknowledgement",
        "delivered_get_manual_ack": "Messages got with manual acknowledgement",
        "get_empty": "Gets on an empty queue",
        "redelivered": "Messages delivered again",
        "acknowledged": "Messages acknowledged",
    }
    values = {queue_type: _delivery_counters(totals[queue_type]) for queue_type in QUEUE_TYPES}
    for name, text in counters.items():
        metric = f"rabbitmq_global_messages_{name}_total"
        yield writer.head(metric, "counter", text)
        for queue_type, by_name in values.items():
            labels: Labels = (PROTOCOL, ("queue_type", f"rabbit_{queue_type}_queue"))
            yield writer.sample(metric, labels, by_name[name])
    for name, text in (
        ("messages", "Ready messages that are only on disk"),
        ("bytes", "Approximate size of the ready messages that are only on disk"),
    ):
        yield writer.single(f"recado_paged_out_{name}", "gauge", text, paged_out[name])


def _delivery_counters(total: DeletedQueueCounters) -> dict[str, int]:
    by_kind = {
        "delivered_consume_auto_ack": total.delivered_no_ack_count,
        "delivered_consume_manual_ack": total.delivered_count,
        "delivered_get_auto_ack": total.get_no_ack_count,
        "delivered_get_manual_ack": total.get_count,
    }
    return by_kind | {
        "delivered": sum(by_kind.values()),
        "get_empty": total.get_empty_count,
        "redelivered": total.redelivered_count,
        "acknowledged": total.acknowledged_count,
    }


def _render_journal(console: Console, writer: Writer) -> Iterator[bytes]:
    committer = console.server.committer
    if committer is not None:
        yield from writer.histogram(
            "recado_fsync_seconds",
            "Duration of fsync calls of the journals",
            committer.sync_durations,
        )
        yield from writer.histogram(
            "recado_commit_operations",
            "Durable operations that became durable with one fsync: messages and declarations",
            committer.commit_sizes,
        )
    if console.data_folder is not None:
        sizes, files = {"queues": 0, "streams": 0}, {"queues": 0, "streams": 0}
        for kind, size, count in console.data_folder.journals():
            sizes[kind] += size
            files[kind] += count
            yield b""
        for name, text, values in (
            ("bytes", "Size of the journals", sizes),
            ("files", "Segment files of the journals", files),
        ):
            yield writer.head(f"recado_journal_{name}", "gauge", text)
            for kind, value in values.items():
                yield writer.sample(f"recado_journal_{name}", (("journal", kind),), value)


def _render_certificates(console: Console, writer: Writer) -> Iterator[bytes]:
    certificates = console.certificates
    if certificates is None:
        return
    name = "recado_certificate_expiry_timestamp_seconds"
    text = "When the first certificate of a file expires, in Unix time"
    yield writer.head(name, "gauge", text)
    for setting, dates in (
        ("certificate", certificates.certificate_expiry),
        ("ca", certificates.ca_expiry),
    ):
        if dates:
            yield writer.sample(name, (("file", setting),), min(dates).timestamp())


def _render_archives(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render how far the archives of the node are behind their feeds."""
    if console.archives is None:
        return
    entries = list(console.archives.measure_progress())
    metrics: tuple[tuple[str, str, str, Callable[[ArchiveEntry], float]], ...] = (
        (
            "feed_lag_packets",
            "gauge",
            "Packets of a feed that its archive has not stored; each has one or more messages",
            lambda each: _count_waiting(console, each),
        ),
        (
            "archive_running",
            "gauge",
            "1 while an archive stores messages, 0 after an error has stopped it",
            attrgetter("is_storing"),
        ),
        (
            "archive_messages_total",
            "counter",
            "Messages that an archive has stored",
            attrgetter("stored_count"),
        ),
        (
            "archive_lag_messages",
            "gauge",
            "Messages that an archive has received, but that are not yet on disk",
            attrgetter("unsynced_count"),
        ),
        (
            "archive_lag_seconds",
            "gauge",
            "How long the oldest of these messages has waited for the disk",
            attrgetter("lag_s"),
        ),
        (
            "archive_unsealed_messages",
            "gauge",
            "Stored messages of an archive that are not yet in Parquet files",
            attrgetter("unsealed_count"),
        ),
    )
    for name, kind, text, read in metrics:
        yield writer.head(f"recado_{name}", kind, text)
        for each in entries:
            labels = (("vhost", each.vhost), ("feed", each.feed), ("archive", each.name))
            yield writer.sample(f"recado_{name}", labels, read(each))


def _render_status(console: Console, writer: Writer) -> Iterator[bytes]:
    """Render how many status records are kept, and how many were malformed."""
    if console.collector is None:
        return
    records = console.status
    yield writer.head("recado_status_records", "gauge", "Sources whose latest status is kept")
    for kind, table in (("actors", records.actors), ("pipeline", records.pipelines)):
        yield writer.sample("recado_status_records", (("kind", kind),), len(table))
    name = "recado_status_records_malformed_total"
    yield writer.head(name, "counter", "Messages to the exchange recado.status that are no records")
    yield writer.sample(name, (), records.malformed_count)


def _count_waiting(console: Console, archive: ArchiveEntry) -> int:
    vhost = console.broker.vhosts.get(archive.vhost)
    queue = None if vhost is None else vhost.queues.get(archive.queue)
    return 0 if queue is None else queue.ready + queue.unacked
