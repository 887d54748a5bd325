"""Translate a selector to Spark SQL: a condition for `DataFrame.where`, `expr` or a query. This module does not
import Spark.

Texts of harmless characters become string literals, all others hexadecimal literals. So they have the same
meaning under every session setting for escapes and variables, and no text can end its literal. Numbers are
doubles, so neither ANSI mode nor decimals change a result. JSON is parsed as Spark's variant type, which
distinguishes the number 1 and the text "1" and needs Spark 4. Spark's JSON parser stops after the first value
and ignores trailing bytes. To detect them, the text t is parsed as the array `[t,hash(t)]`; the document is
valid only if the second element is that hash.
"""

import re
from collections.abc import Mapping
from typing import Final

from .errors import SelectorError
from .fields import BODY_FIELD, FIELD_TYPES, HEADERS_FIELD, JSON_FIELD
from .tree import (
    And,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    InList,
    IsNull,
    Like,
    MessageField,
    Negate,
    NestedField,
    Or,
    Selector,
    Value,
    ValueType,
)
from .values import MAX_BODY_BYTES

ARCHIVE_COLUMNS: Final[dict[str, str]] = {
    "exchange": "`exchange`",
    "routing_key": "`routing_key`",
    "message_id": "`message_id`",
    "publisher": "`publisher`",
    "sequence": "`sequence`",
    "offset": "`offset`",
    "timestamp": "unix_micros(`timestamp`) / 1e6D",
    BODY_FIELD: "`body`",
}
"""The fields that the table of an archive has columns for, as SQL. Its columns `headers` and `properties` contain
encoded bytes that Spark cannot decode, so selectors cannot use their fields."""

_PLAIN_TEXT_PATTERN: Final = re.compile(r"[A-Za-z0-9 _.,:;@%!?+*=<>()|-]*")
_NAME_PATTERN: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_ESCAPE: Final = "!"
_NULL_DOUBLE: Final = "CAST(NULL AS DOUBLE)"
_SQL_TYPES: Final = {
    ValueType.NUMBER: "double",
    ValueType.TEXT: "string",
    ValueType.BOOLEAN: "boolean",
}
_TYPE_TESTS: Final = {
    ValueType.NUMBER: "RLIKE '^(BIGINT|DOUBLE|DECIMAL)'",
    ValueType.TEXT: "= 'STRING'",
    ValueType.BOOLEAN: "= 'BOOLEAN'",
    ValueType.ANY: "<> 'VOID'",
}


def to_spark_sql(selector: Selector, columns: Mapping[str, str] = ARCHIVE_COLUMNS) -> str:
    """Return the selector as a condition of Spark SQL.

    `columns` maps field names to SQL expressions: a string, a number, binary for `body`, and a JSON string for
    `headers`. Raises `SelectorError` if the selector uses another field.
    """
    return _SparkSqlCompiler(selector.text, columns).compile_condition(selector.condition)


