"""The steps of a pipeline, as data. What each does to rows is in `pipeline/steps`; here is how it is said.

The fields are the keys of a file: `[[steps]]`, `step = "filter"`, `where = "price > 0"`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Missing = Literal["dead_letter", "keep", "drop"]


class Step(msgspec.Struct, frozen=True, kw_only=True, tag_field="step", forbid_unknown_fields=True):
    name: str = ""
    """Told with dead letters, beside the number of the step."""


class JsonField(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field of a JSON body whose name is another, or that is inside another."""

    type: str
    path: str


class Way(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a router sends rows, and which."""

    to: str
    where: str = ""
    selector: str = ""


class Translate(Step, frozen=True, kw_only=True, tag="translate"):
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


class Filter(Step, frozen=True, kw_only=True, tag="filter"):
    """Only rows of which it is true go on."""

    where: str = ""
    selector: str = ""


class Route(Step, frozen=True, kw_only=True, tag="route"):
    """A row goes the first way of which it is true; the others go on."""

    ways: tuple[Way, ...]


class Enrich(Step, frozen=True, kw_only=True, tag="enrich"):
    """Fields of a table, of the row in it that has the same key."""

    table: str
    on: tuple[str, ...]
    fields: tuple[str, ...] = ()
    """All but the key, if none is named."""
    missing: Missing = "dead_letter"


class Split(Step, frozen=True, kw_only=True, tag="split"):
    """A row for each element of an array. The fields of an element that is a struct become columns."""

    column: str
    index: str = ""
    """A column for the place of the element, from 0."""
    empty: Missing = "dead_letter"


class Aggregate(Step, frozen=True, kw_only=True, tag="aggregate"):
    """One row for each key, or for each key and window of time."""

    measures: dict[str, str]
    by: tuple[str, ...] = ()
    time: str = ""
    window: str = ""
    slide: str = ""
    late: str = ""
    """How long a window waits for rows that are late. A stream needs it."""


class Resequence(Step, frozen=True, kw_only=True, tag="resequence"):
    """Rows of one key in the order of a number, each number once."""

    by: tuple[str, ...]
    sequence: str = "sequence"
    start: int = 1
    """The first number of each key."""
    wait: str = "10 seconds"
    """How long a stream waits for a number that is missing before it goes on without it."""


class Deduplicate(Step, frozen=True, kw_only=True, tag="deduplicate"):
    """Of rows with the same key, one."""

    by: tuple[str, ...]
    time: str = ""
    within: str = ""
    """How far apart, in `time`, a stream finds the same row again. A stream needs both."""


class WireTap(Step, frozen=True, kw_only=True, tag="wire_tap"):
    """A copy of each row as it is here, for a sink."""

    to: str
    where: str = ""
    selector: str = ""


class DeadLetter(Step, frozen=True, kw_only=True, tag="dead_letter"):
    """Rows of which it is true are dead letters."""

    reason: str
    where: str = ""
    selector: str = ""


class Apply(Step, frozen=True, kw_only=True, tag="apply"):
    """A function from DataFrame to DataFrame, or its place: `package.module:function`."""

    function: Any
    fields: dict[str, str] = {}
    """The columns of its result; without them no field behind it is checked before Spark runs."""
    remembers: bool = True
    """Whether it looks at more than one row, or one batch: groups, joins, windows."""


AnyStep = (
    Translate
    | Filter
    | Route
    | Enrich
    | Split
    | Aggregate
    | Resequence
    | Deduplicate
    | WireTap
    | DeadLetter
    | Apply
)

STEPS: dict[str, type[AnyStep]] = {
    kind.__struct_config__.tag: kind  # type: ignore[misc]  # a tag may be a number; ours are texts
    for kind in (
        Translate, Filter, Route, Enrich, Split, Aggregate, Resequence, Deduplicate, WireTap, DeadLetter,
        Apply,
    )
}  # fmt: skip


def word(step: Step) -> str:
    """What a step is called: `wire_tap`."""
    return str(step.__struct_config__.tag)


def label(number: int, step: Step) -> str:
    """As people find it: `step 2 (filter)`."""
    name = f", {step.name}" if step.name else ""
    return f"step {number} ({word(step)}{name})"


def is_stateful(step: AnyStep) -> bool:
    """Whether it remembers rows of earlier batches, or may: then it is part of the stream itself."""
    if isinstance(step, Apply):
        return step.remembers
    return isinstance(step, Aggregate | Resequence | Deduplicate)
