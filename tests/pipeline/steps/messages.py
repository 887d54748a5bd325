"""Messages as files that Spark reads as a batch or, one file after the other, as a stream."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recado.pipeline.definition import Pipeline
from recado.pipeline.row_schema import FEED_SCHEMA, to_ddl

START = datetime(2027, 1, 15, 10, tzinfo=UTC)
SCHEMA = to_ddl(FEED_SCHEMA)


def message(sequence: int, body: object, **fields: Any) -> dict[str, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    row = {
        "feed": "orders",
        "offset": sequence - 1,
        "publisher": "ana",
        "sequence": sequence,
        "view": "1-a",
        "timestamp": START + timedelta(seconds=sequence),
        "exchange": "feed.orders",
        "routing_key": f"order.{sequence % 3}",
        "message_id": f"m{sequence}" if sequence % 2 else None,
        "headers": [("n", str(sequence)), ("colour", "red" if sequence % 2 else "blue")],
        "properties": {"priority": sequence % 10} if sequence % 4 else None,
        "body": data,
    }
    return {**row, **fields}


def stored(folder: Path, *parts: Sequence[dict[str, Any]]) -> str:
    """A file for each part, in the order in which a stream is to read them."""
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(parts):
        table = pa.Table.from_pylist(list(part), FEED_SCHEMA)
        file = folder / f"{number}.parquet"
        pq.write_table(table, file)
        when = (START + timedelta(minutes=number)).timestamp()
        os.utime(file, (when, when))
    return str(folder)


def reading(name: str, folder: str, checkpoint: Path) -> Pipeline:
    """A pipeline that reads them: a batch all, a stream a file at a time, and then ends."""
    return Pipeline(name, checkpoint=str(checkpoint), trigger="available-now").read(
        "orders", "parquet", path=folder, schema=SCHEMA, maxFilesPerTrigger=1
    )


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """What a Parquet sink has, read by pyarrow, without the column that says which batch wrote it."""
    import pyarrow.dataset as ds

    if not folder.exists():
        return []
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    rows: list[dict[str, Any]] = table.drop_columns(["batch"]).to_pylist()
    return rows
