"""The fields behind each step, followed as far as they can be known, and what is wrong with the step.

Each check gives the fields that come out, the fields of rows that it sends to sinks, and whether it may have
dead letters; problems are put into a list, so that one run tells all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from .expression import Analysed, Analyser, BadExpression, UnregisteredName
from .fields import WHOLE, Fields, NoType, element, members, plain, type_named
from .problems import Problem, nearest, shown
from .selection import condition
from .step import (
    Aggregate,
    AnyStep,
    Apply,
    DeadLetter,
    Deduplicate,
    Enrich,
    Filter,
    JsonField,
    Resequence,
    Route,
    Split,
    Translate,
    Way,
    WireTap,
    is_stateful,
    label,
)

# As Spark reads it: only of seconds there are fractions.
_DURATION: Final = re.compile(
    r"(?P<whole>\d+) *(?P<unit>microsecond|millisecond|second|minute|hour|day|week)s?"
    r"|(?P<seconds>\d+\.\d+) *seconds?",
    re.IGNORECASE,
)
_SECONDS: Final = {
    "microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0,
    "week": 604_800.0,
}  # fmt: skip
_LONGEST: Final = 9e12  # seconds: Spark counts microseconds, in 64 bits
WINDOW: Final = ("window_start", "window_end")


def seconds_in(text: str) -> float | None:
    """How long a time is, such as `10 minutes`; None if it is no time, or longer than Spark can count."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    number = float(found["whole"] or found["seconds"])
    seconds = number * _SECONDS[(found["unit"] or "second").lower()]
    return seconds if seconds <= _LONGEST else None


class Passed(msgspec.Struct):
    """What a step makes of fields."""

    fields: Fields
    sent: dict[str, Fields] = {}
    has_dead_letters: bool = False


