"""The calls that Spark makes to the source, made here without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from recado.amqp.properties import Properties
from recado.client import ChannelClosedByBrokerError, connect_blocking
from recado.pipeline.options import OptionError
from recado.pipeline.queue import consumer
from recado.pipeline.queue.consumer import NoDeliveriesError
from recado.pipeline.queue.source import QueueSource, QueueStreamReader, SpoolMismatchError
from workshop.peers import Server

Name = Callable[[str], str]

pytestmark = pytest.mark.parametrize("server", ["recado"], indirect=True)


def reader(url: str, queue: str, spool: Path, **options: str) -> QueueStreamReader:
    given = {"url": url, "queue": queue, "spool": str(spool), **options}
    return QueueSource(given).streamReader(StructType().add("body", "binary").add("offset", "long"))


def publish(url: str, queue: str, count: int) -> None:
    with connect_blocking(url) as connection:
        channel = connection.channel()
        channel.declare_queue(queue, durable=True)
        for number in range(count):
            channel.publish("", queue, b"%d" % number, Properties(message_id=f"id-{number}"))
        channel.wait_for_confirms()


def rows_of(source: QueueStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    """As the workers read them, from a copy that was sent there."""
    worker = pickle.loads(pickle.dumps(reader_like(source)))
    parts = pickle.loads(pickle.dumps(source.partitions(start, end)))
    batches = [batch for part in parts for batch in worker.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def reader_like(source: QueueStreamReader) -> QueueStreamReader:
    """Spark sends one that has opened nothing."""
    return QueueStreamReader(source._options, source._schema)


def test_a_life_of_batches(server: Server, name: Name, tmp_path: Path) -> None:
    queue = name("batches")
    publish(server.url, queue, 10)
    source = reader(server.url, queue, tmp_path, maxRowsPerTrigger="4")
    assert source.getDefaultReadLimit() == ReadMaxRows(4)
    assert source.reportLatestOffset() is None
    source.prepareForTriggerAvailableNow()
    first = source.initialOffset()
    second = source.latestOffset(first, ReadMaxRows(4))
    assert source.initialOffset() == first
    assert (first["next"], second["next"]) == (0, 4)
    assert rows_of(source, first, second) == [
        {"body": b"%d" % number, "offset": number} for number in range(4)
    ]
    third = source.latestOffset(second, ReadAllAvailable())
    source.commit(second)
    assert source.reportLatestOffset() == third
    assert [row["offset"] for row in rows_of(source, second, third)] == [4, 5, 6, 7, 8, 9]
    assert source.latestOffset(third, ReadAllAvailable()) == third
    assert source.partitions(third, third) == []
    source.stop()

    again = reader(server.url, queue, tmp_path)
    assert again.getDefaultReadLimit() == ReadAllAvailable()
    assert [row["offset"] for row in rows_of(again, second, third)] == [4, 5, 6, 7, 8, 9]
    assert again.latestOffset(third, ReadAllAvailable()) == third
    again.commit(third)
    again.stop()


def test_a_batch_of_all_that_a_full_spool_has_is_not_the_last(
    server: Server, name: Name, tmp_path: Path
) -> None:
    queue = name("full")
    publish(server.url, queue, 40)
    source = reader(server.url, queue, tmp_path, prefetch="5", maxSpoolBytes="1000")
    source.prepareForTriggerAvailableNow()
    batches = [source.initialOffset()]
    while (end := source.latestOffset(batches[-1], ReadAllAvailable())) != batches[-1]:
        source.commit(batches[-1])  # Spark commits one only when it has rows for another
        batches.append(end)
    assert batches[-1]["next"] == 40
    assert len(batches) > 2
    source.stop()


@pytest.mark.parametrize("only_what_is_there", [True, False])
def test_a_spool_that_is_full_of_what_is_done(
    server: Server, name: Name, tmp_path: Path, only_what_is_there: bool
) -> None:
    """Spark commits a batch when it has the next one, which would never be."""
    queue = name("full")
    publish(server.url, queue, 10)
    source = reader(server.url, queue, tmp_path, maxSpoolBytes="1", prefetch="1")
    if only_what_is_there:
        source.prepareForTriggerAvailableNow()
    place = source.initialOffset()
    found: list[int] = []
    while len(found) < 10:
        following = source.latestOffset(place, ReadAllAvailable())
        assert following != place or not only_what_is_there, "it would end here"
        found += [int(row["body"]) for row in rows_of(source, place, following)]
        place = following
    assert found == list(range(10))
    source.stop()


def test_messages_that_do_not_come_are_not_waited_for(
    server: Server, name: Name, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream gives out what comes from now on; availableNow would wait for what is there for ever."""
    monkeypatch.setattr(consumer, "_IDLE_POLL_COUNT_MAX", 3)
    queue = name("stream")
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "stream"})
        channel.publish("", queue, b"kept", Properties())
        channel.wait_for_confirms()
    source = reader(server.url, queue, tmp_path)
    source.prepareForTriggerAvailableNow()
    with pytest.raises(NoDeliveriesError, match="has 1 messages, but the broker delivers none"):
        source.latestOffset(source.initialOffset(), ReadAllAvailable())
    source.stop()


