"""Write the rows of a batch as Parquet files with Spark, and fingerprint them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq

from ..location import local_uri
from .batch import RowsFingerprint
from .errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

# Spark's default is INT96, which Delta and Iceberg do not fully support.
_TIMESTAMP_SETTINGS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_SUM_COLUMNS: Final = ("high", "low")


class TableFile(NamedTuple):
    """A Parquet file of a batch."""

    path: str
    """An absolute local path, or the path passed to the object store."""
    rows: int
    size: int
    modified_ms: int
    partition: dict[str, str | None]


class WrittenBatch(NamedTuple):
    """The files of a batch, and the fingerprint of the rows when they were written."""

    files: list[TableFile]
    rows: RowsFingerprint


def write_files(rows: DataFrame, folder: Path, partition_by: Sequence[str] = ()) -> WrittenBatch:
    """Write rows to a folder of their own; empty files are removed.

    An executor that does not share the folder would write to its own disk without any error. So rows are
    counted when they are written, and compared with those in the files. Raises TableError if they differ.
    """
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed attempt
    observed, observe = observe_rows(rows)
    with override_settings(rows.sparkSession, _TIMESTAMP_SETTINGS):
        observed.write.mode("overwrite").partitionBy(*partition_by).parquet(local_uri(folder))
    files = []
    for path in sorted(folder.rglob("*.parquet")):
        count = pq.read_metadata(path).num_rows
        if count:
            stat = path.stat()
            partition = parse_partition_path(path.relative_to(folder))
            files.append(
                TableFile(str(path), count, stat.st_size, stat.st_mtime_ns // 1_000_000, partition)
            )
        else:
            path.unlink()
    written, here = observe(), sum(file.rows for file in files)
    if written.row_count != here:
        raise TableError(
            f"{written.row_count} rows were written to {folder}, but its files have {here}: the folder of a "
            "table must be one that all machines share"
        )
    if not files:
        shutil.rmtree(folder)
    return WrittenBatch(files, written)


# --- the rows of a batch -------------------------------------------------------------------------


def observe_rows(rows: DataFrame) -> tuple[DataFrame, Callable[[], RowsFingerprint]]:
    """Return the same rows, and a function that returns their fingerprint once they have been written."""
    from pyspark.sql import Observation

    observation = Observation()
    return rows.observe(observation, *_fingerprint_columns(rows.schema)), lambda: _to_fingerprint(
        observation.get
    )


def fingerprint_rows(rows: DataFrame) -> RowsFingerprint:
    """Compute the fingerprint of rows without writing them."""
    return _to_fingerprint(rows.agg(*_fingerprint_columns(rows.schema)).collect()[0].asDict())


def _fingerprint_columns(schema: StructType) -> list[Column]:
    """Aggregates: the number of rows, and sums of the upper and lower half of a hash of each row.

    A sum of whole hashes would overflow. The aggregates take about 0.6 µs for a row of eight columns with a
    map, a quarter of the time to write it.
    """
    from pyspark.sql import functions as f

    row = f.xxhash64(*(part for field in schema for part in _hashable(field)))
    halves = (f.shiftrightunsigned(row, 32), row.bitwiseAND(f.lit(0xFFFF_FFFF)))
    sums = [f.coalesce(f.sum(half), f.lit(0)) for half in halves]
    named = [each.alias(name) for each, name in zip(sums, _SUM_COLUMNS, strict=True)]
    return [f.count(f.lit(1)).alias("rows"), *named]


def _hashable(field: StructField) -> tuple[Column, Column]:
    """Return whether the value is NULL, which Spark's hash ignores, and the value in a hashable type.

    Maps and variants are not hashable. The entries of a map take half the time of its JSON.
    """
    from pyspark.sql import functions as f

    column = f.col(f"`{field.name.replace('`', '``')}`")
    kind = field.dataType.simpleString()
    outer, inner = kind.startswith("map<"), kind.removeprefix("map<")
    value = f.map_entries(column) if outer else column
    if "map<" in inner or "variant" in inner:
        value = f.to_json(f.struct(column))
    return column.isNull(), value


def _to_fingerprint(measured: Mapping[str, Any]) -> RowsFingerprint:
    return RowsFingerprint(measured["rows"], tuple(measured[name] for name in _SUM_COLUMNS))


# --- schemas, and names of files -----------------------------------------------------------------


def as_nullable(schema: StructType) -> StructType:
    """Return the schema with all fields nullable and without metadata, as tables should have it."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(_nullable(schema.jsonValue()))


def _nullable(tree: Any) -> Any:
    match tree:
        case dict():
            return {
                key: True
                if key in ("nullable", "containsNull", "valueContainsNull")
                else _nullable(value)
                for key, value in tree.items()
                if key != "metadata"
            } | ({"metadata": {}} if "metadata" in tree else {})
        case list():
            return [_nullable(each) for each in tree]
        case _:
            return tree


def parse_partition_path(path: Path) -> dict[str, str | None]:
    """Parse the partition values from a path such as `date=2027-01-15/part.parquet`."""
    found: dict[str, str | None] = {}
    for part in path.parts[:-1]:
        name, _, value = part.partition("=")
        found[unquote(name)] = None if value == _NULL_PARTITION else unquote(value)
    return found


def split_names(text: str) -> list[str]:
    """Split a list of names such as `a, b`."""
    return [name.strip() for name in text.split(",") if name.strip()]


@contextmanager
def override_settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session within a `with` block."""
    before = {key: spark.conf.get(key) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is not None:
                spark.conf.set(key, old)
