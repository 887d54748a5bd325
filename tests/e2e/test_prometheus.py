"""Metrics as Prometheus and its tools read them: Debian's promtool and Prometheus, the queries of Grafana's
dashboard 10991, and those of our own dashboard."""

from __future__ import annotations

import json
import math
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress

import pika
import pytest
from pika.exceptions import UnroutableError

import recado
from recado.console.metrics.families import KINDS
from recado.console.resources.prometheus import DASHBOARD
from tests.certificate_folder import CertificateFolder
from tests.console.http import Api
from workshop import grafana, system
from workshop.prometheus import Prometheus, QueryRefusedError, prometheus
from workshop.time_limit import scale

from .dashboard_10991 import NODE_TABLE, PANELS, VARIABLES, Panel, Reading
from .traffic import PATIENCE, Inbox

ALL_FAMILIES = "&".join(f"family={name}" for kind in KINDS for name in kind.families)
RANGE_S = 600  # of rates: all scrapes, however long a busy machine takes for the tests
PAGES = ("/metrics", "/metrics/per-object", f"/metrics/detailed?{ALL_FAMILIES}")


class UsedNode:
    """A node with a data folder, on which every counter grows with each call of `work`."""

    def __init__(self, broker: recado.Broker) -> None:
        self.broker = broker
        self._connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        self._plain = self._connection.channel()
        self._confirming = self._connection.channel()
        self._confirming.confirm_delivery()
        self._plain.queue_declare("orders", durable=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.broker.metrics_port}"

    def read(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://{self.address}{path}", timeout=60) as response:
            page: bytes = response.read()
        return page

    def work(self) -> None:
        persistent = pika.BasicProperties(delivery_mode=2)
        for size in (10, 500, 5_000, 50_000):
            self._confirming.basic_publish("", "orders", bytes(size), persistent)
        self._plain.basic_publish("", "nowhere", b"dropped")
        with suppress(UnroutableError):
            self._confirming.basic_publish("", "nowhere", b"returned", mandatory=True)
        method, *_ = self._plain.basic_get("orders")
        self._plain.basic_reject(method.delivery_tag, requeue=True)
        self._plain.basic_get("orders", auto_ack=True)
        self._consume(auto_ack=False)
        self._consume(auto_ack=True)
        self._plain.basic_get("orders", auto_ack=True)
        self._plain.queue_delete(self._plain.queue_declare("").method.queue)
        pika.BlockingConnection(pika.URLParameters(self.broker.url)).close()

    def _consume(self, *, auto_ack: bool) -> None:
        channel = self._connection.channel()
        channel.basic_qos(prefetch_count=2)
        inbox = Inbox(channel, "orders", auto_ack=auto_ack)
        inbox.wait(2)
        channel.basic_cancel(inbox.tag)
        if not auto_ack:
            channel.basic_ack(inbox.deliveries[0].tag)
        channel.close()

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UsedNode]:
    """A node with everything that metrics are about: certificates, an archive, status records."""
    config: dict[str, dict[str, object]] = {
        "server": CertificateFolder(tmp_path_factory.mktemp("tls")).config()["server"],
        "management": {"port": 0, "metrics_port": 0, "status": True},
        "feeds": {"archives": {"archive-1": {"feed": "quotes"}}},
    }
    with recado.Broker(data=tmp_path_factory.mktemp("data"), config=config) as broker:
        used = UsedNode(broker)
        used.work()
        yield used
        used.close()


@pytest.fixture(scope="module")
def scraped(node: UsedNode) -> Iterator[Prometheus]:
    """Prometheus, which has scraped the node before and after it worked."""
    targets = {"recado": f"{node.address}/metrics", "objects": f"{node.address}/metrics/per-object"}
    with prometheus(targets) as running:
        # Of each target: the other one may have been scraped already.
        scrapes = [f'rabbitmq_identity_info{{job="{job}"}}' for job in targets]
        for each in scrapes:
            running.await_samples(each, 1)
        before = [running.count_samples(each) for each in scrapes]
        node.work()
        for each, count in zip(scrapes, before, strict=True):
            running.await_samples(each, count + 2)
        yield running


def cluster_of(server: Prometheus) -> str:
    (cluster,) = {
        each.labels["rabbitmq_cluster"] for each in server.query("rabbitmq_identity_info")
    }
    return cluster


