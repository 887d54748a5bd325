"""Compile row conditions to Spark SQL: SQL itself, or a selector on rows that are messages.

A selector names the fields of a message, which are looked up among the columns. Headers are a map of strings in
which numbers are encoded as JSON, so a header is converted to the type that it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from recado.selector import Selector, SelectorError, parse, to_spark_sql
from recado.selector.fields import FIELD_TYPES
from recado.selector.tree import (
    And,
    Arithmetic,
    BooleanTest,
    Comparison,
    Condition,
    Constant,
    MessageField,
    Negate,
    NestedField,
    Or,
    Value,
    ValueType,
)

from .expression import ExpressionError, is_safe
from .fields import NUMERIC_TYPES, Fields, base_type, struct_members
from .problems import quote_excerpt
from .satisfiability import is_unsatisfiable

_NUMBER_PATTERN: Final = r"^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?$"


class RowCondition(msgspec.Struct, frozen=True):
    """Spark SQL that is true for the matching rows, and whether it can fail on a row."""

    sql: str
    can_fail: bool


def compile_condition(where: str, selector: str, fields: Fields) -> RowCondition:
    """Compile `where` or `selector`, exactly one of which is set. Raises ExpressionError."""
    if bool(where) == bool(selector):
        raise ExpressionError(
            "exactly one of where and selector is required", "where is SQL on the columns"
        )
    if where:
        return RowCondition(f"({where})", not is_safe(where, fields))
    try:
        parsed = parse(selector)
        sql = _selector_sql(parsed, fields)
    except SelectorError as error:
        raise ExpressionError(f"the selector {quote_excerpt(selector)}: {error.summary}") from None
    if is_unsatisfiable(parsed):
        raise ExpressionError(f"the selector {quote_excerpt(selector)} can never be true")
    return RowCondition(sql, False)


def _selector_sql(selector: Selector, fields: Fields) -> str:
    headers: dict[str, str] = {}
    changed = Selector(selector.text, _replace_headers(selector, selector.condition, headers))
    columns = dict(_column_sql(fields))
    if headers and base_type(fields.type_of("headers")) not in ("map", None):
        raise SelectorError(selector.text, 0, "headers are not a map of strings here")
    if headers and "headers" not in fields and not fields.is_open:
        raise SelectorError(selector.text, 0, "these rows have no headers")
    try:
        return to_spark_sql(changed, {**columns, **headers})
    except SelectorError as error:
        known = [name for name in columns if name in FIELD_TYPES]
        if not known:
            raise SelectorError(
                selector.text, 0, "these rows are not messages: use where"
            ) from None
        raise error


def _column_sql(fields: Fields) -> Iterator[tuple[str, str]]:
    """Yield each message field that is available with a fitting type, and its SQL."""
    properties = struct_members(fields.type_of("properties")) or {}
    for name, kind in FIELD_TYPES.items():
        found = fields.type_of(name)
        if name in fields and _type_fits(name, base_type(found), kind):
            is_time = name == "timestamp"
            yield name, "unix_micros(`timestamp`) / 1e6D" if is_time else f"`{name}`"
        elif name in properties:
            yield name, f"`properties`.`{name}`"
        elif fields.is_open:
            yield name, f"`{name}`"


def _type_fits(name: str, found: str | None, kind: ValueType) -> bool:
    if found is None:
        return True
    if name == "body":
        return found in ("binary", "string")
    if name == "timestamp":
        return found == "timestamp"
    return found in NUMERIC_TYPES if kind is ValueType.NUMBER else found == "string"


def _replace_headers(selector: Selector, node: Condition, headers: dict[str, str]) -> Condition:
    """Replace each header by a field of its own, and add the field's SQL to `headers`."""

    def of_value(value: Value) -> Value:
        match value:
            case NestedField("headers", path, kind, at):
                if len(path) > 1:
                    raise SelectorError(
                        selector.text,
                        at,
                        "nested headers are only supported by the selector of a source",
                    )
                name = f"headers.{path[0]} {kind.name}"
                headers[name] = _header_sql(path[0], kind)
                return MessageField(name, kind, at)
            case Arithmetic(sign, left, right, at):
                return Arithmetic(sign, of_value(left), of_value(right), at)
            case Negate(inner, at):
                return Negate(of_value(inner), at)
            case _:
                return value

    def of(part: Condition) -> Condition:
        match part:
            case And(parts):
                return And(tuple(map(of, parts)))
            case Or(parts):
                return Or(tuple(map(of, parts)))
            case Comparison(sign, left, right):
                return Comparison(sign, of_value(left), of_value(right))
            case BooleanTest(NestedField("headers", _, _, at) as member, wanted):
                return Comparison("=", of_value(member), Constant(wanted, at))
            case BooleanTest():
                return part
            case _:
                return msgspec.structs.replace(part, value=of_value(part.value))

    return of(node)


def _header_sql(name: str, kind: ValueType) -> str:
    hex_name = name.encode().hex()  # needs no escaping in SQL
    text = f"`headers`[CAST(X'{hex_name}' AS STRING)]"
    match kind:
        case ValueType.NUMBER:
            return f"CASE WHEN {text} RLIKE '{_NUMBER_PATTERN}' THEN TRY_CAST({text} AS DOUBLE) END"
        case ValueType.BOOLEAN:
            return f"CASE {text} WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END"
        case _:
            return text
