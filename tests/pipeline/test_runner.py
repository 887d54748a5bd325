"""A pipeline that fails between two sinks and runs again; its status; and the command."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import recado
from recado.cli import main
from recado.cli.pipeline import build_parser, run_on_spark
from recado.pipeline import runner, stream_state
from recado.pipeline.definition import InvalidPipelineError, Pipeline
from recado.pipeline.lake.batch import Batch
from recado.pipeline.report import PipelineReport
from recado.pipeline.runner import PipelineFailedError, run, summarize_error
from recado.pipeline.writer import write_batch
from tests.console.http import Api
from tests.pipeline.steps.messages import message, reading, rows_of, stored
from tests.pipeline.test_status import collect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from recado.pipeline.definition import Sink

pytestmark = pytest.mark.spark


def two_sinks(tmp_path: Path) -> Pipeline:
    parts = ([message(n, {}) for n in range(1, 5)], [message(n, {}) for n in range(5, 8)])
    folder = stored(tmp_path / "in", *parts)
    return (
        reading("two", folder, tmp_path / "state")
        .wire_tap("tap")
        .filter("sequence > 2")
        .write("out", "parquet", path=str(tmp_path / "out"))
        .write("tap", "delta", path=str(tmp_path / "tap"))
    )


def test_a_job_that_dies_between_two_sinks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltalake import DeltaTable

    pipeline = two_sinks(tmp_path)
    failing = {("tap", 0), ("tap", 1)}

    def fails_once(rows: DataFrame, sink: Sink, batch: Batch, *, staging: str = "") -> bool:
        name = batch.writer.split("-")[1]
        if (name, batch.number) in failing:
            failing.remove((name, batch.number))
            raise OSError("the disk is away")
        return write_batch(rows, sink, batch, staging=staging)

    monkeypatch.setattr(runner, "write_batch", fails_once)
    for _ in range(2):
        with pytest.raises(PipelineFailedError, match="the disk is away"):
            run(pipeline, spark)
        seen = stream_state.read_status(pipeline.checkpoint)
        assert seen is not None
        assert seen.status
        assert "the disk is away" in seen.status.state
        assert seen.begun == (seen.done + 1 if seen.done is not None else 0)
    report = run(pipeline, spark)
    assert sorted(row["sequence"] for row in rows_of(tmp_path / "out")) == [3, 4, 5, 6, 7]
    tapped = DeltaTable(tmp_path / "tap").to_pyarrow_table()["sequence"].to_pylist()
    assert sorted(tapped) == [1, 2, 3, 4, 5, 6, 7]
    assert report.sinks == {"tap": 3}  # what was there already is not written again


def test_a_batch_with_a_name_is_recognised_by_what_it_reads(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Not by the rows of its sinks: a dead letter has the time when it is made."""
    folder = stored(tmp_path / "in", [message(1, {})])
    pipeline = (
        reading("named", folder, tmp_path / "state")
        .dead_letter("refused", where="true")
        .write("dead_letters", "parquet", path=str(tmp_path / "out"))
        .write("out", "console")
    )
    assert run(pipeline, spark, batch=True, name="a").sinks["dead_letters"] == 1
    assert "dead_letters" not in run(pipeline, spark, batch=True, name="a").sinks
    stored(tmp_path / "in", [message(1, {}), message(2, {})])
    with pytest.raises(
        PipelineFailedError, match=r"batch named-dead_letters-a with other .* another na"
    ):
        run(pipeline, spark, batch=True, name="a")
    assert len(rows_of(tmp_path / "out")) == 1
    one, two = spark.range(1), spark.range(2)
    read = {runner._batch_retry_key(pipeline, one, {"table": each}) for each in (one, one, two)}
    others = (pipeline, pipeline.filter("true"), pipeline.apply(unchanged))
    steps = {runner._batch_retry_key(each, one, {}) for each in others}
    assert (len(read), len(steps)) == (2, 3)


