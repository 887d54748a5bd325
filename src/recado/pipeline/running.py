"""Running a pipeline: as a stream until it ends or is stopped, or as one batch.

    report = run(pipeline, spark)               # a stream
    report = run(pipeline, spark, batch=True)   # all that there is now, once
    query = start(pipeline, spark)              # a stream that somebody else watches

A stream is one query, whatever it has of sinks. For each batch all sinks are written, and then Spark commits
it. If the job dies in between, the same rows come again under the same number: lake tables recognise the batch,
messages have the same ids.
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

from . import state
from .checkpoint import uri_for_spark
from .definition.checking import check, check_name
from .definition.pipeline import AVAILABLE_NOW, Pipeline
from .definition.problems import PipelineError, Problem
from .definition.step import label
from .lake.batch import Batch
from .lake.errors import TableError
from .lake.files import counted_rows
from .options import OptionError, has_option
from .progress import Following, Watcher
from .report import Came, Report, Tally
from .steps.analysis import SparkAnalyser
from .steps.flow import Flow
from .steps.reading import batch_rows, read_tables, stream_rows
from .steps.walking import bundled, first_part, outlets, unbundled, verified, walked
from .writing import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_FAILURES: Final = (PySparkException, Py4JJavaError, TableError, OptionError)
"""What Spark and the sinks say when a pipeline, or its data, is at fault."""
_TRACED: Final = "Traceback (most recent call last):"
_LOOK: Final = 0.5  # seconds between two looks at a query


class PipelineFailed(Exception):
    """A pipeline that ran and stopped with an error; the text says which."""


def run(
    pipeline: Pipeline,
    spark: SparkSession,
    *,
    batch: bool = False,
    name: str = "",
    watch: Watcher | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Report:
    """Run it to its end. A batch with a `name` is written once, however often it is run.

    Raises PipelineError if it cannot run, PipelineFailed if it did and failed.
    """
    begun = time.monotonic()
    if batch:
        try:
            report = _run_batch(pipeline, spark, name)
        except _FAILURES as error:
            raise PipelineFailed(told(error)) from error
        report.seconds = time.monotonic() - begun
        if watch is not None:
            watch.told(report)
        return report
    check(pipeline, analyser=SparkAnalyser(lambda: spark))
    _refuse_remote(pipeline, spark)
    tally = Tally()
    tables: Mapping[str, DataFrame] = {}
    try:
        tables = once_read(pipeline, spark)
        query = _started(pipeline, spark, tables, tally)
    except Exception as error:
        _let_go(tables)
        if isinstance(error, _FAILURES):
            raise PipelineFailed(told(error)) from error
        raise
    following = Following(pipeline.name, tuple(pipeline.streams()), tally)
    ended = "ended"
    try:
        while not should_stop() and not _waited(query):
            _follow(query, spark, following, watch, pipeline, begun)
    except StreamingQueryException as error:
        ended = told(error)
        raise PipelineFailed(ended) from error
    except Exception as error:
        ended = str(error)
        raise
    finally:
        query.stop()
        _let_go(tables)
        _follow(query, spark, following, watch, pipeline, begun)
        state.note(pipeline.checkpoint, following.counted(), ended, spark)
    return following.report


def start(pipeline: Pipeline, spark: SparkSession) -> StreamingQuery:
    """Start it as a stream. Raises PipelineError.

    Nobody here sees it end; so what steps look things up in is not kept, but read again for each batch.
    """
    check(pipeline, analyser=SparkAnalyser(lambda: spark))
    _refuse_remote(pipeline, spark)
    return _started(pipeline, spark, verified(pipeline, read_tables(pipeline, spark)), Tally())


def _refuse_remote(pipeline: Pipeline, spark: object) -> None:
    """Over Spark Connect a stream's batches are written by the server, and what it counts stays there. The
    identity of the stream is noted here: without the server's checkpoint each start would have another one, and
    a repeated batch would be there twice. Raises PipelineError."""
    if not isinstance(spark, SparkSession):
        told = "it wants a Spark in its own process, and this one is of Spark Connect"
        hint = "submit it as a job, run it as a batch, or write the query by hand"
        raise PipelineError(pipeline.name, [Problem("stream", told, hint)])


def once_read(pipeline: Pipeline, spark: SparkSession) -> Mapping[str, DataFrame]:
    """What steps look things up in, as it is now, for all batches, until it is let go. Raises PipelineError."""
    tables = {name: table.persist() for name, table in read_tables(pipeline, spark).items()}
    try:
        return verified(pipeline, tables)  # which looks at all of it
    except Exception:
        _let_go(tables)
        raise


def _let_go(tables: Mapping[str, DataFrame]) -> None:
    for table in tables.values():
        table.unpersist()


def _started(
    pipeline: Pipeline, spark: SparkSession, tables: Mapping[str, DataFrame], counted: Tally
) -> StreamingQuery:
    cut = first_part(pipeline)
    shape = walked(pipeline, Flow(stream_rows(pipeline, spark)), tables, is_streaming=True, end=cut)
    known = state.identity(pipeline.checkpoint, spark)

    def write_batch(rows: DataFrame, number: int) -> None:
        rows.persist()  # of many sinks each reads it
        try:
            flow = unbundled(rows, shape)
            flow = walked(pipeline, flow, tables, is_streaming=False, begin=cut)
            offsets = state.offsets_digest(pipeline.checkpoint, number, spark)
            batch = Batch(known, number, offsets)
            write_all(pipeline, outlets(pipeline, flow), batch, counted)
        finally:
            rows.unpersist()

    writer = bundled(shape).writeStream.queryName(pipeline.name).outputMode("append")
    writer = writer.option("checkpointLocation", uri_for_spark(pipeline.checkpoint)).foreachBatch(
        write_batch
    )
    if pipeline.trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif pipeline.trigger:
        writer = writer.trigger(processingTime=pipeline.trigger)
    return writer.start()


def _run_batch(pipeline: Pipeline, spark: SparkSession, name: str) -> Report:
    check(pipeline, batch=True, analyser=SparkAnalyser(lambda: spark))
    if problems := [*_check_named(pipeline, name)] if name else []:
        raise PipelineError(pipeline.name, problems)
    rows = batch_rows(pipeline, spark)
    tables = once_read(pipeline, spark)
    rows.persist()
    tally = Tally()
    try:
        flow = walked(pipeline, Flow(rows), tables, is_streaming=False)
        batch = Batch(name or uuid.uuid4().hex[:16], 0)
        if name:
            batch = batch._replace(offsets=_content(pipeline, rows, tables), is_named=True)
        write_all(pipeline, outlets(pipeline, flow), batch, tally)
        came = Came(rows.count())
    finally:
        rows.unpersist()
        _let_go(tables)
    source = " and ".join(pipeline.streams())
    return Report(pipeline.name, 0, 1, sources={source: came}, sinks=tally.sinks, dead=tally.dead)


def _check_named(pipeline: Pipeline, name: str) -> Iterator[Problem]:
    """A feed recognises a batch by a note in the checkpoint, or in the folder of the option staging."""
    yield from check_name("name of the batch", name)
    for place, sink in pipeline.sinks.items():
        has_staging = pipeline.has_local_checkpoint or has_option(sink.options, "staging")
        if sink.format == "recado" and not has_staging:
            what = "a batch with a name needs a checkpoint, or the option staging"
            yield Problem(f"sink {place}", what, "a feed would get it each time it is run")


def _content(pipeline: Pipeline, rows: DataFrame, tables: Mapping[str, DataFrame]) -> str:
    """What a batch is made of: the rows of its sources and tables, and the steps; functions by their names."""
    read = {name: counted_rows(table) for name, table in tables.items()}
    steps = msgspec.to_builtins(pipeline.steps, enc_hook=lambda function: function.__qualname__)
    return repr((counted_rows(rows), read, steps))


def write_all(
    pipeline: Pipeline, rows: Mapping[str, DataFrame], batch: Batch, tally: Tally
) -> None:
    """Write one batch into all sinks and count its rows.

    `batch.writer` identifies the stream, or the batch if it is no stream; sinks get it with their own names.
    """
    staging = ""
    if pipeline.has_local_checkpoint:
        staging = str(state.feeds(pipeline.checkpoint))
    for sink, part in rows.items():
        steps = _steps(pipeline) if sink == pipeline.dead_letters else {}
        counts = [
            f.count_if(f.col("step") == step).alias(f"step{at}") for at, step in steps.items()
        ]
        counts.append(f.count(f.lit(1)).alias("rows"))
        of_sink = batch._replace(writer=f"{pipeline.name}-{sink}-{batch.writer}")
        # The console shows the first rows only, and Spark would observe no others.
        seen = None if pipeline.sinks[sink].format == "console" else Observation()
        observed = part if seen is None else part.observe(seen, *counts)
        if write(observed, pipeline.sinks[sink], of_sink, staging=staging):
            figures = part.agg(*counts).collect()[0].asDict() if seen is None else seen.get
            tally.add(sink, figures["rows"])
            for at, step in steps.items():
                tally.bury(step, figures[f"step{at}"])


def _steps(pipeline: Pipeline) -> dict[int, str]:
    return {number: label(number, step) for number, step in enumerate(pipeline.steps, 1)}


def _waited(query: StreamingQuery) -> bool:
    """Whether the query has ended. Raises StreamingQueryException."""
    return bool(query.awaitTermination(_LOOK))  # type: ignore[arg-type]  # a fraction will do


def _follow(
    query: StreamingQuery,
    spark: SparkSession,
    following: Following,
    watch: Watcher | None,
    pipeline: Pipeline,
    begun: float,
) -> None:
    """Tell what has happened since the last look, of each batch."""
    for progress in query.recentProgress:
        heard = json.loads(progress.json)
        if not following.is_news(heard):
            continue
        following.report.seconds = time.monotonic() - begun
        report = following.hear(heard)
        if watch is not None:
            watch.told(report)
        state.note(pipeline.checkpoint, report, spark=spark)


def told(error: Exception) -> str:
    """What went wrong, without the frames of Java and Python."""
    text = str(error)
    lines = [
        line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")
    ]
    _, traced, last = "\n".join(lines).rpartition(_TRACED)
    after = last.splitlines() if traced else []
    for at, line in enumerate(after):
        if line and not line[0].isspace():  # behind the frames: the error, by its full name
            if "Py4JJavaError:" in line:
                break  # what Java says of it is at the end
            # The text of a ParseException begins with an empty line.
            reason = after[at + 1] if line.endswith(": ") and at + 1 < len(after) else ""
            return re.sub(r"^[\w.]+\.(?=\w+:)", "", line) + reason
    for line in reversed(lines):
        if "Error: " in line or "Exception: " in line:
            return line.strip()
    return lines[0] if lines else text
