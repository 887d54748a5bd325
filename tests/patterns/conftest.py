"""The stores under test, in memory, in SQLite and in PostgreSQL, and their clock."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import psycopg
import pytest

from recado.patterns.state import MemoryStore, SqliteStore, StateStore, StoredState
from recado.patterns.state.postgres import PostgresStore
from workshop.postgres import postgres

STORES = ("memory", "sqlite", "postgres")


class Clock:
    """A clock that tests set."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


NewStore: TypeAlias = Callable[[], StateStore]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with postgres() as url:
        yield url


@pytest.fixture
def database(postgres_server: str) -> str:
    """The URL of an empty database."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres_server.removesuffix("postgres") + name


@pytest.fixture(params=STORES)
def new_store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> NewStore:
    """Make another store with the same content, as another process does."""
    content = StoredState()
    match request.param:
        case "memory":
            return lambda: MemoryStore(content, clock=clock)
        case "sqlite":
            return lambda: SqliteStore(tmp_path / "new" / "state.db", clock=clock)
        case _:
            url = request.getfixturevalue("database")
            return lambda: PostgresStore(url, clock=clock)


@asynccontextmanager
async def opened(store: StateStore) -> AsyncIterator[StateStore]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()
