"""One batch of rows into one sink, by its format. A repeat of the batch is there once, or has the same ids."""

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
    """Whether it was not there already. Raises TableError, or whatever Spark raises.

    `staging` is a folder that outlives the batch; a feed needs it to know the batch again.
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
            # A batch that comes again is published under the same numbers, which the feed knows.
            options = dict(sink.options)
            if staging and not has_option(options, "staging"):
                options["staging"] = staging
            if has_option(options, "staging"):
                options = {"writer": batch.writer, "batch": str(batch.number), **options}
            rows.write.format("recado").mode("append").options(**options).save()
        case _:
            rows.write.format(sink.format).mode("append").options(**sink.options).save()
    return True
