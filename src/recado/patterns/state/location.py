"""Where a store is: a path of a SQLite file, or the URL of a PostgreSQL database."""

from os import PathLike
from typing import Final

from ..errors import CompositionError
from .sqlite import SqliteStore
from .store import StateStore

_POSTGRES_SCHEMES: Final = ("postgresql://", "postgres://")


def to_store(location: str | PathLike[str]) -> StateStore:
    """Return the store at a path or URL. Raises `CompositionError` if psycopg is needed and not installed."""
    if not isinstance(location, str) or "://" not in location:
        return SqliteStore(location)
    if not location.startswith(_POSTGRES_SCHEMES):
        scheme = location.partition("://")[0]
        raise CompositionError(
            f"a store cannot be in {scheme}: it is the path of a SQLite file or a URL postgresql://…"
        )
    try:
        from .postgres import PostgresStore
    except ImportError as error:
        raise CompositionError(
            "a store in PostgreSQL needs psycopg: pip install 'recado[postgres]'"
        ) from error
    return PostgresStore(location)
