"""A folder of Parquet files that anything reads.

    PATH/batch=KEY/[date=2027-01-15/]part-….parquet

A batch is written into `PATH/_batches/KEY`, which readers pass over, and renamed: it is there as a whole or
not at all. A folder of that name says that it was written. `PATH/_batches/columns` is the Arrow schema of all
that was. The file system must rename folders at once: a local one, or one that is mounted. Object stores do
not; they are what Delta and Iceberg are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from .batch import Batch
from .errors import drifted
from .files import folder_of, names_of, write_files
from .settings import TableOptions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

_UNDER_WAY: Final = "_batches"
_COLUMNS: Final = "columns"


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
    _refuse_drift(table, pq.read_schema(files[0].path), evolve=options.evolve)
    staged.rename(final)
    return True


def _refuse_drift(table: Path, gets: pa.Schema, *, evolve: bool) -> None:
    """Files of one folder must be alike: readers take the columns of any of them."""
    has = _columns(table)
    for field in gets:
        if has is not None and field.name not in has.names:
            if not evolve:
                raise drifted(str(table), field.name, None, str(field.type))
        elif has is not None and has.field(field.name).type != field.type:
            raise drifted(str(table), field.name, str(has.field(field.name).type), str(field.type))
    known = [] if has is None else has.names
    new = [field for field in gets if field.name not in known]
    if new:
        written = table / _UNDER_WAY / f"{_COLUMNS}.part"
        written.write_bytes(pa.schema([*(has or ()), *new]).serialize())
        written.replace(table / _UNDER_WAY / _COLUMNS)


def _columns(table: Path) -> pa.Schema | None:
    """As they were noted with the first batch that had them: files are many, and maybe none has all."""
    try:
        return pa.ipc.read_schema(pa.py_buffer((table / _UNDER_WAY / _COLUMNS).read_bytes()))
    except FileNotFoundError:
        known = next(table.glob("batch=*/**/*.parquet"), None)
        return None if known is None else pq.read_schema(known)
