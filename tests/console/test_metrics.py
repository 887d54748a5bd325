"""The metrics pages, read by Prometheus's own parsers."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pika
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import recado
from recado.console.metrics import Writer

from .http import Api, segment

# Facts: what the panels of Grafana's dashboard 10991 query and join on.
DASHBOARD = [
    "rabbitmq_identity_info",
    "rabbitmq_build_info",
    "rabbitmq_erlang_uptime_seconds",
    "rabbitmq_queues",
    "rabbitmq_channels",
    "rabbitmq_connections",
    "rabbitmq_channels_opened_total",
    "rabbitmq_channels_closed_total",
    "rabbitmq_connections_opened_total",
    "rabbitmq_connections_closed_total",
    "rabbitmq_queues_declared_total",
    "rabbitmq_queues_created_total",
    "rabbitmq_queues_deleted_total",
    "rabbitmq_queue_messages_ready",
    "rabbitmq_queue_messages_unacked",
    "rabbitmq_global_publishers",
    "rabbitmq_global_consumers",
    "rabbitmq_global_messages_received_total",
    "rabbitmq_global_messages_received_confirm_total",
    "rabbitmq_global_messages_routed_total",
    "rabbitmq_global_messages_confirmed_total",
    "rabbitmq_global_messages_delivered_total",
    "rabbitmq_global_messages_redelivered_total",
    "rabbitmq_global_messages_acknowledged_total",
    "rabbitmq_global_messages_get_empty_total",
    "rabbitmq_global_messages_delivered_consume_auto_ack_total",
    "rabbitmq_global_messages_delivered_consume_manual_ack_total",
    "rabbitmq_global_messages_delivered_get_auto_ack_total",
    "rabbitmq_global_messages_delivered_get_manual_ack_total",
    "rabbitmq_disk_space_available_bytes",
    "rabbitmq_disk_space_available_limit_bytes",
    "rabbitmq_process_open_fds",
    "rabbitmq_process_max_fds",
    "rabbitmq_process_resident_memory_bytes",
    "rabbitmq_resident_memory_limit_bytes",
]
NAME = 'orders "new"\\x'


@pytest.fixture
def used(broker: recado.Broker) -> Iterator[recado.Broker]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare(NAME)
    for _ in range(3):
        channel.basic_publish("", NAME, b"x")
    channel.basic_get(NAME, auto_ack=True)
    channel.queue_declare("other", auto_delete=True)
    yield broker
    connection.close()


def read(broker: recado.Broker, path: str, accept: str = "") -> str:
    url = f"http://127.0.0.1:{broker.metrics_port}{path}"
    request = urllib.request.Request(url, headers={"accept": accept})
    with urllib.request.urlopen(request, timeout=60) as response:
        text: str = response.read().decode()
    return text


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def test_totals_have_everything_that_the_dashboard_needs(used: recado.Broker) -> None:
    found = samples(read(used, "/metrics"))
    names = {name for name, _ in found}
    assert [name for name in DASHBOARD if name not in names] == []
    assert found["rabbitmq_queue_messages_ready", ()] == 2
    protocol = (("protocol", "amqp091"),)
    assert found["rabbitmq_global_messages_received_total", protocol] == 3
    assert found["rabbitmq_global_messages_delivered_get_auto_ack_total", protocol] == 1
    (identity,) = [dict(labels) for name, labels in found if name == "rabbitmq_identity_info"]
    assert identity["rabbitmq_endpoint"] == "aggregated"
    assert "recado_event_loop_lag_seconds_bucket" in names


def test_each_queue_has_its_own_series(used: recado.Broker) -> None:
    found = samples(read(used, "/metrics/per-object"))
    labels = (("queue", NAME), ("vhost", "/"))
    assert found["rabbitmq_queue_messages_ready", labels] == 2
    assert found["rabbitmq_queue_messages_published_total", labels] == 3


def test_detailed_metrics_are_chosen(used: recado.Broker) -> None:
    path = "/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&queue=^other"
    found = samples(read(used, path))
    assert {dict(labels)["queue"] for _, labels in found} == {"other"}
    assert {name for name, _ in found} == {
        "rabbitmq_detailed_queue_messages",
        "rabbitmq_detailed_queue_messages_ready",
        "rabbitmq_detailed_queue_messages_unacked",
        "rabbitmq_detailed_queue_consumers",
    }
    assert samples(read(used, path + "&vhost=none")) == {}


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object", "/metrics/detailed?family=x"])
def test_openmetrics(used: recado.Broker, path: str) -> None:
    text = read(used, path, "application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    families = list(parse_openmetrics(text))  # type: ignore[no-untyped-call]
    assert bool(families) is ("family=x" not in path)


def test_the_management_port_requires_a_login(used: recado.Broker, api: Api) -> None:
    assert api.request("GET", "/metrics").status == 200
    assert Api(api.port, user="").request("GET", "/metrics").status == 401


def test_totals_include_deleted_queues(used: recado.Broker, api: Api) -> None:
    def read_totals() -> dict[str, float]:
        found = samples(read(used, "/metrics"))
        return {name: value for (name, _), value in found.items() if "global_messages" in name}

    before = read_totals()
    assert before["rabbitmq_global_messages_routed_total"] == 3
    assert api.delete(f"/api/queues/%2F/{segment(NAME)}") == 204
    assert read_totals() == before


@pytest.mark.parametrize("value", [12_345_678_901, 0.1234567890123])
def test_samples_have_all_digits(value: float) -> None:
    line = Writer(openmetrics=False).sample("x_total", (), value)
    assert line == f"x_total {value}\n".encode()
