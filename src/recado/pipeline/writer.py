"""Write one batch of rows to one sink, by its format. A retried batch is stored once or has the same message
ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .definition.pipeline import Sink
from .lake.batch import Batch
from .lake.delta import write_delta
from .lake.iceberg import write_iceberg
from .lake.options import ConsoleOptions, DeltaOptions, IcebergOptions, ParquetOptions
from .lake.parquet import write_parquet
from .options import has_option, parse_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_batch(rows: DataFrame, sink: Sink, batch: Batch, *, staging: str = "") -> bool:
    """Write a batch to a sink.

    Args:
        staging: a folder that outlives the batch, in which a feed stores its publish record.

    Returns:
        False if the sink already has the batch.

    Raises:
        TableError: the table cannot take these rows. Errors of Spark are passed on.
    """
    match sink.format:
        case "parquet":
            return write_parquet(
                rows, parse_options(ParquetOptions, "parquet", sink.options), batch
            )
        case "delta":
            return write_delta(rows, parse_options(DeltaOptions, "delta", sink.options), batch)
        case "iceberg":
            return write_iceberg(
                rows, parse_options(IcebergOptions, "iceberg", sink.options), batch
            )
        case "console":
            shown = parse_options(ConsoleOptions, "console", sink.options)
            rows.show(shown.num_rows, truncate=shown.truncate)
        case "recado":
            # A retried batch is published under the same sequence numbers.
            options = dict(sink.options)
            if staging and not has_option(options, "staging"):
                options["staging"] = staging
            if has_option(options, "staging"):
                options = {"writer": batch.writer, "batch": str(batch.number), **options}
            rows.write.format("recado").mode("append").options(**options).save()
        case _:
            rows.write.format(sink.format).mode("append").options(**sink.options).save()
    return True