def test_what_is_taken_for_a_repeat_is_counted(server: Server, name: Name, tmp_path: Path) -> None:
    queue = name("repeats")
    for _ in range(3):
        publish(server.url, queue, 2)
    source = reader(server.url, queue, tmp_path)
    source.prepareForTriggerAvailableNow()
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    assert end["next"] == 2
    assert source.reportLatestOffset() == end | {"repeats": 4}
    source.stop()


def test_a_checkpoint_and_a_spool_that_do_not_belong_together(
    server: Server, name: Name, tmp_path: Path
) -> None:
    queue = name("apart")
    publish(server.url, queue, 1)
    source = reader(server.url, queue, tmp_path)
    source.prepareForTriggerAvailableNow()
    offset = source.initialOffset()
    with pytest.raises(SpoolMismatchError, match="its id differs"):
        source.latestOffset(offset | {"spool": "00"}, ReadAllAvailable())
    with pytest.raises(SpoolMismatchError, match="at row 7, but the spool ends at"):
        source.latestOffset(offset | {"next": 7}, ReadAllAvailable())
    source.stop()
    with connect_blocking(server.url) as connection:  # who then deletes both has lost nothing
        assert connection.channel().declare_queue(queue, passive=True).message_count == 1


def test_a_queue_that_is_not_there(server: Server, name: Name, tmp_path: Path) -> None:
    source = reader(server.url, name("none"), tmp_path)
    source.prepareForTriggerAvailableNow()
    with pytest.raises(ChannelClosedByBrokerError, match="404"):
        source.latestOffset(source.initialOffset(), ReadAllAvailable())
    source.stop()


def test_options_are_checked_before_anything_is_opened(server: Server, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs the option spool"):
        QueueSource({"url": server.url, "queue": "q"}).streamReader(StructType())
    with pytest.raises(OptionError, match=r"no option 'prefetched'; did you mean prefetch\?"):
        reader(server.url, "q", tmp_path, prefetched="3")
    with pytest.raises(OptionError, match="prefetch"):
        reader(server.url, "q", tmp_path, prefetch="0")
    with pytest.raises(OptionError, match="url"):
        reader("http://nowhere", "q", tmp_path)
    given = {"url": server.url, "queue": "q", "spool": str(tmp_path)}
    with pytest.raises(OptionError, match="did you mean prefetch"):
        QueueSource({**given, "prefetsh": "1"}).schema()  # which load() calls
    with pytest.raises(OptionError, match="catalog table"):
        QueueSource({**given, "provider": "amqp", "owner": "ana"}).schema()
    with pytest.raises(OptionError, match="unknown column 'price'"):
        QueueSource(given).streamReader(StructType().add("price", "double"))
    with pytest.raises(OptionError, match="a queue is read as a stream"):
        QueueSource({}).reader(StructType())
    assert QueueSource.name() == "amqp"
    assert list(tmp_path.iterdir()) == []
