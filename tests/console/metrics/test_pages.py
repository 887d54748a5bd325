"""The metrics pages, read by Prometheus's own parsers."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import recado
from recado.console.metrics import pages
from recado.console.metrics.families import KINDS

from ..http import Api, segment

PROTOCOL = ("protocol", "amqp091")
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


def detailed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the samples of the chosen families."""
    return {
        (name, labels): value
        for (name, labels), value in samples(text).items()
        if name.startswith("rabbitmq_detailed_")
    }


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def test_totals_of_the_node(used: recado.Broker) -> None:
    found = samples(read(used, "/metrics"))
    assert found["rabbitmq_queue_messages_ready", ()] == 2
    assert found["rabbitmq_global_messages_received_total", (PROTOCOL,)] == 3
    classic = (PROTOCOL, ("queue_type", "rabbit_classic_queue"))
    assert found["rabbitmq_global_messages_delivered_get_auto_ack_total", classic] == 1
    quorum = (PROTOCOL, ("queue_type", "rabbit_quorum_queue"))
    assert found["rabbitmq_global_messages_delivered_get_auto_ack_total", quorum] == 0
    assert found["rabbitmq_message_size_bytes_bucket", (("le", "100.0"), PROTOCOL)] == 3
    assert found["rabbitmq_message_size_bytes_sum", (PROTOCOL,)] == 3


def test_each_object_has_its_samples_however_many_are_rendered_together(
    used: recado.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PORTION_COUNT", 2)
    queues = [
        {"name": f"q{n}", "durable": False, "auto_delete": False, "arguments": {}} for n in range(5)
    ]
    used.import_definitions({"queues": queues}, vhost="/")
    found = samples(read(used, "/metrics/per-object"))
    ready = {
        dict(labels)["queue"]: value
        for (name, labels), value in found.items()
        if name == "rabbitmq_queue_messages_ready"
    }
    assert ready == {NAME: 2, "other": 0, **{f"q{n}": 0 for n in range(5)}}


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/metrics", "aggregated"),
        ("/metrics/per-object", "per-object"),
        ("/metrics/detailed", "detailed"),
    ],
)
def test_each_page_says_which_it_is(used: recado.Broker, path: str, endpoint: str) -> None:
    found = samples(read(used, path))
    (identity,) = [dict(labels) for name, labels in found if name == "rabbitmq_identity_info"]
    assert identity["rabbitmq_endpoint"] == endpoint
    assert "rabbitmq_build_info" in {name for name, _ in found}


def test_own_metrics_of_a_node_with_a_data_folder(tmp_path: Path) -> None:
    config = {"management": {"port": 0, "metrics_port": 0}}
    with recado.Broker(data=tmp_path, config=config) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        for key in ("q", "s"):
            channel.basic_publish("", key, b"x", pika.BasicProperties(delivery_mode=2))
        connection.close()
        before = samples(read(broker, "/metrics"))
    assert before["recado_commit_operations_sum", ()] >= 4
    assert 1 <= before["recado_commit_operations_count", ()] <= 4
    assert before["recado_fsync_seconds_count", ()] >= before["recado_commit_operations_count", ()]
    assert before["recado_fsync_seconds_sum", ()] > 0
    for kind in ("queues", "streams"):
        assert before["recado_journal_bytes", (("journal", kind),)] > 0
        assert before["recado_journal_files", (("journal", kind),)] == 1
    assert before["recado_event_loop_lag_seconds_count", ()] >= 0
    with recado.Broker(data=tmp_path, config=config) as broker:
        after = samples(read(broker, "/metrics"))
    assert after["recado_paged_out_messages", ()] == 1, "it is paged in when it is needed"
    assert after["recado_paged_out_bytes", ()] > 0
    assert after["rabbitmq_queue_messages_paged_out", ()] == 1


def test_a_node_without_a_data_folder_has_no_journal(used: recado.Broker) -> None:
    names = {name for name, _ in samples(read(used, "/metrics"))}
    assert not [each for each in names if each.startswith(("recado_journal", "recado_fsync"))]


def test_each_queue_has_its_own_series(used: recado.Broker) -> None:
    found = samples(read(used, "/metrics/per-object"))
    labels = (("queue", NAME), ("vhost", "/"))
    assert found["rabbitmq_queue_messages_ready", labels] == 2
    assert found["rabbitmq_queue_messages_published_total", labels] == 3


def test_detailed_metrics_are_chosen(used: recado.Broker) -> None:
    path = "/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&queue=^other"
    found = detailed(read(used, path))
    assert {dict(labels)["queue"] for _, labels in found} == {"other"}
    assert {name for name, _ in found} == {
        "rabbitmq_detailed_queue_messages",
        "rabbitmq_detailed_queue_messages_ready",
        "rabbitmq_detailed_queue_messages_unacked",
        "rabbitmq_detailed_queue_consumers",
    }
    assert detailed(read(used, path + "&vhost=none")) == {}


ALL_FAMILIES = "&".join(f"family={name}" for kind in KINDS for name in kind.families)


def test_channels_and_connections_can_be_chosen(used: recado.Broker) -> None:
    found = detailed(
        read(used, "/metrics/detailed?family=channel_queue_metrics&family=connection_metrics")
    )
    by_name = {name.removeprefix("rabbitmq_detailed_"): value for (name, _), value in found.items()}
    assert by_name == {
        "channel_messages_delivered_ack_total": 0,
        "channel_messages_delivered_total": 0,
        "channel_messages_redelivered_total": 0,
        "channel_messages_acked_total": 0,
        "channel_get_ack_total": 0,
        "channel_get_total": 1,
        "channel_get_empty_total": 0,
        "connection_incoming_packets_total": by_name["connection_incoming_packets_total"],
        "connection_outgoing_packets_total": by_name["connection_outgoing_packets_total"],
        "connection_channels": 1,
    }


@pytest.mark.parametrize(
    "path",
    ["/metrics", "/metrics/per-object", "/metrics/detailed", f"/metrics/detailed?{ALL_FAMILIES}"],
)
def test_openmetrics(used: recado.Broker, path: str) -> None:
    text = read(used, path, "application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    families = list(parse_openmetrics(text))  # type: ignore[no-untyped-call]
    assert len(families) > 1


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
