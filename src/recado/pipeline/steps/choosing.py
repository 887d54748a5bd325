"""filter, route, wire_tap and dead_letter: which rows go where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from ..definition.selection import Chosen, condition
from ..definition.step import DeadLetter, Filter, Route, WireTap
from .flow import Flow, Place, dead_letters, fields_of
from .guard import fails, holds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_WAY: Final = "__way"
_ON: Final = -1
_FAILED: Final = -2


def filtered(step: Filter, flow: Flow, place: Place) -> Flow:
    chosen = condition(step.where, step.selector, fields_of(flow.rows))
    return flow.on(flow.rows.where(holds(chosen)), failed(place, flow.rows, chosen, step.where))


def tapped(step: WireTap, flow: Flow, place: Place) -> Flow:
    if not step.where and not step.selector:
        return flow.to(step.to, flow.rows)
    chosen = condition(step.where, step.selector, fields_of(flow.rows))
    copy = flow.to(step.to, flow.rows.where(holds(chosen)))
    # What cannot be tapped goes on all the same; that it could not is told.
    return copy.on(flow.rows, failed(place, flow.rows, chosen, step.where))


def buried(step: DeadLetter, flow: Flow, place: Place) -> Flow:
    chosen = condition(step.where, step.selector, fields_of(flow.rows))
    sql = holds(chosen)
    dead = dead_letters(place, flow.rows.where(sql), step.reason)
    lost = failed(place, flow.rows, chosen, step.where)
    rest = flow.rows.where(f"NOT {sql}")
    if chosen.can_fail:
        rest = rest.where(f"NOT {fails(chosen.sql)}")
    return flow.on(rest, dead, lost)


def routed(step: Route, flow: Flow, place: Place) -> Flow:
    fields = fields_of(flow.rows)
    cases = []
    for number, way in enumerate(step.ways):
        chosen = condition(way.where, way.selector, fields)
        if chosen.can_fail:
            cases.append(f"WHEN {fails(chosen.sql)} THEN {_FAILED}")
        cases.append(f"WHEN {holds(chosen)} THEN {number}")
    decided = flow.rows.withColumn(_WAY, f.expr(f"CASE {' '.join(cases)} ELSE {_ON} END"))

    def those(number: int) -> DataFrame:
        return decided.where(f.col(_WAY) == number).drop(_WAY)

    for number, way in enumerate(step.ways):
        flow = flow.to(way.to, those(number))
    lost = dead_letters(place, those(_FAILED), "no way could be computed")
    can_fail = any(f"THEN {_FAILED}" in case for case in cases)
    return flow.on(those(_ON), lost if can_fail else None)


def failed(place: Place, rows: DataFrame, chosen: Chosen, said: str) -> DataFrame | None:
    """The rows of which it could not be told."""
    if not chosen.can_fail:
        return None
    return dead_letters(place, rows.where(fails(chosen.sql)), f"cannot be computed: {said}")
