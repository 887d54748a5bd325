"""Delta and Iceberg tables in an object store, without Spark's jars or a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from recado.pipeline.definition import Pipeline, Sink, check
from recado.pipeline.definition.description import describe_pipeline
from recado.pipeline.definition.pipeline import options_to_text
from recado.pipeline.lake import iceberg, object_files
from recado.pipeline.lake.batch import Batch
from recado.pipeline.lake.errors import TableError
from recado.pipeline.lake.options import IcebergSourceOptions
from recado.pipeline.lake.reader import read_delta, read_iceberg
from recado.pipeline.options import parse_options
from recado.pipeline.runner import run
from recado.pipeline.writer import write_batch
from tests.pipeline.lake.object_store import BUCKET, ObjectStore, object_store
from tests.pipeline.lake.test_lake import KilledError, killed, rows
from tests.pipeline.steps.messages import message, reading, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as started:
        yield started


def delta_sink(store: ObjectStore, name: str, **options: Any) -> Sink:
    path = f"s3a://{BUCKET}/{name}"
    return Sink("delta", options_to_text({"path": path, "storage": store.delta, **options}))


def iceberg_sink(store: ObjectStore, name: str, folder: Path) -> Sink:
    place = {"table": f"shop.{name}", "warehouse": f"s3://{BUCKET}/my ações"}
    catalogue = f"sqlite:///{folder}/catalogue.db"
    return Sink(
        "iceberg", options_to_text({**place, "catalogue": catalogue, "storage": store.iceberg})
    )


def read_back(sink: Sink) -> list[dict[str, Any]]:
    """By deltalake and pyiceberg."""
    if sink.format == "delta":
        from deltalake import DeltaTable

        storage = msgspec.json.decode(sink.options["storage"])
        given = {
            name: str(value).lower() if value is True else value for name, value in storage.items()
        }
        table = DeltaTable(sink.options["path"], storage_options=given).to_pyarrow_table()
    else:
        options = parse_options(IcebergSourceOptions, "iceberg", sink.options)
        catalogue = iceberg.open_catalogue(options)
        table = catalogue.load_table(options.table).scan().to_arrow()
        catalogue.close()
    found: list[dict[str, Any]] = table.to_pylist()
    return found


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_a_batch_is_there_once(
    spark: SparkSession,
    store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format_: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if format_ == "delta":
        sink = delta_sink(store, "my ações/a+b")
    else:
        sink = iceberg_sink(store, "orders", tmp_path)
    first, second = Batch("vendas-do-mês", 0, "planned"), Batch("vendas-do-mês", 1, "planned")
    assert write_batch(rows(spark, 0), sink, first)
    assert not write_batch(rows(spark, 0), sink, first)
    with monkeypatch.context() as patch:
        patch.setattr("deltalake.DeltaTable.create_write_transaction", killed)
        patch.setattr(iceberg, "_commit", killed)
        with pytest.raises(KilledError):
            write_batch(rows(spark, 3), sink, second)
    assert write_batch(rows(spark, 3), sink, second)
    assert write_batch(rows(spark, 6).where("id < 0"), sink, Batch("vendas-do-mês", 2, "planned"))
    assert not write_batch(rows(spark, 3), sink, second._replace(retry_key="planned anew"))
    with pytest.raises(TableError, match="batch 1 was not written: the table has other rows"):
        write_batch(rows(spark, 3, 4), sink, second._replace(retry_key="planned anew"))
    found = {row["id"]: row for row in read_back(sink)}
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert (found[4]["name"], dict(found[4]["counts"])) == ("o 4", {"k": 4})
    assert found[4]["at"].timestamp() == 4
    assert found[4]["lines"] == [{"sku": "x", "n": 4}]
    reader = read_delta if format_ == "delta" else read_iceberg
    options = {name: each for name, each in sink.options.items() if name != "evolve"}
    assert reader(spark, options).where("id = 4 AND year(at) = 1970").count() == 1
    assert not [each for each in tmp_path.iterdir() if each.name != "catalogue.db"]


def test_files_laid_out_by_columns(
    spark: SparkSession, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = delta_sink(store, "laid-out", partitionBy="kind,day")
    kinds = ["a b", "c:d/e", "100%", "é", None]
    cases = " ".join(f"WHEN {at} THEN '{kind}'" for at, kind in enumerate(kinds) if kind)
    day = "date_add(DATE '2027-01-15', CAST(id % 2 AS int)) AS day"
    laid = spark.range(5).selectExpr("id", f"CASE id {cases} END AS kind", day)
    write_batch(laid, sink, Batch("w", 0))
    found = sorted((row["id"], row["kind"], row["day"].day) for row in read_back(sink))
    assert found == [(at, kind, 15 + at % 2) for at, kind in enumerate(kinds)]


def test_a_store_that_cannot_be_reached(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        raise OSError(
            "Generic S3 error\n   \x1b[31m↳\x1b[0m no such\n     \x1b[31m↳\x1b[0m bucket\n"
        )

    monkeypatch.setattr("deltalake.DeltaTable.is_deltatable", refuse)
    told = "s3a://lake/x cannot be accessed: Generic S3 error: no such: bucket; check the option storage"
    with pytest.raises(TableError, match=told):
        write_batch(spark.range(1), delta_sink(ObjectStore("http://x"), "x"), Batch("w", 0))


def test_a_store_that_fails_on_the_way(
    spark: SparkSession, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no such bucket")

    monkeypatch.setattr(iceberg, "_write", fail)
    with pytest.raises(TableError, match="s3://lake/my ações cannot be accessed: no such bucket"):
        write_batch(spark.range(1), iceberg_sink(store, "failing", tmp_path), Batch("w", 0))


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a task, and without Spark."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    class Folder:
        def create(self, path: str) -> Any:
            (tmp_path / path).parent.mkdir(exist_ok=True)
            return pa.OSFile(str(tmp_path / path), "wb")

    monkeypatch.setattr(object_files, "ROW_GROUP_BYTES", 1600)
    batches = [pa.RecordBatch.from_pydict({"n": [*range(100)]}) for _ in range(5)]
    (result,) = object_files._write_partition(Folder(), "key", (), batches)
    (file,) = result.to_pylist()
    seen = pq.read_metadata(tmp_path / file["path"])
    assert (file["rows"], file["size"]) == (500, (tmp_path / file["path"]).stat().st_size)
    assert [seen.row_group(each).num_rows for each in range(seen.num_row_groups)] == [200, 200, 100]
    (empty,) = object_files._write_partition(Folder(), "key", (), [])
    assert empty.num_rows == 0


def test_a_pipeline_looks_up_and_writes(
    spark: SparkSession, store: ObjectStore, tmp_path: Path
) -> None:
    names = delta_sink(store, "names")
    write_batch(spark.range(1, 4).selectExpr("id AS sequence", "'a' AS name"), names, Batch("w", 0))
    folder = stored(tmp_path / "in", [message(n, {}) for n in range(1, 4)])
    out = iceberg_sink(store, "named", tmp_path)
    pipeline: Pipeline = (
        reading("named", folder, tmp_path / "state")
        .read("names", "delta", **names.options)
        .enrich("names", on=["sequence"], missing="keep")
        .write("out", "iceberg", **out.options)
    )
    assert "secret" not in describe_pipeline(check(pipeline))
    assert run(pipeline, spark).sinks == {"out": 3}
    assert [row["name"] for row in read_back(out)] == ["a", "a", "a"]
