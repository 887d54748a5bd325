"""A pipeline as data: sources, steps and sinks, built in Python or loaded from a file.

    quotes = (
        Pipeline("quotes", checkpoint="state/quotes")
        .read("archive", "recado", path="archive")
        .filter(where="routing_key = 'PETR4'")
        .write("petr4", "parquet", path="lake/petr4")
    )

Each method returns a new pipeline; nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..location import is_local, resolve, resolve_options
from ..options import has_option, redact_secrets
from .problems import InvalidPipelineError, Problem, closest_name, suggest_name
from .step import (
    STEP_CLASSES,
    AnyStep,
    ApplyStep,
    Branch,
    EnrichStep,
    JsonField,
    MissingPolicy,
    RouteStep,
    WireTapStep,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEAD_LETTER_SINK: Final = "dead_letters"
AVAILABLE_NOW: Final = "available-now"

OptionValue = str | int | float | bool | date | Mapping[str, object] | Sequence[str]


class Endpoint(msgspec.Struct, frozen=True):
    """A source or a sink. Its locations are resolved on creation; its `repr` hides secrets."""

    format: str
    options: dict[str, str] = {}

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "options", resolve_options(self.options))

    def __repr__(self) -> str:
        shown = redact_secrets(self.options)
        return f"{type(self).__name__}(format={self.format!r}, options={shown!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("format", self.format), ("options", redact_secrets(self.options))]


class Source(Endpoint, frozen=True):
    """A source of rows: a format of recado or Spark, and its options."""

    def __post_init__(self) -> None:
        super().__post_init__()
        has_location = any(has_option(self.options, name) for name in ("path", "config"))
        if self.format == "recado" and not has_location:
            from recado.node.config import CONFIG_FILE

            self.options["config"] = resolve(
                CONFIG_FILE
            )  # resolve the default against the working directory now


class Sink(Endpoint, frozen=True):
    """A sink for rows: `parquet`, `delta`, `iceberg`, `amqp`, `recado` or `console`, and its options."""


class Pipeline(msgspec.Struct, frozen=True):
    """Sources, steps and sinks under a name.

    A source that a step `enrich` names is a lookup table, which `run` reads once at the start; the other sources
    are merged into one stream. A sink that a step names gets the rows that the step sends, and the sink
    `dead_letters` gets the dead letters; the other sinks get the rows after the last step.
    """

    name: str
    checkpoint: str = ""
    """The folder with the progress of a stream, on any file system that Spark supports. Streams require it.

    Relative paths, here and in options, are resolved when the pipeline is defined.
    """
    trigger: str = ""
    """`5 seconds`, `available-now`, or empty: as fast as possible."""
    dead_letters: str = DEAD_LETTER_SINK
    """The sink for rows that a step could not process."""
    sources: dict[str, Source] = {}
    steps: tuple[AnyStep, ...] = ()
    sinks: dict[str, Sink] = {}
    status: str = ""
    """URL of a broker to which runs publish their status, for the management API; empty: not published."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "checkpoint", resolve(self.checkpoint))

    # -- parts -------------------------------------------------------------------------------------

    @property
    def has_local_checkpoint(self) -> bool:
        """Whether the checkpoint is a local or mounted folder."""
        return bool(self.checkpoint) and is_local(self.checkpoint)

    def lookup_tables(self) -> dict[str, Source]:
        """The sources that steps `enrich` look up."""
        named = {step.table for step in self.steps if isinstance(step, EnrichStep)}
        return {name: source for name, source in self.sources.items() if name in named}

    def streaming_sources(self) -> dict[str, Source]:
        """The sources that are not lookup tables."""
        tables = self.lookup_tables()
        return {name: source for name, source in self.sources.items() if name not in tables}

    def output_sinks(self) -> tuple[str, ...]:
        """The sinks for the rows after the last step."""
        named = set(self.branch_sinks()) | {self.dead_letters}
        return tuple(name for name in self.sinks if name not in named)

    def branch_sinks(self) -> tuple[str, ...]:
        """The sinks that steps name."""
        found: list[str] = []
        for step in self.steps:
            if isinstance(step, RouteStep):
                found += [branch.to for branch in step.branches]
            elif isinstance(step, WireTapStep):
                found.append(step.to)
        return tuple(found)

    # -- building ----------------------------------------------------------------------------------

    def read(self, name: str, format_: str, **options: OptionValue) -> Pipeline:
        """Add a source. Options have the names that they have in Spark."""
        source = Source(format_, options_to_text(options))
        return msgspec.structs.replace(self, sources={**self.sources, name: source})

    def write(self, name: str, format_: str, **options: OptionValue) -> Pipeline:
        """Add a sink. Options have the names that they have in Spark."""
        sink = Sink(format_, options_to_text(options))
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
        """Change the columns of each row: extract JSON, compute, rename, select, encode a body."""
        return self.add_step(
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
        """Pass only rows that match a SQL condition or a selector."""
        return self.add_step("filter", where=where, selector=selector, name=name)

    def route(self, branches: Sequence[Branch], *, name: str = "") -> Pipeline:
        """Send each row to the sink of the first branch that matches; the other rows continue."""
        return self.add_step("route", branches=branches, name=name)

    def enrich(
        self,
        table: str,
        *,
        on: Sequence[str],
        fields: Sequence[str] = (),
        missing: MissingPolicy = "dead_letter",
        name: str = "",
    ) -> Pipeline:
        """Add fields from the row of a lookup table that has the same key."""
        return self.add_step(
            "enrich", table=table, on=on, fields=fields, missing=missing, name=name
        )

    def split(
        self, column: str, *, index: str = "", empty: MissingPolicy = "dead_letter", name: str = ""
    ) -> Pipeline:
        """Make one row of each element of an array."""
        return self.add_step("split", column=column, index=index, empty=empty, name=name)

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
        """Make one row per key, or per key and time window."""
        return self.add_step(
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
        """Sort the rows of each key by a sequence number, without duplicates."""
        return self.add_step(
            "resequence", by=by, sequence=sequence, start=start, wait=wait, name=name
        )

    def deduplicate(
        self, *, by: Sequence[str], time: str = "", within: str = "", name: str = ""
    ) -> Pipeline:
        """Keep one of the rows with the same key."""
        return self.add_step("deduplicate", by=by, time=time, within=within, name=name)

    def wire_tap(self, to: str, *, where: str = "", selector: str = "", name: str = "") -> Pipeline:
        """Send a copy of each row, or of each matching row, to a sink."""
        return self.add_step("wire_tap", to=to, where=where, selector=selector, name=name)

    def dead_letter(
        self, reason: str, *, where: str = "", selector: str = "", name: str = ""
    ) -> Pipeline:
        """Make dead letters of the rows that match."""
        return self.add_step(
            "dead_letter", reason=reason, where=where, selector=selector, name=name
        )

    def apply(
        self,
        function: str | Callable[[DataFrame], DataFrame],
        *,
        fields: Mapping[str, str] | None = None,
        stateful: bool = True,
        name: str = "",
    ) -> Pipeline:
        """Call a function from DataFrame to DataFrame."""
        given = dict(fields or {})
        return self.add_step("apply", function=function, fields=given, stateful=stateful, name=name)

    def add_step(self, step_type: str, **options: Any) -> Pipeline:
        """Add a step by its type name. Raises InvalidPipelineError if its options are wrong."""
        step, problems = parse_step(step_type, options, len(self.steps) + 1)
        if problems:
            raise InvalidPipelineError(self.name, problems)
        return msgspec.structs.replace(self, steps=(*self.steps, step))


# --- conversion with checks, for Python and files ------------------------------------------------


def parse_step(
    step_type: object, options: Mapping[str, Any], number: int
) -> tuple[AnyStep, list[Problem]]:
    """Return the step, and all problems of its options.

    A misspelt step or option is replaced by the most similar one, so that checks can continue and find further
    problems. A step that cannot be parsed at all is replaced by a placeholder without known fields.
    """
    problems = []
    name = step_type if isinstance(step_type, str) else ""
    if name not in STEP_CLASSES:
        message = f"unknown step {step_type!r}" if step_type else "the key step is missing"
        problems.append(
            Problem(f"step {number}", message, suggest_name(str(step_type or ""), STEP_CLASSES))
        )
        name = closest_name(name, STEP_CLASSES) or ""
        if not name:
            return _PLACEHOLDER_STEP, problems
    step_class = STEP_CLASSES[name]
    location = f"step {number} ({name})"
    fields = {field.name: field for field in msgspec.structs.fields(step_class)}
    remaining = dict(options)
    for option in options:
        if option not in fields:
            problems.append(
                Problem(location, f"unknown option {option}", suggest_name(option, fields))
            )
            value = remaining.pop(option)
            if intended := closest_name(option, fields):
                remaining.setdefault(intended, value)
    values = {}
    for option, field in fields.items():
        if option in remaining:
            try:
                values[option] = msgspec.convert(remaining[option], field.type)
            except msgspec.ValidationError as error:
                problems.append(Problem(location, f"{option}{describe_validation_error(error)}"))
        elif field.required:
            problems.append(Problem(location, f"the option {option!r} is missing"))
    try:
        return step_class(**values), problems
    except TypeError:  # a required option was invalid
        return _PLACEHOLDER_STEP, problems


_PLACEHOLDER_STEP: Final = ApplyStep(function=lambda rows: rows, stateful=False)


def describe_validation_error(error: msgspec.ValidationError) -> str:
    """Return msgspec's message after the path in the value: `[0].to: expected 'str', got 'int'`."""
    message, _, path = str(error).partition(" - at `$")
    message = (message[:1].lower() + message[1:]).replace("`", "'")
    message = message.replace("object missing required field", "missing required field")
    return f"{path.rstrip('`')}: {message}"


def options_to_text(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Convert options to strings, as Spark takes them. Raises TypeError."""
    return {name: option_to_text(value) for name, value in options.items()}


def option_to_text(value: OptionValue) -> str:
    """Convert an option to a string: lists are joined by commas, tables become JSON. Raises TypeError."""
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case date():  # or datetime; TOML and YAML have both
            return value.isoformat()
        case Mapping():
            return msgspec.json.encode(value).decode()
        case Sequence():
            return ",".join(map(str, value))
        case _:
            raise TypeError(f"{value!r} is not a string, number, time, list or table")
