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
from recado.feeds.archive.collection import Limits, Report
from recado.feeds.archive.errors import ArchiveError
from recado.feeds.archive.files import check_bytes
from recado.feeds.archive.layout import DATA, PART, RealTree, data_folder, file_name
from recado.feeds.archive.manifest import DataFile
from recado.feeds.archive.sealing import merge
from recado.feeds.archive.store import SEAL_ROWS, Store
from recado.journal.disk import InUse

from ..location import folder_of, resolve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AtWork(ArchiveError):
    """Another process writes the archive."""


class Compaction(NamedTuple):
    """How many files there were and are, and how many rows were written again."""

    before: int
    after: int
    rows: int


@contextmanager
def held(folder: Path | str) -> Iterator[Store]:
    """The archive, ours alone; NoArchive, AtWork."""
    with Archive.open(folder) as archive:
        feed = archive.feed
    try:
        store = Store(folder, feed)
    except InUse:
        hint = "it merges and lets go by itself: seal_rows, max_age, max_messages"
        raise AtWork(
            f"{folder}: the archive is at work; stop it first, or leave it: {hint}"
        ) from None
    with store:
        yield store


# --- compaction ----------------------------------------------------------------------------------


def compact(spark: SparkSession, folder: Path | str, rows: int = SEAL_ROWS) -> Compaction:
    """Files of a day that follow each other become one, of so many rows at most; each is a task of Spark's.

    The executors need the folder as the driver has it: on one machine, or on storage that they share.
    """
    folder = folder_of(str(folder))
    with held(folder) as store:
        before = len(store.files)
        groups = store.compact(partial(merged, spark, folder), rows)
        return Compaction(
            before, len(store.files), sum(file.rows for each in groups for file in each)
        )


def merged(
    spark: SparkSession, folder: Path, groups: Sequence[Sequence[DataFile]], generation: int
) -> list[DataFile]:
    """The new files, in the order of the groups; complete and durable (K1)."""
    plans = [(number, msgspec.json.encode(group).decode()) for number, group in enumerate(groups)]
    made = (
        spark.createDataFrame(plans, "number bigint, files string")
        .repartition(len(plans), "number")
        .mapInArrow(partial(work, str(folder), generation), "number bigint, file string")
        .collect()
    )
    files = [msgspec.json.decode(text, type=DataFile) for _, text in sorted(made)]
    for file in files:
        where, _, name = file.path.rpartition("/")
        check_bytes(RealTree(folder), where, name, file.bytes, file.crc32)
    return files


def work(folder: str, generation: int, plans: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In an executor."""
    tree = RealTree(Path(folder))
    for batch in plans:
        made = []
        for text in batch.column("files").to_pylist():
            parts = msgspec.json.decode(text, type=list[DataFile])
            new = file_name(parts[0].first, generation)
            with suppress(FileNotFoundError):  # else an earlier attempt left some of it
                tree.disk(data_folder(parts[0].date)).remove(new + PART)
            made.append(msgspec.json.encode(merge(tree, parts, generation)).decode())
        yield pa.RecordBatch.from_pydict({"number": batch.column("number"), "file": pa.array(made)})


# --- retention -----------------------------------------------------------------------------------


def retire(
    spark: SparkSession,
    folder: Path | str,
    limits: Limits,
    to: str | None = None,
    *,
    grace: float | None = None,
) -> Report:
    """Let go of what is beyond the limits, whole files, the oldest first; with `to` they are written there
    before.

    `to` becomes a Parquet table with a folder `archive=ID/first=N` for each time, N being the offset of its
    first row: another archive, or this one begun anew, may be retired to the same table.
    """
    folder = folder_of(str(folder))
    with held(folder) as store:
        old = store.surplus(limits)
        if to is not None and old:
            with Archive.open(folder) as archive:
                place = f"{resolve(to)}/archive={archive.id}/first={old[0].first}"
            paths = [str(Path(folder, file.path)) for file in old]
            table = spark.read.option("basePath", str(Path(folder, DATA))).parquet(*paths)
            table.write.mode("overwrite").parquet(place)
        # By number: what has become too old meanwhile is not there yet.
        kept = store.next_offset - (old[-1].end if old else 0)
        return store.collect(Limits(max_messages=kept) if old else Limits(), grace=grace)