@pytest.mark.parametrize("page", PAGES)
def test_promtool_finds_no_fault(node: UsedNode, page: str) -> None:
    (promtool,) = system.need(system.PROMTOOL)
    done = subprocess.run(
        [promtool, "check", "metrics"],
        input=node.read(page),
        capture_output=True,
        timeout=scale(PATIENCE),
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_prometheus_scrapes_both_pages(scraped: Prometheus) -> None:
    assert {each.labels["job"]: each.value for each in scraped.query("up")} == {
        "recado": 1,
        "objects": 1,
    }
    scraped.query("rabbitmq_queues")
    with pytest.raises(QueryRefusedError, match="parse error"):
        scraped.query("sum(")


def test_types_reach_prometheus(scraped: Prometheus) -> None:
    """It reads the OpenMetrics form, where the name of a counter has no suffix."""
    kinds = scraped.read_types()
    assert kinds["rabbitmq_global_messages_received"] == "counter"
    assert kinds["rabbitmq_message_size_bytes"] == "histogram"
    assert kinds["rabbitmq_queue_messages_ready"] == "gauge"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_each_panel_of_the_dashboard_has_data(scraped: Prometheus, panel: Panel) -> None:
    for query in panel.queries(cluster_of(scraped), RANGE_S):
        (series,) = scraped.query(query)
        assert not math.isnan(series.value), query
        if panel.reading in (Reading.RATE, Reading.INCREASE) and panel.operator != "-":
            assert series.value > 0, query


def test_the_table_of_nodes_has_its_labels(scraped: Prometheus) -> None:
    query = " * ".join(
        f"on(instance, job) group_left({', '.join(labels)}) {metric}" if labels else metric
        for metric, labels in NODE_TABLE.items()
    )
    (series,) = scraped.query(f'{query}{{rabbitmq_endpoint="aggregated"}}')
    wanted = {label for labels in NODE_TABLE.values() for label in labels}
    assert wanted <= {label for label, value in series.labels.items() if value}


def test_the_variables_of_the_dashboard_have_values(scraped: Prometheus) -> None:
    found = scraped.query(f"group by ({', '.join(VARIABLES)}) (rabbitmq_identity_info)")
    assert {each.labels["rabbitmq_endpoint"] for each in found} == {"aggregated", "per-object"}
    assert all("namespace" not in each.labels for each in found), "it is that of Kubernetes"


def test_series_per_object_can_be_joined(scraped: Prometheus) -> None:
    (series,) = scraped.query(
        'sum by (queue, rabbitmq_cluster) (rabbitmq_queue_messages_ready{queue="orders"}'
        " * on(instance, job) group_left(rabbitmq_cluster)"
        ' rabbitmq_identity_info{rabbitmq_endpoint="per-object"})'
    )
    assert series.labels == {"queue": "orders", "rabbitmq_cluster": cluster_of(scraped)}


def test_own_histograms_have_quantiles(scraped: Prometheus) -> None:
    for metric in (
        "recado_fsync_seconds",
        "recado_commit_operations",
        "recado_event_loop_lag_seconds",
    ):
        (series,) = scraped.query(
            f'histogram_quantile(0.99, sum by (le) (rate({metric}_bucket{{job="recado"}}[{RANGE_S}s])))'
        )
        assert series.value > 0, metric


def expressions_of_own_dashboard() -> list[str]:
    return [
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel.get("targets", [])
    ]


@pytest.mark.parametrize("expression", expressions_of_own_dashboard())
def test_each_query_of_our_own_dashboard_has_data(scraped: Prometheus, expression: str) -> None:
    query = expression.replace("$cluster", cluster_of(scraped)).replace("$endpoint", "aggregated")
    found = scraped.query(query.replace("$__rate_interval", f"{RANGE_S}s"))
    assert found, query
    assert not any(math.isnan(series.value) for series in found), query


def test_the_variables_of_our_own_dashboard_have_values(scraped: Prometheus) -> None:
    document = json.loads(DASHBOARD.read_text())
    _, *variables = document["templating"]["list"]
    assert [each["name"] for each in variables] == ["cluster", "endpoint"]
    for variable in variables:
        selector, label = variable["query"].removeprefix("label_values(")[:-1].rsplit(", ", 1)
        found = scraped.query(
            f"group by ({label}) ({selector.replace('$cluster', cluster_of(scraped))})"
        )
        assert all(series.labels[label] for series in found)


def test_the_dashboard_is_up_to_date_and_can_be_downloaded(node: UsedNode) -> None:
    assert DASHBOARD.read_text() == grafana.render(), "run `python -m workshop.grafana`"
    assert node.broker.management_port is not None
    found = Api(node.broker.management_port).get("/api/grafana.json")
    assert found == grafana.dashboard()
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(places)) == len(places), "no panel covers another"
    assert max(x for x, _ in places) < grafana.COLUMNS_COUNT
