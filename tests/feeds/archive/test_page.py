"""The page about archives: its examples run, on pyarrow, DuckDB, Polars and Spark; it tells of every field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from recado.feeds.archive import views
from recado.feeds.archive.columns import SCHEMA
from recado.feeds.archive.manifest import (
    Collected,
    DataFile,
    Manifest,
    Tail,
    ViewsFile,
)
from recado.feeds.archive.store import Store
from recado.feeds.block import Block
from recado.feeds.boundary import Batch
from tests.selector.conftest import spark as spark  # one for all

from .making import Clock, publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[3] / "docs" / "archive.md"
EXAMPLES = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
COUNT = 60


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two days, two symbols, two publishers."""
    clock = Clock()
    with Store(tmp_path, "quotes", clock=clock) as store:
        for day in range(2):
            for who in (1, 2):
                block = Block.of(
                    [b'{"price": %d}' % price for price in range(COUNT)],
                    timestamps=int(clock.now * 1e6),
                    keys=[(b"PETR4", b"VALE3")[price % 2] for price in range(COUNT)],
                )
                store.append([Batch(publisher(who), 1 + COUNT * day, block)])
            store.seal()
            clock.now += 86_400
    return tmp_path


def run(folder: Path, wanted: str, **names: object) -> dict[str, Any]:
    """Run the examples that a tool needs: the one that finds the files, and its own."""
    known: dict[str, Any] = {"FOLDER": str(folder), **names}
    (finding,) = [text for text in EXAMPLES if "manifest.json" in text]
    (own,) = [text for text in EXAMPLES if wanted in text]
    for text in (finding, own):
        exec(compile(text, wanted, "exec"), known)
    return known


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


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # PySpark's own sockets, see the fixture
def test_spark(folder: Path, spark: SparkSession) -> None:
    found = run(folder, "spark.read", spark=spark)
    assert found["rows"].count() == 4 * COUNT
    assert found["dear"].count() == 4 * 14
    kinds = {each.name: each.dataType.simpleString() for each in found["rows"].schema}
    assert {name: kinds[name] for name in ("offset", "publisher", "timestamp", "body", "date")} == {
        "offset": "bigint",
        "publisher": "string",
        "timestamp": "timestamp",
        "body": "binary",
        "date": "date",
    }


@pytest.mark.parametrize("kind", [Manifest, DataFile, ViewsFile, Tail, Collected])
def test_every_field_of_the_manifest_is_explained(kind: type[Any]) -> None:
    _, _, text = PAGE.read_text().partition("### The manifest")
    text, _, _ = text.partition("### The views table")
    assert [name for name in kind.__struct_fields__ if f"`{name}`" not in text] == []


def test_every_column_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+)", PAGE.read_text(), re.M)
    named = {name for name, _ in rows}
    assert set(SCHEMA.names) <= named
    _, _, text = PAGE.read_text().partition("### The views table")
    assert [name for name in views.SCHEMA.names if f"`{name}`" not in text] == []
