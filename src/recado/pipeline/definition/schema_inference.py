"""Infer the fields after each step without Spark, and collect the problems of the steps.

`SchemaInference` visits the steps in order. For each step it returns the fields of the rows that continue,
the fields of the rows that the step sends to sinks, and whether the step can produce dead letters. Problems
are collected in a list, so that one check reports all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from .condition import compile_condition
from .duration import parse_duration
from .expression import Analysis, ExpressionError, SqlAnalyser, UnregisteredNameError
from .fields import (
    INTEGER_TYPES,
    Fields,
    UnknownTypeError,
    array_element_type,
    base_type,
    parse_type,
    struct_members,
)
from .problems import Problem, quote_excerpt, suggest_name
from .step import (
    AggregateStep,
    AnyStep,
    ApplyStep,
    Branch,
    DeadLetterStep,
    DeduplicateStep,
    EnrichStep,
    FilterStep,
    JsonField,
    ResequenceStep,
    RouteStep,
    SplitStep,
    TranslateStep,
    WireTapStep,
    is_stateful,
    step_label,
)

WINDOW_COLUMNS: Final = ("window_start", "window_end")


class StepOutput(msgspec.Struct):
    """The fields of the rows that leave a step: those that continue, and those for each sink."""

    fields: Fields
    sink_fields: dict[str, Fields] = {}
    has_dead_letters: bool = False


class SchemaInference:
    """Infers the fields of one pipeline; `tables` has the fields of its lookup tables."""

    def __init__(
        self,
        tables: Mapping[str, Fields],
        sinks: Iterable[str],
        is_streaming: bool,
        analyser: SqlAnalyser,
    ) -> None:
        self.problems: list[Problem] = []
        self._analyser = analyser
        self._has_functions = False
        self._tables = tables
        self._sinks = tuple(sinks)
        self._is_streaming = is_streaming
        self._location = ""
        self._stateful_step = ""
        self._has_resequence = False
        self._aggregate_step = ""

    def infer_step(self, number: int, step: AnyStep, fields: Fields) -> StepOutput:
        """Return the output of a step for rows with these fields, and add its problems."""
        self._location = step_label(number, step)
        if self._is_streaming and is_stateful(step):
            self._check_stateful(step)
        match step:
            case TranslateStep():
                return self._infer_translate(step, fields)
            case FilterStep():
                return StepOutput(fields, has_dead_letters=self._condition_can_fail(step, fields))
            case DeadLetterStep():
                self._condition_can_fail(step, fields)
                return StepOutput(fields, has_dead_letters=True)
            case RouteStep():
                return self._infer_route(step, fields)
            case WireTapStep():
                return self._infer_wire_tap(step, fields)
            case EnrichStep():
                return self._infer_enrich(step, fields)
            case SplitStep():
                return self._infer_split(step, fields)
            case AggregateStep():
                return self._infer_aggregate(step, fields)
            case ResequenceStep():
                return self._infer_resequence(step, fields)
            case DeduplicateStep():
                return self._infer_deduplicate(step, fields)
            case ApplyStep():
                return self._infer_apply(step)

    def _check_stateful(self, step: AnyStep) -> None:
        """Check combinations of stateful steps that a stream does not support."""
        if self._stateful_step and (isinstance(step, ResequenceStep) or self._has_resequence):
            hint = "resequence must be the only stateful step; a function may set stateful = false"
            self._add_problem(f"it is stateful, and so is {self._stateful_step}", hint)
        if self._aggregate_step and isinstance(step, AggregateStep | DeduplicateStep):
            # A query has one watermark, the lowest of its steps. This step has none until rows reach it, and
            # the aggregate passes rows on only when the watermark advances: the query would never produce rows.
            hint = "read the output of this pipeline with another one, or run it with --batch"
            self._add_problem(f"it uses the time of rows after {self._aggregate_step}", hint)
        self._stateful_step = self._location
        self._has_resequence = self._has_resequence or isinstance(step, ResequenceStep)
        if isinstance(step, AggregateStep):
            self._aggregate_step = self._location

    # -- the steps ---------------------------------------------------------------------------------

    def _infer_translate(self, step: TranslateStep, fields: Fields) -> StepOutput:
        can_fail = bool(step.json)
        if step.json:
            self._require_field("body", fields, ("binary", "string"))
            found = {name: self._json_type(name, spec) for name, spec in step.json.items()}
            fields = fields.with_fields(found)
        elif step.extra == "refuse":
            self._add_problem("extra needs json")
        for name, expression in step.compute.items():
            analysed = self._analyse(partial(self._analyser.analyse_column, expression, fields))
            can_fail = can_fail or analysed.can_fail
            fields = fields.with_fields({name: analysed.type})
        remaining = fields.drop(step.rename)
        for old, new in step.rename.items():
            self._require_field(old, fields)
            if new in remaining:
                self._add_problem(f"there is a field {new} already", "rename that field too")
            remaining = remaining.with_fields({new: None})
        fields = fields.rename(step.rename)
        if step.select:
            for name in step.select:
                self._require_field(name, fields)
            fields = fields.select(step.select)
        if step.body:
            for name in step.body:
                self._require_field(name, fields)
            fields = fields.with_fields({"body": "binary"})
        return StepOutput(fields, has_dead_letters=can_fail)

    def _json_type(self, name: str, spec: str | JsonField) -> str | None:
        text = spec.type if isinstance(spec, JsonField) else spec
        try:
            return parse_type(text.removesuffix("?"))
        except UnknownTypeError as error:
            hint = (
                "string, long, double, boolean, timestamp, date, decimal(10,2), array<…>, struct<…>"
            )
            self._add_problem(
                f"json.{name}: unknown type {quote_excerpt(str(error))}", f"write {hint}"
            )
            return None

    def _infer_route(self, step: RouteStep, fields: Fields) -> StepOutput:
        can_fail = False
        sent = {}
        if not step.branches:
            self._add_problem("branches is empty", "write branches = [{ to = SINK, where = … }]")
        for branch in step.branches:
            self._require_sink(branch.to)
            can_fail = self._condition_can_fail(branch, fields) or can_fail
            sent[branch.to] = fields
        return StepOutput(fields, sent, can_fail)

    def _infer_wire_tap(self, step: WireTapStep, fields: Fields) -> StepOutput:
        self._require_sink(step.to)
        can_fail = bool(step.where or step.selector) and self._condition_can_fail(step, fields)
        return StepOutput(fields, {step.to: fields}, can_fail)

    def _infer_enrich(self, step: EnrichStep, fields: Fields) -> StepOutput:
        if step.table not in self._tables:
            hint = suggest_name(step.table, self._tables, "add it to the sources; available are")
            self._add_problem(f"there is no source {step.table}", hint)
            return StepOutput(Fields(fields.types, is_open=True), has_dead_letters=True)
        table = self._tables[step.table]
        if not step.on:
            self._add_problem("on is empty")
        for name in step.on:
            self._require_field(name, fields)
            self._require_field(name, table, owner=f"the source {step.table}")
            row_type, table_type = base_type(fields.type_of(name)), base_type(table.type_of(name))
            if row_type and table_type and (row_type == "string") != (table_type == "string"):
                self._add_problem(f"{name} is {row_type} here and {table_type} in {step.table}")
        for name in step.fields:
            self._require_field(name, table, owner=f"the source {step.table}")
        added = step.fields or [name for name in table.types if name not in step.on]
        for name in added:
            if name in fields:
                self._add_problem(
                    f"there is a field {name} already", "rename one of them with the step translate"
                )
        found = fields.with_fields({name: table.type_of(name) for name in added})
        is_open = found.is_open or (table.is_open and not step.fields)
        return StepOutput(
            Fields(found.types, is_open), has_dead_letters=step.missing == "dead_letter"
        )

    def _infer_split(self, step: SplitStep, fields: Fields) -> StepOutput:
        self._require_field(step.column, fields, ("array",))
        kind = array_element_type(fields.type_of(step.column))
        members = struct_members(kind)
        added: dict[str, str | None] = dict(members) if members else {step.column: kind}
        others = fields.drop([step.column]) if members or kind is None else fields
        for name in added:
            if name != step.column and name in others:
                self._add_problem(
                    f"there is a field {name} already", "rename it with the step translate before"
                )
        # Each part gets a message id of its own, made from the id of the row and the index of the part.
        has_id = "message_id" in fields or ("publisher" in fields and "sequence" in fields)
        found = others.with_fields(added).with_fields({"message_id": "string"} if has_id else {})
        if step.index:
            found = found.with_fields({step.index: "int"})
        is_open = found.is_open or kind is None
        return StepOutput(
            Fields(found.types, is_open), has_dead_letters=step.empty == "dead_letter"
        )

    def _infer_aggregate(self, step: AggregateStep, fields: Fields) -> StepOutput:
        for name in step.by:
            self._require_field(name, fields)
        found: dict[str, str | None] = (
            dict.fromkeys(WINDOW_COLUMNS, "timestamp") if step.window else {}
        )
        found |= {name: fields.type_of(name) for name in step.by}
        if step.window:
            window = self._check_duration("window", step.window)
            slide = self._check_duration("slide", step.slide) if step.slide else window
            if window == 0 or slide == 0:
                self._add_problem("window and slide must be longer than 0")
            elif window is not None and slide is not None and slide > window:
                hint = "rows between two windows would be in neither"
                self._add_problem(
                    f"slide {step.slide!r} is longer than window {step.window!r}", hint
                )
            self._require_time(step.time, fields, "window needs the option time, a column")
        elif step.time or step.slide:
            self._add_problem("time and slide need window")
        if self._is_streaming and not (step.window and step.late):
            hint = 'such as window = "1 minute", late = "10 seconds"; --batch needs neither'
            self._add_problem(
                "a stream needs the options window and late (how long to wait for late rows)", hint
            )
        if step.late:
            self._check_duration("late", step.late)
        if not step.measures:
            self._add_problem("measures is empty", 'write measures = { rows = "count(*)" }')
        for name, expression in step.measures.items():
            if name in found:
                self._add_problem(f"there is a field {name} already")
            measure = partial(self._analyser.analyse_aggregate, expression, fields, step.by)
            found[name] = self._analyse(measure).type
        # Rows without a time belong to no window: they become dead letters.
        return StepOutput(Fields(found), has_dead_letters=bool(step.window))

    def _infer_resequence(self, step: ResequenceStep, fields: Fields) -> StepOutput:
        if not step.by:
            self._add_problem("by is empty")
        for name in step.by:
            self._require_field(name, fields)
        self._require_field(step.sequence, fields, tuple(INTEGER_TYPES))
        self._check_duration("wait", step.wait)
        return StepOutput(fields, has_dead_letters=True)

    def _infer_deduplicate(self, step: DeduplicateStep, fields: Fields) -> StepOutput:
        if not step.by:
            self._add_problem("by is empty")
        for name in step.by:
            self._require_field(name, fields)
        if step.time or step.within:
            self._require_time(step.time, fields, "within needs the option time, a column")
            self._check_duration("within", step.within)
        elif self._is_streaming:
            hint = 'such as time = "timestamp", within = "10 minutes"'
            self._add_problem(
                "a stream needs the options time and within (how long to remember keys)", hint
            )
        return StepOutput(fields, has_dead_letters=True)

    def _infer_apply(self, step: ApplyStep) -> StepOutput:
        self._has_functions = True
        if not callable(step.function) and not re.fullmatch(
            r"[\w.]+:[\w.]+", str(step.function), re.ASCII
        ):
            self._add_problem(
                f"invalid function name {step.function!r}", "write package.module:function"
            )
        try:
            types = {name: parse_type(kind) for name, kind in step.fields.items()}
        except UnknownTypeError as error:
            self._add_problem(f"fields: unknown type {quote_excerpt(str(error))}")
            types = {}
        return StepOutput(Fields(dict(types), is_open=not types))

    # -- common checks -----------------------------------------------------------------------------

    def _add_problem(self, message: str, hint: str = "") -> None:
        self.problems.append(Problem(self._location, message, hint))

    def _require_field(
        self, name: str, fields: Fields, types: tuple[str, ...] = (), owner: str = ""
    ) -> None:
        if name not in fields:
            if not fields.is_open:
                message = f"{owner} has no field {name}" if owner else f"there is no field {name}"
                self._add_problem(message, suggest_name(name, fields.types))
            return
        kind = fields.type_of(name)
        if types and kind is not None and base_type(kind) not in types:
            expected = " or ".join(sorted(types))
            self._add_problem(
                f"{name} is {kind}; it must be {expected}", "convert it with the step translate"
            )

    def _require_sink(self, name: str) -> None:
        if name not in self._sinks:
            hint = suggest_name(name, self._sinks, "add it to the sinks; available are")
            self._add_problem(f"there is no sink {name}", hint or f"add [sinks.{name}]")

    def _require_time(self, name: str, fields: Fields, missing: str) -> None:
        if not name:
            self._add_problem(missing)
        else:
            self._require_field(name, fields, ("timestamp",))

    def _check_duration(self, option: str, text: str) -> float | None:
        """Return the duration in seconds; None, with a problem, if it is invalid."""
        seconds = parse_duration(text)
        if seconds is None:
            self._add_problem(
                f"{option} is {quote_excerpt(text)}, not a duration",
                'write for example "10 seconds"',
            )
        return seconds

    def _analyse(self, analyse: Callable[[], Analysis]) -> Analysis:
        """Return the analysis; a rejected expression adds a problem and has an unknown type."""
        try:
            return analyse()
        except UnregisteredNameError as error:
            if self._has_functions:  # one of the functions may register it
                return Analysis(None, can_fail=True)
            self._add_problem(str(error), error.hint)
        except ExpressionError as error:
            self._add_problem(str(error), error.hint)
        return Analysis(None, can_fail=False)

    def _condition_can_fail(
        self, step: FilterStep | WireTapStep | DeadLetterStep | Branch, fields: Fields
    ) -> bool:
        """Return whether the condition can fail on a row; add a problem if it is invalid."""
        if step.where and not step.selector:
            return self._analyse(
                partial(self._analyser.analyse_condition, step.where, fields)
            ).can_fail
        try:
            return compile_condition(step.where, step.selector, fields).can_fail
        except ExpressionError as error:
            self._add_problem(str(error), error.hint)
            return False
