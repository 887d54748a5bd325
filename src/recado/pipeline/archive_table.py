"""The history of a feed as a table: Spark's own reader reads the Parquet files that the archive's manifest
names.

    table(spark, "quotes")                                  # recado.toml says where the archive is
    table(spark, "quotes", path="/data/quotes").where("date = '2027-01-15' AND routing_key = 'PETR4'")

The table is a snapshot of one manifest. Rows that the archive has not yet sealed into a file are missing;
`format("recado")` has them too, but is slower. Headers and properties are bytes, which `recado_headers` and
`recado_properties` decode. `date` is the day on which a row was stored.
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
    """Return the rows of a feed's archive that are in Parquet files.

    Args:
        spark: any session that can read the folder.
        feed: the feed that the archive must have; without `path` its archive is looked up in the configuration.
        path: the folder of the archive.
        config: the configuration file of the node; default: recado.toml in the working directory.
        at_offset: show the table as it was when this offset was the next one.
        at_time: show the table as it was before the first row with this timestamp or a later one. A stream with
            the same `startingTimestamp` continues from there.

    Raises:
        OptionError: the archive cannot be found, is of another feed, or no longer has the requested rows.
    """
    if at_offset is not None and at_time is not None:
        raise OptionError("at_offset and at_time exclude each other")
    folder = find_archive(
        None if path is None else str(path), feed, None if config is None else str(config)
    )
    archive = ArchiveFollower(folder)
    if feed is not None and archive.feed != feed:
        raise OptionError(f"{folder} is an archive of the feed {archive.feed!r}, not of {feed!r}")
    stop = archive.find_offset_at(to_micros(at_time)) if at_time is not None else at_offset
    if stop is not None and stop < archive.first_offset:
        raise OptionError(
            f"rows before offset {stop} were deleted; the archive starts at offset {archive.first_offset}"
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
