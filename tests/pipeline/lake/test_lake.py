"""A batch that is written twice is stored once, wherever it was killed; tables whose columns change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import functions as f

from recado.pipeline.definition import Sink
from recado.pipeline.lake import iceberg
from recado.pipeline.lake.batch import Batch
from recado.pipeline.lake.errors import TableError
from recado.pipeline.lake.options import IcebergSourceOptions
from recado.pipeline.lake.parquet_files import fingerprint_rows
from recado.pipeline.lake.reader import read_delta, read_iceberg
from recado.pipeline.location import to_local_path
from recado.pipeline.options import OptionError
from recado.pipeline.writer import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FORMATS = ("parquet", "delta", "iceberg")


def sink_of(format_: str, folder: Path, **options: str) -> Sink:
    if format_ == "iceberg":
        return Sink("iceberg", {"table": "shop.orders", "warehouse": str(folder), **options})
    return Sink(format_, {"path": str(folder), **options})


def read_back(sink: Sink) -> list[dict[str, Any]]:
    """By each format's own library, not by Spark."""
    if sink.format == "parquet":
        table = ds.dataset(sink.options["path"], format="parquet", partitioning="hive").to_table()
        table = table.drop_columns(["batch"])
    elif sink.format == "delta":
        from deltalake import DeltaTable

        table = DeltaTable(sink.options["path"]).to_pyarrow_table()
    else:
        options = IcebergSourceOptions(
            table=sink.options["table"], warehouse=sink.options["warehouse"]
        )
        catalogue = iceberg.open_catalogue(options)
        table = catalogue.load_table(options.table).scan().to_arrow()
        catalogue.close()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def rows(spark: SparkSession, first: int, count: int = 3) -> DataFrame:
    return spark.range(first, first + count).selectExpr(
        "id", "concat('o ', id) AS name", "timestamp_seconds(id) AS at", "map('k', id) AS counts",
        "array(named_struct('sku', 'x', 'n', id)) AS lines", "CAST(id AS decimal(9,2)) AS price",
    )  # fmt: skip


def ids(sink: Sink) -> list[int]:
    return sorted(row["id"] for row in read_back(sink))


