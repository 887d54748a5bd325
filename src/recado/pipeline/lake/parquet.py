"""Write a folder of Parquet files that any reader understands.

    PATH/batch=KEY/[date=2027-01-15/]part-….parquet
    PATH/_batches/KEY            a batch that is being written
    PATH/_batches/WRITER.last    the number of the writer's last batch
    PATH/_batches/columns        the Arrow schema of all batches, with the partition columns

A batch is written to `_batches/KEY`, which readers ignore, and then renamed, so it appears as a whole or not
at all. Its folder has the digests (`batch`) in a file that readers ignore. `WRITER.last` is written just
before the rename. The file system must rename folders atomically, as local and mounted ones do. Object stores
do not; use Delta or Iceberg there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ..location import to_local_path
from .batch import Batch, BatchDigests, is_already_written
from .errors import partition_mismatch_error, schema_mismatch_error
from .options import ParquetOptions, check_parquet_path
from .parquet_files import fingerprint_rows, split_names, write_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

_STAGING_FOLDER: Final = "_batches"
_SCHEMA_FILE: Final = "columns"
_BATCH_PREFIX: Final = "batch="
_DIGESTS_FILE: Final = "_digests.json"
_PARTITION_BY_KEY: Final = b"partitionBy"


def write_parquet(rows: DataFrame, options: ParquetOptions, batch: Batch) -> bool:
    """Write a batch. Return False if the table already has it. Raises TableError."""
    check_parquet_path(options.path)
    table = to_local_path(options.path)
    final = table / f"{_BATCH_PREFIX}{batch.key}"
    last = _last_batch(table, batch.writer)
    # The number is recorded before the rename. If the process was killed in between, the batch is missing.
    is_missing = last == batch.number and not final.exists()
    if not is_missing and is_already_written(
        str(table), batch, last, _read_digests(final), lambda: fingerprint_rows(rows)
    ):
        return False
    staged = table / _STAGING_FOLDER / batch.key
    partition_by = split_names(options.partition_by)
    written = write_files(rows, staged, partition_by)
    if not written.files:
        return True
    row_schema = pq.read_schema(written.files[0].path).with_metadata(
        {_PARTITION_BY_KEY: ",".join(partition_by)}
    )
    _align_schema(table, row_schema, evolve=options.evolve)
    (staged / _DIGESTS_FILE).write_bytes(
        msgspec.json.encode(BatchDigests.compute(batch, written.rows))
    )
    _replace_file(_last_batch_file(table, batch.writer), b"%d" % batch.number)
    staged.rename(final)
    return True


def _last_batch(table: Path, writer: str) -> int | None:
    """Return the number of the writer's last batch; in old tables, the number of its last folder."""
    try:
        return int(_last_batch_file(table, writer).read_bytes())
    except FileNotFoundError:
        start = f"{_BATCH_PREFIX}{writer}-"
        names = (each.name.removeprefix(start) for each in table.glob(f"{_BATCH_PREFIX}*"))
        return max((int(name) for name in names if name.isdecimal()), default=None)


def _last_batch_file(table: Path, writer: str) -> Path:
    return table / _STAGING_FOLDER / f"{writer}.last"


def _read_digests(folder: Path) -> BatchDigests | None:
    try:
        return msgspec.json.decode((folder / _DIGESTS_FILE).read_bytes(), type=BatchDigests)
    except FileNotFoundError:
        return None


def _replace_file(file: Path, data: bytes) -> None:
    part = file.with_name(f"{file.name}.part")
    part.write_bytes(data)
    part.replace(file)


def _align_schema(table: Path, row_schema: pa.Schema, *, evolve: bool) -> None:
    """Record new columns if `evolve` is set. Raises TableError for new or different columns otherwise.

    All files of a folder must have the same types, since readers take the schema of any one of them.
    """
    known = _read_schema(table)
    table_schema = pa.schema([]) if known is None else known
    layout = (table_schema.metadata or row_schema.metadata)[_PARTITION_BY_KEY]
    if layout != row_schema.metadata[_PARTITION_BY_KEY]:
        raise partition_mismatch_error(str(table), split_names(layout.decode()))
    new = [field for field in row_schema if field.name not in table_schema.names]
    if new and known is not None and not evolve:
        raise schema_mismatch_error(str(table), new[0].name, None, str(new[0].type))
    for name in {*row_schema.names} & {*table_schema.names}:
        if table_schema.field(name).type != row_schema.field(name).type:
            raise schema_mismatch_error(
                str(table),
                name,
                str(table_schema.field(name).type),
                str(row_schema.field(name).type),
            )
    if new:
        _replace_file(
            table / _STAGING_FOLDER / _SCHEMA_FILE,
            pa.schema([*table_schema, *new], row_schema.metadata).serialize(),
        )


def _read_schema(table: Path) -> pa.Schema | None:
    """Return the recorded schema; in tables of older versions, the schema of any file."""
    try:
        return pa.ipc.read_schema(
            pa.py_buffer((table / _STAGING_FOLDER / _SCHEMA_FILE).read_bytes())
        )
    except FileNotFoundError:
        known = next(table.glob("batch=*/**/*.parquet"), None)
        return None if known is None else pq.read_schema(known).remove_metadata()
