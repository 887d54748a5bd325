"""Metrics of real nodes over time, against pandas on the same messages; a restarted node starts from 0."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas
import pika
import pytest

import recado
from recado.feeds.archive.archive import Archive
from recado.node.metrics import METRICS_FEED
from recado.pipeline.builtin import metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOOKS = 8


def live(data: Path) -> None:
    """One life of a node, with some traffic, until it was looked at some times."""
    archive = data / "feeds" / "metrics"
    before = looks(archive)
    config: dict[str, dict[str, object]] = {
        "metrics": {"publish": True, "interval": 0.1},
        "feeds": {"archives": {"metrics": {"feed": METRICS_FEED}}},
    }
    with recado.Broker(data=data, config=config) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.confirm_delivery()
        deadline = time.monotonic() + 60
        while len(looks(archive)) < len(before) + LOOKS:
            assert time.monotonic() < deadline
            channel.basic_publish("", "work", b"x", pika.BasicProperties(delivery_mode=2))
            connection.process_data_events(0.02)
        connection.close()


def looks(folder: Path) -> list[dict[str, object]]:
    if not (folder / "manifest.json").exists():
        return []
    with Archive.open(folder) as archive:
        return [json.loads(message.body) for message in archive.messages()]


def test_metrics_over_time(spark: SparkSession, tmp_path: Path) -> None:
    live(tmp_path)
    live(tmp_path)
    folder = tmp_path / "feeds" / "metrics"
    rows = spark.read.format("recado").option("path", str(folder)).load()
    found: Any = metrics.compute_metrics(rows, "1 second").toPandas()
    seen = pandas.DataFrame(looks(folder))
    assert len(seen) >= 2 * LOOKS
    assert found["started"].nunique() == 2
    expected = 0
    for (_, second), group in seen.groupby(["started", seen["at"] // 1_000_000]):
        group = group.sort_values("at")
        first, last = group.iloc[0], group.iloc[-1]
        start = pandas.Timestamp(second, unit="s", tz="UTC").tz_localize(None)
        at = pandas.Timestamp(first["started"], unit="us")
        line = found[(found["start"] == start) & (found["started"] == at)].iloc[0]
        assert line["looks"] == len(group)
        assert line["memory_used"] == pytest.approx(group["memory_used"].mean())
        assert line["messages_ready_max"] == group["messages_ready"].max()
        if len(group) > 1:
            passed = (last["at"] - first["at"]) / 1e6
            for total in metrics.TOTALS:
                assert line[f"{total}_per_second"] == pytest.approx(
                    (last[total] - first[total]) / passed
                )
            busy = (last["processor_seconds"] - first["processor_seconds"]) / passed
            assert line["processors"] == pytest.approx(busy)
        expected += 1
    assert len(found) == expected
    assert found["published_per_second"].max() > 0
