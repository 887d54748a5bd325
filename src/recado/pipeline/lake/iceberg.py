"""Write Iceberg tables of an SQL catalogue with pyiceberg, without jars, in a folder or an object store.

The commit that adds the files of a batch also sets a table property named after the writer. The property has
the number of the last batch and the digests of the recent ones (`batch`). In tables of older versions it is
the number alone.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..location import is_local, local_uri, to_local_path
from .batch import RECENT_BATCH_COUNT, Batch, BatchDigests, is_already_written
from .errors import schema_mismatch_error, unreachable_error
from .object_files import write_objects
from .options import IcebergOptions, IcebergSourceOptions, check_catalogue
from .parquet_files import WrittenBatch, as_nullable, fingerprint_rows, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

_PROPERTY_PREFIX: Final = "recado.batch."
_COMMIT_ATTEMPTS_MAX: Final = 5  # another writer may commit concurrently


class WriterHistory(msgspec.Struct, frozen=True):
    """The recent batches of a writer, stored as JSON in a table property."""

    last: int
    digests: dict[int, BatchDigests] = {}
    """Of the recent batches, by their numbers."""

    def with_batch(self, number: int, digests: BatchDigests) -> WriterHistory:
        """Return the history with this batch added, limited to RECENT_BATCH_COUNT."""
        recent = {
            each: self.digests[each] for each in self.digests if each > number - RECENT_BATCH_COUNT
        }
        return WriterHistory(number, {**recent, number: digests})


class IcebergObjectStore(msgspec.Struct, frozen=True):
    """The object store of a table through pyiceberg. Paths are complete locations."""

    properties: dict[str, str]

    def create(self, path: str) -> AbstractContextManager[Any]:
        from pyiceberg.io import load_file_io

        return load_file_io(self.properties, path).new_output(path).create()


def write_iceberg(rows: DataFrame, options: IcebergOptions, batch: Batch) -> bool:
    """Write a batch. Return False if the table already has it. Raises TableError."""
    from pyiceberg.exceptions import CommitFailedException

    catalogue = open_catalogue(options)
    try:
        schema = arrow_schema(rows)
        namespace = options.table.partition(".")[0]
        catalogue.create_namespace_if_not_exists(namespace)
        table = catalogue.create_table_if_not_exists(options.table, schema)
        if _has_batch(table, batch, rows):
            return False
        _align_schema(table, schema, evolve=options.evolve)
        written = _write(rows, table, batch)
        for attempt in range(_COMMIT_ATTEMPTS_MAX if written.files else 0):
            try:
                _commit(table, batch, written)
                break
            except CommitFailedException:
                if attempt == _COMMIT_ATTEMPTS_MAX - 1:
                    raise
                table = table.refresh()
                if _has_batch(table, batch, rows):
                    return False  # our commit succeeded after all, or that of a job presumed dead
        return True
    except OSError as error:
        if is_local(options.warehouse):
            raise
        raise unreachable_error(options.warehouse, error) from error
    finally:
        catalogue.close()


def _has_batch(table: Table, batch: Batch, rows: DataFrame) -> bool:
    history = _read_history(table, batch)
    last = None if history is None else history.last
    known = None if history is None else history.digests.get(batch.number)
    return is_already_written(
        ".".join(table.name()), batch, last, known, lambda: fingerprint_rows(rows)
    )


def _read_history(table: Table, batch: Batch) -> WriterHistory | None:
    text = table.properties.get(_PROPERTY_PREFIX + batch.writer)
    if text is None:
        return None
    if text.isdecimal():
        return WriterHistory(int(text))
    return msgspec.json.decode(text, type=WriterHistory)


def _write(rows: DataFrame, table: Table, batch: Batch) -> WrittenBatch:
    """Write the files; their paths are locations."""
    if is_local(table.location()):
        written = write_files(rows, to_local_path(table.location()) / "data" / batch.key)
        files = [each._replace(path=f"file://{each.path}") for each in written.files]
        return written._replace(files=files)
    store = IcebergObjectStore(table.io.properties)
    return write_objects(rows, store, f"{table.location()}/data/{batch.key}")


def _commit(table: Table, batch: Batch, written: WrittenBatch) -> None:
    before = _read_history(table, batch) or WriterHistory(-1)
    history = before.with_batch(batch.number, BatchDigests.compute(batch, written.rows))
    text = msgspec.json.encode(history).decode()
    with table.transaction() as transaction:
        transaction.add_files([each.path for each in written.files], check_duplicate_files=False)
        transaction.set_properties({_PROPERTY_PREFIX + batch.writer: text})


def open_catalogue(options: IcebergOptions | IcebergSourceOptions) -> Catalog:
    """Open the catalogue of a table. Raises OptionError if its location is not allowed."""
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.engine import URL

    check_catalogue(options)
    if not is_local(options.warehouse):
        location = {"uri": options.catalogue, "warehouse": options.warehouse}
        return SqlCatalog("recado", **(options.storage | location))
    warehouse = to_local_path(options.warehouse)
    warehouse.mkdir(parents=True, exist_ok=True)
    default_uri = URL.create("sqlite", database=str(warehouse / "catalogue.db"))
    uri = options.catalogue or default_uri.render_as_string()
    location = {"uri": uri, "warehouse": local_uri(warehouse)}
    return SqlCatalog("recado", **(options.storage | location))


def arrow_schema(rows: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(as_nullable(rows.schema), timezone="UTC")


def _align_schema(table: Table, schema: pa.Schema, *, evolve: bool) -> None:
    """Add new columns if `evolve` is set. Raises TableError for new or different columns otherwise."""
    table_schema = table.schema().as_arrow()
    is_new = False
    for field in schema:
        if field.name not in table_schema.names:
            if not evolve:
                raise schema_mismatch_error(
                    ".".join(table.name()), field.name, None, str(field.type)
                )
            is_new = True
        elif _type_text(table_schema.field(field.name).type) != _type_text(field.type):
            kind = table_schema.field(field.name).type
            raise schema_mismatch_error(
                ".".join(table.name()), field.name, str(kind), str(field.type)
            )
    if is_new:
        with table.update_schema() as update:
            update.union_by_name(schema)


def _type_text(kind: pa.DataType) -> str:
    """Return the name of a type without differences that only Arrow makes: large strings, element names."""
    return str(kind).replace("large_", "").replace("element: ", "item: ")
