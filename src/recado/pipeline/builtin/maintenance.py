"""Maintenance of archives by Spark: merge many small files into few large ones, move old rows to another table.

A running archive merges files and deletes old rows by itself, slowly. These functions process years of data at
once, in an archive that no process writes. They lock the archive, and raise ArchiveInUseError if another
process writes it. Readers are not disturbed: replaced and removed files stay for the grace period.

AM1  The manifest names a new file only when it is complete, durable and read back.
AM2  Rows are removed only when they are in the other table. If the process is killed in between, they are in
     both, and the next run writes them again to the same folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa

from recado.feeds.archive.archive import Archive
from recado.feeds.archive.errors import ArchiveError
from recado.feeds.archive.files import verify_checksum
from recado.feeds.archive.layout import DATA_FOLDER, PART_SUFFIX, FolderTree, data_folder, file_name
from recado.feeds.archive.manifest import DataFile
from recado.feeds.archive.retention import RetentionLimits, RetentionReport
from recado.feeds.archive.sealer import merge_files
from recado.feeds.archive.store import SEAL_ROW_COUNT, ArchiveStore
from recado.journal.disk import FolderInUseError

from ..errors import PipelineError
from ..location import resolve, to_local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ArchiveInUseError(PipelineError, ArchiveError):
    """Another process writes the archive."""


class Compaction(NamedTuple):
    """The number of files before and after, and of rows rewritten."""

    before: int
    after: int
    rows: int


@contextmanager
def lock_archive(folder: Path | str) -> Iterator[ArchiveStore]:
    """Open an archive exclusively. Raises ArchiveInUseError, or the error of a missing archive."""
    with Archive.open(folder) as archive:
        feed = archive.feed
    try:
        store = ArchiveStore(folder, feed)
    except FolderInUseError:
        hint = "it compacts and deletes rows itself: seal_rows, max_age, max_messages"
        raise ArchiveInUseError(
            f"{folder}: the archive is in use by another process; stop it first, or leave it: {hint}"
        ) from None
    with store:
        yield store


# --- compaction ----------------------------------------------------------------------------------


def compact(spark: SparkSession, folder: Path | str, rows: int = SEAL_ROW_COUNT) -> Compaction:
    """Merge consecutive files of a day into files of at most `rows` rows; each new file is a Spark task.

    The executors need access to the folder, on one machine or on shared storage. Raises ArchiveInUseError.
    """
    folder = to_local_path(str(folder))
    with lock_archive(folder) as store:
        before = len(store.files)
        groups = store.compact(partial(_merge_groups, spark, folder), rows)
        return Compaction(
            before, len(store.files), sum(file.rows for each in groups for file in each)
        )


def _merge_groups(
    spark: SparkSession, folder: Path, groups: Sequence[Sequence[DataFile]], generation: int
) -> list[DataFile]:
    """Merge each group of files; return the new files in order, complete and durable (AM1)."""
    plans = [(number, msgspec.json.encode(group).decode()) for number, group in enumerate(groups)]
    merged = (
        spark.createDataFrame(plans, "number bigint, files string")
        .repartition(len(plans), "number")
        .mapInArrow(partial(_merge_in_task, str(folder), generation), "number bigint, file string")
        .collect()
    )
    files = [msgspec.json.decode(text, type=DataFile) for _, text in sorted(merged)]
    for file in files:
        subfolder, _, name = file.path.rpartition("/")
        verify_checksum(FolderTree(folder), subfolder, name, file.bytes, file.crc32)
    return files


def _merge_in_task(
    folder: str, generation: int, plans: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Merge the groups in these rows, in an executor; yield the number and the new file of each group."""
    tree = FolderTree(Path(folder))
    for batch in plans:
        new_files = []
        for text in batch.column("files").to_pylist():
            parts = msgspec.json.decode(text, type=list[DataFile])
            new = file_name(parts[0].first, generation)
            with suppress(FileNotFoundError):  # only a killed attempt leaves a partial file
                tree.disk(data_folder(parts[0].date)).remove(new + PART_SUFFIX)
            new_files.append(msgspec.json.encode(merge_files(tree, parts, generation)).decode())
        yield pa.RecordBatch.from_pydict(
            {"number": batch.column("number"), "file": pa.array(new_files)}
        )


# --- retention -----------------------------------------------------------------------------------


def retire(
    spark: SparkSession,
    folder: Path | str,
    limits: RetentionLimits,
    to: str | None = None,
    *,
    grace: float | None = None,
) -> RetentionReport:
    """Remove the oldest files beyond the limits; with `to`, write their rows there first.

    `to` becomes a Parquet table with a folder `archive=ID/first=N` for each call, N being the offset of its
    first row. Several archives can be retired to the same table. `grace` is the time in seconds until the files
    are deleted, by default that of the archive. Returns the totals. Raises ArchiveInUseError.
    """
    folder = to_local_path(str(folder))
    with lock_archive(folder) as store:
        expired = store.select_expired(limits)
        if to is not None and expired:
            with Archive.open(folder) as archive:
                target = f"{resolve(to)}/archive={archive.id}/first={expired[0].first}"
            paths = [str(Path(folder, file.path)) for file in expired]
            table = spark.read.option("basePath", str(Path(folder, DATA_FOLDER))).parquet(*paths)
            table.write.mode("overwrite").parquet(target)
        # Limit by count, not by age: rows that became too old meanwhile are not in the other table yet.
        remaining = store.next_offset - (expired[-1].end if expired else 0)
        return store.apply_retention(
            RetentionLimits(max_messages=remaining) if expired else RetentionLimits(), grace=grace
        )
