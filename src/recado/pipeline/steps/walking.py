"""All steps of a pipeline, one after the other, and what then goes to which sink.

A stream runs in two parts. Up to the last step that remembers rows of earlier batches, steps are part of the
stream itself; those behind it are applied to each batch that comes out of it, as they would be to any batch.
So a pipeline that remembers nothing reads each row once, however many sinks there are.

What the first part sends to sinks must come out of the same stream: `bundled` puts all of it into one
DataFrame, and `unbundled` takes it apart again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from ..definition.checking import check
from ..definition.pipeline import Pipeline
from ..definition.problems import PipelineError, Problem
from ..definition.step import (
    Aggregate,
    AnyStep,
    Apply,
    DeadLetter,
    Deduplicate,
    Enrich,
    Filter,
    Resequence,
    Route,
    Split,
    Translate,
    WireTap,
    is_stateful,
    label,
)
from .aggregate import aggregated
from .analysis import SparkAnalyser, reason_of
from .choosing import buried, filtered, routed, tapped
from .deduplicate import deduplicated
from .enrich import enriched, refuse_doubles
from .flow import Flow, Place, columns, dead_letters
from .resequence import resequenced
from .split import split
from .translate import translated
from .watermark import delays

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OUTLET: Final = "__outlet"
_NO_WAY: Final = "it went none of the ways, and nothing takes the others"


def frames(pipeline: Pipeline, spark: SparkSession) -> dict[str, DataFrame]:
    """What each sink would get of all that there is now; nothing is written."""
    from .reading import batch_rows, read_tables

    check(pipeline, batch=True, analyser=SparkAnalyser(lambda: spark))
    tables = verified(pipeline, read_tables(pipeline, spark))
    flow = walked(pipeline, Flow(batch_rows(pipeline, spark)), tables, is_streaming=False)
    return outlets(pipeline, flow)


def verified(pipeline: Pipeline, tables: Mapping[str, DataFrame]) -> Mapping[str, DataFrame]:
    """The tables, once it is seen that they can be looked things up in. Raises PipelineError."""
    for number, step in enumerate(pipeline.steps, 1):
        if isinstance(step, Enrich):
            refuse_doubles(step, tables[step.table], pipeline.name, label(number, step))
    return tables


def first_part(pipeline: Pipeline) -> int:
    """How many steps are part of the stream itself."""
    return max((at for at, step in enumerate(pipeline.steps, 1) if is_stateful(step)), default=0)


def walked(
    pipeline: Pipeline,
    flow: Flow,
    tables: Mapping[str, DataFrame],
    *,
    is_streaming: bool,
    begin: int = 0,
    end: int | None = None,
) -> Flow:
    """The flow behind the steps from `begin` up to `end`. Raises PipelineError if Spark refuses a step."""
    place = Place(pipeline.name, "", is_streaming, tables, delays(pipeline))
    for number, step in list(enumerate(pipeline.steps, 1))[begin:end]:
        try:
            flow = stepped(step, flow, replace(place, label=label(number, step)))
        except AnalysisException as error:
            problem = Problem(label(number, step), reason_of(error))
            raise PipelineError(pipeline.name, [problem]) from error
    return flow


def stepped(step: AnyStep, flow: Flow, place: Place) -> Flow:
    match step:
        case Translate():
            return translated(step, flow, place)
        case Filter():
            return filtered(step, flow, place)
        case Route():
            return routed(step, flow, place)
        case WireTap():
            return tapped(step, flow, place)
        case DeadLetter():
            return buried(step, flow, place)
        case Enrich():
            return enriched(step, flow, place)
        case Split():
            return split(step, flow, place)
        case Aggregate():
            return aggregated(step, flow, place)
        case Resequence():
            return resequenced(step, flow, place)
        case Deduplicate():
            return deduplicated(step, flow, place)
        case Apply():
            return flow.on(function_of(step, place)(flow.rows))


def function_of(step: Apply, place: Place) -> Callable[[DataFrame], DataFrame]:
    if callable(step.function):
        found: Callable[[DataFrame], DataFrame] = step.function
        return found
    module, _, name = str(step.function).partition(":")
    try:
        return reduce(getattr, name.split("."), import_module(module))  # type: ignore[return-value]
    except (ImportError, AttributeError) as error:
        hint = "a module is looked for in the current folder, and where Python looks"
        raise PipelineError(place.pipeline, [Problem(place.label, str(error), hint)]) from error


def outlets(pipeline: Pipeline, flow: Flow) -> dict[str, DataFrame]:
    """What each sink gets, by its name."""
    dead = list(flow.dead)
    if not pipeline.ends():
        last = Place(pipeline.name, label(len(pipeline.steps), pipeline.steps[-1]), False)
        dead.append(dead_letters(last, flow.rows, _NO_WAY))
    found: dict[str, DataFrame] = {}
    for name in pipeline.sinks:
        parts = [rows for sink, rows in flow.sent if sink == name]
        if name == pipeline.dead_letters:
            parts = dead
        elif name in pipeline.ends():
            parts = [flow.rows]
        if parts:
            found[name] = reduce(lambda one, other: one.unionByName(other, True), parts)
    return found


# --- one stream for all that comes out of it -----------------------------------------------------


def bundled(flow: Flow) -> DataFrame:
    """All of a flow as one DataFrame: which outlet, and for each outlet a struct of its row."""
    parts = [flow.rows, *(rows for _, rows in flow.sent), *flow.dead]
    if len(parts) == 1:
        return flow.rows
    shapes = [f.struct(*columns(part.columns)) for part in parts]
    types = [
        part.select(shape.alias("s")).schema["s"].dataType
        for part, shape in zip(parts, shapes, strict=True)
    ]
    tagged = []
    for number, part in enumerate(parts):
        values: list[Any] = [f.lit(None).cast(kind) for kind in types]
        values[number] = shapes[number]
        named = [value.alias(f"__{at}") for at, value in enumerate(values)]
        tagged.append(part.select(f.lit(number).alias(_OUTLET), *named))
    return reduce(lambda one, other: one.union(other), tagged)


def unbundled(rows: DataFrame, of: Flow) -> Flow:
    """The flow that was bundled, of the rows of one batch."""
    count = 1 + len(of.sent) + len(of.dead)
    if count == 1:
        return Flow(rows) if of.later is None else of.later(Flow(rows))
    parts = [rows.where(f.col(_OUTLET) == at).select(f"__{at}.*") for at in range(count)]
    names = [sink for sink, _ in of.sent]
    sent = tuple(zip(names, parts[1 : 1 + len(names)], strict=True))
    flow = Flow(parts[0], sent, tuple(parts[1 + len(names) :]))
    return flow if of.later is None else of.later(flow)
