"""`recado pipeline`: pipelines on Spark, declared in a file or a module.

recado pipeline check FILE      all that is wrong with it; Spark checks the SQL, which takes some seconds
recado pipeline explain FILE    what goes where, with which fields, and what is promised
recado pipeline run FILE        run it: a stream until Ctrl-C, or what there is now
recado pipeline status FILE     how far it has come, from its checkpoint; Spark does not start

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

from recado.cli import DONE, FAILED, WRONG_USAGE, complain, told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from recado.pipeline.definition import Draft, Pipeline, Problem
    from recado.pipeline.definition.checking import Checked
    from recado.pipeline.definition.expression import Analyser
    from recado.pipeline.report import Report
    from recado.pipeline.state import Found

VERBS = {
    "check": "Tell all that is wrong with a pipeline. Nothing is read or written.",
    "explain": "Show what goes where, with which fields, and what is promised of each sink.",
    "run": "Run a pipeline: a stream until SIGTERM or Ctrl-C, or until there is nothing more.",
    "status": "Show how far a pipeline has come. Spark does not start.",
}
QUICK_START = {
    # A check compiles and computes nothing: so Spark starts in two thirds of the time.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
HINT = "pip install 'recado[spark,lake]'"


def pipeline(verb: str, options: Sequence[str]) -> int:
    chosen = grammar(verb).parse_args(options)
    try:
        from recado.pipeline.definition import PipelineError, load_draft

        sys.path.insert(
            0, os.curdir
        )  # where MODULE:NAME, and the functions of a file, are looked for
        return run_verb(verb, load_draft(chosen.file), chosen)
    except PipelineError as error:
        return complain(str(error), WRONG_USAGE)
    except ImportError as error:
        if error.name is None or error.name.startswith("recado"):
            raise
        return complain(f"this needs {error.name}: {HINT}", FAILED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return complain(told(error), FAILED)


def grammar(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"recado pipeline {verb}", description=VERBS[verb])
    add = parser.add_argument
    add("file", metavar="FILE", help="of the pipeline: TOML, YAML, or MODULE:NAME")
    if verb in ("check", "explain", "run"):
        add("--batch", action="store_true", help="as a batch: what there is now, once")
    if verb in ("check", "explain"):
        add(
            "--no-spark",
            action="store_true",
            help="answer at once and without Java: syntax, functions and types of SQL are not checked",
        )
    if verb == "run":
        add("--available-now", action="store_true", help="as a stream, up to what there is now")
        once = "of the batch; a batch of the same name is written once"
        add("--name", metavar="NAME", default="", help=once)
        add("--master", metavar="URL", help="of Spark; default: this machine")
        add("--ui", action="store_true", help="start the web interface of Spark, and print its URL")
        add(
            "--conf",
            metavar="KEY=VALUE",
            type=setting,
            action="append",
            default=[],
            help="of Spark",
        )
    if verb in ("run", "status"):
        add("--json", action="store_true", help="for programs")
    return parser


def setting(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r}: write KEY=VALUE")
    return key, value


def run_verb(verb: str, draft: Draft, chosen: argparse.Namespace) -> int:
    match verb:
        case "check":
            return check(draft, chosen)
        case "explain":
            return explain(draft, chosen)
        case "run":
            return run(draft, chosen)
        case _:
            refuse(draft, [], chosen.file)
            return status(draft.pipeline, as_json=chosen.json)


def check(draft: Draft, chosen: argparse.Namespace) -> int:
    _, unchecked = examined(draft, chosen)
    steps = len(draft.pipeline.steps)
    note = (
        f"; syntax, functions and types of SQL were not checked: {unchecked}" if unchecked else ""
    )
    print(
        f"{draft.pipeline.name}: {steps} step{'' if steps == 1 else 's'}, nothing wrong with it{note}"
    )
    return DONE


def explain(draft: Draft, chosen: argparse.Namespace) -> int:
    from recado.pipeline.definition.drawing import drawn

    checked, _ = examined(draft, chosen)
    print(drawn(checked))
    return DONE


def examined(draft: Draft, chosen: argparse.Namespace) -> tuple[Checked, str]:
    """The fields between steps; and why SQL was not checked, if it was not. Raises PipelineError."""
    from recado.pipeline.definition.checking import examine
    from recado.pipeline.java import NoJava

    unchecked = "--no-spark"
    if not chosen.no_spark:
        try:
            with spark_analyser() as analyser:
                checked, problems = examine(draft.pipeline, batch=chosen.batch, analyser=analyser)
            refuse(draft, problems, chosen.file)
            return checked, ""
        except NoJava as error:
            unchecked = str(error)
    checked, problems = examine(draft.pipeline, batch=chosen.batch)
    refuse(draft, problems, chosen.file)
    return checked, unchecked


@contextmanager
def spark_analyser() -> Iterator[Analyser]:
    """Spark starts for the first SQL expression: a pipeline without one needs no Java. Raises NoJava."""
    from recado.pipeline.session import spark_session
    from recado.pipeline.steps.analysis import SparkAnalyser

    started: list[SparkSession] = []

    def start() -> SparkSession:
        started.append(spark_session("recado check", master="local[1]", settings=QUICK_START))
        return started[0]

    try:
        yield SparkAnalyser(start)
    finally:
        for spark in started:
            spark.stop()


def refuse(draft: Draft, problems: Sequence[Problem], file: str) -> None:
    """Raises PipelineError with the problems of the file and of the pipeline, if there are any."""
    from recado.pipeline.definition import PipelineError

    if draft.problems or problems:
        where = file if draft.problems else draft.pipeline.name
        raise PipelineError(where, [*draft.problems, *problems])


def run(draft: Draft, chosen: argparse.Namespace) -> int:
    from recado.pipeline.definition.checking import examine
    from recado.pipeline.definition.pipeline import AVAILABLE_NOW

    defined = draft.pipeline
    if chosen.available_now:
        defined = msgspec.structs.replace(defined, trigger=AVAILABLE_NOW)
    _, problems = examine(
        defined, batch=chosen.batch
    )  # Spark takes seconds to start; this does not
    refuse(draft, problems, chosen.file)
    from recado.pipeline.java import NoJava
    from recado.pipeline.running import PipelineFailed

    try:
        report = run_on_spark(defined, chosen)
    except (PipelineFailed, NoJava) as error:
        return complain(f"{defined.name}: {error}", FAILED)
    if not chosen.json:
        print(report.text())
    return DONE


def run_on_spark(defined: Pipeline, chosen: argparse.Namespace) -> Report:
    from recado.pipeline import running
    from recado.pipeline.progress import watcher
    from recado.pipeline.session import spark_session

    master = {"master": chosen.master} if chosen.master else {}
    spark = spark_session(
        f"recado {defined.name}", ui=chosen.ui, settings=dict(chosen.conf), **master
    )
    try:
        if chosen.ui:
            print(f"Spark UI: {spark.sparkContext.uiWebUrl}", file=sys.stderr)
        spark.sparkContext.setLogLevel("ERROR")
        # A batch has no end that could be asked for: signals do to it what they do to any program.
        ending: AbstractContextManager[list[int]]
        ending = nullcontext([]) if chosen.batch else until_signal()
        with watcher(as_json=chosen.json) as watch, ending as asked:
            return running.run(
                defined,
                spark,
                batch=chosen.batch,
                name=chosen.name,
                watch=watch,
                should_stop=lambda: bool(asked),
            )
    finally:
        spark.stop()


@contextmanager
def until_signal() -> Iterator[list[int]]:
    """The signals that asked for an end. The batch that is under way is left to Spark, which repeats it."""
    asked: list[int] = []
    signals = (signal.SIGTERM, signal.SIGINT)
    before = {each: signal.signal(each, lambda number, _: asked.append(number)) for each in signals}
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def status(defined: Pipeline, *, as_json: bool) -> int:
    from recado.pipeline import state
    from recado.pipeline.checkpoint import CheckpointError

    try:
        seen = state.found(defined.checkpoint) if defined.checkpoint else None
    except CheckpointError as error:
        return complain(f"{defined.name}: the checkpoint {error}, and status starts none", FAILED)
    if seen is None:
        return complain(
            f"{defined.name} has not run: there is no {defined.checkpoint or 'checkpoint'}"
        )
    print(msgspec.json.encode(seen).decode() if as_json else told_status(defined.name, seen))
    return DONE


def told_status(name: str, seen: Found) -> str:
    if seen.is_alive and seen.status:
        lines = [f"{name} runs, as process {seen.status.process}"]
    elif seen.status and seen.status.state not in ("running", "ended"):
        lines = [f"{name} failed: {seen.status.state}"]
    else:
        lines = [f"{name} does not run"]
    if seen.done is not None:
        lines.append(f"  batches done: up to {seen.done}")
    if seen.begun is not None and seen.begun != seen.done:
        lines.append(f"  batch {seen.begun} was begun, and will be repeated if it is not done")
    lines += [f"  source at {msgspec.json.encode(each).decode()}" for each in seen.offsets]
    if seen.status:
        lines += [
            f"  of the last run: {line.strip()}"
            for line in seen.status.report.text().splitlines()[1:]
        ]
    return "\n".join(lines)
