"""Read Delta and Iceberg tables: the files of a snapshot, by Spark's Parquet reader.

Tables in an object store are read by deltalake and pyiceberg into the memory of the driver, because Spark
cannot access the store without jars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ..location import is_object_store, to_local_path
from ..options import OptionError, parse_options
from .delta import reject_column_mapping
from .options import DeltaSourceOptions, IcebergSourceOptions, check_table_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_delta(spark: SparkSession, raw_options: Mapping[str, str]) -> DataFrame:
    """Return the rows of a Delta table. Raises OptionError if Spark cannot read its files as they are."""
    from deltalake import DeltaTable

    options = parse_options(DeltaSourceOptions, "delta", raw_options)
    check_table_location("path", options.path)
    if is_object_store(options.path):
        stored = DeltaTable(options.path, options.version, storage_options=options.storage or None)
        return spark.createDataFrame(stored.to_pyarrow_table())
    folder = to_local_path(options.path)
    table = DeltaTable(folder, version=options.version)
    reject_column_mapping(table)
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise OptionError(
            f"{folder} uses deletion vectors, which only Delta's own "
            "reader supports: purge the table and drop the feature"
        )
    if table.metadata().partition_columns:
        raise OptionError(
            f"{folder} is partitioned, and its files lack the partition columns: read it with deltalake"
        )
    return _read_files(spark, [unquote(uri) for uri in table.file_uris()], str(folder))


def read_iceberg(spark: SparkSession, raw_options: Mapping[str, str]) -> DataFrame:
    """Return the rows of an Iceberg table. Raises OptionError if Spark cannot read its files as they are."""
    from .iceberg import open_catalogue

    options = parse_options(IcebergSourceOptions, "iceberg", raw_options)
    catalogue = open_catalogue(options)
    try:
        if is_object_store(options.warehouse):
            stored = catalogue.load_table(options.table).scan().to_arrow()
            return spark.createDataFrame(stored)
        tasks = list(catalogue.load_table(options.table).scan().plan_files())
    finally:
        catalogue.close()
    if any(task.delete_files for task in tasks):
        raise OptionError(
            f"{options.table} has delete files, which only Iceberg's own reader supports: rewrite the table"
        )
    return _read_files(spark, [task.file.file_path for task in tasks], options.table)


def _read_files(spark: SparkSession, paths: list[str], table: str) -> DataFrame:
    if not paths:
        raise OptionError(f"{table} has no rows yet")
    return spark.read.option("mergeSchema", "true").parquet(*paths)
