"""The options of lake tables and of the console, as sinks and as sources."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..location import (
    OBJECT_STORE_SCHEMES,
    has_bucket,
    is_local,
    is_object_store,
    parse_scheme,
    to_local_path,
)
from ..options import OptionError

StorageOptions = dict[str, str]
"""Options of an object store, passed unchanged to deltalake or pyiceberg."""


class ParquetOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options of a Parquet table as a sink."""

    path: str
    partition_by: str = ""
    """Columns to partition the files by, separated by commas."""
    evolve: bool = False
    """Add new columns to the table; otherwise they are an error."""


class DeltaOptions(ParquetOptions, frozen=True, kw_only=True, rename="camel"):
    """Options of a Delta table as a sink, in a folder or an object store."""

    storage: StorageOptions = {}


class IcebergOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options of an Iceberg table as a sink."""

    table: str
    """NAMESPACE.NAME; created if it does not exist."""
    warehouse: str
    """The location of the tables: a folder or a prefix in an object store."""
    catalogue: str = ""
    """The URI of the SQL database; by default the SQLite file `catalogue.db` in the warehouse folder."""
    evolve: bool = False
    storage: StorageOptions = {}


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options of the console as a sink."""

    num_rows: Annotated[int, Meta(ge=1)] = 20
    truncate: bool = True


class DeltaSourceOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options of a Delta table as a source."""

    path: str
    version: Annotated[int, Meta(ge=0)] | None = None
    storage: StorageOptions = {}


class IcebergSourceOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options of an Iceberg table as a source."""

    table: str
    warehouse: str
    catalogue: str = ""
    storage: StorageOptions = {}


# --- where a table may be ------------------------------------------------------------------------


def check_parquet_path(path: str) -> None:
    """Check the location of a Parquet table. Raises OptionError."""
    if is_object_store(path):
        raise OptionError(
            f"option path is {path}: a Parquet table commits a batch by renaming a folder, which an "
            "object store cannot do atomically; use the format delta or iceberg there"
        )
    if not is_local(path):
        raise OptionError(
            f"option path is {path}: a Parquet table must be in a folder, local or mounted; a local folder "
            f"of this name is ./{path}"
        )
    to_local_path(path)


def check_table_location(option: str, location: str) -> None:
    """Check the location of a Delta or Iceberg table. Raises OptionError."""
    if is_local(location):
        to_local_path(location)
    elif not is_object_store(location):
        known = ", ".join(f"{each}://" for each in OBJECT_STORE_SCHEMES)
        raise OptionError(
            f"option {option} is {location}, but there is no object store for {parse_scheme(location)}: "
            f"name a folder, local or mounted, or an object store ({known}); a local folder of this "
            f"name is ./{location}"
        )
    elif not has_bucket(location):
        raise OptionError(
            f"option {option} is {location}, without a bucket: write {parse_scheme(location)}://BUCKET/PATH"
        )


def check_catalogue(options: IcebergOptions | IcebergSourceOptions) -> None:
    """Check the location of an Iceberg table and of its catalogue. Raises OptionError."""
    check_table_location("warehouse", options.warehouse)
    if is_object_store(options.warehouse) and not options.catalogue:
        raise OptionError(
            f"option warehouse is {options.warehouse}, which cannot hold a database: name the database "
            "of the catalogue with the option catalogue, such as sqlite:////data/catalogue.db or "
            "postgresql+psycopg2://…"
        )