class _SparkSqlCompiler:
    def __init__(self, text: str, columns: Mapping[str, str]) -> None:
        self._text = text
        self._columns = columns

    # ── conditions ────────────────────────────────────────────────────────────────────────────────────

    def compile_condition(self, condition: Condition) -> str:
        match condition:
            case And(parts):
                return f"({' AND '.join(map(self.compile_condition, parts))})"
            case Or(parts):
                return f"({' OR '.join(map(self.compile_condition, parts))})"
            case Comparison(operator, left, right):
                return f"({self._compile_value(left)} {operator} {self._compile_value(right)})"
            case InList(value, choices, expected):
                operand = self._compile_value(value)
                if value.value_type is ValueType.NUMBER:
                    # For many choices Spark compares bits, in which 0 and -0 differ; -0 + 0 is 0.
                    operand = f"({operand} + 0.0D)"
                among = ", ".join(_literal_sql(each) for each in choices)
                return f"({operand} {'' if expected else 'NOT '}IN ({among}))"
            case Like(value, pattern, expected):
                like = f"LIKE {_text_sql(pattern.to_text(_ESCAPE))} ESCAPE '{_ESCAPE}'"
                return f"({self._compile_value(value)} {'' if expected else 'NOT '}{like})"
            case IsNull(value, expected):
                return f"({self._compile_value(value)} IS {'' if expected else 'NOT '}NULL)"
            case _:
                return (
                    f"({self._compile_value(condition.value)} = {_literal_sql(condition.expected)})"
                )

    # ── values ────────────────────────────────────────────────────────────────────────────────────────

    def _compile_value(self, value: Value) -> str:
        if value.value_type is ValueType.NUMBER and not isinstance(value, Constant):
            return f"nanvl({self._compile_arithmetic(value)}, {_NULL_DOUBLE})"
        return self._compile_arithmetic(value)

    def _compile_arithmetic(self, value: Value) -> str:
        match value:
            case Constant(constant):
                return _literal_sql(constant)
            case MessageField():
                return self._compile_field(value)
            case Negate(inner):
                return f"(- {self._compile_arithmetic(inner)})"
            case Arithmetic(operator, left, right):
                return f"({self._compile_arithmetic(left)} {operator} {self._compile_arithmetic(right)})"
            case _:
                return self._compile_nested_field(value)

    def _compile_field(self, field: MessageField) -> str:
        column = self._find_column(field.name, field.offset)
        if field.name == BODY_FIELD:
            return _body_text_sql(column)
        if field.value_type is ValueType.NUMBER:
            return f"CAST({column} AS DOUBLE)"
        return column

    def _compile_nested_field(self, field: NestedField) -> str:
        if field.source == JSON_FIELD:
            text = _body_text_sql(self._find_column(BODY_FIELD, field.offset))
        else:
            text = self._find_column(HEADERS_FIELD, field.offset)
        path = _variant_path(field.path)
        test = f"schema_of_variant(try_variant_get(v, {path}, 'variant')) {_TYPE_TESTS[field.value_type]}"
        if field.value_type is ValueType.ANY:
            found = "TRUE"  # used by IS NULL only
        else:
            found = f"try_variant_get(v, {path}, '{_SQL_TYPES[field.value_type]}')"
        whole = "try_variant_get(v, '$[1]', 'bigint') = xxhash64(t)"
        return _let_sql(
            "t",
            text,
            _let_sql(
                "v",
                "try_parse_json(concat('[', t, ',', xxhash64(t), ']'))",
                f"CASE WHEN {whole} AND {test} THEN {found} END",
            ),
        )

    def _find_column(self, name: str, offset: int) -> str:
        if name not in self._columns:
            known = ", ".join(
                each for each in (*FIELD_TYPES, HEADERS_FIELD) if each in self._columns
            )
            raise SelectorError(
                self._text, offset, f"the table has no column for {name}; it has {known}"
            )
        return self._columns[name]


def _body_text_sql(column: str) -> str:
    """Return SQL that converts bytes to text, NULL if they are not valid (SLV1 of `values`)."""
    text = f"try_validate_utf8(CAST({column} AS STRING))"
    return f"CASE WHEN octet_length({column}) <= {MAX_BODY_BYTES} THEN {text} END"


def _literal_sql(value: float | str | bool) -> str:
    match value:
        case bool():
            return str(value).upper()
        case float():
            return f"{value + 0.0!r}D"
        case _:
            return _text_sql(value)


def _text_sql(text: str) -> str:
    if _PLAIN_TEXT_PATTERN.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _variant_path(names: tuple[str, ...]) -> str:
    """Return the path of a field in the document, which is the first element of the array `[t,hash(t)]`."""
    if all(map(_NAME_PATTERN.fullmatch, names)):
        return f"'$[0].{'.'.join(names)}'"
    return _text_sql("$[0]" + "".join(f'["{name}"]' for name in names))


def _let_sql(name: str, value: str, expression: str) -> str:
    """Return SQL for `expression` with `name` bound to `value`, so that a body is decoded once."""
    return f"transform(array({value}), {name} -> {expression})[0]"
