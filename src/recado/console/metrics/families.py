"""The metrics of each queue, channel and connection, in the families that the detailed page selects.

They have RabbitMQ's names. As in RabbitMQ, the page with totals has the sum of each over all objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from recado.broker.channel import Channel
from recado.broker.queue import Queue
from recado.server.connection import Connection

from ..resources.connections import connection_name
from .exposition import Labels

if TYPE_CHECKING:
    from ..console import Console

ChannelEntry = tuple[Connection, Channel]


class Metric(NamedTuple):
    """One metric: its name without the prefix `rabbitmq_`, its type, its help, and how to read it."""

    name: str
    kind: str
    help: str
    read: Callable[[Any], float]


class ObjectKind(NamedTuple):
    """One kind of object: how to list the objects, their labels, and their metrics by family.

    The page of totals has the sums of all objects, unless `is_summed` is false.
    """

    objects: Callable[[Console], Iterator[Any]]
    labels: Callable[[Any], Labels]
    families: dict[str, tuple[Metric, ...]]
    is_summed: bool = True

    def metrics(self, names: set[str] | None = None) -> list[Metric]:
        """Return the metrics of some families, by default of all."""
        return [
            metric
            for name, metrics in self.families.items()
            if names is None or name in names
            for metric in metrics
        ]


# ── objects ─────────────────────────────────────────────────────────────────────────────────────────


def queues_of(console: Console) -> Iterator[Queue]:
    for vhost in list(console.broker.vhosts.values()):
        for queue in list(vhost.queues.values()):
            if not queue.is_reply_address:
                yield queue


def connections_of(console: Console) -> Iterator[Connection]:
    for connection in list(console.server.connections):
        if connection.session.access is not None:
            yield connection


def channels_of(console: Console) -> Iterator[ChannelEntry]:
    for connection in connections_of(console):
        for channel in list(connection.session.channels.values()):
            yield connection, channel


def _label_queue(queue: Queue) -> Labels:
    return (("vhost", queue.vhost.name), ("queue", queue.name))


def _label_channel(entry: ChannelEntry) -> Labels:
    connection, channel = entry
    name = f"{connection_name(connection)} ({channel.number})"
    return (("channel", name), ("vhost", channel.access.vhost.name))


def _label_connection(connection: Connection) -> Labels:
    return (("channel", connection_name(connection)),)


# ── metrics ─────────────────────────────────────────────────────────────────────────────────────────


def _count_delivered_ack(entry: ChannelEntry) -> int:
    """Return the deliveries with manual acknowledgement: all delivery tags but those of the counted deliveries."""
    channel = entry[1]
    others = channel.delivered_no_ack_count + channel.get_count + channel.get_no_ack_count
    return channel.next_tag - 1 - others


QUEUES: Final = ObjectKind(
    queues_of,
    _label_queue,
    {
        "queue_coarse_metrics": (
            Metric(
                "queue_messages_ready",
                "gauge",
                "Messages ready to be delivered to consumers",
                attrgetter("ready"),
            ),
            Metric(
                "queue_messages_unacked",
                "gauge",
                "Messages delivered to consumers but not yet acknowledged",
                attrgetter("unacked"),
            ),
            Metric(
                "queue_messages",
                "gauge",
                "Sum of ready and unacknowledged messages",
                lambda queue: queue.ready + queue.unacked,
            ),
        ),
        "queue_consumer_count": (
            Metric(
                "queue_consumers",
                "gauge",
                "Consumers on a queue",
                lambda queue: len(queue.consumers),
            ),
        ),
        "queue_metrics": (
            Metric(
                "queue_messages_paged_out",
                "gauge",
                "Ready messages that are only on disk",
                attrgetter("paged_out_count"),
            ),
            Metric(
                "queue_messages_paged_out_bytes",
                "gauge",
                "Approximate size of the ready messages that are only on disk",
                attrgetter("paged_out_bytes"),
            ),
        ),
        "queue_delivery_metrics": (
            Metric(
                "queue_messages_published_total",
                "counter",
                "Messages that entered a queue",
                attrgetter("published_count"),
            ),
            Metric(
                "queue_messages_delivered_ack_total",
                "counter",
                "Messages delivered with manual acknowledgement",
                attrgetter("delivered_count"),
            ),
            Metric(
                "queue_messages_delivered_total",
                "counter",
                "Messages delivered with automatic acknowledgement",
                attrgetter("delivered_no_ack_count"),
            ),
            Metric(
                "queue_messages_redelivered_total",
                "counter",
                "Messages delivered again",
                attrgetter("redelivered_count"),
            ),
            Metric(
                "queue_messages_acked_total",
                "counter",
                "Messages acknowledged",
                attrgetter("acknowledged_count"),
            ),
            Metric(
                "queue_get_ack_total",
                "counter",
                "Messages got with manual acknowledgement",
                attrgetter("get_count"),
            ),
            Metric(
                "queue_get_total",
                "counter",
                "Messages got with automatic acknowledgement",
                attrgetter("get_no_ack_count"),
            ),
            Metric(
                "queue_get_empty_total",
                "counter",
                "Gets on an empty queue",
                attrgetter("get_empty_count"),
            ),
        ),
    },
)
CHANNELS: Final = ObjectKind(
    channels_of,
    _label_channel,
    {
        "channel_metrics": (
            Metric(
                "channel_consumers",
                "gauge",
                "Consumers on a channel",
                lambda entry: len(entry[1].consumers),
            ),
            Metric(
                "channel_messages_unacked",
                "gauge",
                "Delivered but not yet acknowledged messages",
                lambda entry: entry[1].unacked.count_unsettled(),
            ),
            Metric(
                "channel_messages_unconfirmed",
                "gauge",
                "Published but not yet confirmed messages",
                lambda entry: entry[1].publisher.unconfirmed,
            ),
            Metric(
                "channel_prefetch",
                "gauge",
                "Total limit of unacknowledged messages of all consumers of a channel",
                lambda entry: entry[1].global_prefetch,
            ),
            Metric(
                "consumer_prefetch",
                "gauge",
                "Limit of unacknowledged messages for each consumer",
                lambda entry: entry[1].consumer_prefetch,
            ),
        ),
        "channel_exchange_metrics": (
            Metric(
                "channel_messages_published_total",
                "counter",
                "Messages published on a channel",
                lambda entry: entry[1].publisher.published,
            ),
            Metric(
                "channel_messages_confirmed_total",
                "counter",
                "Messages published and confirmed on a channel",
                lambda entry: entry[1].publisher.confirmed,
            ),
            Metric(
                "channel_messages_unroutable_returned_total",
                "counter",
                "Unroutable messages of a channel that were returned, because they were mandatory",
                lambda entry: entry[1].publisher.returned,
            ),
            Metric(
                "channel_messages_unroutable_dropped_total",
                "counter",
                "Unroutable messages of a channel that were dropped",
                lambda entry: entry[1].publisher.dropped,
            ),
        ),
        "channel_queue_metrics": (
            Metric(
                "channel_messages_delivered_ack_total",
                "counter",
                "Messages delivered on a channel with manual acknowledgement",
                _count_delivered_ack,
            ),
            Metric(
                "channel_messages_delivered_total",
                "counter",
                "Messages delivered on a channel with automatic acknowledgement",
                lambda entry: entry[1].delivered_no_ack_count,
            ),
            Metric(
                "channel_messages_redelivered_total",
                "counter",
                "Messages delivered again on a channel",
                lambda entry: entry[1].redelivered_count,
            ),
            Metric(
                "channel_messages_acked_total",
                "counter",
                "Messages acknowledged by consumers of a channel",
                lambda entry: entry[1].acknowledged_count,
            ),
            Metric(
                "channel_get_ack_total",
                "counter",
                "Messages got on a channel with manual acknowledgement",
                lambda entry: entry[1].get_count,
            ),
            Metric(
                "channel_get_total",
                "counter",
                "Messages got on a channel with automatic acknowledgement",
                lambda entry: entry[1].get_no_ack_count,
            ),
            Metric(
                "channel_get_empty_total",
                "counter",
                "Gets of a channel on empty queues",
                lambda entry: entry[1].get_empty_count,
            ),
        ),
    },
)
CONNECTIONS: Final = ObjectKind(
    connections_of,
    _label_connection,
    {
        "connection_coarse_metrics": (
            Metric(
                "connection_incoming_bytes_total",
                "counter",
                "Bytes received on a connection",
                attrgetter("received_bytes"),
            ),
            Metric(
                "connection_outgoing_bytes_total",
                "counter",
                "Bytes sent on a connection",
                attrgetter("sent_bytes"),
            ),
        ),
        "connection_metrics": (
            Metric(
                "connection_incoming_packets_total",
                "counter",
                "Reads of a connection",
                lambda connection: connection.io_counts[0],
            ),
            Metric(
                "connection_outgoing_packets_total",
                "counter",
                "Writes of a connection",
                lambda connection: connection.io_counts[1],
            ),
            Metric(
                "connection_channels",
                "gauge",
                "Channels on a connection",
                lambda connection: len(connection.session.channels),
            ),
        ),
    },
)
LOGINS: Final = ObjectKind(
    lambda console: iter(list(console.server.authenticator.attempts.items())),
    lambda entry: (("protocol", entry[0]),),
    {
        "auth_attempt_metrics": (
            Metric(
                "auth_attempts_total",
                "counter",
                "Logins by protocol",
                lambda entry: entry[1].succeeded + entry[1].failed,
            ),
            Metric(
                "auth_attempts_succeeded_total",
                "counter",
                "Logins that were accepted",
                lambda entry: entry[1].succeeded,
            ),
            Metric(
                "auth_attempts_failed_total",
                "counter",
                "Logins that were refused",
                lambda entry: entry[1].failed,
            ),
        ),
    },
    is_summed=False,
)
KINDS: Final = (QUEUES, CHANNELS, CONNECTIONS, LOGINS)
