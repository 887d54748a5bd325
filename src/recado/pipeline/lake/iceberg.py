"""An Iceberg table of an SQL catalogue, by pyiceberg: no jars. In a folder or in an object store.

The commit that adds the files of a batch also sets a property of the table, under the name of its writer: both
or neither. The property has the number of the last batch and digests of the last ones (`batch`). Before digests
were kept it was the number alone.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..location import folder_of, is_local, local_uri
from .batch import RECENT_BATCHES, Batch, Digests, is_there
from .errors import drifted, unreachable
from .files import Written, counted_rows, nullable, write_files
from .objects import write_objects
from .settings import IcebergOptions, IcebergSource, check_catalogue

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

_PROPERTY: Final = "recado.batch."
_ATTEMPTS: Final = 5  # another writer may commit at the same time


class History(msgspec.Struct, frozen=True):
    """What a table keeps of a writer."""

    last: int
    digests: dict[int, Digests] = {}
    """Of the last batches, by their numbers."""

    def with_batch(self, number: int, digests: Digests) -> History:
        """No more than RECENT_BATCHES of them."""
        kept = {each: self.digests[each] for each in self.digests if each > number - RECENT_BATCHES}
        return History(number, {**kept, number: digests})


class IcebergStore(msgspec.Struct, frozen=True):
    """The object store of a table, as pyiceberg has it. Paths are whole locations."""

    properties: dict[str, str]

    def create(self, path: str) -> AbstractContextManager[Any]:
        from pyiceberg.io import load_file_io

        return load_file_io(self.properties, path).new_output(path).create()


def write_iceberg(rows: DataFrame, options: IcebergOptions, batch: Batch) -> bool:
    """Write a batch. Returns False if the table has it already. Raises TableError."""
    from pyiceberg.exceptions import CommitFailedException

    catalogue = catalogue_of(options)
    try:
        schema = arrow_schema(rows)
        namespace = options.table.partition(".")[0]
        catalogue.create_namespace_if_not_exists(namespace)
        table = catalogue.create_table_if_not_exists(options.table, schema)
        if _has(table, batch, rows):
            return False
        _refuse_drift(table, schema, evolve=options.evolve)
        written = _write(rows, table, batch)
        for attempt in range(_ATTEMPTS if written.files else 0):
            try:
                _commit(table, batch, written)
                break
            except CommitFailedException:
                if attempt == _ATTEMPTS - 1:
                    raise
                table = table.refresh()
                if _has(table, batch, rows):
                    return False  # by our own commit after all, or by a job thought dead
        return True
    except OSError as error:
        if is_local(options.warehouse):
            raise
        raise unreachable(options.warehouse, error) from error
    finally:
        catalogue.close()


def _has(table: Table, batch: Batch, rows: DataFrame) -> bool:
    history = _history(table, batch)
    last = None if history is None else history.last
    known = None if history is None else history.digests.get(batch.number)
    return is_there(".".join(table.name()), batch, last, known, lambda: counted_rows(rows))


def _history(table: Table, batch: Batch) -> History | None:
    text = table.properties.get(_PROPERTY + batch.writer)
    if text is None:
        return None
    if text.isdecimal():
        return History(int(text))
    return msgspec.json.decode(text, type=History)


def _write(rows: DataFrame, table: Table, batch: Batch) -> Written:
    """Files whose paths are their locations."""
    if is_local(table.location()):
        written = write_files(rows, folder_of(table.location()) / "data" / batch.key)
        files = [each._replace(path=f"file://{each.path}") for each in written.files]
        return written._replace(files=files)
    store = IcebergStore(table.io.properties)
    return write_objects(rows, store, f"{table.location()}/data/{batch.key}")


def _commit(table: Table, batch: Batch, written: Written) -> None:
    before = _history(table, batch) or History(-1)
    history = before.with_batch(batch.number, Digests.of(batch, written.rows))
    text = msgspec.json.encode(history).decode()
    with table.transaction() as transaction:
        transaction.add_files([each.path for each in written.files], check_duplicate_files=False)
        transaction.set_properties({_PROPERTY + batch.writer: text})


def catalogue_of(options: IcebergOptions | IcebergSource) -> Catalog:
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.engine import URL

    check_catalogue(options)
    if not is_local(options.warehouse):
        place = {"uri": options.catalogue, "warehouse": options.warehouse}
        return SqlCatalog("recado", **(options.storage | place))
    warehouse = folder_of(options.warehouse)
    warehouse.mkdir(parents=True, exist_ok=True)
    beside = URL.create("sqlite", database=str(warehouse / "catalogue.db"))
    uri = options.catalogue or beside.render_as_string()
    place = {"uri": uri, "warehouse": local_uri(warehouse)}
    return SqlCatalog("recado", **(options.storage | place))


def arrow_schema(rows: DataFrame) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(nullable(rows.schema), timezone="UTC")


def _refuse_drift(table: Table, schema: pa.Schema, *, evolve: bool) -> None:
    has = table.schema().as_arrow()
    is_new = False
    for field in schema:
        if field.name not in has.names:
            if not evolve:
                raise drifted(".".join(table.name()), field.name, None, str(field.type))
            is_new = True
        elif plain(has.field(field.name).type) != plain(field.type):
            kind = has.field(field.name).type
            raise drifted(".".join(table.name()), field.name, str(kind), str(field.type))
    if is_new:
        with table.update_schema() as update:
            update.union_by_name(schema)


def plain(kind: pa.DataType) -> str:
    """The type's name without what only Arrow sees: pyiceberg has large texts, and names of elements."""
    return str(kind).replace("large_", "").replace("element: ", "item: ")
