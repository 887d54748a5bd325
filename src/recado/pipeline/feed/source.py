"""`format("recado")`: the data source that Spark calls. Options are checked here; nothing is opened yet."""

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

from ..options import OptionError, reject_catalog_table
from ..row_schema import FEED_SCHEMA, check_read_schema, check_write_schema, to_ddl
from .batch_reader import FeedBatchReader
from .options import FORMAT, parse_read_options, parse_write_options, staging_folder
from .stream_reader import FeedStreamReader
from .writer import FeedBatchWriter, FeedStreamWriter

_WRITE_TARGET: Final = "on a feed"
_CATALOG_HINT: Final = (
    "set the option path or feed; "
    f"in SQL use CREATE TEMPORARY VIEW … USING {FORMAT} OPTIONS (path …)"
)


class FeedDataSource(DataSource):
    """A feed as a table, a stream and a sink."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._raw_options = dict(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """Return the default schema.

        `load()` calls this, so options are checked here, unless the user passes a schema.
        """
        reject_catalog_table(FORMAT, self._raw_options, _CATALOG_HINT)
        parse_read_options(self._raw_options)
        return to_ddl(FEED_SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        reject_catalog_table(FORMAT, self._raw_options, _CATALOG_HINT)
        return FeedBatchReader(
            parse_read_options(self._raw_options), check_read_schema(schema, FEED_SCHEMA, FORMAT)
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        options = parse_read_options(self._raw_options, is_streaming=True)
        return FeedStreamReader(options, check_read_schema(schema, FEED_SCHEMA, FORMAT))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FeedBatchWriter(
            parse_write_options(self._raw_options),
            check_write_schema(schema, _WRITE_TARGET, overwrite=overwrite),
        )

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = parse_write_options(self._raw_options)
        folder = staging_folder(options, self._raw_options)
        if folder is None:
            raise OptionError(
                "writing a stream to a feed needs the option staging, a folder that all machines share, or a "
                "checkpointLocation in such a folder"
            )
        if options.batch is not None:
            raise OptionError(
                "option batch is for batch writes; Spark numbers the batches of a stream"
            )
        return FeedStreamWriter(
            options, check_write_schema(schema, _WRITE_TARGET, overwrite=overwrite), folder
        )
