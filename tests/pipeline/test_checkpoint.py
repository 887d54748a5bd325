"""Checkpoints in a folder and on a Hadoop file system: the same files, and the same repeat of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from recado.cli import main
from recado.pipeline import runner, stream_state
from recado.pipeline.checkpoint import CheckpointError, CheckpointFiles, open_checkpoint
from recado.pipeline.lake.errors import TableError
from recado.pipeline.runner import PipelineFailedError, run
from recado.pipeline.writer import write_batch
from tests.pipeline.steps.messages import message, reading, rows_of, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from recado.pipeline.definition import Sink
    from recado.pipeline.lake.batch import Batch

pytestmark = pytest.mark.spark


@pytest.fixture(params=["folder", "viewfs"])
def location(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Of a checkpoint whose files are in `tmp_path/files`."""
    files = tmp_path / "files"
    files.mkdir()
    if request.param == "folder":
        yield str(files)
    else:
        mount = tmp_path.name.replace("_", "-")
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        conf.set(f"fs.viewfs.mounttable.{mount}.link./mounted", f"file://{files}")
        yield f"viewfs://{mount}/mounted"


def uncommit(checkpoint: Path) -> None:
    """As if the job had been killed after the first batch was written, before Spark noted that."""
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()


def test_files(spark: SparkSession, location: str) -> None:
    checkpoint: CheckpointFiles = open_checkpoint(f"{location}/state", spark)
    assert checkpoint.list_names() is None
    assert checkpoint.read("recado/identity") is None
    for data in (b"one", b"two \xff", b""):
        checkpoint.replace("recado/identity", data)
        assert checkpoint.read("recado/identity") == data
    assert checkpoint.list_names() == ["recado"]
    names = checkpoint.list_names("recado")
    assert [each for each in names or () if not each.startswith(".")] == ["identity"]


@pytest.mark.parametrize("location", ["viewfs"], indirect=True)
def test_a_batch_that_is_repeated_is_there_once(
    spark: SparkSession, location: str, tmp_path: Path
) -> None:
    folder = stored(tmp_path / "in", [message(n, {}) for n in range(1, 4)])
    pipeline = reading("x", folder, tmp_path).write("out", "parquet", path=f"{tmp_path}/out")
    pipeline = replace(pipeline, checkpoint=f"{location}/state")
    assert run(pipeline, spark).sinks == {"out": 3}
    identity = (tmp_path / "files/state/recado/identity").read_text()
    uncommit(tmp_path / "files/state")
    assert run(pipeline, spark).sinks == {}
    assert (tmp_path / "files/state/recado/identity").read_text() == identity
    assert len(rows_of(tmp_path / "out")) == 3
    seen = stream_state.read_status(pipeline.checkpoint, spark)
    assert seen is not None
    assert (seen.begun, seen.done) == (0, 0)
    assert seen.status
    assert seen.status.state == "ended"


def test_the_working_directory_may_change(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the definition, and after a run that was killed. Spark's Java keeps the one it was started in."""
    for name in ("defined", "first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "defined")
    stored(Path("in"), [message(n, {}) for n in range(1, 4)])
    table = tmp_path / "out"
    pipeline = reading("x", str(Path("in").absolute()), Path("a state"))
    pipeline = pipeline.write("out", "parquet", path=str(table)).write("too", "parquet", path="too")

    def killed(rows: DataFrame, sink: Sink, batch: Batch, *, staging: str) -> bool:
        write_batch(rows, sink, batch, staging=staging)
        raise TableError("killed before Spark knows of it")

    monkeypatch.chdir(tmp_path / "first")
    with monkeypatch.context() as patch:
        patch.setattr(runner, "write_batch", killed)
        with pytest.raises(PipelineFailedError, match="killed before"):
            run(pipeline, spark)
    monkeypatch.chdir(tmp_path / "second")
    report = run(pipeline, spark)
    assert len(rows_of(table)) == 3
    assert report.sinks == {"too": 3}
    assert not list(tmp_path.glob("first/*")) + list(tmp_path.glob("second/*"))
    assert {"offsets", "recado"} <= {each.name for each in tmp_path.glob("defined/a state/*")}


def test_a_file_system_that_spark_does_not_know(spark: SparkSession, tmp_path: Path) -> None:
    folder = stored(tmp_path / "in", [message(1, {})])
    pipeline = reading("x", folder, tmp_path).write("out", "console")
    with pytest.raises(PipelineFailedError, match='No FileSystem for scheme "nofs"'):
        run(replace(pipeline, checkpoint="nofs://x/state"), spark)


def test_status_starts_no_spark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CheckpointError, match="hdfs://x/y is on a file system that only Spark"):
        stream_state.read_status("hdfs://x/y")
    file = tmp_path / "x.toml"
    file.write_text('name = "x"\ncheckpoint = "hdfs://x/y"\n')
    assert main(["pipeline", "status", str(file)]) == 1
    assert "only Spark can access" in capsys.readouterr().err