def unchanged(rows: DataFrame) -> DataFrame:
    return rows


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without Spark: what is wrong, what goes where, how far it has come."""
    monkeypatch.chdir(tmp_path)
    Path("x.toml").write_text(
        'name = "x"\ncheckpoint = "state"\n[sources.a]\nformat = "recado"\npath = "archive"\n'
        '[[steps]]\nstep = "filter"\nwhere = "sequence > 2"\n'
        '[sinks.out]\nformat = "parquet"\npath = "out"\n'
    )
    assert main(["pipeline", "explain", "x.toml", "--no-spark"]) == 0
    assert "step 1 (filter): where=" in capsys.readouterr().out
    assert main(["pipeline", "status", "x.toml"]) == 1
    assert "x has not run" in capsys.readouterr().err
    Path("state/offsets").mkdir(parents=True)
    Path("state/offsets/0").write_text('v1\n{}\n{"next": 7}')
    assert main(["pipeline", "status", "x.toml"]) == 0
    assert "batch 0 was started" in capsys.readouterr().out
    assert main(["pipeline", "status", "x.toml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["offsets"] == [{"next": 7}]
    Path("x.toml").write_text(Path("x.toml").read_text().replace("[sinks.out]", "[sinks.'o ut']"))
    for verb in ("check", "explain", "run"):
        assert main(["pipeline", verb, "x.toml", *(["--no-spark"] if verb != "run" else [])]) == 2
        assert "'o ut' is not a valid name" in capsys.readouterr().err
    assert main(["pipeline", "check", "none.toml"]) == 1
    assert "none.toml: No such file" in capsys.readouterr().err


def test_the_command_runs(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made: list[Any] = []
    monkeypatch.setattr("recado.pipeline.session.spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(type(spark), "stop", lambda self: made.append(self))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_pipelines.py").write_text(
        "from pathlib import Path\n"
        "from tests.pipeline.test_runner import two_sinks\n"
        f"def two():\n    return two_sinks(Path({str(tmp_path)!r}))\n"
    )
    assert main(["pipeline", "run", "shop_pipelines:two", "--json"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (last["batches"], last["sources"]["orders"]["rows"]) == (2, 7)
    assert last["sinks"] == {"out": 5, "tap": 7}
    assert main(["pipeline", "run", "shop_pipelines:two", "--batch", "--ui"]) == 0
    told = capsys.readouterr()
    assert "  into out: 5 rows" in told.out
    assert "Spark UI: " in told.err
    assert made == [spark, spark]


def test_the_console_shows_some_and_all_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    folder = stored(tmp_path / "in", [message(n, {}) for n in range(1, 5)])
    pipeline = reading("few", folder, tmp_path / "state").write("out", "console", numRows=1)
    assert run(pipeline, spark, batch=True).sinks == {"out": 4}


@pytest.mark.parametrize(("option", "is_own"), [("--batch", False), ("--available-now", True)])
def test_signals_end_a_stream_in_order_and_a_batch_at_once(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str,
    is_own: bool,
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def looked(*_: object, **__: object) -> PipelineReport:
        seen.append(signal.getsignal(signal.SIGTERM))
        return PipelineReport("two")

    monkeypatch.setattr("recado.pipeline.session.spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setattr(runner, "run", looked)
    chosen = build_parser("run").parse_args(["two", option])
    run_on_spark(two_sinks(tmp_path), chosen)
    assert [each is not before for each in seen] == [is_own]
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_cannot_run_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidPipelineError, match="checkpoint"):
        run(Pipeline("x").read("r", "rate").write("out", "console"), spark)
    with pytest.raises(
        InvalidPipelineError, match="name of the batch: '2027/01' is not a valid name"
    ):
        run(two_sinks(tmp_path), spark, batch=True, name="2027/01")
    with pytest.raises(InvalidPipelineError, match=r"is not a valid name; use at most 64 letters"):
        run(two_sinks(tmp_path), spark, batch=True, name="../../elsewhere")
    batch = Pipeline("x").read("r", "text", path=str(tmp_path)).translate(body=["value"])
    batch = batch.write("out", "recado", url="amqp://localhost", feed="f")
    with pytest.raises(InvalidPipelineError, match="sink out: a named batch needs a checkpoint or"):
        run(batch, spark, batch=True, name="again")


def test_what_spark_or_a_sink_refuses_is_told_without_a_trace(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = stored(tmp_path / "in", [message(1, {})])
    for kind in ("string", "bigint"):
        pipeline = (
            reading("drift", folder, tmp_path / "state")
            .translate(compute={"n": f"cast(sequence as {kind})"})
            .write("out", "delta", path=str(tmp_path / "out"))
            .write("dead_letters", "parquet", path=str(tmp_path / "dead"))
        )
        if kind == "string":
            run(pipeline, spark, batch=True)
    with pytest.raises(
        PipelineFailedError, match=r"has the column n as string, but the rows have long"
    ):
        run(pipeline, spark, batch=True)
    twice = pipeline.translate(json={"Foo": "string", "foo": "string"})
    for batch in (True, False):
        with pytest.raises(
            InvalidPipelineError if batch else PipelineFailedError,
            match=r"step 2 \(translate\): The column `foo` already exists",
        ):
            run(twice, spark, batch=batch)


def test_errors_are_summarized() -> None:
    """Errors of Python, of Java, and of Spark's parser."""
    spark_says = """[STREAM_FAILED] Failed when latestOffset: Traceback (most recent call last):
  File "consumer.py", line 230, in _consume
    queue = await channel.declare_queue(options.queue, passive=True)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
recado.client.errors.ChannelClosedByBrokerError: the broker closed the channel: 404 NOT_FOUND
 SQLSTATE: XXKST
=== Streaming Query ===
Current State: ACTIVE
Thread State: RUNNABLE"""
    assert summarize_error(Exception(spark_says)) == (
        "ChannelClosedByBrokerError: the broker closed the channel: 404 NOT_FOUND"
    )
    java_says = """Traceback (most recent call last):
  File "parquet_files.py", line 44, in write_files
py4j.protocol.Py4JJavaError: An error occurred while calling o1485.parquet.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.Frame
Caused by: java.io.IOException: No space left on device"""
    assert summarize_error(Exception(java_says)).endswith("IOException: No space left on device")
    parser_says = f"""Traceback (most recent call last):
  File "routing.py", line 30, in apply_filter
pyspark.errors.exceptions.captured.ParseException:{" "}
[PARSE_SYNTAX_ERROR] Syntax error at or near '>'. SQLSTATE: 42601 (line 1, pos 12)

== SQL ==
length(b) > > 3"""
    assert summarize_error(Exception(parser_says)) == (
        "ParseException: [PARSE_SYNTAX_ERROR] Syntax error at or near '>'. SQLSTATE: 42601 (line 1, pos 12)"
    )
    assert (
        summarize_error(Exception("[NO_SUCH] There is none;\n'Project [x]"))
        == "[NO_SUCH] There is none;"
    )


