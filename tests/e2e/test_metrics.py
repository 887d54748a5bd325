"""The metrics next to those of RabbitMQ's plugin: the same names, types and labels, and the same counts after
the same traffic.

`ABSENT` lists the metrics of RabbitMQ that have no counterpart; docs/management.md says why.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import NamedTuple

import pika
import pytest
from pika.exceptions import NackError, UnroutableError
from prometheus_client.parser import text_string_to_metric_families as parse

import recado
from tests.console.http import Api
from workshop import peers
from workshop.time_limit import scale

from .traffic import PATIENCE, Inbox

# Names without the prefix `rabbitmq_`. Whole groups are patterns.
ABSENT = (
    # Erlang, its processes, and RabbitMQ's stores
    r"erlang_(processes|gc|scheduler|net)_.*",
    r".*_process_reductions_total",
    r"queue_process_memory_bytes",
    r"(io|msg_store|queue_index|schema_db|raft)_.*",
    r"queue_disk_(reads|writes)_total",
    # not measured
    r"queue_messages_((ready|unacked|persistent)_)?(ram|bytes)",
    r"queue_messages_(ram|persistent)_bytes",
    r"queue_messages_(ready|unacked)_ram",
    r"queue_messages_(persistent|ram)",
    r"queue_head_message_timestamp",
    r"queue_consumer_(capacity|utilisation)",
    r"channel_(messages|acks)_uncommitted",
    r"connection_pending_packets",
    r"global_messages_dead_lettered_.*",
)
ABSENT_LABELS = {
    "channel",  # there: an Erlang process; here: the name in the API
    "exchange",  # a channel counts the messages of all exchanges and queues together
    "queue_vhost",
    "queue",
    "exchange_vhost",
    "vhost",
}
PAGES = ("/metrics", "/metrics/per-object")


class Family(NamedTuple):
    """The type of a metric, and the label names of its samples."""

    kind: str
    labels: frozenset[str]


class Sides(NamedTuple):
    """The metrics ports and AMQP addresses of both brokers."""

    ours: Api
    theirs: Api
    urls: tuple[str, str]


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    (port,) = peers.free_ports(1)
    settings = {"prometheus.tcp.ip": peers.HOST, "prometheus.tcp.port": str(port)}
    with (
        peers.rabbitmq(settings=settings, plugins=["rabbitmq_prometheus"]) as rabbit,
        recado.Broker(config={"management": {"port": 0, "metrics_port": 0}}) as broker,
    ):
        assert broker.metrics_port is not None
        theirs = Api(port)
        deadline = time.monotonic() + scale(PATIENCE)
        while not serves_metrics(theirs):
            assert time.monotonic() < deadline
            time.sleep(0.1)  # the plugin listens a little later than the broker
        yield Sides(Api(broker.metrics_port), theirs, (broker.url, rabbit.url))


def serves_metrics(api: Api) -> bool:
    with suppress(OSError):
        return api.request("GET", "/metrics").status == 200
    return False


def families(api: Api, page: str) -> dict[str, Family]:
    """Return the metrics of a page by the name of their samples; a histogram is one."""
    text: str = api.request("GET", page).body
    return {
        sample.name if family.type == "counter" else family.name: Family(
            family.type, frozenset(label for each in family.samples for label in each.labels)
        )
        for family in parse(text)
        for sample in family.samples[:1]
    }


def counters(api: Api) -> dict[str, float]:
    """Return the global counters and gauges, and those of declarations, with the type of queue if they have it.

    Without `publishers`, which RabbitMQ 3.10 decreases also when a channel closes that has never published, and
    without deleted queues, which it may count seconds later.
    """
    text: str = api.request("GET", "/metrics").body
    return {
        f"{sample.name.removeprefix('rabbitmq_global_')} {sample.labels.get('queue_type', '')}": (
            sample.value
        )
        for family in parse(text)
        for sample in family.samples
        if sample.name.startswith(("rabbitmq_global_", "rabbitmq_queues_"))
        and not re.search("dead_lettered|publishers|queues_deleted", sample.name)
    }


@pytest.mark.parametrize("page", PAGES)
def test_the_same_metrics_have_the_same_types_and_labels(sides: Sides, page: str) -> None:
    with ExitStack() as stack:
        for url in sides.urls:
            connection = pika.BlockingConnection(pika.URLParameters(url))
            channel = stack.enter_context(connection).channel()
            channel.queue_declare("typed", auto_delete=True)
            channel.basic_publish("", "typed", b"x")
            channel.basic_get("typed", auto_ack=True)
            channel.basic_consume("typed", lambda *_: None)
        absent = re.compile("|".join(f"(rabbitmq_{each})" for each in ABSENT))
        wanted = {
            name: family
            for name, family in families(sides.theirs, page).items()
            if name.startswith("rabbitmq_") and not absent.fullmatch(name)
        }
        found = families(sides.ours, page)
    assert len(wanted) > 40
    assert sorted(wanted.keys() - found.keys()) == []
    for name, family in wanted.items():
        assert found[name].kind == family.kind, name
        assert family.labels - found[name].labels <= ABSENT_LABELS, name
    assert not [name for name in found if absent.fullmatch(name)]


class Traffic:
    """The same operations on one of the brokers."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.plain, self.confirming = self.connection.channel(), self.connection.channel()

    def declare(self) -> None:
        self.confirming.confirm_delivery()
        for queue_type in ("classic", "quorum", "stream"):
            arguments = {"x-queue-type": queue_type}
            self.plain.queue_declare(queue_type, durable=True, arguments=arguments)
            self.plain.queue_bind(queue_type, "amq.fanout")
        limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
        for _ in range(2):
            self.plain.queue_declare("small", arguments=limits)
        self.plain.queue_declare("small", passive=True)

    def publish(self) -> None:
        for channel in (self.plain, self.confirming):
            for key, mandatory in (
                ("classic", False),
                ("classic", True),
                ("nowhere", False),
                ("nowhere", True),
            ):
                with suppress(UnroutableError):
                    channel.basic_publish("", key, b"x", mandatory=mandatory)
            channel.basic_publish("amq.fanout", "", b"x")
        copies = pika.BasicProperties(headers={"CC": ["quorum", "nowhere"]})
        self.confirming.basic_publish("", "classic", b"x", copies)
        for _ in range(3):
            with suppress(NackError):
                self.confirming.basic_publish("", "small", b"x")

    def get(self) -> None:
        for queue, auto_ack in (("classic", True), ("classic", False), ("quorum", False)):
            method, _, _ = self.plain.basic_get(queue, auto_ack=auto_ack)
            if not auto_ack:
                self.plain.basic_reject(method.delivery_tag, requeue=True)
        self.plain.basic_get("small", auto_ack=True)
        self.plain.basic_get("small", auto_ack=True)

    def consume(self) -> None:
        self.take("classic", 4)
        self.take("classic", 4, auto_ack=True)
        self.take("quorum", 3)
        self.take("stream", 2, arguments={"x-stream-offset": "first"})

    def take(self, queue: str, count: int, **options: object) -> None:
        """Consume messages, acknowledge half of them, and return the others by closing the channel."""
        channel = self.connection.channel()
        channel.basic_qos(prefetch_count=count)
        inbox = Inbox(channel, queue, **options)
        deliveries = inbox.wait(count)
        channel.basic_cancel(inbox.tag)  # so that no message takes the place of an acknowledged one
        if "auto_ack" not in options:
            for delivery in deliveries[: count // 2]:
                channel.basic_ack(delivery.tag)
        channel.close()

    def finish(self) -> None:
        for queue in ("classic", "quorum", "stream", "small"):
            self.plain.queue_delete(queue)


def test_the_same_traffic_counts_the_same(sides: Sides) -> None:
    both = [Traffic(url) for url in sides.urls]
    apis = (sides.ours, sides.theirs)
    await_equal_increase(apis, [{"consumers ": 0.0}, {"consumers ": 0.0}], "of earlier tests")
    before = [counters(api) for api in apis]
    try:
        for step in ("declare", "publish", "get", "consume", "finish"):
            for traffic in both:
                getattr(traffic, step)()
            await_equal_increase(apis, before, step)
    finally:
        for traffic in both:
            if traffic.connection.is_open:
                traffic.connection.close()


def await_equal_increase(apis: tuple[Api, Api], before: list[dict[str, float]], step: str) -> None:
    """Compare what was counted since `before`. RabbitMQ counts a little later than it answers."""
    deadline = time.monotonic() + scale(PATIENCE)
    while True:
        ours, theirs = (
            {name: value - start[name] for name, value in counters(api).items() if name in start}
            for api, start in zip(apis, before, strict=True)
        )
        if ours == theirs or time.monotonic() > deadline:
            assert ours == theirs, step
            return
        time.sleep(0.05)
