"""Write the Grafana dashboard for nodes of recado, from a table of its panels.

    python -m workshop.grafana        writes src/recado/console/metrics/grafana.json

All queries join the metric with `rabbitmq_identity_info`, as those of RabbitMQ's dashboards do: the variables choose
the cluster, and which of the scraped pages the totals come from. Panels about single queues need the page
`/metrics/per-object`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parents[1] / "src" / "recado" / "console" / "metrics" / "grafana.json"
TITLE = "recado"
COLUMNS_COUNT = 24
ROW_HEIGHT, STAT_HEIGHT, GRAPH_HEIGHT = 1, 4, 8
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
NODE = "{{rabbitmq_node}}"

IDENTITY = 'rabbitmq_identity_info{rabbitmq_cluster="$cluster", rabbitmq_endpoint="%s"}'


def joined(term: str, endpoint: str = "$endpoint") -> str:
    """Restrict a term to the chosen cluster, and give it the label of its node."""
    labels = "group_left(rabbitmq_node)"
    return f"{term} * on(instance, job) {labels} {IDENTITY % endpoint}"


def total(metric: str) -> str:
    return f"sum by (rabbitmq_node) ({joined(metric)})"


def rate(metric: str) -> str:
    return f"sum by (rabbitmq_node) ({joined(f'rate({metric}[$__rate_interval])')})"


def ratio(metric: str, limit: str) -> str:
    return f"{total(metric)} / {total(limit)}"


def quantile(share: float, metric: str) -> str:
    buckets = joined(f"rate({metric}_bucket[$__rate_interval])")
    return f"histogram_quantile({share}, sum by (le, rabbitmq_node) ({buckets}))"


def mean(metric: str) -> str:
    return f"{rate(f'{metric}_sum')} / {rate(f'{metric}_count')}"


def longest(metric: str) -> str:
    """The ten queues with the most."""
    term = joined(f'{metric}{{queue!=""}}', "per-object")
    return f"topk(10, sum by (vhost, queue) ({term}))"


def by_archive(metric: str) -> str:
    return f"sum by (vhost, feed, archive) ({joined(metric)})"


class Query(NamedTuple):
    """A query, and the legend of its series."""

    expression: str
    legend: str = NODE


class Panel(NamedTuple):
    """A panel: its title, what it tells, its unit in Grafana, and its queries."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    is_stat: bool = False

    @property
    def size(self) -> tuple[int, int]:
        return (3, STAT_HEIGHT) if self.is_stat else (8, GRAPH_HEIGHT)


class Row(NamedTuple):
    """Panels with a common title."""

    title: str
    panels: tuple[Panel, ...]


def stat(title: str, unit: str, expression: str, description: str = "") -> Panel:
    return Panel(title, description, unit, (Query(expression),), is_stat=True)


def graph(title: str, unit: str, description: str, **queries: str) -> Panel:
    """A graph with one series per node for each query, which is named by its keyword."""
    only = len(queries) == 1
    return Panel(
        title,
        description,
        unit,
        tuple(
            Query(expression, NODE if only else f"{name.replace('_', ' ')} {NODE}")
            for name, expression in queries.items()
        ),
    )


def messages(kind: str) -> str:
    return rate(f"rabbitmq_global_messages_{kind}_total")


