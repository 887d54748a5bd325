"""Apply all steps of a pipeline in order, and collect the rows of each sink.

A stream runs in two parts. Steps up to the last stateful one are part of the streaming query; the steps after
it are applied to each batch that comes out of the query, as to any batch. A batch is persisted before it is
written (`runner`), so each row is read once, however many sinks there are.

The rows that the first part sends to sinks must come out of the same query: `bundle` combines all outputs
into one DataFrame, and `unbundle` separates them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from ..definition.checker import check
from ..definition.pipeline import Pipeline
from ..definition.problems import InvalidPipelineError, Problem
from ..definition.step import (
    AggregateStep,
    AnyStep,
    ApplyStep,
    DeadLetterStep,
    DeduplicateStep,
    EnrichStep,
    FilterStep,
    ResequenceStep,
    RouteStep,
    SplitStep,
    TranslateStep,
    WireTapStep,
    is_stateful,
    step_label,
)
from .aggregate import apply_aggregate
from .analysis import SparkAnalyser, summarize_analysis_error
from .deduplicate import apply_deduplicate
from .enrich import apply_enrich, check_unique_keys
from .flow import Flow, StepContext, columns, make_dead_letters
from .resequence import apply_resequence
from .routing import apply_dead_letter, apply_filter, apply_route, apply_wire_tap
from .sources import read_batch, read_tables
from .split import apply_split
from .translate import apply_translate
from .watermark import watermark_delays

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OUTPUT_COLUMN: Final = "__output"  # the index of the output that a bundled row belongs to
_UNROUTED_REASON: Final = "no branch matched, and there is no sink for other rows"


def preview(pipeline: Pipeline, spark: SparkSession) -> dict[str, DataFrame]:
    """Return the rows that each sink would get from a batch; nothing is written.

    Raises:
        InvalidPipelineError: the pipeline cannot run.
    """
    check(pipeline, batch=True, analyser=SparkAnalyser(lambda: spark))
    tables = check_tables(pipeline, read_tables(pipeline, spark))
    flow = apply_steps(pipeline, Flow(read_batch(pipeline, spark)), tables, is_streaming=False)
    return rows_by_sink(pipeline, flow)


def check_tables(pipeline: Pipeline, tables: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
    """Return the lookup tables after checking that their keys are unique. Raises InvalidPipelineError."""
    for number, step in enumerate(pipeline.steps, 1):
        if isinstance(step, EnrichStep):
            check_unique_keys(step, tables[step.table], pipeline.name, step_label(number, step))
    return tables


def count_stream_steps(pipeline: Pipeline) -> int:
    """Return how many steps are part of the streaming query."""
    stateful = (number for number, step in enumerate(pipeline.steps, 1) if is_stateful(step))
    return max(stateful, default=0)


def apply_steps(
    pipeline: Pipeline,
    flow: Flow,
    tables: Mapping[str, DataFrame],
    *,
    is_streaming: bool,
    start: int = 0,
    end: int | None = None,
) -> Flow:
    """Apply the steps from index `start` up to `end`. Raises InvalidPipelineError if Spark rejects a step."""
    context = StepContext(pipeline.name, "", is_streaming, tables, watermark_delays(pipeline))
    for number, step in list(enumerate(pipeline.steps, 1))[start:end]:
        try:
            flow = apply_step(step, flow, replace(context, label=step_label(number, step)))
        except AnalysisException as error:
            problem = Problem(step_label(number, step), summarize_analysis_error(error))
            raise InvalidPipelineError(pipeline.name, [problem]) from error
    return flow


def apply_step(step: AnyStep, flow: Flow, context: StepContext) -> Flow:
    """Apply one step."""
    match step:
        case TranslateStep():
            return apply_translate(step, flow, context)
        case FilterStep():
            return apply_filter(step, flow, context)
        case RouteStep():
            return apply_route(step, flow, context)
        case WireTapStep():
            return apply_wire_tap(step, flow, context)
        case DeadLetterStep():
            return apply_dead_letter(step, flow, context)
        case EnrichStep():
            return apply_enrich(step, flow, context)
        case SplitStep():
            return apply_split(step, flow, context)
        case AggregateStep():
            return apply_aggregate(step, flow, context)
        case ResequenceStep():
            return apply_resequence(step, flow, context)
        case DeduplicateStep():
            return apply_deduplicate(step, flow, context)
        case ApplyStep():
            return flow.with_rows(resolve_function(step, context)(flow.rows))


def resolve_function(step: ApplyStep, context: StepContext) -> Callable[[DataFrame], DataFrame]:
    """Import the function of a step `apply`. Raises InvalidPipelineError."""
    if callable(step.function):
        found: Callable[[DataFrame], DataFrame] = step.function
        return found
    module, _, name = str(step.function).partition(":")
    try:
        return reduce(getattr, name.split("."), import_module(module))  # type: ignore[return-value]
    except (ImportError, AttributeError) as error:
        hint = "modules are searched in the working directory and in Python's path"
        raise InvalidPipelineError(
            context.pipeline, [Problem(context.label, str(error), hint)]
        ) from error


def rows_by_sink(pipeline: Pipeline, flow: Flow) -> dict[str, DataFrame]:
    """Return the rows of each sink by its name."""
    dead_letters = list(flow.dead_letters)
    if not pipeline.output_sinks():
        last = StepContext(
            pipeline.name, step_label(len(pipeline.steps), pipeline.steps[-1]), False
        )
        dead_letters.append(make_dead_letters(last, flow.rows, _UNROUTED_REASON))
    by_sink: dict[str, DataFrame] = {}
    for name in pipeline.sinks:
        parts = [rows for sink, rows in flow.sent if sink == name]
        if name == pipeline.dead_letters:
            parts = dead_letters
        elif name in pipeline.output_sinks():
            parts = [flow.rows]
        if parts:
            by_sink[name] = reduce(lambda one, other: one.unionByName(other, True), parts)
    return by_sink


# --- one query for all outputs -------------------------------------------------------------------


def bundle(flow: Flow) -> DataFrame:
    """Combine all outputs of a flow into one DataFrame.

    Its columns are the index of the output, and for each output a struct of its row, NULL in other rows.
    """
    parts = [flow.rows, *(rows for _, rows in flow.sent), *flow.dead_letters]
    if len(parts) == 1:
        return flow.rows
    structs = [f.struct(*columns(part.columns)) for part in parts]
    types = [
        part.select(struct.alias("s")).schema["s"].dataType
        for part, struct in zip(parts, structs, strict=True)
    ]
    tagged = []
    for number, part in enumerate(parts):
        values: list[Any] = [f.lit(None).cast(kind) for kind in types]
        values[number] = structs[number]
        named = [value.alias(f"__{index}") for index, value in enumerate(values)]
        tagged.append(part.select(f.lit(number).alias(_OUTPUT_COLUMN), *named))
    return reduce(lambda one, other: one.union(other), tagged)


def unbundle(rows: DataFrame, template: Flow) -> Flow:
    """Separate the rows of one batch into the outputs of the flow that was bundled."""
    count = 1 + len(template.sent) + len(template.dead_letters)
    if count == 1:
        return Flow(rows) if template.after_batch is None else template.after_batch(Flow(rows))
    parts = [
        rows.where(f.col(_OUTPUT_COLUMN) == index).select(f"__{index}.*") for index in range(count)
    ]
    names = [sink for sink, _ in template.sent]
    sent = tuple(zip(names, parts[1 : 1 + len(names)], strict=True))
    flow = Flow(parts[0], sent, tuple(parts[1 + len(names) :]))
    return flow if template.after_batch is None else template.after_batch(flow)
