"""Stores named by a path or URL."""

import builtins
import sys
from pathlib import Path
from typing import Any

import pytest

from recado.patterns.errors import CompositionError
from recado.patterns.state import SqliteStore, to_store
from recado.patterns.state.postgres import PostgresStore


def test_a_path_is_a_sqlite_file(tmp_path: Path) -> None:
    assert isinstance(to_store(tmp_path / "state.db"), SqliteStore)
    assert isinstance(to_store("state.db"), SqliteStore)


def test_a_url_is_a_postgresql_database() -> None:
    for scheme in ("postgresql", "postgres"):
        assert isinstance(to_store(f"{scheme}://localhost/shop"), PostgresStore)
    with pytest.raises(CompositionError, match="cannot be in mysql"):
        to_store("mysql://localhost/shop")


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "recado.patterns.state.postgres")
    importing = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "psycopg":
            raise ImportError(name)
        return importing(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(CompositionError, match=r"recado\[postgres\]"):
        to_store("postgresql://localhost/shop")
