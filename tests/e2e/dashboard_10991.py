"""Facts about Grafana's dashboard 10991, "RabbitMQ-Overview": which metrics each panel needs, and how it joins
them with `rabbitmq_identity_info`.

All joins are `on(instance, job)`, with the labels `rabbitmq_cluster` and `rabbitmq_endpoint` of the identity chosen
by variables. Only names are taken from the dashboard; the queries built from these facts are our own.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

CLUSTER = ("rabbitmq_cluster",)
NODE = ("rabbitmq_cluster", "rabbitmq_node")
SIZE_LIMITS = ("100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08", "+Inf")


class Reading(Enum):
    """What a panel does with the metric before it joins."""

    VALUE = "{}"
    RATE = "rate({}[{range}])"
    INSTANT_RATE = "irate({}[{range}])"
    INCREASE = "increase({}[{range}])"


class Panel(NamedTuple):
    """A panel: its title, the metrics, how they are read, and which labels of the identity they get."""

    title: str
    metrics: tuple[str, ...]
    reading: Reading = Reading.VALUE
    joined: tuple[str, ...] = NODE
    operator: str | None = None
    """Joins the metrics with each other, so they need the same labels; None: each is a series of its own."""

    def queries(self, cluster: str, range_s: int) -> list[str]:
        """Return queries that need the same metrics, labels and joins as the panel."""
        reads = [self.reading.value.replace("{range}", f"{range_s}s") for _ in self.metrics]
        terms = [
            f"({read.replace('{}', metric)} * on(instance, job) group_left({', '.join(self.joined)})"
            f' rabbitmq_identity_info{{rabbitmq_cluster="{cluster}",rabbitmq_endpoint="aggregated",namespace=""}})'
            for read, metric in zip(reads, self.metrics, strict=True)
        ]
        grouping = f" by ({self.joined[-1]})"
        if self.operator is None:
            return [f"sum{grouping} ({term})" for term in terms]
        return [f"sum{grouping} ({f' {self.operator} '.join(terms)})"]


def count(name: str) -> str:
    return f"rabbitmq_global_messages_{name}_total"


def churn(plural: str, *events: str) -> tuple[Panel, ...]:
    """The panels of a row about the churn of connections, channels or queues."""
    return (
        Panel(f"Total {plural}", (f"rabbitmq_{plural}",)),
        *(
            Panel(
                f"{plural.capitalize()} {event} / s",
                (f"rabbitmq_{plural}_{event}_total",),
                Reading.RATE,
            )
            for event in events
        ),
    )


PANELS = (
    # at the top
    Panel("Ready messages", ("rabbitmq_queue_messages_ready",), joined=CLUSTER),
    Panel("Outgoing messages / s", (count("delivered"),), Reading.INSTANT_RATE, CLUSTER),
    Panel("Publishers", ("rabbitmq_global_publishers",), joined=CLUSTER),
    Panel("Connections", ("rabbitmq_connections",), joined=CLUSTER),
    Panel("Queues", ("rabbitmq_queues",), joined=CLUSTER),
    Panel("Unacknowledged messages", ("rabbitmq_queue_messages_unacked",), joined=CLUSTER),
    Panel("Incoming messages / s", (count("received"),), Reading.INSTANT_RATE, CLUSTER),
    Panel("Consumers", ("rabbitmq_global_consumers",), joined=CLUSTER),
    Panel("Channels", ("rabbitmq_channels",), joined=CLUSTER),
    Panel("Nodes", ("rabbitmq_identity_info",), joined=CLUSTER),
    # nodes
    Panel(
        "Memory available before publishers blocked",
        ("rabbitmq_resident_memory_limit_bytes", "rabbitmq_process_resident_memory_bytes"),
        operator="-",
    ),
    Panel(
        "Disk space available before publishers blocked",
        ("rabbitmq_disk_space_available_bytes", "rabbitmq_disk_space_available_limit_bytes"),
        operator="-",
    ),
    Panel(
        "File descriptors available",
        ("rabbitmq_process_max_fds", "rabbitmq_process_open_fds"),
        operator="-",
    ),
    Panel(  # of its versions for RabbitMQ 3
        "TCP sockets available",
        ("rabbitmq_process_max_tcp_sockets", "rabbitmq_process_open_tcp_sockets"),
        operator="-",
    ),
    # queued messages
    Panel("Messages ready to be delivered to consumers", ("rabbitmq_queue_messages_ready",)),
    Panel("Messages pending consumer acknowledgement", ("rabbitmq_queue_messages_unacked",)),
    # incoming messages
    Panel("Messages published / s", (count("received"),), Reading.RATE),
    Panel(
        "Avg Size",
        ("rabbitmq_message_size_bytes_sum", "rabbitmq_message_size_bytes_count"),
        Reading.INCREASE,
        operator="/",
    ),
    Panel(
        "Message Size Distribution",
        tuple(f'rabbitmq_message_size_bytes_bucket{{le="{limit}"}}' for limit in SIZE_LIMITS),
        Reading.INCREASE,
    ),
    Panel("Messages routed to queues / s", (count("routed"),), Reading.RATE),
    Panel("Messages confirmed to publishers / s", (count("confirmed"),), Reading.RATE),
    Panel(
        "Unroutable messages dropped & returned / s",
        (count("unroutable_dropped"), count("unroutable_returned")),
        Reading.RATE,
    ),
    Panel(
        "Messages unconfirmed to publishers / s",
        (count("received_confirm"), count("confirmed")),
        Reading.RATE,
        operator="-",
    ),
    # outgoing messages
    Panel(
        "Messages delivered / s",
        (count("delivered_consume_auto_ack"), count("delivered_consume_manual_ack")),
        Reading.RATE,
        operator="+",
    ),
    Panel("Messages redelivered / s", (count("redelivered"),), Reading.RATE),
    Panel(
        "Messages delivered with manual ack / s",
        (count("delivered_consume_manual_ack"),),
        Reading.RATE,
    ),
    Panel("Messages delivered auto ack / s", (count("delivered_consume_auto_ack"),), Reading.RATE),
    Panel("Messages acknowledged / s", (count("acknowledged"),), Reading.RATE),
    Panel("Polling operations with auto ack / s", (count("delivered_get_auto_ack"),), Reading.RATE),
    Panel("Polling operations that yield no result / s", (count("get_empty"),), Reading.RATE),
    Panel(
        "Polling operations with manual ack / s", (count("delivered_get_manual_ack"),), Reading.RATE
    ),
    # churn
    *churn("queues", "declared", "created", "deleted"),
    *churn("channels", "opened", "closed"),
    *churn("connections", "opened", "closed"),
)
NODE_TABLE = {
    "rabbitmq_erlang_uptime_seconds": (),
    "rabbitmq_build_info": ("rabbitmq_version", "erlang_version"),
    "rabbitmq_identity_info": NODE,
}
"""The table of nodes joins three metrics, and shows these labels of the second and third."""
VARIABLES = ("namespace", "rabbitmq_cluster", "rabbitmq_endpoint")
"""Labels of `rabbitmq_identity_info` from which variables are chosen; `namespace` is empty outside of Kubernetes."""
