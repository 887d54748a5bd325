"""What formats refuse of what Spark is told, before anything is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from recado.pipeline.feed.source import FeedSource
from recado.pipeline.options import OptionError
from recado.pipeline.queue.source import QueueSource

TEXT = StructType([StructField("body", StringType())])
BYTES = StructType([StructField("body", BinaryType())])


def test_a_column_has_one_type() -> None:
    queue = QueueSource({"url": "amqp://x", "queue": "q", "spool": "s"})
    with pytest.raises(
        OptionError, match=r'says body string, and in format\("amqp"\) it is binary'
    ):
        queue.streamReader(TEXT)
    queue.streamReader(BYTES)
    with pytest.raises(OptionError, match="there is no column 'price'"):
        queue.streamReader(StructType([StructField("price", BinaryType())]))


def test_nothing_is_overwritten() -> None:
    exchange = QueueSource(
        {"url": "amqp://x", "exchange": "", "routingKey": "q", "idColumns": "none"}
    )
    feed = FeedSource({"url": "amqp://x", "feed": "f", "idColumns": "none", "staging": "s"})
    for source in (exchange, feed):
        for writer in (source.writer, source.streamWriter):
            with pytest.raises(OptionError, match="stays there: write with mode append"):
                writer(TEXT, overwrite=True)
    exchange.writer(TEXT, overwrite=False)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(tmp_path: Path, option: str) -> None:
    feed = FeedSource({"path": str(tmp_path), option: "17"})
    with pytest.raises(OptionError, match="are for tables"):
        feed.streamReader(BYTES)
    feed.reader(BYTES)
