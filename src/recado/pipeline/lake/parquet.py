"""A folder of Parquet files that anything reads.

    PATH/batch=KEY/[date=2027-01-15/]part-….parquet

A batch is written into `PATH/_batches/KEY`, which readers pass over, and renamed: it is there as a whole or
not at all. A folder of that name says that it was written. `PATH/_batches/columns` is the Arrow schema of all
that was, and has by which columns the files are laid out. The file system must rename folders at once: a local
one, or one that is mounted. Object stores do not; they are what Delta and Iceberg are for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from .batch import Batch
from .errors import drifted, laid_out
from .files import folder_of, names_of, write_files
from .settings import TableOptions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

_UNDER_WAY: Final = "_batches"
_COLUMNS: Final = "columns"
_LAYOUT: Final = b"partitionBy"


def write_parquet(rows: DataFrame, options: TableOptions, batch: Batch) -> bool:
    """Whether it was not there already. Raises TableError."""
    table = folder_of(options.path)
    final = table / f"batch={batch.key}"
    if final.exists():
        return False
    staged = table / _UNDER_WAY / batch.key
    partition_by = names_of(options.partition_by)
    files = write_files(rows, staged, partition_by)
    if not files:
        return True
    gets = pq.read_schema(files[0].path).with_metadata({_LAYOUT: ",".join(partition_by)})
    _refuse_drift(table, gets, evolve=options.evolve)
    staged.rename(final)
    return True


def _refuse_drift(table: Path, gets: pa.Schema, *, evolve: bool) -> None:
    """Files of one folder must be alike: readers take the columns of any of them."""
    known = _columns(table)
    has = pa.schema([]) if known is None else known
    layout = (has.metadata or gets.metadata)[_LAYOUT]
    if layout != gets.metadata[_LAYOUT]:
        raise laid_out(str(table), names_of(layout.decode()))
    new = [field for field in gets if field.name not in has.names]
    if new and known is not None and not evolve:
        raise drifted(str(table), new[0].name, None, str(new[0].type))
    for name in {*gets.names} & {*has.names}:
        if has.field(name).type != gets.field(name).type:
            raise drifted(str(table), name, str(has.field(name).type), str(gets.field(name).type))
    if new:
        written = table / _UNDER_WAY / f"{_COLUMNS}.part"
        written.write_bytes(pa.schema([*has, *new], gets.metadata).serialize())
        written.replace(table / _UNDER_WAY / _COLUMNS)


def _columns(table: Path) -> pa.Schema | None:
    """As they were noted with the first batch that had them: files are many, and maybe none has all."""
    try:
        return pa.ipc.read_schema(pa.py_buffer((table / _UNDER_WAY / _COLUMNS).read_bytes()))
    except FileNotFoundError:
        known = next(table.glob("batch=*/**/*.parquet"), None)
        return None if known is None else pq.read_schema(known).remove_metadata()
