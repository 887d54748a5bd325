"""The counters of a node on their feed; a node that does not publish them does not import feeds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pika
import pytest

import recado.feeds
from recado.node.config import ConfigError, from_mapping
from recado.node.metrics import METRICS_FEED, CounterReader, Counters, MetricsStartError
from recado.node.settings import MetricsSettings
from tests.feeds.io.loop import in_the_loop

QUICKLY: dict[str, dict[str, object]] = {"metrics": {"publish": True, "interval": 0.05}}


def work(url: str) -> pika.BlockingConnection:
    """Ten messages, confirmed; six of them delivered, four acknowledged."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.queue_declare("work", durable=True)
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", "work", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    for _ in range(6):
        tag = channel.basic_get("work")[0].delivery_tag
    channel.basic_ack(tag - 2, multiple=True)
    channel.queue_declare("work", passive=True)  # the broker has read the ack
    return connection


async def told(
    broker: recado.Broker, is_enough: Callable[[list[Counters]], bool]
) -> list[Counters]:
    """Return the first records on the feed, until they are enough."""
    async with recado.feeds.connect(broker.url) as link:
        feed = link.feed(METRICS_FEED)
        async with feed.subscribe("watcher") as messages:
            found = []
            async for message in messages:
                assert message.key == broker.address
                found.append(msgspec.json.decode(message.body, type=Counters))
                if is_enough(found):
                    return found
    raise AssertionError("the feed ended")


@in_the_loop
async def test_counters_are_published_again_and_again(tmp_path: Path) -> None:
    async with recado.Broker(data=tmp_path, config=QUICKLY) as broker:
        connection = await asyncio.to_thread(work, broker.url)
        # A loop that was late publishes two records at once, and the second does not count the first.
        first, *_, last = await told(broker, lambda found: found[-1].published > found[0].published)
        await asyncio.to_thread(connection.close)
    assert first.node == last.node
    assert first.started == last.started < first.at < last.at
    assert first.journal_bytes
    assert first.disk_free
    assert first.syncs
    assert first.sync_seconds
    assert 0 < first.memory_used < first.memory_limit
    assert first.processor_seconds > 0
    assert first.alarm is None


def is_pair(found: list[Counters]) -> bool:
    return len(found) == 2


@in_the_loop
async def test_counters_are_published_each_second_by_default() -> None:
    assert MetricsSettings().interval == 1.0
    async with recado.Broker(config={"metrics": {"publish": True}}) as broker:
        first, second = (each.at / 1e6 - each.late_seconds for each in await told(broker, is_pair))
    assert second - first == pytest.approx(1.0, abs=0.5)  # of a machine that is busy


def test_counters_match_the_operations(tmp_path: Path) -> None:
    with recado.Broker(data=tmp_path) as broker:
        running = broker._require_running()
        gauge = CounterReader(running.server, running.data_folder, broker.address, 0.6)
        connection = work(broker.url)
        during = broker._run_on_broker(lambda *_: gauge.read())  # in the loop's thread
        connection.close()
        after = broker._run_on_broker(lambda *_: gauge.read())
    assert during.connections == during.channels == during.queues == 1
    assert (during.messages_ready, during.messages_unacknowledged) == (4, 2)
    done = during.published, during.confirmed, during.delivered, during.acknowledged
    assert done == (10, 10, 6, 4)
    assert (after.channels, after.messages_ready, after.messages_unacknowledged) == (0, 6, 0)
    assert (after.published, after.confirmed, after.delivered, after.acknowledged) == done


def test_without_a_data_folder_nothing_is_said_of_the_disk() -> None:
    with recado.Broker() as broker:
        gauge = CounterReader(broker._require_running().server, None, broker.address, 0.6)
        counters = broker._run_on_broker(lambda *_: gauge.read())
    assert counters.disk_free is counters.journal_bytes is counters.syncs is None


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"feeds": {"user": "nobody"}}, "feeds.user"),
        ({"metrics": {"publish": True, "vhost": "elsewhere"}}, "metrics.vhost"),
        ({"metrics": {"publish": True, "interval": 0}}, "metrics.interval"),
    ],
)
def test_invalid_settings_are_reported_before_the_start(
    change: dict[str, object], wrong: str
) -> None:
    with pytest.raises(ConfigError, match=wrong):
        from_mapping({"metrics": {"publish": True}, **change})


@in_the_loop
async def test_a_user_without_permission_fails_the_start(tmp_path: Path) -> None:
    settings: dict[str, dict[str, object]] = {
        **QUICKLY,
        "access": {"users": {"ana": {"password": "x"}}},
        "feeds": {"user": "ana"},
    }
    with pytest.raises(MetricsStartError, match=r"metrics\.publish"):
        await recado.Broker(config=settings).__aenter__()
    assert len(asyncio.all_tasks()) == 1


def test_a_node_that_does_not_publish_loads_nothing_of_it() -> None:
    program = (
        "import recado, sys\n"
        "with recado.Broker(): print([m for m in sys.modules if 'metrics' in m or 'feeds' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"
