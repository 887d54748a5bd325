"""An Iceberg table of an SQL catalogue, by pyiceberg: no jars.

The commit that adds the files of a batch also sets a property of the table, with the number of the batch
under the name of its writer: both or neither. A batch whose number is not above that was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .batch import Batch
from .errors import drifted
from .files import folder_of, location_of, nullable, write_files
from .settings import IcebergOptions, IcebergSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame

_PROPERTY: Final = "recado.batch."
_ATTEMPTS: Final = 5  # another writer may commit at the same time


def write_iceberg(rows: DataFrame, options: IcebergOptions, batch: Batch) -> bool:
    """Whether it was not there already. Raises TableError."""
    from pyiceberg.exceptions import CommitFailedException

    catalogue = catalogue_of(options)
    try:
        schema = arrow_schema(rows)
        namespace = options.table.partition(".")[0]
        catalogue.create_namespace_if_not_exists(namespace)
        table = catalogue.create_table_if_not_exists(options.table, schema)
        if _has(table, batch):
            return False
        _refuse_drift(table, schema, evolve=options.evolve)
        folder = folder_of(table.location()) / "data" / batch.key
        files = [location_of(file.path) for file in write_files(rows, folder)]
        for attempt in range(_ATTEMPTS if files else 0):
            try:
                _commit(table, files, batch)
                break
            except CommitFailedException:
                if attempt == _ATTEMPTS - 1:
                    raise
                table = table.refresh()
                if _has(table, batch):  # by our own commit after all, or by a job thought dead
                    return False
        return True
    finally:
        catalogue.close()


def _has(table: Table, batch: Batch) -> bool:
    return int(table.properties.get(_PROPERTY + batch.writer, -1)) >= batch.number


def _commit(table: Table, files: list[str], batch: Batch) -> None:
    with table.transaction() as transaction:
        transaction.add_files(files, check_duplicate_files=False)
        transaction.set_properties({_PROPERTY + batch.writer: str(batch.number)})


def catalogue_of(options: IcebergOptions | IcebergSource) -> Catalog:
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.engine import URL

    warehouse = folder_of(options.warehouse)
    warehouse.mkdir(parents=True, exist_ok=True)
    beside = URL.create("sqlite", database=str(warehouse / "catalogue.db"))
    uri = options.catalogue or beside.render_as_string()
    return SqlCatalog("recado", uri=uri, warehouse=location_of(warehouse))


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