class Follower:
    """Follows one pipeline; `tables` are the fields of what steps look things up in."""

    def __init__(
        self,
        tables: Mapping[str, Fields],
        sinks: Iterable[str],
        streaming: bool,
        analyser: Analyser,
    ) -> None:
        self.problems: list[Problem] = []
        self._analyser = analyser
        self._has_functions = False
        self._tables = tables
        self._sinks = tuple(sinks)
        self._streaming = streaming
        self._place = ""
        self._remembers = ""
        self._resequenced = False
        self._aggregated = ""

    def follow(self, number: int, step: AnyStep, fields: Fields) -> Passed:
        self._place = label(number, step)
        if self._streaming and is_stateful(step):
            self._remember(step)
        match step:
            case Translate():
                return self._translate(step, fields)
            case Filter():
                return Passed(fields, has_dead_letters=self._can_fail(step, fields))
            case DeadLetter():
                self._can_fail(step, fields)
                return Passed(fields, has_dead_letters=True)
            case Route():
                return self._route(step, fields)
            case WireTap():
                return self._wire_tap(step, fields)
            case Enrich():
                return self._enrich(step, fields)
            case Split():
                return self._split(step, fields)
            case Aggregate():
                return self._aggregate(step, fields)
            case Resequence():
                return self._resequence(step, fields)
            case Deduplicate():
                return self._deduplicate(step, fields)
            case Apply():
                return self._apply(step)

    def _remember(self, step: AnyStep) -> None:
        """What a stream can remember, and what it cannot."""
        if self._remembers and (isinstance(step, Resequence) or self._resequenced):
            hint = (
                "resequence must be the only one in a stream; a function may say remembers = false"
            )
            self._problem(f"it remembers rows, and so does {self._remembers}", hint)
        if self._aggregated and isinstance(step, Aggregate | Deduplicate):
            # The time of a query is that of its slowest step. This one would have none until rows come, and
            # they would not come until there is one: Spark says nothing, and nothing ever comes out.
            hint = "let another pipeline read what this one writes; --batch can do both"
            self._problem(f"it looks at the time of what {self._aggregated} gives out", hint)
        self._remembers = self._place
        self._resequenced = self._resequenced or isinstance(step, Resequence)
        if isinstance(step, Aggregate):
            self._aggregated = self._place

    # --- one kind each

    def _translate(self, step: Translate, fields: Fields) -> Passed:
        can_fail = bool(step.json)
        if step.json:
            self._need("body", fields, ("binary", "string"))
            found = {name: self._json_type(name, spec) for name, spec in step.json.items()}
            fields = fields.plus(found)
        elif step.extra == "refuse":
            self._problem("extra says something of json, which is not there")
        for name, expression in step.compute.items():
            analysed = self._analysed(partial(self._analyser.column, expression, fields))
            can_fail = can_fail or analysed.can_fail
            fields = fields.plus({name: analysed.type})
        kept = fields.without(step.rename)
        for old, new in step.rename.items():
            self._need(old, fields)
            if new in kept:
                self._problem(f"there is a field {new} already", "rename that one, too")
            kept = kept.plus({new: None})
        fields = fields.renamed(step.rename)
        if step.select:
            for name in step.select:
                self._need(name, fields)
            fields = fields.only(step.select)
        if step.body:
            for name in step.body:
                self._need(name, fields)
            fields = fields.plus({"body": "binary"})
        return Passed(fields, has_dead_letters=can_fail)

    def _json_type(self, name: str, spec: str | JsonField) -> str | None:
        text = spec.type if isinstance(spec, JsonField) else spec
        try:
            return type_named(text.removesuffix("?"))
        except NoType as error:
            hint = (
                "string, long, double, boolean, timestamp, date, decimal(10,2), array<…>, struct<…>"
            )
            self._problem(f"json.{name}: there is no type {shown(str(error))}", f"write {hint}")
            return None

    def _route(self, step: Route, fields: Fields) -> Passed:
        can_fail = False
        sent = {}
        if not step.ways:
            self._problem("it has no ways", "write ways = [{ to = SINK, where = … }]")
        for way in step.ways:
            self._need_sink(way.to)
            can_fail = self._can_fail(way, fields) or can_fail
            sent[way.to] = fields
        return Passed(fields, sent, can_fail)

    def _wire_tap(self, step: WireTap, fields: Fields) -> Passed:
        self._need_sink(step.to)
        can_fail = bool(step.where or step.selector) and self._can_fail(step, fields)
        return Passed(fields, {step.to: fields}, can_fail)

    def _enrich(self, step: Enrich, fields: Fields) -> Passed:
        if step.table not in self._tables:
            hint = nearest(step.table, self._tables, "add it to the sources; there are")
            self._problem(f"there is no source {step.table}", hint)
            return Passed(Fields(fields.types, open=True), has_dead_letters=True)
        table = self._tables[step.table]
        if not step.on:
            self._problem("on names no column")
        for name in step.on:
            self._need(name, fields)
            self._need(name, table, of=f"the source {step.table}")
            ours, theirs = plain(fields.type_of(name)), plain(table.type_of(name))
            if ours and theirs and (ours == "string") != (theirs == "string"):
                self._problem(f"{name} is {ours} here and {theirs} in {step.table}")
        for name in step.fields:
            self._need(name, table, of=f"the source {step.table}")
        brought = step.fields or [name for name in table.types if name not in step.on]
        for name in brought:
            if name in fields:
                self._problem(
                    f"there is a field {name} already", "rename one of them, by translate"
                )
        found = fields.plus({name: table.type_of(name) for name in brought})
        is_open = found.open or (table.open and not step.fields)
        return Passed(Fields(found.types, is_open), has_dead_letters=step.missing == "dead_letter")

    def _split(self, step: Split, fields: Fields) -> Passed:
        self._need(step.column, fields, ("array",))
        kind = element(fields.type_of(step.column))
        inside = members(kind)
        more: dict[str, str | None] = dict(inside) if inside else {step.column: kind}
        rest = fields.without([step.column]) if inside or kind is None else fields
        for name in more:
            if name != step.column and name in rest:
                self._problem(f"there is a field {name} already", "rename it before, by translate")
        has_id = "message_id" in fields or ("publisher" in fields and "sequence" in fields)
        found = rest.plus(more).plus({"message_id": "string"} if has_id else {})
        if step.index:
            found = found.plus({step.index: "int"})
        is_open = found.open or kind is None
        return Passed(Fields(found.types, is_open), has_dead_letters=step.empty == "dead_letter")

    def _aggregate(self, step: Aggregate, fields: Fields) -> Passed:
        for name in step.by:
            self._need(name, fields)
        found: dict[str, str | None] = dict.fromkeys(WINDOW, "timestamp") if step.window else {}
        found |= {name: fields.type_of(name) for name in step.by}
        if step.window:
            window = self._duration("window", step.window)
            slide = self._duration("slide", step.slide) if step.slide else window
            if window == 0 or slide == 0:
                self._problem("a window, and what it slides by, must be longer than nothing")
            elif window is not None and slide is not None and slide > window:
                hint = "rows between two windows would be in none"
                self._problem(f"slide is {step.slide!r}, and window only {step.window!r}", hint)
            self._time(step.time, fields, "a window needs time, the column of it")
        elif step.time or step.slide:
            self._problem("time and slide say something of window, which is not there")
        if self._streaming and not (step.window and step.late):
            hint = 'such as window = "1 minute", late = "10 seconds"; --batch needs neither'
            self._problem("a stream needs a window, and late: how long it waits", hint)
        if step.late:
            self._duration("late", step.late)
        if not step.measures:
            self._problem("it has no measures", 'write measures = { rows = "count(*)" }')
        for name, expression in step.measures.items():
            if name in found:
                self._problem(f"there is a field {name} already")
            measure = partial(self._analyser.measure, expression, fields, step.by)
            found[name] = self._analysed(measure).type
        return Passed(Fields(found), has_dead_letters=bool(step.window))

    def _resequence(self, step: Resequence, fields: Fields) -> Passed:
        if not step.by:
            self._problem("by names no column")
        for name in step.by:
            self._need(name, fields)
        self._need(step.sequence, fields, tuple(WHOLE))
        self._duration("wait", step.wait)
        return Passed(fields, has_dead_letters=True)

    def _deduplicate(self, step: Deduplicate, fields: Fields) -> Passed:
        if not step.by:
            self._problem("by names no column")
        for name in step.by:
            self._need(name, fields)
        if step.time or step.within:
            self._time(step.time, fields, "within needs time, the column of it")
            self._duration("within", step.within)
        elif self._streaming:
            hint = 'such as time = "timestamp", within = "10 minutes"'
            self._problem("a stream needs time and within: how long it remembers", hint)
        return Passed(fields, has_dead_letters=True)

    def _apply(self, step: Apply) -> Passed:
        self._has_functions = True
        if not callable(step.function) and not re.fullmatch(
            r"[\w.]+:[\w.]+", str(step.function), re.ASCII
        ):
            self._problem(f"function is {step.function!r}", "write package.module:function")
        try:
            types = {name: type_named(kind) for name, kind in step.fields.items()}
        except NoType as error:
            self._problem(f"fields: there is no type {shown(str(error))}")
            types = {}
        return Passed(Fields(dict(types), open=not types))

    # --- what they share

    def _problem(self, what: str, hint: str = "") -> None:
        self.problems.append(Problem(self._place, what, hint))

    def _need(self, name: str, fields: Fields, kinds: tuple[str, ...] = (), of: str = "") -> None:
        if name not in fields:
            if not fields.open:
                told = f"{of} has no field {name}" if of else f"there is no field {name}"
                self._problem(told, nearest(name, fields.types))
            return
        kind = fields.type_of(name)
        if kinds and kind is not None and plain(kind) not in kinds:
            expected = " or ".join(sorted(kinds))
            self._problem(f"{name} is {kind}; it must be {expected}", "translate can change it")

    def _need_sink(self, name: str) -> None:
        if name not in self._sinks:
            hint = nearest(name, self._sinks, "add it to the sinks; there are")
            self._problem(f"there is no sink {name}", hint or f"add [sinks.{name}]")

    def _time(self, name: str, fields: Fields, missing: str) -> None:
        if not name:
            self._problem(missing)
        else:
            self._need(name, fields, ("timestamp",))

    def _duration(self, option: str, text: str) -> float | None:
        """In seconds; None if it is none."""
        seconds = seconds_in(text)
        if seconds is None:
            self._problem(f"{option} is {shown(text)}, no time", 'write it like "10 seconds"')
        return seconds

    def _analysed(self, analyse: Callable[[], Analysed]) -> Analysed:
        """The result of the analysis; an expression that is refused is a problem, and of unknown type."""
        try:
            return analyse()
        except UnregisteredName as error:
            if self._has_functions:  # one of them may register it
                return Analysed(None, can_fail=True)
            self._problem(str(error), error.hint)
        except BadExpression as error:
            self._problem(str(error), error.hint)
        return Analysed(None, can_fail=False)

    def _can_fail(self, step: Filter | WireTap | DeadLetter | Way, fields: Fields) -> bool:
        if step.where and not step.selector:
            return self._analysed(partial(self._analyser.condition, step.where, fields)).can_fail
        try:
            return condition(step.where, step.selector, fields).can_fail
        except BadExpression as error:
            self._problem(str(error), error.hint)
            return False
