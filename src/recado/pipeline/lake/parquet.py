"""A folder of Parquet files that anything reads.

    PATH/batch=KEY/[date=2027-01-15/]part-….parquet

A batch is written into `PATH/_batches/KEY`, which readers ignore, and renamed: it is there as a whole or not
at all. Its folder also has the batch's digests (`batch`), in a file that readers ignore. `_batches/WRITER.last`
has the number of the writer's last batch, from just before it is renamed. `PATH/_batches/columns` is the Arrow
schema of all batches, and has by which columns the files are laid out. The file system must rename folders
atomically: a local one, or one that is mounted. Object stores do not; use Delta or Iceberg there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ..location import folder_of
from .batch import Batch, Digests, is_there
from .errors import drifted, laid_out
from .files import counted_rows, names_of, write_files
from .settings import TableOptions, check_parquet_path

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

_UNDER_WAY: Final = "_batches"
_COLUMNS: Final = "columns"
_FINAL: Final = "batch="
_DIGESTS: Final = "_digests.json"
_LAYOUT: Final = b"partitionBy"


def write_parquet(rows: DataFrame, options: TableOptions, batch: Batch) -> bool:
    """Write a batch. Returns False if the table has it already. Raises TableError."""
    check_parquet_path(options.path)
    table = folder_of(options.path)
    final = table / f"{_FINAL}{batch.key}"
    last = _last(table, batch.writer)
    # The number of the last batch is noted first: killed before it was renamed, the batch is not there.
    is_missing = last == batch.number and not final.exists()
    if not is_missing and is_there(
        str(table), batch, last, _digests(final), lambda: counted_rows(rows)
    ):
        return False
    staged = table / _UNDER_WAY / batch.key
    partition_by = names_of(options.partition_by)
    written = write_files(rows, staged, partition_by)
    if not written.files:
        return True
    gets = pq.read_schema(written.files[0].path).with_metadata({_LAYOUT: ",".join(partition_by)})
    _refuse_drift(table, gets, evolve=options.evolve)
    (staged / _DIGESTS).write_bytes(msgspec.json.encode(Digests.of(batch, written.rows)))
    _replace(_last_file(table, batch.writer), b"%d" % batch.number)
    staged.rename(final)
    return True


def _last(table: Path, writer: str) -> int | None:
    """The number of the writer's last batch. In a table of before it was noted, that of its last folder."""
    try:
        return int(_last_file(table, writer).read_bytes())
    except FileNotFoundError:
        start = f"{_FINAL}{writer}-"
        names = (each.name.removeprefix(start) for each in table.glob(f"{_FINAL}*"))
        return max((int(name) for name in names if name.isdecimal()), default=None)


def _last_file(table: Path, writer: str) -> Path:
    return table / _UNDER_WAY / f"{writer}.last"


def _digests(folder: Path) -> Digests | None:
    try:
        return msgspec.json.decode((folder / _DIGESTS).read_bytes(), type=Digests)
    except FileNotFoundError:
        return None


def _replace(file: Path, data: bytes) -> None:
    part = file.with_name(f"{file.name}.part")
    part.write_bytes(data)
    part.replace(file)


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
        _replace(table / _UNDER_WAY / _COLUMNS, pa.schema([*has, *new], gets.metadata).serialize())


def _columns(table: Path) -> pa.Schema | None:
    """As they were noted with the first batch that had them: files are many, and maybe none has all."""
    try:
        return pa.ipc.read_schema(pa.py_buffer((table / _UNDER_WAY / _COLUMNS).read_bytes()))
    except FileNotFoundError:
        known = next(table.glob("batch=*/**/*.parquet"), None)
        return None if known is None else pq.read_schema(known).remove_metadata()
