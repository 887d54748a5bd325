"""The steps of a pipeline as data. `recado.pipeline.steps` applies them to rows.

The fields are the keys of a file: `[[steps]]`, `step = "filter"`, `where = "price > 0"`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

MissingPolicy = Literal["dead_letter", "keep", "drop"]


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="step", forbid_unknown_fields=True):
    """The options that all steps have."""

    name: str = ""
    """Shown in dead letters beside the number of the step."""


class JsonField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field of a JSON body with another name than the column, or nested in another field."""

    type: str
    path: str


class Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition, and the sink for the rows that match it."""

    to: str
    where: str = ""
    selector: str = ""


class TranslateStep(Step, frozen=True, kw_only=True, tag="translate"):
    """Change the columns of a row, in this order: `json`, `compute`, `rename`, `select`, `body`."""

    json: dict[str, str | JsonField] = {}
    """Fields of the JSON body and their types; `long?` is optional."""
    extra: Literal["ignore", "refuse"] = "ignore"
    """What to do with a body that has other fields than those of `json`."""
    compute: dict[str, str] = {}
    """Columns computed by SQL; each may use those before it."""
    rename: dict[str, str] = {}
    select: tuple[str, ...] = ()
    """The columns to keep; empty: all."""
    body: tuple[str, ...] = ()
    """The columns to encode as the JSON body."""


class FilterStep(Step, frozen=True, kw_only=True, tag="filter"):
    """Pass only the rows that match."""

    where: str = ""
    selector: str = ""


class RouteStep(Step, frozen=True, kw_only=True, tag="route"):
    """Send a row to the sink of the first branch that matches; the other rows continue."""

    branches: tuple[Branch, ...]


class EnrichStep(Step, frozen=True, kw_only=True, tag="enrich"):
    """Add fields from the row of a lookup table that has the same key."""

    table: str
    on: tuple[str, ...]
    fields: tuple[str, ...] = ()
    """The fields to add; empty: all but the key."""
    missing: MissingPolicy = "dead_letter"


class SplitStep(Step, frozen=True, kw_only=True, tag="split"):
    """Make one row of each element of an array. The fields of struct elements become columns."""

    column: str
    index: str = ""
    """A column for the index of the element, from 0."""
    empty: MissingPolicy = "dead_letter"


class AggregateStep(Step, frozen=True, kw_only=True, tag="aggregate"):
    """Make one row per key, or per key and time window."""

    measures: dict[str, str]
    by: tuple[str, ...] = ()
    time: str = ""
    window: str = ""
    slide: str = ""
    late: str = ""
    """How long a window waits for late rows. Streams require it."""


class ResequenceStep(Step, frozen=True, kw_only=True, tag="resequence"):
    """Sort the rows of each key by a sequence number, without duplicates."""

    by: tuple[str, ...]
    sequence: str = "sequence"
    start: int = 1
    """The first number of each key."""
    wait: str = "10 seconds"
    """How long a stream waits for a missing number before it skips it."""


class DeduplicateStep(Step, frozen=True, kw_only=True, tag="deduplicate"):
    """Keep one of the rows with the same key."""

    by: tuple[str, ...]
    time: str = ""
    within: str = ""
    """How far apart in `time` a stream recognises duplicates. Streams require both."""


class WireTapStep(Step, frozen=True, kw_only=True, tag="wire_tap"):
    """Send a copy of each row to a sink; with a condition, of each matching row."""

    to: str
    where: str = ""
    selector: str = ""


class DeadLetterStep(Step, frozen=True, kw_only=True, tag="dead_letter"):
    """Make dead letters of the rows that match."""

    reason: str
    where: str = ""
    selector: str = ""


class ApplyStep(Step, frozen=True, kw_only=True, tag="apply"):
    """Call a function from DataFrame to DataFrame, given as a function or as `package.module:function`."""

    function: Any
    fields: dict[str, str] = {}
    """The columns of its result; without them, fields after this step are not checked before Spark runs."""
    stateful: bool = True
    """Whether the result depends on more than a single row, as with groups, joins and windows."""


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
    kind.__struct_config__.tag: kind  # type: ignore[misc]  # a tag could be a number; ours are strings
    for kind in (
        TranslateStep, FilterStep, RouteStep, EnrichStep, SplitStep, AggregateStep, ResequenceStep,
        DeduplicateStep, WireTapStep, DeadLetterStep, ApplyStep,
    )
}  # fmt: skip


def step_type(step: Step) -> str:
    """Return the type name of a step: `wire_tap`."""
    return str(step.__struct_config__.tag)


def step_label(number: int, step: Step) -> str:
    """Return the label of a step in messages: `step 2 (filter)`."""
    name = f", {step.name}" if step.name else ""
    return f"step {number} ({step_type(step)}{name})"


def is_stateful(step: AnyStep) -> bool:
    """Whether the result of a step can depend on other rows than the current one.

    Such a step is part of the streaming query itself, because these rows can be in earlier batches.
    """
    if isinstance(step, ApplyStep):
        return step.stateful
    return isinstance(step, AggregateStep | ResequenceStep | DeduplicateStep)
