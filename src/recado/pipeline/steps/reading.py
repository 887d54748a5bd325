"""The sources of a pipeline as DataFrames: those that flow, and those that are looked things up in."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from ..definition.formats import SCHEMA, options_of
from ..definition.pipeline import Pipeline
from ..lake.reading import read_delta, read_iceberg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def batch_rows(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """All rows that the sources have now."""
    return _together([_batch(pipeline, name, spark) for name in pipeline.streams()])


def stream_rows(pipeline: Pipeline, spark: SparkSession) -> DataFrame:
    """All rows that the sources have and will have."""
    parts = []
    for name, source in pipeline.streams().items():
        reader = spark.readStream.format(source.format).options(**options_of(pipeline, name))
        if SCHEMA in source.options:
            reader = reader.schema(source.options[SCHEMA])
        parts.append(reader.load())
    return _together(parts)


def read_tables(pipeline: Pipeline, spark: SparkSession) -> dict[str, DataFrame]:
    """What steps look things up in, as it is now."""
    return {name: _batch(pipeline, name, spark) for name in pipeline.tables()}


def _batch(pipeline: Pipeline, name: str, spark: SparkSession) -> DataFrame:
    source = pipeline.sources[name]
    options = options_of(pipeline, name)
    match source.format:
        case "delta":
            return read_delta(spark, options)
        case "iceberg":
            return read_iceberg(spark, options)
        case _:
            pass
    reader = spark.read.format(source.format).options(**options)
    if SCHEMA in source.options:
        reader = reader.schema(source.options[SCHEMA])
    return reader.load()


def _together(parts: list[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), parts)
