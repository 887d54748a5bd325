"""A pipeline as data: sources, steps, sinks. It is the same whether Python said it or a file.

    quotes = (
        Pipeline("quotes", checkpoint="state/quotes")
        .read("archive", "recado", path="archive")
        .filter(where="routing_key = 'PETR4'")
        .write("petr4", "parquet", path="lake/petr4")
    )

Each method gives another pipeline; none does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..location import is_local, resolve, resolve_options
from ..options import has_option, without_secrets
from .problems import PipelineError, Problem, closest, nearest
from .step import STEPS, AnyStep, Apply, Enrich, JsonField, Missing, Route, Way, WireTap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEAD_LETTERS: Final = "dead_letters"
AVAILABLE_NOW: Final = "available-now"

Option = str | int | float | bool | date | Mapping[str, object] | Sequence[str]


class Endpoint(msgspec.Struct, frozen=True):
    """A source or a sink. Its locations are resolved when it is made; its `repr` shows no secrets."""

    format: str
    options: dict[str, str] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "options", resolve_options(self.options))

    def __repr__(self) -> str:
        shown = without_secrets(self.options)
        return f"{type(self).__name__}(format={self.format!r}, options={shown!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("format", self.format), ("options", without_secrets(self.options))]


class Source(Endpoint, frozen=True):
    def __post_init__(self) -> None:
        super().__post_init__()
        has_place = any(has_option(self.options, name) for name in ("path", "config"))
        if self.format == "recado" and not has_place:
            from recado.node.config import FILE

            self.options["config"] = resolve(FILE)  # the default, which a working directory decides


class Sink(Endpoint, frozen=True):
    pass


class Pipeline(msgspec.Struct, frozen=True):
    """Sources that a step names as its table are read once, at the start; the others flow, as one.

    Sinks that a step names get what it sends there; the others get what comes out at the end.
    """

    name: str
    checkpoint: str = ""
    """The folder of a stream's progress, on any file system that Spark knows. A stream needs one.

    Relative paths, here and in options, are resolved when the pipeline is defined.
    """
    trigger: str = ""
    """`5 seconds`, `available-now`, or as fast as it can."""
    dead_letters: str = DEAD_LETTERS
    """The sink for what a step could not handle."""
    sources: dict[str, Source] = {}
    steps: tuple[AnyStep, ...] = ()
    sinks: dict[str, Sink] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "checkpoint", resolve(self.checkpoint))

    # --- what it consists of

    @property
    def has_local_checkpoint(self) -> bool:
        return bool(self.checkpoint) and is_local(self.checkpoint)

    def tables(self) -> dict[str, Source]:
        """The sources that steps look things up in."""
        named = {step.table for step in self.steps if isinstance(step, Enrich)}
        return {name: source for name, source in self.sources.items() if name in named}

    def streams(self) -> dict[str, Source]:
        """The sources whose rows flow."""
        tables = self.tables()
        return {name: source for name, source in self.sources.items() if name not in tables}

    def ends(self) -> tuple[str, ...]:
        """The sinks of what comes out at the end."""
        named = set(self.branches()) | {self.dead_letters}
        return tuple(name for name in self.sinks if name not in named)

    def branches(self) -> tuple[str, ...]:
        """The sinks that steps name."""
        found: list[str] = []
        for step in self.steps:
            if isinstance(step, Route):
                found += [way.to for way in step.ways]
            elif isinstance(step, WireTap):
                found.append(step.to)
        return tuple(found)

    # --- how it is said

    def read(self, name: str, format_: str, **options: Option) -> Pipeline:
        source = Source(format_, texts_of(options))
        return msgspec.structs.replace(self, sources={**self.sources, name: source})

    def write(self, name: str, format_: str, **options: Option) -> Pipeline:
        sink = Sink(format_, texts_of(options))
        return msgspec.structs.replace(self, sinks={**self.sinks, name: sink})

    def translate(
        self,
        *,
        json: Mapping[str, str | JsonField] | None = None,
        extra: str = "ignore",
        compute: Mapping[str, str] | None = None,
        rename: Mapping[str, str] | None = None,
        select: Sequence[str] = (),
        body: Sequence[str] = (),
        name: str = "",
    ) -> Pipeline:
        return self.then(
            "translate",
            json=dict(json or {}),
            extra=extra,
            compute=dict(compute or {}),
            rename=dict(rename or {}),
            select=select,
            body=body,
            name=name,
        )

    def filter(self, where: str = "", *, selector: str = "", name: str = "") -> Pipeline:
        return self.then("filter", where=where, selector=selector, name=name)

    def route(self, ways: Sequence[Way], *, name: str = "") -> Pipeline:
        return self.then("route", ways=ways, name=name)

    def enrich(
        self,
        table: str,
        *,
        on: Sequence[str],
        fields: Sequence[str] = (),
        missing: Missing = "dead_letter",
        name: str = "",
    ) -> Pipeline:
        return self.then("enrich", table=table, on=on, fields=fields, missing=missing, name=name)

    def split(
        self, column: str, *, index: str = "", empty: Missing = "dead_letter", name: str = ""
    ) -> Pipeline:
        return self.then("split", column=column, index=index, empty=empty, name=name)

    def aggregate(
        self,
        measures: Mapping[str, str],
        *,
        by: Sequence[str] = (),
        time: str = "",
        window: str = "",
        slide: str = "",
        late: str = "",
        name: str = "",
    ) -> Pipeline:
        return self.then(
            "aggregate",
            measures=dict(measures),
            by=by,
            time=time,
            window=window,
            slide=slide,
            late=late,
            name=name,
        )

    def resequence(
        self,
        *,
        by: Sequence[str],
        sequence: str = "sequence",
        start: int = 1,
        wait: str = "10 seconds",
        name: str = "",
    ) -> Pipeline:
        return self.then("resequence", by=by, sequence=sequence, start=start, wait=wait, name=name)

    def deduplicate(
        self, *, by: Sequence[str], time: str = "", within: str = "", name: str = ""
    ) -> Pipeline:
        return self.then("deduplicate", by=by, time=time, within=within, name=name)

    def wire_tap(self, to: str, *, where: str = "", selector: str = "", name: str = "") -> Pipeline:
        return self.then("wire_tap", to=to, where=where, selector=selector, name=name)

    def dead_letter(
        self, reason: str, *, where: str = "", selector: str = "", name: str = ""
    ) -> Pipeline:
        return self.then("dead_letter", reason=reason, where=where, selector=selector, name=name)

    def apply(
        self,
        function: str | Callable[[DataFrame], DataFrame],
        *,
        fields: Mapping[str, str] | None = None,
        remembers: bool = True,
        name: str = "",
    ) -> Pipeline:
        given = dict(fields or {})
        return self.then("apply", function=function, fields=given, remembers=remembers, name=name)

    def then(self, word: str, **options: Any) -> Pipeline:
        """One more step, by its name."""
        step, problems = read_step(word, options, len(self.steps) + 1)
        if problems:
            raise PipelineError(self.name, problems)
        return msgspec.structs.replace(self, steps=(*self.steps, step))


# --- checked conversion, for Python and for files ------------------------------------------------


def read_step(
    word: object, options: Mapping[str, Any], number: int
) -> tuple[AnyStep, list[Problem]]:
    """The step, and all that is wrong with it.

    A misspelt step or option is taken for the one that is spelt most alike, so that checks can go on and find
    further problems. A step that cannot be read at all is replaced by one of which nothing is known.
    """
    problems = []
    name = word if isinstance(word, str) else ""
    if name not in STEPS:
        what = f"there is no step {word!r}" if word else "it does not say which step it is"
        problems.append(Problem(f"step {number}", what, nearest(str(word or ""), STEPS)))
        name = closest(name, STEPS) or ""
        if not name:
            return _UNREADABLE, problems
    kind = STEPS[name]
    place = f"step {number} ({name})"
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    given = dict(options)
    for option in options:
        if option not in fields:
            problems.append(Problem(place, f"there is no option {option}", nearest(option, fields)))
            value = given.pop(option)
            if meant := closest(option, fields):
                given.setdefault(meant, value)
    values = {}
    for option, field in fields.items():
        if option in given:
            try:
                values[option] = msgspec.convert(given[option], field.type)
            except msgspec.ValidationError as error:
                problems.append(Problem(place, f"{option}{told(error)}"))
        elif field.required:
            problems.append(Problem(place, f"it needs {option!r}"))
    try:
        return kind(**values), problems
    except TypeError:  # one that is required could not be read
        return _UNREADABLE, problems


_UNREADABLE: Final = Apply(function=lambda rows: rows, remembers=False)


def told(error: msgspec.ValidationError) -> str:
    """The library's words, behind the place in the value: `[0].to: expected 'str', got 'int'`."""
    what, _, place = str(error).partition(" - at `$")
    what = (what[:1].lower() + what[1:]).replace("`", "'").replace("object missing", "it has no")
    what = what.replace("it has no required field", "it needs")
    return f"{place.rstrip('`')}: {what}"


def texts_of(options: Mapping[str, Option]) -> dict[str, str]:
    """Options as Spark takes them: texts. Lists are joined by commas, tables are JSON. Raises TypeError."""
    return {name: text_of(value) for name, value in options.items()}


def text_of(value: Option) -> str:
    """Raises TypeError."""
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case date():  # or datetime, which TOML and YAML have words for
            return value.isoformat()
        case Mapping():
            return msgspec.json.encode(value).decode()
        case Sequence():
            return ",".join(map(str, value))
        case _:
            raise TypeError(f"{value!r} is no text, number, time, list or table")
