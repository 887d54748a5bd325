"""The options of lake tables and of the console, as sinks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class TableOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Of Parquet and Delta: a folder."""

    path: str
    partition_by: str = ""
    """Columns, with commas between them, by whose values the files are laid out."""
    evolve: bool = False
    """Whether columns that a table does not have are added to it; else they are an error."""


class IcebergOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Of Iceberg: a table of a catalogue."""

    table: str
    """NAMESPACE.NAME; made if it does not exist."""
    warehouse: str
    """The folder of the tables."""
    catalogue: str = ""
    """The URI of its SQL database; `catalogue.db` in the warehouse, by SQLite, if it is not said."""
    evolve: bool = False


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    num_rows: Annotated[int, Meta(ge=1)] = 20
    truncate: bool = True


class DeltaSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Delta table to look things up in."""

    path: str
    version: Annotated[int, Meta(ge=0)] | None = None


class IcebergSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    table: str
    warehouse: str
    catalogue: str = ""
