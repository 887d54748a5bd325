"""`recado pipeline`: pipelines on Spark, defined in a file or a module.

recado pipeline check FILE      report all errors; Spark checks the SQL, which takes some seconds
recado pipeline explain FILE    show the steps, their fields and the guarantees of each sink
recado pipeline run FILE        run it: a stream until Ctrl-C, or the available data
recado pipeline status FILE     show the progress from its checkpoint, without starting Spark
recado pipeline list            list the pipelines that publish their status to a node
recado pipeline show NAME       show the status that a pipeline has published last

FILE is TOML or YAML, or MODULE:NAME.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from recado.cli import EXIT_FAILED, EXIT_OK, EXIT_USAGE, describe_os_error, print_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recado.pipeline.definition import Draft, Pipeline, Problem
    from recado.pipeline.definition.checker import CheckedPipeline
    from recado.pipeline.definition.expression import SqlAnalyser
    from recado.pipeline.report import PipelineReport
    from recado.pipeline.stream_state import CheckpointStatus

DESCRIPTIONS = {
    "check": "Report all errors of a pipeline. Nothing is read or written.",
    "explain": "Show the steps of a pipeline, their fields and the guarantees of each sink.",
    "run": "Run a pipeline: a stream until SIGTERM or Ctrl-C, or the available data.",
    "status": "Show the progress of a pipeline, without starting Spark.",
    "list": "List the pipelines that publish their status to a node of recado, over HTTP.",
    "show": "Show the status that a pipeline has published last, over HTTP.",
}
CHECK_SPARK_SETTINGS = {
    # A check compiles and computes nothing; with these options Spark starts in two thirds of the time.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
INSTALL_HINT = "pip install 'recado[spark,lake]'"


def run_pipeline(verb: str, options: Sequence[str]) -> int:
    args = build_parser(verb).parse_args(options)
    try:
        return run_file(verb, args)
    except ImportError as error:
        if error.name is None or error.name.startswith("recado"):
            raise
        return print_error(f"missing package {error.name}: {INSTALL_HINT}", EXIT_FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return print_error(describe_os_error(error), EXIT_FAILED)


def run_file(verb: str, args: argparse.Namespace) -> int:
    """Load the pipeline and run the verb. Raises `ImportError` if a package is missing."""
    from recado.pipeline.definition import InvalidPipelineError, load_draft

    sys.path.insert(0, os.curdir)  # for MODULE:NAME and the functions of a file
    try:
        return run_verb(verb, load_draft(args.file), args)
    except InvalidPipelineError as error:
        return print_error(str(error), EXIT_USAGE)


def build_parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"recado pipeline {verb}", description=DESCRIPTIONS[verb])
    add = parser.add_argument
    add("file", metavar="FILE", help="the pipeline: a TOML or YAML file, or MODULE:NAME")
    if verb in ("check", "explain", "run"):
        add("--batch", action="store_true", help="run as a batch: the available data, once")
    if verb in ("check", "explain"):
        add(
            "--no-spark",
            action="store_true",
            help="fast and without Java: do not check syntax, functions and types of SQL",
        )
    if verb == "run":
        add(
            "--available-now", action="store_true", help="run as a stream, up to the available data"
        )
        once = "name of the batch; a batch of the same name is written once"
        add("--name", metavar="NAME", default="", help=once)
        add("--master", metavar="URL", help="Spark master; default: this machine")
        add(
            "--status",
            metavar="URL",
            default="",
            help="of a broker to which the run publishes its status, for `recado pipeline list`",
        )
        add("--ui", action="store_true", help="start the web interface of Spark and print its URL")
        add(
            "--conf",
            metavar="KEY=VALUE",
            type=parse_setting,
            action="append",
            default=[],
            help="setting of Spark; may be repeated",
        )
    if verb in ("run", "status"):
        add("--json", action="store_true", help="print JSON")
    return parser


def parse_setting(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE")
    return key, value


def run_verb(verb: str, draft: Draft, args: argparse.Namespace) -> int:
    match verb:
        case "check":
            return check(draft, args)
        case "explain":
            return explain(draft, args)
        case "run":
            return run(draft, args)
        case _:
            raise_problems(draft, [], args.file)
            return status(draft.pipeline, as_json=args.json)


def check(draft: Draft, args: argparse.Namespace) -> int:
    _, unchecked = examine_draft(draft, args)
    steps = len(draft.pipeline.steps)
    note = (
        f"; syntax, functions and types of SQL were not checked: {unchecked}" if unchecked else ""
    )
    print(f"{draft.pipeline.name}: {steps} step{'' if steps == 1 else 's'}, no errors{note}")
    return EXIT_OK


def explain(draft: Draft, args: argparse.Namespace) -> int:
    from recado.pipeline.definition.description import describe_pipeline

    checked, _ = examine_draft(draft, args)
    print(describe_pipeline(checked))
    return EXIT_OK


def examine_draft(draft: Draft, args: argparse.Namespace) -> tuple[CheckedPipeline, str]:
    """Return the checked pipeline, and the reason if Spark did not check its SQL, otherwise "".

    Raises `InvalidPipelineError`.
    """
    from recado.pipeline.definition.checker import examine
    from recado.pipeline.java import JavaNotFoundError

    unchecked = "--no-spark"
    if not args.no_spark:
        try:
            with spark_analyser() as analyser:
                checked, problems = examine(draft.pipeline, batch=args.batch, analyser=analyser)
            raise_problems(draft, problems, args.file)
            return checked, ""
        except JavaNotFoundError as error:
            unchecked = str(error)
    checked, problems = examine(draft.pipeline, batch=args.batch)
    raise_problems(draft, problems, args.file)
    return checked, unchecked


@contextmanager
def spark_analyser() -> Iterator[SqlAnalyser]:
    """Start Spark for the first SQL expression only: a pipeline without one needs no Java."""
    from recado.pipeline.session import spark_session
    from recado.pipeline.steps.analysis import SparkAnalyser

    started: list[SparkSession] = []

    def start() -> SparkSession:
        started.append(
            spark_session("recado check", master="local[1]", settings=CHECK_SPARK_SETTINGS)
        )
        return started[0]

    try:
        yield SparkAnalyser(start)
    finally:
        for spark in started:
            spark.stop()


def raise_problems(draft: Draft, problems: Sequence[Problem], file: str) -> None:
    """Raise `InvalidPipelineError` with the problems of the file and of the pipeline, if there are any."""
    from recado.pipeline.definition import InvalidPipelineError

    if draft.problems or problems:
        where = file if draft.problems else draft.pipeline.name
        raise InvalidPipelineError(where, [*draft.problems, *problems])


def run(draft: Draft, args: argparse.Namespace) -> int:
    from recado.pipeline.definition.checker import examine
    from recado.pipeline.definition.pipeline import AVAILABLE_NOW

    pipeline = draft.pipeline
    if args.available_now:
        pipeline = msgspec.structs.replace(pipeline, trigger=AVAILABLE_NOW)
    if args.status:
        pipeline = msgspec.structs.replace(pipeline, status=args.status)
    _, problems = examine(pipeline, batch=args.batch)  # before Spark, which takes seconds to start
    raise_problems(draft, problems, args.file)
    from recado.pipeline.java import JavaNotFoundError
    from recado.pipeline.runner import PipelineFailedError

    try:
        report = run_on_spark(pipeline, args)
    except (PipelineFailedError, JavaNotFoundError) as error:
        return print_error(f"{pipeline.name}: {error}", EXIT_FAILED)
    if not args.json:
        print(report.text())
    return EXIT_OK


def run_on_spark(pipeline: Pipeline, args: argparse.Namespace) -> PipelineReport:
    from recado.pipeline import runner
    from recado.pipeline.progress import open_progress_display
    from recado.pipeline.session import spark_session

    master = {"master": args.master} if args.master else {}
    spark = spark_session(f"recado {pipeline.name}", ui=args.ui, settings=dict(args.conf), **master)
    try:
        if args.ui:
            print(f"Spark UI: {spark.sparkContext.uiWebUrl}", file=sys.stderr)
        spark.sparkContext.setLogLevel("ERROR")
        # `runner.run` polls `should_stop` for streams only, so during a batch signals keep their effect.
        signal_handling: AbstractContextManager[list[int]]
        signal_handling = nullcontext([]) if args.batch else stop_signals()
        with open_progress_display(as_json=args.json) as show_report, signal_handling as received:
            return runner.run(
                pipeline,
                spark,
                batch=args.batch,
                name=args.name,
                on_report=show_report,
                should_stop=lambda: bool(received),
            )
    finally:
        spark.stop()


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT, at which the stream is stopped.

    A batch that is interrupted by that is repeated when the pipeline runs again.
    """
    received: list[int] = []
    signals = (signal.SIGTERM, signal.SIGINT)
    previous = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in signals
    }
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def status(pipeline: Pipeline, *, as_json: bool) -> int:
    from recado.pipeline import stream_state
    from recado.pipeline.checkpoint import CheckpointError

    try:
        checkpoint = stream_state.read_status(pipeline.checkpoint) if pipeline.checkpoint else None
    except CheckpointError as error:
        return print_error(f"{pipeline.name}: the checkpoint {error}", EXIT_FAILED)
    if checkpoint is None:
        return print_error(
            f"{pipeline.name} has not run yet: no {pipeline.checkpoint or 'checkpoint'}"
        )
    print(
        msgspec.json.encode(checkpoint).decode()
        if as_json
        else format_status(pipeline.name, checkpoint)
    )
    return EXIT_OK


def format_status(name: str, checkpoint: CheckpointStatus) -> str:
    if checkpoint.is_alive and checkpoint.status:
        lines = [f"{name} is running (process {checkpoint.status.process})"]
    elif checkpoint.status and checkpoint.status.state not in ("running", "ended"):
        lines = [f"{name} failed: {checkpoint.status.state}"]
    else:
        lines = [f"{name} is not running"]
    if checkpoint.done is not None:
        lines.append(f"  batches completed: up to {checkpoint.done}")
    if checkpoint.begun is not None and checkpoint.begun != checkpoint.done:
        lines.append(
            f"  batch {checkpoint.begun} was started, and will be repeated unless it completes"
        )
    lines += [f"  source at {msgspec.json.encode(each).decode()}" for each in checkpoint.offsets]
    if checkpoint.status:
        lines += [
            f"  last run: {line.strip()}"
            for line in checkpoint.status.report.text().splitlines()[1:]
        ]
    return "\n".join(lines)
