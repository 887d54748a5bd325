"""filter, route, wire_tap and dead_letter: which rows continue, and which go to a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from ..definition.condition import RowCondition, compile_condition
from ..definition.step import DeadLetterStep, FilterStep, RouteStep, WireTapStep
from .flow import Flow, StepContext, fields_of_rows, make_dead_letters
from .safe_sql import failure_sql, match_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BRANCH_COLUMN: Final = "__branch"
_NO_BRANCH_INDEX: Final = -1
_FAILED_INDEX: Final = -2


def apply_filter(step: FilterStep, flow: Flow, context: StepContext) -> Flow:
    condition = compile_condition(step.where, step.selector, fields_of_rows(flow.rows))
    return flow.with_rows(
        flow.rows.where(match_sql(condition)),
        make_dead_letters_of_failures(context, flow.rows, condition, step.where),
    )


def apply_wire_tap(step: WireTapStep, flow: Flow, context: StepContext) -> Flow:
    if not step.where and not step.selector:
        return flow.send_to(step.to, flow.rows)
    condition = compile_condition(step.where, step.selector, fields_of_rows(flow.rows))
    tapped = flow.send_to(step.to, flow.rows.where(match_sql(condition)))
    # A row on which the condition cannot be evaluated continues, and a dead letter reports the failure.
    return tapped.with_rows(
        flow.rows, make_dead_letters_of_failures(context, flow.rows, condition, step.where)
    )


def apply_dead_letter(step: DeadLetterStep, flow: Flow, context: StepContext) -> Flow:
    condition = compile_condition(step.where, step.selector, fields_of_rows(flow.rows))
    sql = match_sql(condition)
    matching = make_dead_letters(context, flow.rows.where(sql), step.reason)
    failed = make_dead_letters_of_failures(context, flow.rows, condition, step.where)
    remaining = flow.rows.where(f"NOT {sql}")
    if condition.can_fail:
        remaining = remaining.where(f"NOT {failure_sql(condition.sql)}")
    return flow.with_rows(remaining, matching, failed)


def apply_route(step: RouteStep, flow: Flow, context: StepContext) -> Flow:
    fields = fields_of_rows(flow.rows)
    cases = []
    for number, branch in enumerate(step.branches):
        condition = compile_condition(branch.where, branch.selector, fields)
        if condition.can_fail:
            cases.append(f"WHEN {failure_sql(condition.sql)} THEN {_FAILED_INDEX}")
        cases.append(f"WHEN {match_sql(condition)} THEN {number}")
    decided = flow.rows.withColumn(
        _BRANCH_COLUMN, f.expr(f"CASE {' '.join(cases)} ELSE {_NO_BRANCH_INDEX} END")
    )

    def rows_of(number: int) -> DataFrame:
        return decided.where(f.col(_BRANCH_COLUMN) == number).drop(_BRANCH_COLUMN)

    for number, branch in enumerate(step.branches):
        flow = flow.send_to(branch.to, rows_of(number))
    failed = make_dead_letters(
        context, rows_of(_FAILED_INDEX), "evaluation failed: the condition of a branch"
    )
    can_fail = any(f"THEN {_FAILED_INDEX}" in case for case in cases)
    return flow.with_rows(rows_of(_NO_BRANCH_INDEX), failed if can_fail else None)


def make_dead_letters_of_failures(
    context: StepContext, rows: DataFrame, condition: RowCondition, sql_text: str
) -> DataFrame | None:
    """Return dead letters of the rows on which the condition fails; None if it cannot fail.

    A condition fails if its evaluation raises an error; a condition that is false does not fail.
    """
    if not condition.can_fail:
        return None
    return make_dead_letters(
        context, rows.where(failure_sql(condition.sql)), f"evaluation failed: {sql_text}"
    )
