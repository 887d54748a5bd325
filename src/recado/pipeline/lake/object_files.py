"""Write Parquet files to an object store, in Spark's tasks, through deltalake or pyiceberg.

Spark itself writes to object stores only with extra jars, which have settings of their own for the endpoint and
the credentials. So tasks write the files in Python, through the library that also commits the table, and with
the same settings. File names are random and never reused: files of a failed attempt belong to no table, and
stay until the table is vacuumed.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from .errors import TableError
from .parquet_files import TableFile, WrittenBatch, observe_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROW_GROUP_BYTES: Final = 64 << 20  # in memory, per open file of a task
_PARTITION_PREFIX: Final = "_recado_partition_"
_RESULT_SCHEMA: Final = "path string, rows bigint, size bigint, partition string"


class ObjectStore(Protocol):
    """Where tasks write; it is pickled for them."""

    def create(self, path: str) -> AbstractContextManager[Any]:
        """Create an object for writing; it exists once it is closed."""


def write_objects(
    rows: DataFrame, store: ObjectStore, prefix: str, partition_by: Sequence[str] = ()
) -> WrittenBatch:
    """Write rows as objects below a prefix. Raises TableError if the number of stored rows differs."""
    from pyspark.sql import functions as f

    observed, observe = observe_rows(rows)
    for number, name in enumerate(partition_by):  # as Spark formats values in partition paths
        observed = observed.withColumn(f"{_PARTITION_PREFIX}{number}", f.col(name).cast("string"))
    work = partial(_write_partition, store, prefix, tuple(partition_by))
    now_ms = time.time_ns() // 1_000_000
    found = [
        TableFile(row.path, row.rows, row.size, now_ms, json.loads(row.partition))
        for row in observed.mapInArrow(work, _RESULT_SCHEMA).collect()
    ]
    written, stored = observe(), sum(each.rows for each in found)
    if written.row_count != stored:
        raise TableError(
            f"{written.row_count} rows should be stored below {prefix}, but {stored} were: try again"
        )
    return WrittenBatch(found, written)


def _write_partition(
    store: ObjectStore,
    prefix: str,
    partition_by: tuple[str, ...],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Runs in a task: write one file for each combination of partition values."""
    open_files: dict[tuple[str | None, ...], _ParquetObject] = {}
    values = [f"{_PARTITION_PREFIX}{number}" for number in range(len(partition_by))]
    with ExitStack() as stack:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            for key, part in _split_by_partition(table, values):
                if key not in open_files:
                    path = f"{prefix}/part-{secrets.token_hex(16)}.parquet"
                    open_files[key] = stack.enter_context(_ParquetObject(store.create, path))
                open_files[key].write(part.drop_columns([*values, *partition_by]))
        done = [file.close() for file in open_files.values()]
    partitions = [json.dumps(dict(zip(partition_by, key, strict=True))) for key in open_files]
    columns = [*zip(*done, strict=True)] if done else [(), (), ()]
    types = (pa.string(), pa.int64(), pa.int64())
    arrays = [pa.array(each, kind) for each, kind in zip(columns, types, strict=True)]
    arrays.append(pa.array(partitions, pa.string()))
    yield pa.RecordBatch.from_arrays(arrays, ["path", "rows", "size", "partition"])


def _split_by_partition(
    table: pa.Table, columns: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
    if not columns:
        if table.num_rows:
            yield (), table
        return
    keys = [*zip(*(table.column(name).to_pylist() for name in columns), strict=True)]
    for key in dict.fromkeys(keys):
        yield key, table.filter(pa.array([each == key for each in keys]))


class _ParquetObject:
    """A Parquet file in an object store, written in row groups of about ROW_GROUP_BYTES."""

    def __init__(self, create: Callable[[str], AbstractContextManager[Any]], path: str) -> None:
        self._path = path
        self._context = create(path)
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._rows = 0

    def __enter__(self) -> _ParquetObject:
        self._sink = self._context.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)

    def write(self, rows: pa.Table) -> None:
        self._pending.append(rows)
        self._rows += rows.num_rows
        if sum(each.nbytes for each in self._pending) >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables(self._pending)
        self._pending.clear()
        if self._writer is None:
            # Without Arrow's schema in the metadata, so that only Parquet's types count, as in Spark's files.
            self._writer = pq.ParquetWriter(self._sink, table.schema, store_schema=False)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def close(self) -> tuple[str, int, int]:
        """Return path, rows and bytes of the file; the object exists when the context ends."""
        if self._pending:
            self._flush()
        assert self._writer is not None
        self._writer.close()
        return self._path, self._rows, self._sink.tell()
