"""Run a pipeline: as a stream until it ends or is stopped, or as one batch.

    report = run(pipeline, spark)               # a stream
    report = run(pipeline, spark, batch=True)   # the rows available now, once
    query = start(pipeline, spark)              # a stream that the caller watches

A stream is one Spark query, however many sinks it has. For each batch all sinks are written, and then Spark
commits the batch. If the job dies in between, Spark retries the same rows under the same batch number: lake
tables recognise the batch, and messages have the same ids.

Steps are divided at the last stateful one (`steps.traversal`). Steps up to it are part of the streaming query;
the steps after it run inside `foreachBatch`, on the rows that come out of the query.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as f

from . import stream_state
from .checkpoint import checkpoint_uri
from .definition.checker import check, check_name
from .definition.pipeline import AVAILABLE_NOW, Pipeline
from .definition.problems import InvalidPipelineError, Problem
from .definition.step import step_label
from .errors import PipelineError
from .lake.batch import Batch
from .lake.errors import TableError
from .lake.parquet_files import fingerprint_rows
from .options import OptionError, has_option
from .progress import ProgressTracker
from .report import PipelineReport, RowCounter, SourceReport
from .status import now_ms, publish_run
from .steps.analysis import SparkAnalyser
from .steps.flow import Flow
from .steps.sources import read_batch, read_stream, read_tables
from .steps.traversal import (
    apply_steps,
    bundle,
    check_tables,
    count_stream_steps,
    rows_by_sink,
    unbundle,
)
from .writer import write_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_RUN_ERRORS: Final = (PySparkException, Py4JJavaError, TableError, OptionError)
"""Errors that Spark and the sinks raise if the pipeline or its data is at fault."""
_TRACEBACK_HEADER: Final = "Traceback (most recent call last):"
_POLL_INTERVAL_S: Final = 0.5


class PipelineFailedError(PipelineError):
    """A pipeline started and then stopped with an error."""


def run(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    batch: bool = False,
    name: str = "",
    on_report: Callable[[PipelineReport], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> PipelineReport:
    """Run a pipeline to its end.

    Args:
        pipeline: the definition; it is checked first, including its SQL.
        spark: the session to run it in. A stream needs a session of this process, not one of Spark Connect.
        batch: process the rows available now, once, instead of streaming.
        name: the name of the batch. A named batch is written once, however often it is run.
        on_report: called with the report so far: for a stream after each batch and each trigger without new
            rows, for a batch once at the end.
        should_stop: polled twice a second; a stream stops when it returns true.

    Returns:
        The report of the whole run: rows read and written, dead letters, duration.

    Raises:
        InvalidPipelineError: the pipeline cannot run.
        PipelineFailedError: it ran and failed.
    """
    if not pipeline.status:
        return _run(pipeline, spark, batch, name, on_report, should_stop)
    was_stopped = False

    def stop_requested() -> bool:
        nonlocal was_stopped
        was_stopped = should_stop()
        return was_stopped

    with publish_run(pipeline.name, pipeline.status) as run_status:

        def report_progress(report: PipelineReport) -> None:
            run_status.update(report, now_ms())
            on_report(report)

        report = _run(pipeline, spark, batch, name, report_progress, stop_requested)
        run_status.update(report, now_ms())
        run_status.finish(now_ms(), was_stopped=was_stopped)
        return report


def _run(
    pipeline: Pipeline,
    spark: SparkSession,
    batch: bool,
    name: str,
    on_report: Callable[[PipelineReport], None],
    should_stop: Callable[[], bool],
) -> PipelineReport:
    if not batch:
        return _run_stream(pipeline, spark, on_report, should_stop)
    started_at = time.monotonic()
    try:
        report = _run_batch(pipeline, spark, name)
    except _RUN_ERRORS as error:
        raise PipelineFailedError(summarize_error(error)) from error
    report.seconds = time.monotonic() - started_at
    on_report(report)
    return report


def _run_stream(
    pipeline: Pipeline,
    spark: SparkSession,
    on_report: Callable[[PipelineReport], None],
    should_stop: Callable[[], bool],
) -> PipelineReport:
    started_at = time.monotonic()
    check(pipeline, analyser=SparkAnalyser(lambda: spark))
    _reject_spark_connect(pipeline, spark)
    counter = RowCounter()
    tables: Mapping[str, DataFrame] = {}
    try:
        tables = cache_tables(pipeline, spark)
        query = _start_query(pipeline, spark, tables, counter)
    except Exception as error:
        _unpersist(tables)
        if isinstance(error, _RUN_ERRORS):
            raise PipelineFailedError(summarize_error(error)) from error
        raise
    tracker = ProgressTracker(pipeline.name, tuple(pipeline.streaming_sources()), counter)
    final_state = "ended"
    try:
        while not should_stop() and not _has_ended(query):
            _report_progress(query, spark, tracker, on_report, pipeline, started_at)
    except StreamingQueryException as error:
        final_state = summarize_error(error)
        raise PipelineFailedError(final_state) from error
    except Exception as error:
        final_state = str(error)
        raise
    finally:
        query.stop()
        _unpersist(tables)
        _report_progress(query, spark, tracker, on_report, pipeline, started_at)
        stream_state.write_status(
            pipeline.checkpoint, tracker.with_sink_counts(), final_state, spark
        )
    return tracker.report


def start(pipeline: Pipeline, spark: SparkSession) -> StreamingQuery:
    """Start a pipeline as a stream and return Spark's query.

    Lookup tables are not cached, because this function returns before the query ends and could not release
    them: Spark reads them again for each batch. Raises InvalidPipelineError.
    """
    check(pipeline, analyser=SparkAnalyser(lambda: spark))
    _reject_spark_connect(pipeline, spark)
    return _start_query(
        pipeline, spark, check_tables(pipeline, read_tables(pipeline, spark)), RowCounter()
    )


def _reject_spark_connect(pipeline: Pipeline, spark: object) -> None:
    """Raise InvalidPipelineError for a stream over Spark Connect.

    There the server runs `foreachBatch`, and the row counts stay on the server. The stream id would be stored
    on the client: without the server's checkpoint, each start would create another id, and a retried batch
    would be stored twice.
    """
    if not isinstance(spark, SparkSession):
        message = (
            "a stream needs a Spark session in this process, but this one is a Spark Connect client"
        )
        hint = "use spark-submit, or run the pipeline as a batch"
        raise InvalidPipelineError(pipeline.name, [Problem("stream", message, hint)])


def cache_tables(pipeline: Pipeline, spark: SparkSession) -> Mapping[str, DataFrame]:
    """Read and cache the lookup tables for all batches; release them with `_unpersist`.

    Raises InvalidPipelineError if a table has duplicate keys.
    """
    tables = {name: table.persist() for name, table in read_tables(pipeline, spark).items()}
    try:
        return check_tables(pipeline, tables)  # reads the tables completely
    except Exception:
        _unpersist(tables)
        raise


def _unpersist(tables: Mapping[str, DataFrame]) -> None:
    for table in tables.values():
        table.unpersist()


def _start_query(
    pipeline: Pipeline, spark: SparkSession, tables: Mapping[str, DataFrame], counter: RowCounter
) -> StreamingQuery:
    """Start the streaming query; `counter` counts the rows written to the sinks."""
    stream_step_count = count_stream_steps(pipeline)
    stream_flow = apply_steps(
        pipeline,
        Flow(read_stream(pipeline, spark)),
        tables,
        is_streaming=True,
        end=stream_step_count,
    )
    stream_id = stream_state.load_stream_id(pipeline.checkpoint, spark)

    def process_batch(rows: DataFrame, number: int) -> None:
        rows.persist()  # each sink reads the rows
        try:
            flow = unbundle(rows, stream_flow)
            flow = apply_steps(pipeline, flow, tables, is_streaming=False, start=stream_step_count)
            retry_key = stream_state.digest_offset_log_entry(pipeline.checkpoint, number, spark)
            batch = Batch(stream_id, number, retry_key)
            write_sinks(pipeline, rows_by_sink(pipeline, flow), batch, counter)
        finally:
            rows.unpersist()

    writer = bundle(stream_flow).writeStream.queryName(pipeline.name).outputMode("append")
    writer = writer.option("checkpointLocation", checkpoint_uri(pipeline.checkpoint))
    writer = writer.foreachBatch(process_batch)
    if pipeline.trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif pipeline.trigger:
        writer = writer.trigger(processingTime=pipeline.trigger)
    return writer.start()


def _run_batch(pipeline: Pipeline, spark: SparkSession, name: str) -> PipelineReport:
    check(pipeline, batch=True, analyser=SparkAnalyser(lambda: spark))
    if problems := [*_check_batch_name(pipeline, name)] if name else []:
        raise InvalidPipelineError(pipeline.name, problems)
    rows = read_batch(pipeline, spark)
    tables = cache_tables(pipeline, spark)
    rows.persist()
    counter = RowCounter()
    try:
        flow = apply_steps(pipeline, Flow(rows), tables, is_streaming=False)
        batch = Batch(name or uuid.uuid4().hex[:16], 0)
        if name:
            batch = batch._replace(
                retry_key=_batch_retry_key(pipeline, rows, tables), is_named=True
            )
        write_sinks(pipeline, rows_by_sink(pipeline, flow), batch, counter)
        source_report = SourceReport(rows.count())
    finally:
        rows.unpersist()
        _unpersist(tables)
    source = " and ".join(pipeline.streaming_sources())
    return PipelineReport(
        pipeline.name, 0, 1, sources={source: source_report}, sinks=counter.sinks, dead=counter.dead
    )


def _check_batch_name(pipeline: Pipeline, name: str) -> Iterator[Problem]:
    """Check the name of a batch, and that feeds can store a publish record to recognise it."""
    yield from check_name("name of the batch", name)
    for sink_name, sink in pipeline.sinks.items():
        has_staging = pipeline.has_local_checkpoint or has_option(sink.options, "staging")
        if sink.format == "recado" and not has_staging:
            message = "a named batch needs a checkpoint or the option staging"
            yield Problem(f"sink {sink_name}", message, "otherwise each run would publish it again")


def _batch_retry_key(pipeline: Pipeline, rows: DataFrame, tables: Mapping[str, DataFrame]) -> str:
    """Return the retry key of a named batch: two batches with the same content have the same key.

    The content is the source rows, the lookup tables and the steps; functions are compared by name.
    """
    table_rows = {name: fingerprint_rows(table) for name, table in tables.items()}
    steps = msgspec.to_builtins(pipeline.steps, enc_hook=lambda function: function.__qualname__)
    return repr((fingerprint_rows(rows), table_rows, steps))


def write_sinks(
    pipeline: Pipeline, rows: Mapping[str, DataFrame], batch: Batch, counter: RowCounter
) -> None:
    """Write one batch to all sinks and count its rows.

    `batch.writer` identifies the stream, or the batch if it is not part of a stream. For each sink, the names of
    the pipeline and of the sink are put in front of it.
    """
    staging = ""
    if pipeline.has_local_checkpoint:
        staging = str(stream_state.feed_staging_folder(pipeline.checkpoint))
    for sink, sink_rows in rows.items():
        steps = _step_labels(pipeline) if sink == pipeline.dead_letters else {}
        counts = [
            f.count_if(f.col("step") == step).alias(f"step{number}")
            for number, step in steps.items()
        ]
        counts.append(f.count(f.lit(1)).alias("rows"))
        sink_batch = batch._replace(writer=f"{pipeline.name}-{sink}-{batch.writer}")
        # An Observation counts only the rows that the sink reads, and the console reads only the first ones.
        observation = None if pipeline.sinks[sink].format == "console" else Observation()
        observed = sink_rows if observation is None else sink_rows.observe(observation, *counts)
        if write_batch(observed, pipeline.sinks[sink], sink_batch, staging=staging):
            figures = (
                sink_rows.agg(*counts).collect()[0].asDict()
                if observation is None
                else observation.get
            )
            counter.add_written(sink, figures["rows"])
            for number, step in steps.items():
                counter.add_dead_letters(step, figures[f"step{number}"])


def _step_labels(pipeline: Pipeline) -> dict[int, str]:
    """The label of each step by its number."""
    return {number: step_label(number, step) for number, step in enumerate(pipeline.steps, 1)}


def _has_ended(query: StreamingQuery) -> bool:
    """Wait one poll interval; return whether the query has ended. Raises its StreamingQueryException."""
    return bool(query.awaitTermination(_POLL_INTERVAL_S))  # type: ignore[arg-type]  # accepts a float


def _report_progress(
    query: StreamingQuery,
    spark: SparkSession,
    tracker: ProgressTracker,
    on_report: Callable[[PipelineReport], None],
    pipeline: Pipeline,
    started_at: float,
) -> None:
    """Process new progress entries: update the report, notify the caller, store the status."""
    for progress in query.recentProgress:
        progress_json = json.loads(progress.json)
        if not tracker.is_new(progress_json):
            continue
        tracker.report.seconds = time.monotonic() - started_at
        report = tracker.update(progress_json)
        on_report(report)
        stream_state.write_status(pipeline.checkpoint, report, spark=spark)


def summarize_error(error: Exception) -> str:
    """Return the message of an error without the stack frames of Java and Python."""
    text = str(error)
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")
    ]
    _, found_header, last = "\n".join(lines).rpartition(_TRACEBACK_HEADER)
    after = last.splitlines() if found_header else []
    for index, line in enumerate(after):
        if line and not line[0].isspace():  # after the frames: the error with its full name
            if "Py4JJavaError:" in line:
                break  # the message of the Java error is at the end
            # The message of a ParseException starts with an empty line.
            reason = after[index + 1] if line.endswith(": ") and index + 1 < len(after) else ""
            return re.sub(r"^[\w.]+\.(?=\w+:)", "", line) + reason
    for line in reversed(lines):
        if "Error: " in line or "Exception: " in line:
            return line.strip()
    return lines[0] if lines else text
