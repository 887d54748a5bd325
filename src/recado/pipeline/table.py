"""The history of a feed as a table of Spark's own: the files that the manifest names, read by Spark's reader.

    table(spark, "quotes")                                  # where recado.toml says that its archive is
    table(spark, "quotes", path="/data/quotes").where("date = '2027-01-15' AND routing_key = 'PETR4'")

It is a snapshot: the files of one manifest. What the archive has not sealed yet is not in it;
`format("recado")` has that, too, and takes longer. The columns are the archive's: headers and properties are
bytes, which `recado_headers` and `recado_properties` decode, and `date` is the day on which a row was stored.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recado.feeds.archive.follower import ArchiveFollower
from recado.feeds.archive.layout import DATA_FOLDER

from .feed.options import find_archive, to_micros
from .options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARCHIVE_COLUMNS: Final = (
    "`feed` string, `offset` bigint, `publisher` string, `sequence` bigint, `view` string, "
    "`timestamp` timestamp, `exchange` string, `routing_key` string, `message_id` string, "
    "`headers` binary, `properties` binary, `body` binary, `date` date"
)


def table(
    spark: SparkSession,
    feed: str | None = None,
    *,
    path: Path | str | None = None,
    config: Path | str | None = None,
    at_offset: int | None = None,
    at_time: datetime | None = None,
) -> DataFrame:
    """The rows of a feed's archive that are in files.

    `to_stored_batch`: as it was when this offset was the next. `at_time`: as it was before the first row with this
    timestamp or a later one; a stream with that `startingTimestamp` goes on from there.
    """
    if at_offset is not None and at_time is not None:
        raise OptionError("at_offset and at_time say the same twice: leave one out")
    folder = find_archive(
        None if path is None else str(path), feed, None if config is None else str(config)
    )
    archive = ArchiveFollower(folder)
    if feed is not None and archive.feed != feed:
        raise OptionError(f"{folder} is an archive of the feed {archive.feed!r}, not of {feed!r}")
    stop = archive.find_offset_at(to_micros(at_time)) if at_time is not None else at_offset
    if stop is not None and stop < archive.first_offset:
        raise OptionError(
            f"what the archive had before offset {stop} was collected; it begins at {archive.first_offset}"
        )
    files = [file for file in archive.manifest.files if stop is None or file.first < stop]
    if not files:
        return spark.createDataFrame([], ARCHIVE_COLUMNS)
    base = Path(folder)
    rows = (
        spark.read.schema(ARCHIVE_COLUMNS)
        .option("basePath", str(base / DATA_FOLDER))
        .parquet(*(str(base / file.path) for file in files))
    )
    return rows if stop is None or files[-1].end <= stop else rows.where(f"offset < {stop}")
