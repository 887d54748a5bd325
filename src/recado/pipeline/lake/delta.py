"""Write Delta tables with deltalake, without jars, in a folder or an object store.

Delta's log stores for each application id the version of its last transaction, in the same commit as the
data. The commit of a batch sets these application ids:

    WRITER                the number of the last batch
    WRITER/offsets/SLOT   digests of the recent batches (`batch`)
    WRITER/rows/SLOT

SLOT is the batch number modulo RECENT_BATCH_COUNT.

Files that were written but never committed belong to no table. In a folder, the next attempt of the batch
removes them, because it writes to the same subfolder.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..location import is_local, to_local_path
from .batch import RECENT_BATCH_COUNT, Batch, BatchDigests, is_already_written
from .errors import TableError, partition_mismatch_error, schema_mismatch_error, unreachable_error
from .object_files import write_objects
from .options import DeltaOptions, check_table_location
from .parquet_files import (
    TableFile,
    WrittenBatch,
    as_nullable,
    fingerprint_rows,
    split_names,
    write_files,
)

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema, Transaction
    from pyspark.sql import DataFrame


class DeltaObjectStore(msgspec.Struct, frozen=True):
    """The object store of a table through deltalake. Paths are relative to the table."""

    uri: str
    options: dict[str, str]

    def create(self, path: str) -> AbstractContextManager[Any]:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        files = PyFileSystem(DeltaStorageHandler(self.uri, self.options))
        opened: AbstractContextManager[Any] = files.open_output_stream(path)
        return opened


def write_delta(rows: DataFrame, options: DeltaOptions, batch: Batch) -> bool:
    """Write a batch. Return False if the table already has it. Raises TableError."""
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

    check_table_location("path", options.path)
    uri = str(to_local_path(options.path)) if is_local(options.path) else options.path
    storage = options.storage or None
    partition_by = split_names(options.partition_by)
    schema = delta_schema(rows)
    if _exists(uri, storage):
        table = DeltaTable(uri, storage_options=storage)
        last, known = _last_batch(table, batch)
        if is_already_written(uri, batch, last, known, lambda: fingerprint_rows(rows)):
            return False
        reject_column_mapping(table)
        _align_schema(table, schema, evolve=options.evolve)
    else:
        table = DeltaTable.create(
            uri, schema, mode="ignore", partition_by=partition_by, storage_options=storage
        )
    if (layout := table.metadata().partition_columns) != partition_by:
        raise partition_mismatch_error(uri, layout)
    if is_local(uri):
        written = _write_local(rows, Path(uri), batch, partition_by)
    else:
        written = write_objects(
            rows, DeltaObjectStore(uri, options.storage), batch.key, partition_by
        )
    actions: list[AddAction | RemoveAction] = [
        AddAction(
            path=file.path,
            size=file.size,
            partition_values=file.partition,
            modification_time=file.modified_ms,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows}),
        )
        for file in written.files
    ]
    if actions:
        properties = CommitProperties(app_transactions=_transactions(batch, written))
        table.create_write_transaction(
            actions, "append", table.schema(), partition_by, commit_properties=properties
        )
    return True


def _exists(uri: str, storage: dict[str, str] | None) -> bool:
    """Whether the table exists. Raises TableError if the store is not accessible."""
    from deltalake import DeltaTable

    try:
        return DeltaTable.is_deltatable(uri, storage)
    except OSError as error:
        raise unreachable_error(uri, error) from error


def _last_batch(table: DeltaTable, batch: Batch) -> tuple[int | None, BatchDigests | None]:
    """Return the number of the writer's last batch, and the digests stored for this batch's number."""
    last = table.transaction_version(batch.writer)
    if last is None or last < batch.number:
        return last, None
    offsets, rows = (table.transaction_version(name) for name in _digest_names(batch))
    if offsets is None or rows is None:
        return last, None
    return last, BatchDigests(offsets, rows)


def _transactions(batch: Batch, written: WrittenBatch) -> list[Transaction]:
    from deltalake import Transaction

    digests = BatchDigests.compute(batch, written.rows)
    offsets, rows = _digest_names(batch)
    return [
        Transaction(batch.writer, batch.number),
        Transaction(offsets, digests.offsets),
        Transaction(rows, digests.rows),
    ]


def _digest_names(batch: Batch) -> tuple[str, str]:
    slot = batch.number % RECENT_BATCH_COUNT
    return f"{batch.writer}/offsets/{slot}", f"{batch.writer}/rows/{slot}"


def _write_local(
    rows: DataFrame, table: Path, batch: Batch, partition_by: list[str]
) -> WrittenBatch:
    """Write all files into one folder. The log has the partition values; Delta readers ignore folder names."""
    folder = table / batch.key
    written = write_files(rows, folder, partition_by)
    files: list[TableFile] = []
    for number, file in enumerate(written.files):
        path = Path(file.path)
        if path.parent != folder:
            path = path.rename(folder / f"part-{number:05d}.parquet")
        files.append(file._replace(path=str(path.relative_to(table))))
    return written._replace(files=files)


def delta_schema(rows: DataFrame) -> Schema:
    """Convert the schema of rows; Spark and Delta share the JSON format of schemas."""
    from deltalake import Schema

    return Schema.from_json(as_nullable(rows.schema).json())


def reject_column_mapping(table: DeltaTable) -> None:
    """Raise TableError if the column names in the files differ from those of the table."""
    mode = table.metadata().configuration.get("delta.columnMapping.mode") or "none"
    if mode != "none":
        raise TableError(
            f"{table.table_uri} uses column mapping, which is not supported: use a table "
            "without it, or Spark with Delta's jars"
        )


def _align_schema(table: DeltaTable, schema: Schema, *, evolve: bool) -> None:
    """Add new columns if `evolve` is set. Raises TableError for new or different columns otherwise."""
    table_fields = {field.name: field for field in table.schema().fields}
    new = []
    for field in schema.fields:
        if field.name not in table_fields:
            if not evolve:
                raise schema_mismatch_error(
                    table.table_uri, field.name, None, _type_text(field.type)
                )
            new.append(field)
        elif table_fields[field.name].type != field.type:
            raise schema_mismatch_error(
                table.table_uri,
                field.name,
                _type_text(table_fields[field.name].type),
                _type_text(field.type),
            )
    if new:
        table.alter.add_columns(new)


def _type_text(kind: Any) -> str:
    return str(getattr(kind, "type", kind))
