"""The page about archives: its examples run, on pyarrow, DuckDB and Polars; it tells of every field.

The one for Spark runs where there is a Spark already: tests/selector/test_spark.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from recado.feeds.archive import views_table
from recado.feeds.archive.columns import SCHEMA
from recado.feeds.archive.manifest import (
    DataFile,
    Manifest,
    RetiredFile,
    Tail,
    ViewsFile,
)

from .making import publisher
from .page import COUNT, PAGE, run
from .page import folder as folder


def test_recado(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(folder, "Archive.open")
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f"quotes 0 {4 * COUNT}"
    assert sum(" b'{" in line for line in told) == 4 * 14  # even prices above 30


def test_pyarrow(folder: Path) -> None:
    found = run(folder, "import pyarrow.dataset")
    assert found["rows"].count_rows() == 4 * COUNT
    assert found["petrobras"].num_rows == 2 * COUNT
    assert {str(day) for day in found["petrobras"].column("date").to_pylist()} == {
        "2027-01-15",
        "2027-01-16",
    }


def test_duckdb(folder: Path) -> None:
    days = run(folder, "import duckdb")["days"]
    assert [(str(day), key, trades, price) for day, key, trades, price in days] == [
        (day, key, COUNT, price)
        for day in ("2027-01-15", "2027-01-16")
        for key, price in (("PETR4", 29.0), ("VALE3", 30.0))
    ]


def test_polars(folder: Path) -> None:
    latest = run(folder, "import polars")["latest"]
    assert dict(latest.rows()) == {publisher(who).hex(): 2 * COUNT for who in (1, 2)}


@pytest.mark.parametrize("kind", [Manifest, DataFile, ViewsFile, Tail, RetiredFile])
def test_every_field_of_the_manifest_is_explained(kind: type[Any]) -> None:
    _, _, text = PAGE.read_text().partition("### The manifest")
    text, _, _ = text.partition("### The views table")
    assert [name for name in kind.__struct_encode_fields__ if f"`{name}`" not in text] == []


def test_every_column_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+)", PAGE.read_text(), re.M)
    named = {name for name, _ in rows}
    assert set(SCHEMA.names) <= named
    _, _, text = PAGE.read_text().partition("### The views table")
    assert [name for name in views_table.SCHEMA.names if f"`{name}`" not in text] == []