def test_a_function_that_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    folder = stored(tmp_path / "in", [message(1, {})])
    reads = reading("lost", folder, tmp_path / "state").write("out", "console")
    for function in ("no_such_module:f", "os:no_such_function"):
        with pytest.raises(InvalidPipelineError, match=r"step 1 \(apply\): .*no_such_\w+"):
            run(reads.apply(function), spark)


def test_a_run_publishes_its_status(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with recado.Broker(config={"management": {"port": 0, "status": True}}) as broker:
        assert broker.management_port is not None
        api = Api(broker.management_port)
        pipeline = msgspec.structs.replace(two_sinks(tmp_path), status=broker.url)
        run(pipeline, spark)
        collect(broker)
        found = api.get("/api/pipelines/two")
        assert (found["state"], found["rows"]) == ("finished", 7)
        assert found["sinks"] == {"out": 5, "tap": 7}

        def fail(*_: object, **__: object) -> bool:
            raise OSError("the disk is away")

        monkeypatch.setattr(runner, "write_batch", fail)
        with pytest.raises(PipelineFailedError):
            run(msgspec.structs.replace(pipeline, checkpoint=str(tmp_path / "other")), spark)
        collect(broker)
        found = api.get("/api/pipelines/two")
        assert found["state"] == "failed"
        assert "the disk is away" in found["error"]