@pytest.mark.parametrize("format_", FORMATS)
def test_a_folder_may_have_any_name(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    sink = sink_of(format_, tmp_path / "my ações" / "a+b")
    assert write_batch(rows(spark, 0), sink, Batch("vendas-do-mês", 0))
    assert not write_batch(rows(spark, 0), sink, Batch("vendas-do-mês", 0))
    assert ids(sink) == [0, 1, 2]
    assert [each.name for each in tmp_path.iterdir()] == ["my ações"]
    if format_ == "delta":
        assert read_delta(spark, sink.options).count() == 3
    elif format_ == "iceberg":
        assert read_iceberg(spark, sink.options).count() == 3


class KilledError(Exception):
    """Instead of the process."""


def killed(*_: object, **__: object) -> None:
    raise KilledError


@pytest.mark.parametrize("format_", FORMATS)
def test_a_batch_is_there_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    sink = sink_of(format_, tmp_path / "table")
    assert write_batch(rows(spark, 0), sink, Batch("w", 0))
    assert not write_batch(rows(spark, 0), sink, Batch("w", 0))
    assert ids(sink) == [0, 1, 2]
    with monkeypatch.context() as patch:  # files are written, and the commit does not happen
        if format_ == "parquet":
            patch.setattr(Path, "rename", killed)
        elif format_ == "delta":
            patch.setattr("deltalake.DeltaTable.create_write_transaction", killed)
        else:
            patch.setattr(iceberg, "_commit", killed)
        with pytest.raises(KilledError):
            write_batch(rows(spark, 3), sink, Batch("w", 1))
    assert ids(sink) == [0, 1, 2]
    assert write_batch(rows(spark, 3), sink, Batch("w", 1))
    assert write_batch(
        rows(spark, 6), sink, Batch("other", 0)
    )  # another writer has numbers of its own
    assert write_batch(rows(spark, 0).where("id < 0"), sink, Batch("w", 2))  # a batch without rows
    assert not write_batch(rows(spark, 3), sink, Batch("w", 1))
    assert ids(sink) == list(range(9))
    row = next(row for row in read_back(sink) if row["id"] == 4)
    assert row["at"].timestamp() == 4
    assert (row["name"], dict(row["counts"]), row["lines"]) == (
        "o 4",
        {"k": 4},
        [{"sku": "x", "n": 4}],
    )
    if format_ != "parquet":
        reader: Callable[..., DataFrame] = read_delta if format_ == "delta" else read_iceberg
        assert reader(spark, sink.options).count() == 9


@pytest.mark.parametrize("format_", FORMATS)
def test_a_batch_is_recognised_by_its_content(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    sink = sink_of(format_, tmp_path / "table")
    first, second = Batch("w", 1, "planned"), Batch("w", 3, "planned later")
    assert write_batch(rows(spark, 0), sink, first)
    assert write_batch(rows(spark, 3), sink, second)
    # The same plan, with rows that cannot be the same again.
    assert not write_batch(rows(spark, 9).selectExpr("*", "rand() AS chance"), sink, second)
    # Planned anew, with the same rows in another order and other partitions.
    shuffled = rows(spark, 3).repartition(2).orderBy("name", ascending=False)
    assert not write_batch(shuffled, sink, second._replace(retry_key="planned anew"))
    assert not write_batch(rows(spark, 0), sink, first._replace(retry_key="planned anew"))
    none = rows(spark, 0).where("id < 0")
    assert not write_batch(none, sink, Batch("w", 2, "planned anew"))
    for number, others in ((1, rows(spark, 0, 2)), (2, rows(spark, 0)), (3, none)):
        with pytest.raises(TableError, match=rf"up to 3 of w, so batch {number} was not written"):
            write_batch(others, sink, Batch("w", number, "planned anew"))
    changed = rows(spark, 3).withColumn("counts", f.expr("map('k', id + 1)"))
    with pytest.raises(TableError, match="batch 3 was not written: the table has other rows"):
        write_batch(changed, sink, Batch("w", 3))
    assert ids(sink) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_table_of_before_digests_were_kept(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    sink = sink_of(format_, tmp_path / "table")
    write_batch(rows(spark, 0), sink, Batch("w", 0, "planned"))
    write_batch(rows(spark, 3), sink, Batch("w", 1, "planned"))
    forget_digests(sink)
    # The last batch may be one that was killed before Spark noted it as done.
    assert not write_batch(rows(spark, 3), sink, Batch("w", 1, "planned"))
    with pytest.raises(TableError, match="batch 0 was not written: the table does not know"):
        write_batch(rows(spark, 0), sink, Batch("w", 0, "planned anew"))
    assert write_batch(rows(spark, 6), sink, Batch("w", 2, "planned"))
    with pytest.raises(TableError, match="batch 2 was not written: the table has other rows"):
        write_batch(rows(spark, 3), sink, Batch("w", 2, "planned anew"))
    assert ids(sink) == list(range(9))


def test_rows_that_differ_in_where_a_null_is(spark: SparkSession) -> None:
    """Spark's own hash passes over NULLs."""
    found = {
        fingerprint_rows(spark.sql(f"SELECT CAST({bid} AS int) AS bid, CAST({ask} AS int) AS ask"))
        for bid, ask in ((5, "NULL"), ("NULL", 5), (5, 0), ("NULL", "NULL"))
    }
    assert len(found) == 4


def forget_digests(sink: Sink) -> None:
    """Make a table of the writer `w` what it was before digests were kept; it has batches up to 1."""
    if sink.format == "parquet":
        for each in Path(sink.options["path"]).rglob("*"):
            if each.name in ("_digests.json", "w.last"):
                each.unlink()
    elif sink.format == "delta":
        # Delta's log has no way to remove a transaction but to leave it out.
        for commit in (Path(sink.options["path"]) / "_delta_log").glob("*.json"):
            lines = commit.read_text().splitlines()
            commit.write_text("\n".join(each for each in lines if '"w/' not in each))
    else:
        options = IcebergSourceOptions(
            table=sink.options["table"], warehouse=sink.options["warehouse"]
        )
        with (
            closing(iceberg.open_catalogue(options)) as catalogue,
            catalogue.load_table(options.table).transaction() as transaction,
        ):
            transaction.set_properties({"recado.batch.w": "1"})


def test_a_commit_of_which_only_the_answer_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.exceptions import CommitFailedException

    commit = iceberg._commit

    def unanswered(*given: Any) -> None:
        commit(*given)
        raise CommitFailedException

    monkeypatch.setattr(iceberg, "_commit", unanswered)
    sink = sink_of("iceberg", tmp_path)
    write_batch(rows(spark, 0), sink, Batch("w", 0))
    assert ids(sink) == [0, 1, 2]


@pytest.mark.parametrize("format_", FORMATS)
def test_columns_that_a_table_does_not_have(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    sink = sink_of(format_, tmp_path / "table")
    write_batch(rows(spark, 0), sink, Batch("w", 0))
    more = rows(spark, 3).selectExpr("*", "id * 2 AS twice")
    with pytest.raises(TableError, match=r"has no column twice .* evolve=true adds it"):
        write_batch(more, sink, Batch("w", 1))
    other = rows(spark, 3).selectExpr("CAST(id AS string) AS id", "name")
    with pytest.raises(TableError, match=r"has the column id as .*, but the rows have string"):
        write_batch(other, sink, Batch("w", 1))
    write_batch(rows(spark, 3).drop("lines"), sink, Batch("w", 1))
    evolving = sink_of(format_, tmp_path / "table", evolve="true")
    write_batch(rows(spark, 6).selectExpr("*", "id * 2 AS twice"), evolving, Batch("w", 2))
    for kind in ("CAST(id AS string) AS id", "id, CAST(id AS string) AS twice"):
        with pytest.raises(TableError, match=r"has the column .* as .*, but the rows have string"):
            write_batch(rows(spark, 9).selectExpr(*kind.split(", ")), evolving, Batch("w", 3))
    assert ids(sink) == list(range(9))
    if format_ != "parquet":
        assert sorted(row["twice"] or 0 for row in read_back(sink)) == [0] * 6 + [12, 14, 16]


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_that_a_value_is_there_always_is_no_type(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    sink = sink_of(format_, tmp_path / "table")
    for number, value in enumerate(("7", "NULL", "8")):
        of = f"CAST({value} AS int)"
        deep = [f"named_struct('a', {of}) AS s", f"array({of}) AS l", f"map('k', {of}) AS m"]
        write_batch(spark.range(1).selectExpr("id", *deep), sink, Batch("w", number))
    found = [(row["s"]["a"], *row["l"], *dict(row["m"]).values()) for row in read_back(sink)]
    assert sorted(found, key=str) == [(7,) * 3, (8,) * 3, (None,) * 3]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("delta.columnMapping.mode=name", "uses column mapping"),
        ("delta.enableDeletionVectors=true", "deletion vectors"),
    ],
)
def test_delta_tables_whose_files_are_not_their_rows(
    spark: SparkSession, tmp_path: Path, setting: str, told: str
) -> None:
    from deltalake import DeltaTable, Schema

    name, _, value = setting.partition("=")
    columns = Schema.from_json(spark.range(1).schema.json())
    DeltaTable.create(tmp_path, columns, configuration={name: value})
    with pytest.raises((TableError, OptionError), match=told):
        read_delta(spark, {"path": str(tmp_path)})
    if "columnMapping" in name:
        with pytest.raises(TableError, match=told):
            write_batch(spark.range(3), sink_of("delta", tmp_path), Batch("w", 0))


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_files_laid_out_by_columns(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    sink = sink_of(format_, tmp_path / "table", partitionBy="kind")
    kinds = ["a b", "c:d/e", "100%", "é"]
    cases = " ".join(f"WHEN {at} THEN '{kind}'" for at, kind in enumerate(kinds))
    laid = spark.range(5).selectExpr("id", f"CASE id {cases} END AS kind")
    write_batch(laid, sink, Batch("w", 0))
    write_batch(laid, sink, Batch("w", 0))
    for others in ("", "id"):  # Spark would read none of it if both were there
        drifting = sink_of(format_, tmp_path / "table", partitionBy=others, evolve="true")
        with pytest.raises(TableError, match="is partitioned by kind: set the option partitionBy"):
            write_batch(laid, drifting, Batch("w", 1))
    found = sorted((row["id"], row["kind"]) for row in read_back(sink))
    assert found == list(enumerate([*kinds, None]))


@pytest.mark.parametrize("format_", FORMATS)
def test_rows_on_the_disk_of_another_machine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    """Of a table whose folder an executor does not share; Spark itself says nothing."""
    from pyspark.sql import DataFrameWriter

    written = DataFrameWriter.parquet

    def partly_here(writer: DataFrameWriter, path: str) -> None:
        written(writer, path)
        next(to_local_path(path).glob("*.parquet")).unlink()

    sink, batch = sink_of(format_, tmp_path / "table"), Batch("w", 0)
    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "parquet", partly_here)
        with pytest.raises(TableError, match=r"3 rows .* [12]: the folder.* all machines share"):
            write_batch(rows(spark, 0), sink, batch)
    assert write_batch(rows(spark, 0), sink, batch)
    assert ids(sink) == [0, 1, 2]
