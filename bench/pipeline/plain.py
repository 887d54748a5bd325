"""A source and a sink of queues as written with pika and the examples of PySpark: correct, and row by row.

The sink waits for confirms, as ours does. The source stores nothing on disk: acknowledged messages are lost
with the driver. It reads everything in one batch, because Spark gives such a source one batch with the trigger
availableNow.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from datetime import UTC, datetime
from typing import Any

import pika
from pyspark.sql import Row
from pyspark.sql.datasource import (
    DataSource,
    DataSourceWriter,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from recado.pipeline.row_schema import PROPERTY_TYPES, QUEUE_SCHEMA, to_ddl

PREFETCH = 10_000  # messages
SILENCE = 5.0  # seconds: then another consumer has taken some of the messages


class PlainSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pika"

    def schema(self) -> str:
        return to_ddl(QUEUE_SCHEMA)

    def simpleStreamReader(self, schema: StructType) -> PlainReader:  # noqa: N802 (Spark's name)
        return PlainReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> PlainWriter:
        return PlainWriter(self.options)


class PlainReader(SimpleDataSourceStreamReader):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._url = options["url"]
        self._queue = options["queue"]
        self._channel: Any = None
        self._messages: Iterator[tuple[Any, Any, Any]] = iter(())

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        if self._channel is None:
            connection = pika.BlockingConnection(pika.URLParameters(self._url))
            self._channel = connection.channel()
            self._channel.basic_qos(prefetch_count=PREFETCH)
            self._messages = self._channel.consume(self._queue, inactivity_timeout=SILENCE)
        there = self._channel.queue_declare(self._queue, passive=True).method.message_count
        rows: list[tuple[Any, ...]] = []
        while len(rows) < there:
            method, properties, body = next(self._messages)
            if method is None:
                break
            rows.append(self._row(start["next"] + len(rows), method, properties, body))
            self._channel.basic_ack(method.delivery_tag)
        return iter(rows), {"next": start["next"] + len(rows)}

    def _row(self, offset: int, method: Any, properties: Any, body: bytes) -> tuple[Any, ...]:
        headers = properties.headers
        return (
            self._queue,
            offset,
            method.exchange,
            method.routing_key,
            method.redelivered,
            datetime.now(UTC),
            None,
            properties.message_id,
            {name: str(value) for name, value in headers.items()} if headers else None,
            tuple(getattr(properties, name) for name in PROPERTY_TYPES),
            body,
        )

    def readBetweenOffsets(  # noqa: N802
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[Any, ...]]:
        raise RuntimeError("acknowledged messages are gone")


class PlainWriter(DataSourceWriter):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._url = options["url"]
        self._key = options["routingKey"]

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        channel = connection.channel()
        channel.confirm_delivery()
        for row in iterator:
            properties = pika.BasicProperties(message_id=row.message_id, delivery_mode=2)
            channel.basic_publish("", self._key, bytes(row.body), properties, mandatory=True)
        connection.close()
        return WriterCommitMessage()