ROWS = (
    Row(
        "Now",
        (
            stat("Ready", "short", total("rabbitmq_queue_messages_ready")),
            stat("Unacknowledged", "short", total("rabbitmq_queue_messages_unacked")),
            stat("Published / s", "short", messages("received")),
            stat("Delivered / s", "short", messages("delivered")),
            stat("Connections", "short", total("rabbitmq_connections")),
            stat("Queues", "short", total("rabbitmq_queues")),
            stat("Consumers", "short", total("rabbitmq_consumers")),
            stat(
                "Alarms",
                "short",
                f"{total('rabbitmq_alarms_memory_used_watermark')}"
                f" + {total('rabbitmq_alarms_free_disk_space_watermark')}",
                "Memory and disk alarms: publishers are blocked unless this is 0.",
            ),
        ),
    ),
    Row(
        "Messages",
        (
            graph(
                "Queued",
                "short",
                "Messages in queues.",
                ready=total("rabbitmq_queue_messages_ready"),
                unacknowledged=total("rabbitmq_queue_messages_unacked"),
            ),
            graph(
                "Published and delivered",
                "cps",
                "Messages per second.",
                published=messages("received"),
                confirmed=messages("confirmed"),
                delivered=messages("delivered"),
                acknowledged=messages("acknowledged"),
            ),
            graph(
                "Problems",
                "cps",
                "Messages that reached no queue, and messages that were delivered again.",
                dropped=messages("unroutable_dropped"),
                returned=messages("unroutable_returned"),
                redelivered=messages("redelivered"),
            ),
            Panel(
                "Longest queues",
                "Ready messages; needs the page /metrics/per-object.",
                "short",
                (Query(longest("rabbitmq_queue_messages_ready"), "{{vhost}} {{queue}}"),),
            ),
            Panel(
                "Busiest queues",
                "Messages that entered a queue, per second; needs the page /metrics/per-object.",
                "cps",
                (
                    Query(
                        "topk(10, sum by (vhost, queue) ("
                        + joined(
                            'rate(rabbitmq_queue_messages_published_total{queue!=""}[$__rate_interval])',
                            "per-object",
                        )
                        + "))",
                        "{{vhost}} {{queue}}",
                    ),
                ),
            ),
            graph(
                "Size of messages",
                "bytes",
                "Of those that clients publish.",
                mean=mean("rabbitmq_message_size_bytes"),
                p99=quantile(0.99, "rabbitmq_message_size_bytes"),
            ),
        ),
    ),
    Row(
        "Node",
        (
            graph(
                "Delay of the event loop",
                "s",
                "How late timers run: so long a message may wait until it is read.",
                p50=quantile(0.5, "recado_event_loop_lag_seconds"),
                p99=quantile(0.99, "recado_event_loop_lag_seconds"),
            ),
            graph(
                "Memory",
                "bytes",
                "At the limit, publishers are blocked.",
                used=total("rabbitmq_process_resident_memory_bytes"),
                limit=total("rabbitmq_resident_memory_limit_bytes"),
            ),
            graph(
                "Disk",
                "bytes",
                "Below the limit, publishers are blocked.",
                free=total("rabbitmq_disk_space_available_bytes"),
                limit=total("rabbitmq_disk_space_available_limit_bytes"),
            ),
            graph(
                "Open files",
                "percentunit",
                "As a share of the limit.",
                used=ratio("rabbitmq_process_open_fds", "rabbitmq_process_max_fds"),
            ),
            graph(
                "Connections and channels",
                "cps",
                "Opened and closed per second.",
                connections_opened=rate("rabbitmq_connections_opened_total"),
                connections_closed=rate("rabbitmq_connections_closed_total"),
                channels_opened=rate("rabbitmq_channels_opened_total"),
                channels_closed=rate("rabbitmq_channels_closed_total"),
            ),
            graph(
                "Logins",
                "cps",
                "Accepted and refused per second, over AMQP and HTTP.",
                accepted=rate("rabbitmq_auth_attempts_succeeded_total"),
                refused=rate("rabbitmq_auth_attempts_failed_total"),
            ),
        ),
    ),
    Row(
        "Durability",
        (
            graph(
                "Duration of fsync",
                "s",
                "A confirm waits for one.",
                p50=quantile(0.5, "recado_fsync_seconds"),
                p99=quantile(0.99, "recado_fsync_seconds"),
            ),
            graph(
                "Operations in a commit",
                "short",
                "Messages and declarations that share one fsync, on average.",
                operations=mean("recado_commit_operations"),
            ),
            graph(
                "Journals",
                "bytes",
                "Disk space.",
                bytes=total("recado_journal_bytes"),
            ),
            graph(
                "Messages only on disk",
                "short",
                "Paged-out messages of long queues.",
                messages=total("recado_paged_out_messages"),
            ),
            graph(
                "Days until a certificate expires",
                "d",
                "The first certificate of each file; empty without TLS.",
                days="min by (rabbitmq_node) ("
                + joined("(recado_certificate_expiry_timestamp_seconds - time())")
                + ") / 86400",
            ),
        ),
    ),
    Row(
        "Feeds and status records",
        (
            Panel(
                "Lag of archives",
                "Packets that an archive of this node has not stored.",
                "short",
                (Query(by_archive("recado_feed_lag_packets"), "{{feed}} {{archive}}"),),
            ),
            Panel(
                "Wait for the disk",
                "The age of the oldest message that an archive has received and not stored.",
                "s",
                (Query(by_archive("recado_archive_lag_seconds"), "{{feed}} {{archive}}"),),
            ),
            Panel(
                "Stored by archives",
                "Messages per second.",
                "cps",
                (
                    Query(
                        by_archive("rate(recado_archive_messages_total[$__rate_interval])"),
                        "{{feed}} {{archive}}",
                    ),
                ),
            ),
            Panel(
                "Stopped archives",
                "1 for an archive that an error has stopped.",
                "short",
                (Query(by_archive("(1 - recado_archive_running)"), "{{feed}} {{archive}}"),),
            ),
            Panel(
                "Systems and pipelines",
                "Sources whose status record is kept.",
                "short",
                (
                    Query(
                        f"sum by (kind) ({joined('recado_status_records')})",
                        "{{kind}}",
                    ),
                ),
            ),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        panels.append(row_object(len(panels) + 1, row, y))
        y += ROW_HEIGHT
        x = height = 0
        for panel in row.panels:
            width, height = panel.size
            if x + width > COLUMNS_COUNT:
                x, y = 0, y + height
            panels.append(panel_object(len(panels) + 1, panel, x, y))
            x += width
        y += height
    return {
        "title": TITLE,
        "uid": "recado-overview",
        "description": "Nodes of recado: messages, delays, durability, feeds.",
        "tags": ["recado", "amqp"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


def variables() -> list[dict[str, Any]]:
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        *(
            {
                "name": name,
                "label": label,
                "type": "query",
                "datasource": DATASOURCE,
                "query": query,
                "refresh": 2,  # whenever the time range changes
                "sort": 1,
            }
            for name, label, query in (
                ("cluster", "Cluster", "label_values(rabbitmq_identity_info, rabbitmq_cluster)"),
                (
                    "endpoint",
                    "Totals from",
                    'label_values(rabbitmq_identity_info{rabbitmq_cluster="$cluster"}, rabbitmq_endpoint)',
                ),
            )
        ),
    ]


def row_object(number: int, row: Row, y: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": False,
        "gridPos": {"x": 0, "y": y, "w": COLUMNS_COUNT, "h": ROW_HEIGHT},
        "panels": [],
    }


def panel_object(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    width, height = panel.size
    return {
        "id": number,
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATASOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def render() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(render())
    print(FILE)
