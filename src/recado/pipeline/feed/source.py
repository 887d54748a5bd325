"""`format("recado")`: what Spark makes of the name. Options are checked here; nothing is opened yet."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ..options import OptionError, refuse_catalog_table
from ..rows import FEED, ddl
from ..schemas import appended, asked
from .batch import FeedReader
from .options import SOURCE, reading, staging_of, writing
from .sink import FeedStreamWriter, FeedWriter
from .stream import FeedStreamReader

ON: Final = "on a feed"
INSTEAD: Final = (
    "set the option path, or feed; "
    f"in SQL use CREATE TEMPORARY VIEW … USING {SOURCE} OPTIONS (path …)"
)


class FeedSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        """Called by `load()`, so options are checked here; not if the user gives a schema."""
        refuse_catalog_table(SOURCE, self._given, INSTEAD)
        reading(self._given)
        return ddl(FEED)

    def reader(self, schema: StructType) -> DataSourceReader:
        refuse_catalog_table(SOURCE, self._given, INSTEAD)
        return FeedReader(reading(self._given), asked(schema, FEED, SOURCE))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        options = reading(self._given, streaming=True)
        return FeedStreamReader(options, asked(schema, FEED, SOURCE))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FeedWriter(writing(self._given), appended(schema, ON, overwrite=overwrite))

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = writing(self._given)
        folder = staging_of(options, self._given)
        if folder is None:
            raise OptionError(
                "a stream into a feed needs the option staging, a folder that all machines share, or a "
                "checkpointLocation that is one"
            )
        if options.batch is not None:
            raise OptionError(
                "option batch is for writes that are no stream: a stream numbers its own"
            )
        return FeedStreamWriter(options, appended(schema, ON, overwrite=overwrite), folder)
