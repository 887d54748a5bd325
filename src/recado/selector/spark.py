"""A tree as Spark SQL: a text for `DataFrame.where`, `expr` or a query. It needs no Spark to be written.

Texts of the selector are in it as string literals if they are plain, else as bytes: however a session reads
escapes and variables in literals, they mean the same, and nothing in them ends the literal. Numbers are
doubles, so neither ANSI mode nor decimals change a result. JSON is read as Spark's variant, which keeps apart
the number 1 and the text "1"; that takes Spark 4. Its parser stops behind the first value and ignores what
follows, so a document is put into an array with a number behind it that depends on all of it: only if that is
found was all of it read.
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
"""The columns of an archive's table, as SQL; its headers and properties are bytes that Spark cannot read."""

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
    """The selector as a condition of Spark SQL. `columns` says what stands for each field that there is: a
    text, a number, bytes for the body, and for the headers a text that is JSON.

    A selector that names another is a `SelectorError`.
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
            case Comparison(sign, left, right):
                return f"({self._compile_value(left)} {sign} {self._compile_value(right)})"
            case InList(value, choices, wanted):
                operand = self._compile_value(value)
                if value.value_type is ValueType.NUMBER:
                    # Many choices are looked up by their bits, in which 0 and -0 differ; -0 + 0 is 0.
                    operand = f"({operand} + 0.0D)"
                among = ", ".join(_literal_sql(each) for each in choices)
                return f"({operand} {'' if wanted else 'NOT '}IN ({among}))"
            case Like(value, pattern, wanted):
                like = f"LIKE {_text_sql(pattern.to_text(_ESCAPE))} ESCAPE '{_ESCAPE}'"
                return f"({self._compile_value(value)} {'' if wanted else 'NOT '}{like})"
            case IsNull(value, wanted):
                return f"({self._compile_value(value)} IS {'' if wanted else 'NOT '}NULL)"
            case _:
                return (
                    f"({self._compile_value(condition.value)} = {_literal_sql(condition.wanted)})"
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
            case Arithmetic(sign, left, right):
                return (
                    f"({self._compile_arithmetic(left)} {sign} {self._compile_arithmetic(right)})"
                )
            case _:
                return self._compile_nested_field(value)

    def _compile_field(self, field: MessageField) -> str:
        column = self._find_column(field.name, field.offset)
        if field.name == BODY_FIELD:
            return _body_text_sql(column)
        if field.value_type is ValueType.NUMBER:
            return f"CAST({column} AS DOUBLE)"
        return column

    def _compile_nested_field(self, member: NestedField) -> str:
        if member.source == JSON_FIELD:
            text = _body_text_sql(self._find_column(BODY_FIELD, member.offset))
        else:
            text = self._find_column(HEADERS_FIELD, member.offset)
        path = _variant_path(member.path)
        test = f"schema_of_variant(try_variant_get(v, {path}, 'variant')) {_TYPE_TESTS[member.value_type]}"
        if member.value_type is ValueType.ANY:
            found = "TRUE"  # of what is there only IS NULL is asked
        else:
            found = f"try_variant_get(v, {path}, '{_SQL_TYPES[member.value_type]}')"
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

    def _find_column(self, name: str, at: int) -> str:
        if name not in self._columns:
            known = ", ".join(
                each for each in (*FIELD_TYPES, HEADERS_FIELD) if each in self._columns
            )
            raise SelectorError(
                self._text, at, f"{name} is no column of this table; there are {known}"
            )
        return self._columns[name]


def _body_text_sql(column: str) -> str:
    """Bytes as text, where they are that (V1 of `values`)."""
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
    """The way to a field of the document, which is the first of two elements: see `_let_sql`."""
    if all(map(_NAME_PATTERN.fullmatch, names)):
        return f"'$[0].{'.'.join(names)}'"
    return _text_sql("$[0]" + "".join(f'["{name}"]' for name in names))


def _let_sql(name: str, value: str, expression: str) -> str:
    """An expression in which a name stands for a value, so that a body is read once."""
    return f"transform(array({value}), {name} -> {expression})[0]"
