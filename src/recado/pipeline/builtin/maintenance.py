"""The upkeep of an archive by Spark: many small files become few large ones, old rows move elsewhere.

An archive that is at work does both by itself, slowly; these are for one at rest, of which years are to be
put in order at once. They hold the archive's lock, and refuse an archive that another process writes. Readers
are not disturbed: files that were replaced or let go stay for the grace period.

K1  A new file is named by the manifest only when it is complete, durable and read back.
K2  Rows are let go only when they are in the other table: killed in between, they are in both, and moved again
    into the same place.
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

from ..location import resolve, to_local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ArchiveInUseError(ArchiveError):
    """Another process writes the archive."""


class Compaction(NamedTuple):
    """How many files there were and are, and how many rows were written again."""

    before: int
    after: int
    rows: int


@contextmanager
def lock_archive(folder: Path | str) -> Iterator[ArchiveStore]:
    """The archive, ours alone; NoArchive, AtWork."""
    with Archive.open(folder) as archive:
        feed = archive.feed
    try:
        store = ArchiveStore(folder, feed)
    except FolderInUseError:
        hint = "it merges and lets go by itself: seal_rows, max_age, max_messages"
        raise ArchiveInUseError(
            f"{folder}: the archive is at work; stop it first, or leave it: {hint}"
        ) from None
    with store:
        yield store


# --- compaction ----------------------------------------------------------------------------------


def compact(spark: SparkSession, folder: Path | str, rows: int = SEAL_ROW_COUNT) -> Compaction:
    """Files of a day that follow each other become one, of so many rows at most; each is a task of Spark's.

    The executors need the folder as the driver has it: on one machine, or on storage that they share.
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
    """The new files, in the order of the groups; complete and durable (K1)."""
    plans = [(number, msgspec.json.encode(group).decode()) for number, group in enumerate(groups)]
    made = (
        spark.createDataFrame(plans, "number bigint, files string")
        .repartition(len(plans), "number")
        .mapInArrow(partial(_merge_in_task, str(folder), generation), "number bigint, file string")
        .collect()
    )
    files = [msgspec.json.decode(text, type=DataFile) for _, text in sorted(made)]
    for file in files:
        where, _, name = file.path.rpartition("/")
        verify_checksum(FolderTree(folder), where, name, file.bytes, file.crc32)
    return files


def _merge_in_task(
    folder: str, generation: int, plans: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In an executor."""
    tree = FolderTree(Path(folder))
    for batch in plans:
        made = []
        for text in batch.column("files").to_pylist():
            parts = msgspec.json.decode(text, type=list[DataFile])
            new = file_name(parts[0].first, generation)
            with suppress(FileNotFoundError):  # else an earlier attempt left some of it
                tree.disk(data_folder(parts[0].date)).remove(new + PART_SUFFIX)
            made.append(msgspec.json.encode(merge_files(tree, parts, generation)).decode())
        yield pa.RecordBatch.from_pydict({"number": batch.column("number"), "file": pa.array(made)})


# --- retention -----------------------------------------------------------------------------------


def retire(
    spark: SparkSession,
    folder: Path | str,
    limits: RetentionLimits,
    to: str | None = None,
    *,
    grace: float | None = None,
) -> RetentionReport:
    """Let go of what is beyond the limits, whole files, the oldest first; with `to` they are written there
    before.

    `to` becomes a Parquet table with a folder `archive=ID/first=N` for each time, N being the offset of its
    first row: another archive, or this one begun anew, may be retired to the same table.
    """
    folder = to_local_path(str(folder))
    with lock_archive(folder) as store:
        old = store.select_expired(limits)
        if to is not None and old:
            with Archive.open(folder) as archive:
                place = f"{resolve(to)}/archive={archive.id}/first={old[0].first}"
            paths = [str(Path(folder, file.path)) for file in old]
            table = spark.read.option("basePath", str(Path(folder, DATA_FOLDER))).parquet(*paths)
            table.write.mode("overwrite").parquet(place)
        # By number: what has become too old meanwhile is not there yet.
        kept = store.next_offset - (old[-1].end if old else 0)
        return store.apply_retention(
            RetentionLimits(max_messages=kept) if old else RetentionLimits(), grace=grace
        )
