"""translate: change the columns of a row.

The body is parsed once, to Spark's variant type, and each field is extracted with its type. The first problem
of a row is written to a column of reasons, so that all checks of a step need one pass.

The reason depends on `spark_partition_id()`, which keeps Spark from moving it. Otherwise Spark would push
filters of later steps below this one, each with a copy of the expressions it needs, and parse every body many
times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from ..definition.expression import is_safe
from ..definition.fields import array_element_type, parse_type, split_top_level, struct_members
from ..definition.step import JsonField, TranslateStep
from .flow import (
    REASON_COLUMN,
    Flow,
    StepContext,
    columns,
    fields_of_rows,
    make_dead_letters,
    quote_name,
)
from .safe_sql import failure_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW_COLUMN: Final = "__row"
_TEXT_COLUMN: Final = "__text"
_VARIANT_COLUMN: Final = "__variant"  # the body, parsed to Spark's variant type
_FAILS_COLUMN: Final = "__fails"
_EXCERPT_CHARACTER_COUNT: Final = 80
_DOUBLE_MAX_SQL: Final = "1.7976931348623157E308D"  # the largest double
_BARRIER_CASE: Final = "WHEN spark_partition_id() < 0 THEN ''"
"""Never true; but Spark does not know that, and does not move expressions that contain it."""


def apply_translate(step: TranslateStep, flow: Flow, context: StepContext) -> Flow:
    rows = flow.rows
    dead_letters = None
    # Types of computed columns are not known here, so only the first expression can be judged.
    can_fail = bool(step.json) or len(step.compute) > 1
    can_fail = can_fail or any(
        not is_safe(sql, fields_of_rows(rows)) for sql in step.compute.values()
    )
    if can_fail:
        rows = rows.select(
            f.struct(*columns(rows.columns)).alias(_ROW_COLUMN),
            f.lit(None).cast("string").alias(REASON_COLUMN),
            *columns(rows.columns),
        )
    if step.json:
        rows = _add_json_fields(step, rows)
    for name, sql in step.compute.items():
        rows = _add_computed(name, sql, rows)
    if can_fail:
        dead_letters = make_dead_letters(
            context,
            rows.where(f"{REASON_COLUMN} IS NOT NULL").select(f"{_ROW_COLUMN}.*", REASON_COLUMN),
        )
        rows = rows.where(f"{REASON_COLUMN} IS NULL").drop(_ROW_COLUMN, REASON_COLUMN)
    if step.rename:  # all at once, so that two columns can swap names
        names = {old.lower(): new for old, new in step.rename.items()}
        rows = rows.toDF(*(names.get(name.lower(), name) for name in rows.columns))
    if step.select:
        rows = rows.select(*columns(step.select))
    if step.body:
        encoded = f.to_json(f.struct(*columns(step.body))).cast("binary")
        rows = rows.withColumn("body", encoded)
    return flow.with_rows(rows, dead_letters)


def _add_json_fields(step: TranslateStep, rows: DataFrame) -> DataFrame:
    body = (
        "`body`" if fields_of_rows(rows).type_of("body") == "string" else "CAST(`body` AS STRING)"
    )
    rows = rows.withColumn(_TEXT_COLUMN, f.expr(f"try_validate_utf8({body})"))
    # Spark's JSON parser ignores text after the first value. So the body is wrapped as `[body, hash of body]`:
    # the body is one complete JSON value only if the second element is the hash.
    parse_sql = f"try_parse_json(concat('[', {_TEXT_COLUMN}, ',', xxhash64({_TEXT_COLUMN}), ']'))"
    rows = rows.withColumn(_VARIANT_COLUMN, f.expr(parse_sql))
    body_reason = (
        f"CASE WHEN `body` IS NULL THEN 'the body is NULL' WHEN {_TEXT_COLUMN} IS NULL THEN 'the body "
        f"is not UTF-8' WHEN coalesce(try_variant_get({_VARIANT_COLUMN}, '$[1]', 'bigint') <> "
        f"xxhash64({_TEXT_COLUMN}), TRUE) THEN 'the body is not JSON' WHEN NOT "
        f"startswith(schema_of_variant(try_variant_get({_VARIANT_COLUMN}, '$[0]', 'variant')), "
        "'OBJECT') THEN 'the body is not a JSON object' END"
    )
    reasons = [body_reason]
    if step.extra == "refuse":
        known = ", ".join(
            _text_literal(_json_path(name, spec)[0]) for name, spec in step.json.items()
        )
        extra_fields = f"array_except(json_object_keys({_TEXT_COLUMN}), array({known}))"
        prefix = "'unexpected field: '"
        reasons.append(
            f"CASE WHEN size({extra_fields}) > 0 THEN concat({prefix}, ({extra_fields})[0]) END"
        )
    values = {}
    for index, (name, spec) in enumerate(step.json.items()):
        declared = spec.type if isinstance(spec, JsonField) else spec
        kind = parse_type(declared.removesuffix("?"))
        path = _text_literal("$[0]" + "".join(f'["{part}"]' for part in _json_path(name, spec)))
        value = f"__value_{index}"
        values[value] = f.expr(f"try_variant_get({_VARIANT_COLUMN}, {path}, '{kind}')")
        found = f"try_variant_get({_VARIANT_COLUMN}, {path}, 'variant')"
        is_present = f"coalesce(schema_of_variant({found}), 'VOID') <> 'VOID'"
        excerpt = f"left(to_json({found}), {_EXCERPT_CHARACTER_COUNT})"
        wrong_type = f"concat({_text_literal(f'{name} is not of type {kind}: ')}, {excerpt})"
        missing = "NULL" if declared.endswith("?") else _text_literal(f"{name} is missing")
        infinite = (
            f"WHEN {condition} THEN concat({_text_literal(f'{name} is not a finite number: ')}, {excerpt})"
            if (condition := _infinite_sql(value, kind, found))
            else ""
        )
        reasons.append(
            f"CASE WHEN {value} IS NULL THEN IF({is_present}, {wrong_type}, {missing}) {infinite} END"
        )
    rows = rows.withColumns(values)
    rows = rows.withColumn(
        REASON_COLUMN, f.expr(f"CASE {_BARRIER_CASE} ELSE coalesce({', '.join(reasons)}) END")
    )
    found_values = {name: f.col(value) for name, value in zip(step.json, values, strict=True)}
    return rows.withColumns(found_values).drop(_TEXT_COLUMN, _VARIANT_COLUMN, *values)


def _infinite_sql(value: str, kind: str, variant: str = "", depth: int = 0) -> str:
    """Return SQL that is true if a number in the value is infinite or NaN; empty for other types.

    JSON has no such numbers, but Spark reads `1e400` as infinite, and strings such as "NaN" as numbers.
    `variant` is SQL of the variant from which the value was extracted; empty for values nested in it.
    """
    if kind in ("double", "float"):
        # In Spark, NaN is larger than any number.
        return f"NOT ({value} BETWEEN -{_DOUBLE_MAX_SQL} AND {_DOUBLE_MAX_SQL})"
    if kind == "string" and variant:
        return f"({value} IN ('Infinity', '-Infinity') AND schema_of_variant({variant}) = 'DOUBLE')"
    each = f"__each_{depth}"
    if inner := array_element_type(kind):
        found = _infinite_sql(each, inner, depth=depth + 1)
        return found and f"exists({value}, {each} -> {found})"
    if kind.startswith("map<"):
        found = _infinite_sql(each, split_top_level(kind[len("map<") : -1])[1], depth=depth + 1)
        return found and f"exists(map_values({value}), {each} -> {found})"
    parts = [
        _infinite_sql(f"{value}.{quote_name(name)}", inner, depth=depth + 1)
        for name, inner in (struct_members(kind) or {}).items()
    ]
    return " OR ".join(f"({part})" for part in parts if part)


def _add_computed(name: str, sql: str, rows: DataFrame) -> DataFrame:
    fields = fields_of_rows(rows)
    if is_safe(sql, fields):
        return rows.withColumn(name, f.expr(sql))
    message = _text_literal(f"evaluation of {name} failed: {sql}")
    rows = rows.withColumn(_FAILS_COLUMN, f.expr(f"{REASON_COLUMN} IS NULL AND {failure_sql(sql)}"))
    value = f.expr(f"CASE WHEN {REASON_COLUMN} IS NULL AND NOT {_FAILS_COLUMN} THEN ({sql}) END")
    reason = f.expr(
        f"CASE {_BARRIER_CASE} WHEN {_FAILS_COLUMN} THEN {message} ELSE {REASON_COLUMN} END"
    )
    return rows.withColumns({name: value, REASON_COLUMN: reason}).drop(_FAILS_COLUMN)


def _json_path(name: str, spec: str | JsonField) -> list[str]:
    return spec.path.split(".") if isinstance(spec, JsonField) else [name]


def _text_literal(text: str) -> str:
    """Return SQL of a string constant. It is in hexadecimal, so nothing in the text needs escaping."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
