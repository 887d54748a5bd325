"""A folder of Parquet files that anything reads.

    PATH/batch=KEY/[date=2027-01-15/]part-….parquet

A batch is written into `PATH/_batches/KEY`, which readers pass over, and renamed: it is there as a whole or
not at all. A folder of that name says that it was written. The file system must rename folders at once: a
local one, or one that is mounted. Object stores do not; they are what Delta and Iceberg are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq

from .batch import Batch
from .errors import drifted
from .files import folder_of, names_of, write_files
from .settings import TableOptions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

_UNDER_WAY: Final = "_batches"


def write_parquet(rows: DataFrame, options: TableOptions, batch: Batch) -> bool:
    """Whether it was not there already. Raises TableError."""
    table = folder_of(options.path)
    final = table / f"batch={batch.key}"
    if final.exists():
        return False
    staged = table / _UNDER_WAY / batch.key
    files = write_files(rows, staged, names_of(options.partition_by))
    if not files:
        return True
    if not options.evolve:
        _refuse_drift(table, files[0].path)
    staged.rename(final)
    return True


def _refuse_drift(table: Path, new: Path) -> None:
    """Files of one folder must be alike: readers take the columns of any of them."""
    known = next(iter(sorted(table.glob("batch=*/**/*.parquet"))), None)
    if known is None:
        return
    has, gets = pq.read_schema(known), pq.read_schema(new)
    for field in gets:
        if field.name not in has.names:
            raise drifted(str(table), field.name, None, str(field.type))
        if has.field(field.name).type != field.type:
            raise drifted(str(table), field.name, str(has.field(field.name).type), str(field.type))
