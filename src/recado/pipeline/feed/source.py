"""`format("recado")`: what Spark makes of the name. Options are checked here; nothing is opened yet."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from ..options import OptionError
from ..rows import FEED, chosen, ddl, type_names
from .batch import FeedReader
from .options import SOURCE, reading, writing
from .sink import FeedStreamWriter, FeedWriter
from .stream import FeedStreamReader


class FeedSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return SOURCE

    def schema(self) -> str:
        return ddl(FEED)

    def reader(self, schema: StructType) -> DataSourceReader:
        return FeedReader(reading(self._given), columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return FeedStreamReader(reading(self._given), columns_of(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FeedWriter(writing(self._given), appended(schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802 (Spark's name)
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = writing(self._given)
        if options.staging is None:
            raise OptionError(
                "a stream into a feed needs the option staging, a folder that all machines share, or a "
                "checkpointLocation that is one"
            )
        if options.batch is not None:
            raise OptionError(
                "option batch is for writes that are no stream: a stream numbers its own"
            )
        return FeedStreamWriter(options, appended(schema, overwrite=overwrite))


def appended(schema: StructType, *, overwrite: bool) -> dict[str, str]:
    """The types of the columns, of rows that come behind those that are there."""
    if overwrite:
        raise OptionError("what is on a feed stays there: write with mode append")
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def columns_of(schema: StructType) -> list[str]:
    """A schema that the user gives names the columns that are read: fewer are faster."""
    names = list(schema.fieldNames())
    try:
        own = type_names(chosen(FEED, names))
    except ValueError as error:
        raise OptionError(f'the schema asks too much of format("{SOURCE}"): {error}') from None
    for field in schema.fields:
        told = field.dataType.simpleString()
        if told != own[field.name]:
            raise OptionError(
                f'the schema says {field.name} {told}, and in format("{SOURCE}") it is '
                f"{own[field.name]}: cast it after reading"
            )
    return names
