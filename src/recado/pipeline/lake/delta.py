"""A Delta table, by deltalake: no jars, and no Spark of a certain version.

Delta keeps for each writer the number of its last transaction, in the log, with the commit itself. A batch
whose number is not above that was written. Files that were written and never committed belong to no table;
the next attempt removes them, as it writes into the same folder.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .batch import Batch
from .errors import TableError, drifted, laid_out
from .files import File, folder_of, names_of, nullable, write_files
from .settings import TableOptions

if TYPE_CHECKING:
    from pathlib import Path

    from deltalake import DeltaTable, Schema
    from pyspark.sql import DataFrame


def write_delta(rows: DataFrame, options: TableOptions, batch: Batch) -> bool:
    """Whether it was not there already. Raises TableError."""
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    folder = folder_of(options.path)
    partition_by = names_of(options.partition_by)
    schema = schema_of(rows)
    if DeltaTable.is_deltatable(str(folder)):
        table = DeltaTable(folder)
        last = table.transaction_version(batch.writer)
        if last is not None and last >= batch.number:
            return False
        refuse_mapped(table)
        _refuse_drift(table, schema, evolve=options.evolve)
    else:
        table = DeltaTable.create(folder, schema, mode="ignore", partition_by=partition_by)
    if (known := table.metadata().partition_columns) != partition_by:
        raise laid_out(str(folder), known)
    files = write_files(rows, folder / batch.key, partition_by)
    actions: list[AddAction | RemoveAction] = [
        AddAction(
            path=str(path.relative_to(folder)),
            size=file.size,
            partition_values=file.partition,
            modification_time=file.modified_ms,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows}),
        )
        for file, path in zip(files, flattened(files, folder / batch.key), strict=True)
    ]
    if actions:
        done = CommitProperties(app_transactions=[Transaction(batch.writer, batch.number)])
        table.create_write_transaction(
            actions, "append", table.schema(), partition_by, commit_properties=done
        )
    return True


def flattened(files: list[File], folder: Path) -> list[Path]:
    """All files side by side. What a partition is, the log says; folders of odd names are read oddly."""
    found = []
    for number, file in enumerate(files):
        path = file.path
        if path.parent != folder:
            path = path.rename(folder / f"part-{number:05d}.parquet")
        found.append(path)
    return found


def schema_of(rows: DataFrame) -> Schema:
    """Spark and Delta write schemas alike."""
    from deltalake import Schema

    return Schema.from_json(nullable(rows.schema).json())


def refuse_mapped(table: DeltaTable) -> None:
    """Raises TableError if the names in its files are not those of its columns."""
    mode = table.metadata().configuration.get("delta.columnMapping.mode") or "none"
    if mode != "none":
        raise TableError(
            f"{table.table_uri} has other names for its columns in its files (column mapping): use a table "
            "without, or a Spark with Delta's jars"
        )


def _refuse_drift(table: DeltaTable, schema: Schema, *, evolve: bool) -> None:
    has = {field.name: field for field in table.schema().fields}
    new = []
    for field in schema.fields:
        if field.name not in has:
            if not evolve:
                raise drifted(table.table_uri, field.name, None, _told(field.type))
            new.append(field)
        elif has[field.name].type != field.type:
            raise drifted(
                table.table_uri, field.name, _told(has[field.name].type), _told(field.type)
            )
    if new:
        table.alter.add_columns(new)


def _told(kind: Any) -> str:
    return str(getattr(kind, "type", kind))
