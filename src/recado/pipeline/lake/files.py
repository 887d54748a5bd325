"""Parquet files, as Spark writes them into a folder, and what is known of each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq

from .errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Spark's own are INT96, which Delta and Iceberg know only by hearsay.
_TIMES: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


class File(NamedTuple):
    path: Path
    rows: int
    size: int
    modified_ms: int
    partition: dict[str, str | None]


def folder_of(path: str) -> Path:
    return Path(path.removeprefix("file://").removeprefix("file:")).absolute()


def location_of(path: Path) -> str:
    """For Spark and pyiceberg, which take names as they are: `as_uri` would write `%20` for a space."""
    return f"file://{path}"


def write_files(rows: DataFrame, folder: Path, partition_by: Sequence[str] = ()) -> list[File]:
    """Write rows into a folder that is to hold nothing else; files without rows are removed.

    An executor that does not share the folder writes to a disk of its own, and Spark says nothing. So rows are
    counted where they are written, and in the files that are here. Raises TableError.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    shutil.rmtree(folder, ignore_errors=True)  # of an attempt that was killed
    given = Observation()
    observed = rows.observe(given, f.count(f.lit(1)).alias("rows"))
    with settings(rows.sparkSession, _TIMES):
        observed.write.mode("overwrite").partitionBy(*partition_by).parquet(location_of(folder))
    files = []
    for path in sorted(folder.rglob("*.parquet")):
        count = pq.read_metadata(path).num_rows
        if count:
            seen = path.stat()
            partition = partition_of(path.relative_to(folder))
            files.append(File(path, count, seen.st_size, seen.st_mtime_ns // 1_000_000, partition))
        else:
            path.unlink()
    written, here = given.get["rows"], sum(file.rows for file in files)
    if written != here:
        raise TableError(
            f"{written} rows were written into {folder}, and {here} of them are here: the folder of a table "
            "must be one that all machines share"
        )
    if not files:
        shutil.rmtree(folder)
    return files


def nullable(schema: StructType) -> StructType:
    """The same, but that a value is there always: that is nothing a table should insist on."""
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


def partition_of(path: Path) -> dict[str, str | None]:
    """`date=2027-01-15/part.parquet` says of all rows what their date is."""
    found: dict[str, str | None] = {}
    for part in path.parts[:-1]:
        name, _, value = part.partition("=")
        found[unquote(name)] = None if value == _NULL else unquote(value)
    return found


def names_of(text: str) -> list[str]:
    """The names of `a, b`."""
    return [name.strip() for name in text.split(",") if name.strip()]


@contextmanager
def settings(spark: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """A session with other settings for a while."""
    before = {key: spark.conf.get(key) for key in values}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is not None:
                spark.conf.set(key, old)
