"""The sources of a pipeline as DataFrames: streaming sources and lookup tables."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from ..definition.formats import SCHEMA_OPTION, source_options
from ..definition.pipeline import Pipeline
from ..lake.reader import read_delta, read_iceberg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_batch(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """Return the rows that the streaming sources have now."""
    return _union([_read_source(pipeline, name, spark) for name in pipeline.streaming_sources()])


def read_stream(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """Return the streaming sources as one stream."""
    parts = []
    for name, source in pipeline.streaming_sources().items():
        reader = spark.readStream.format(source.format).options(**source_options(pipeline, name))
        if SCHEMA_OPTION in source.options:
            reader = reader.schema(source.options[SCHEMA_OPTION])
        parts.append(reader.load())
    return _union(parts)


def read_tables(pipeline: Pipeline, spark: SparkSession) -> dict[str, DataFrame]:
    """Return the lookup tables by name."""
    return {name: _read_source(pipeline, name, spark) for name in pipeline.lookup_tables()}


def _read_source(pipeline: Pipeline, name: str, spark: SparkSession) -> DataFrame:
    source = pipeline.sources[name]
    options = source_options(pipeline, name)
    match source.format:
        case "delta":
            return read_delta(spark, options)
        case "iceberg":
            return read_iceberg(spark, options)
        case _:
            pass
    reader = spark.read.format(source.format).options(**options)
    if SCHEMA_OPTION in source.options:
        reader = reader.schema(source.options[SCHEMA_OPTION])
    return reader.load()


def _union(parts: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), parts)
