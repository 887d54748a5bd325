"""The steps of a pipeline, as data. What each does to rows is in `pipeline/steps`; here is how it is said.

The fields are the keys of a file: `[[steps]]`, `step = "filter"`, `where = "price > 0"`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MissingPolicy = Literal["dead_letter", "keep", "drop"]


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="step", forbid_unknown_fields=True):
    name: str = ""
    """Told with dead letters, beside the number of the step."""


class JsonField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field of a JSON body whose name is another, or that is inside another."""

    type: str
    path: str


class Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a router sends rows, and which."""

    to: str
    where: str = ""
    selector: str = ""


class TranslateStep(Step, frozen=True, kw_only=True, tag="translate"):
    """Other columns of the same row: first `json`, then `compute`, `rename`, `select`, `body`."""

    json: dict[str, str | JsonField] = {}
    """Fields of the body, and their types; `long?` may be missing."""
    extra: Literal["ignore", "refuse"] = "ignore"
    """What of a body that has other fields than those of `json`."""
    compute: dict[str, str] = {}
    """Columns by SQL, each of which may use those before it."""
    rename: dict[str, str] = {}
    select: tuple[str, ...] = ()
    """The only columns that stay."""
    body: tuple[str, ...] = ()
    """Columns that become the body, as JSON."""


class FilterStep(Step, frozen=True, kw_only=True, tag="filter"):
    """Only rows of which it is true go on."""

    where: str = ""
    selector: str = ""


class RouteStep(Step, frozen=True, kw_only=True, tag="route"):
    """A row goes the first way of which it is true; the others go on."""

    ways: tuple[Branch, ...]


class EnrichStep(Step, frozen=True, kw_only=True, tag="enrich"):
    """Fields of a table, of the row in it that has the same key."""

    table: str
    on: tuple[str, ...]
    fields: tuple[str, ...] = ()
    """All but the key, if none is named."""
    missing: MissingPolicy = "dead_letter"


class SplitStep(Step, frozen=True, kw_only=True, tag="split"):
    """A row for each element of an array. The fields of an element that is a struct become columns."""

    column: str
    index: str = ""
    """A column for the place of the element, from 0."""
    empty: MissingPolicy = "dead_letter"


class AggregateStep(Step, frozen=True, kw_only=True, tag="aggregate"):
    """One row for each key, or for each key and window of time."""

    measures: dict[str, str]
    by: tuple[str, ...] = ()
    time: str = ""
    window: str = ""
    slide: str = ""
    late: str = ""
    """How long a window waits for rows that are late. A stream needs it."""


class ResequenceStep(Step, frozen=True, kw_only=True, tag="resequence"):
    """Rows of one key in the order of a number, each number once."""

    by: tuple[str, ...]
    sequence: str = "sequence"
    start: int = 1
    """The first number of each key."""
    wait: str = "10 seconds"
    """How long a stream waits for a number that is missing before it goes on without it."""


class DeduplicateStep(Step, frozen=True, kw_only=True, tag="deduplicate"):
    """Of rows with the same key, one."""

    by: tuple[str, ...]
    time: str = ""
    within: str = ""
    """How far apart, in `time`, a stream finds the same row again. A stream needs both."""


class WireTapStep(Step, frozen=True, kw_only=True, tag="wire_tap"):
    """A copy of each row as it is here, for a sink."""

    to: str
    where: str = ""
    selector: str = ""


class DeadLetterStep(Step, frozen=True, kw_only=True, tag="dead_letter"):
    """Rows of which it is true are dead letters."""

    reason: str
    where: str = ""
    selector: str = ""


class ApplyStep(Step, frozen=True, kw_only=True, tag="apply"):
    """A function from DataFrame to DataFrame, or its place: `package.module:function`."""

    function: Any
    fields: dict[str, str] = {}
    """The columns of its result; without them no field behind it is checked before Spark runs."""
    remembers: bool = True
    """Whether it looks at more than one row, or one batch: groups, joins, windows."""


AnyStep = (
    TranslateStep
    | FilterStep
    | RouteStep
    | EnrichStep
    | SplitStep
    | AggregateStep
    | ResequenceStep
    | DeduplicateStep
    | WireTapStep
    | DeadLetterStep
    | ApplyStep
)

STEP_CLASSES: dict[str, type[AnyStep]] = {
    kind.__struct_config__.tag: kind  # type: ignore[misc]  # a tag may be a number; ours are texts
    for kind in (
        TranslateStep, FilterStep, RouteStep, EnrichStep, SplitStep, AggregateStep, ResequenceStep, DeduplicateStep, WireTapStep, DeadLetterStep,
        ApplyStep,
    )
}  # fmt: skip


def step_type(step: Step) -> str:
    """What a step is called: `wire_tap`."""
    return str(step.__struct_config__.tag)


def step_label(number: int, step: Step) -> str:
    """As people find it: `step 2 (filter)`."""
    name = f", {step.name}" if step.name else ""
    return f"step {number} ({step_type(step)}{name})"


def is_stateful(step: AnyStep) -> bool:
    """Whether it remembers rows of earlier batches, or may: then it is part of the stream itself."""
    if isinstance(step, ApplyStep):
        return step.remembers
    return isinstance(step, AggregateStep | ResequenceStep | DeduplicateStep)
