"""Check a whole pipeline and collect all problems before anything is read or written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from recado.client.parameters import parse_url

from .duration import parse_duration
from .expression import SqlAnalyser, TokenAnalyser
from .fields import Fields
from .formats import check_checkpoint, check_dead_letters, check_sink, check_source
from .pipeline import AVAILABLE_NOW, Pipeline
from .problems import InvalidPipelineError, Problem, quote_excerpt, suggest_name
from .schema_inference import SchemaInference
from .step import RouteStep, step_label

DEAD_LETTER_FIELDS: Final = Fields(
    {
        "pipeline": "string",
        "step": "string",
        "reason": "string",
        "row": "string",
        "at": "timestamp",
        "exchange": "string",
        "routing_key": "string",
        "message_id": "string",
        "headers": "map<string,string>",
        "body": "binary",
    }
)
"""The columns of a dead letter: where and why, the row as JSON as the step received it, and the columns of a
message.
"""

_NAME_PATTERN: Final = re.compile(r"[\w.-]{1,64}")


class CheckedPipeline(msgspec.Struct):
    """A pipeline without problems, and the fields of its rows."""

    pipeline: Pipeline
    step_fields: list[Fields]
    """The fields before each step, and after the last."""
    sink_fields: dict[str, Fields]
    """The fields of the rows that each sink receives."""


_TOKEN_ANALYSER: Final = TokenAnalyser()


def check(
    pipeline: Pipeline, *, batch: bool = False, analyser: SqlAnalyser = _TOKEN_ANALYSER
) -> CheckedPipeline:
    """Check a pipeline.

    Args:
        batch: check it for a run as a batch instead of a stream.
        analyser: analyses SQL expressions. By default they are only tokenised; `SparkAnalyser` checks them
            completely.

    Returns:
        The pipeline with the fields between its steps.

    Raises:
        InvalidPipelineError: with all problems.
    """
    checked, problems = examine(pipeline, batch=batch, analyser=analyser)
    if problems:
        raise InvalidPipelineError(pipeline.name, problems)
    return checked


def examine(
    pipeline: Pipeline, *, batch: bool, analyser: SqlAnalyser = _TOKEN_ANALYSER
) -> tuple[CheckedPipeline, list[Problem]]:
    """Check a pipeline like `check`, but return the problems instead of raising them."""
    problems = list(_check_structure(pipeline, batch=batch))
    streams, tables = [], {}
    for name in pipeline.sources:
        is_table = name in pipeline.lookup_tables()
        fields, source_problems = check_source(pipeline, name, is_streaming=not (batch or is_table))
        problems += source_problems
        if is_table:
            tables[name] = fields
        else:
            streams.append((name, fields))
    inference = SchemaInference(tables, pipeline.sinks, not batch, analyser)
    fields = _merge_stream_fields(streams, problems)
    step_fields = [fields]
    sink_fields: dict[str, Fields] = {}
    first_dead_letter_step = ""
    for number, step in enumerate(pipeline.steps, 1):
        output = inference.infer_step(number, step, fields)
        fields = output.fields
        step_fields.append(fields)
        sink_fields |= output.sink_fields
        if output.has_dead_letters and not first_dead_letter_step:
            first_dead_letter_step = step_label(number, step)
    sink_fields |= dict.fromkeys(pipeline.output_sinks(), fields)
    problems += inference.problems
    if not pipeline.output_sinks():
        last = pipeline.steps[-1] if pipeline.steps else None
        if not isinstance(last, RouteStep):
            hint = "add a sink that no step names" if pipeline.sinks else ""
            problems.append(
                Problem(
                    "sinks", "no sink for the rows after the last step", hint or "add [sinks.NAME]"
                )
            )
        first_dead_letter_step = (
            first_dead_letter_step or step_label(len(pipeline.steps), pipeline.steps[-1])
            if pipeline.steps
            else ""
        )
    if pipeline.dead_letters in pipeline.sinks:
        sink_fields[pipeline.dead_letters] = DEAD_LETTER_FIELDS
        problems += check_dead_letters(pipeline)
    elif first_dead_letter_step:
        message = (
            f"{first_dead_letter_step} can produce dead letters, but there is no sink for them"
        )
        hint = f'add [sinks.{pipeline.dead_letters}], such as format = "parquet"'
        problems.append(Problem("dead letters", message, hint))
    for name, sink in pipeline.sinks.items():
        problems += check_sink(name, sink, sink_fields.get(name, fields))
    return CheckedPipeline(pipeline, step_fields, sink_fields), problems


def check_name(location: str, name: str) -> Iterator[Problem]:
    """Check a name, which becomes part of file names."""
    if not _NAME_PATTERN.fullmatch(name):
        yield Problem(
            location,
            f"{quote_excerpt(name)} is not a valid name",
            "use at most 64 letters, digits, '.', '-' or '_'",
        )


def _check_structure(pipeline: Pipeline, *, batch: bool) -> list[Problem]:
    """Check names, trigger, checkpoint and sinks."""
    problems = [*check_name("name", pipeline.name)]
    for name in pipeline.sources:
        problems += check_name("sources", name)
    for name in pipeline.sinks:
        problems += check_name("sinks", name)
    if not pipeline.streaming_sources():
        hint = 'add [sources.NAME], such as format = "recado"'
        problems.append(Problem("sources", "the pipeline has no source to read from", hint))
    if (
        pipeline.trigger
        and pipeline.trigger != AVAILABLE_NOW
        and parse_duration(pipeline.trigger) is None
    ):
        hint = suggest_name(pipeline.trigger, [AVAILABLE_NOW], 'write "5 seconds" or')
        problems.append(Problem("trigger", f"{pipeline.trigger!r} is not a duration", hint))
    if not batch and not pipeline.checkpoint:
        problems.append(
            Problem("checkpoint", "a stream needs a checkpoint folder", 'checkpoint = "state"')
        )
    problems += check_checkpoint(pipeline)
    if pipeline.status:
        try:
            parse_url(pipeline.status)
        except ValueError as error:
            problems.append(Problem("status", str(error), 'write "amqp://USER:PASSWORD@HOST"'))
    if pipeline.dead_letters in pipeline.branch_sinks():
        message = f"{pipeline.dead_letters} is the dead-letter sink, but a step sends rows to it"
        problems.append(Problem("sinks", message, "use the step dead_letter to make dead letters"))
    return problems


def _merge_stream_fields(streams: list[tuple[str, Fields]], problems: list[Problem]) -> Fields:
    """Return the fields of the merged streaming sources, which must be equal."""
    if not streams:
        return Fields({}, is_open=True)
    (first, fields), *others = streams
    for name, other in others:
        if fields.is_open or other.is_open:
            continue
        for column in {*fields.types} ^ {*other.types}:
            message = f"{column} is a field of only one of the sources {first} and {name}"
            problems.append(
                Problem(
                    f"source {name}",
                    message,
                    "streaming sources of a pipeline must have the same fields",
                )
            )
            return fields
    return fields
