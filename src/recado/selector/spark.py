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
from .fields import BODY, FIELDS, HEADERS, JSON
from .tree import (
    Arithmetic,
    Compare,
    Condition,
    Constant,
    Every,
    Field,
    In,
    IsNull,
    Kind,
    Like,
    Member,
    Negative,
    Selector,
    Some,
    Value,
)
from .values import MAX_BODY

ARCHIVE: Final[dict[str, str]] = {
    "exchange": "`exchange`",
    "routing_key": "`routing_key`",
    "message_id": "`message_id`",
    "publisher": "`publisher`",
    "sequence": "`sequence`",
    "offset": "`offset`",
    "timestamp": "unix_micros(`timestamp`) / 1e6D",
    BODY: "`body`",
}
"""The columns of an archive's table, as SQL; its headers and properties are bytes that Spark cannot read."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9 _.,:;@%!?+*=<>()|-]*")
_NAME: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_ESCAPE: Final = "!"
_NOTHING: Final = "CAST(NULL AS DOUBLE)"
_CASTS: Final = {Kind.NUMBER: "double", Kind.TEXT: "string", Kind.BOOLEAN: "boolean"}
_TESTS: Final = {
    Kind.NUMBER: "RLIKE '^(BIGINT|DOUBLE|DECIMAL)'",
    Kind.TEXT: "= 'STRING'",
    Kind.BOOLEAN: "= 'BOOLEAN'",
    Kind.ANY: "<> 'VOID'",
}


def spark_sql(selector: Selector, columns: Mapping[str, str] = ARCHIVE) -> str:
    """The selector as a condition of Spark SQL. `columns` says what stands for each field that there is: a
    text, a number, bytes for the body, and for the headers a text that is JSON.

    A selector that names another is a `SelectorError`.
    """
    return _Writer(selector.text, columns).condition(selector.condition)


class _Writer:
    def __init__(self, text: str, columns: Mapping[str, str]) -> None:
        self._text = text
        self._columns = columns

    # ── conditions ────────────────────────────────────────────────────────────────────────────────────

    def condition(self, condition: Condition) -> str:
        match condition:
            case Every(parts):
                return f"({' AND '.join(map(self.condition, parts))})"
            case Some(parts):
                return f"({' OR '.join(map(self.condition, parts))})"
            case Compare(sign, left, right):
                return f"({self._value(left)} {sign} {self._value(right)})"
            case In(value, choices, wanted):
                operand = self._value(value)
                if value.kind is Kind.NUMBER:
                    # Many choices are looked up by their bits, in which 0 and -0 differ; -0 + 0 is 0.
                    operand = f"({operand} + 0.0D)"
                among = ", ".join(_literal(each) for each in choices)
                return f"({operand} {'' if wanted else 'NOT '}IN ({among}))"
            case Like(value, pattern, wanted):
                like = f"LIKE {_text(pattern.written(_ESCAPE))} ESCAPE '{_ESCAPE}'"
                return f"({self._value(value)} {'' if wanted else 'NOT '}{like})"
            case IsNull(value, wanted):
                return f"({self._value(value)} IS {'' if wanted else 'NOT '}NULL)"
            case _:
                return f"({self._value(condition.value)} = {_literal(condition.wanted)})"

    # ── values ────────────────────────────────────────────────────────────────────────────────────────

    def _value(self, value: Value) -> str:
        if value.kind is Kind.NUMBER and not isinstance(value, Constant):
            return f"nanvl({self._computed(value)}, {_NOTHING})"
        return self._computed(value)

    def _computed(self, value: Value) -> str:
        match value:
            case Constant(constant):
                return _literal(constant)
            case Field():
                return self._field(value)
            case Negative(inner):
                return f"(- {self._computed(inner)})"
            case Arithmetic(sign, left, right):
                return f"({self._computed(left)} {sign} {self._computed(right)})"
            case _:
                return self._member(value)

    def _field(self, field: Field) -> str:
        column = self._column(field.name, field.at)
        if field.name == BODY:
            return _body(column)
        if field.kind is Kind.NUMBER:
            return f"CAST({column} AS DOUBLE)"
        return column

    def _member(self, member: Member) -> str:
        if member.source == JSON:
            text = _body(self._column(BODY, member.at))
        else:
            text = self._column(HEADERS, member.at)
        path = _path(member.path)
        test = f"schema_of_variant(try_variant_get(v, {path}, 'variant')) {_TESTS[member.kind]}"
        if member.kind is Kind.ANY:
            found = "TRUE"  # of what is there only IS NULL is asked
        else:
            found = f"try_variant_get(v, {path}, '{_CASTS[member.kind]}')"
        whole = "try_variant_get(v, '$[1]', 'bigint') = xxhash64(t)"
        return _with(
            "t",
            text,
            _with(
                "v",
                "try_parse_json(concat('[', t, ',', xxhash64(t), ']'))",
                f"CASE WHEN {whole} AND {test} THEN {found} END",
            ),
        )

    def _column(self, name: str, at: int) -> str:
        if name not in self._columns:
            known = ", ".join(each for each in (*FIELDS, HEADERS) if each in self._columns)
            raise SelectorError(
                self._text, at, f"{name} is no column of this table; there are {known}"
            )
        return self._columns[name]


def _body(column: str) -> str:
    """Bytes as text, where they are that (V1 of `values`)."""
    text = f"try_validate_utf8(CAST({column} AS STRING))"
    return f"CASE WHEN octet_length({column}) <= {MAX_BODY} THEN {text} END"


def _literal(value: float | str | bool) -> str:
    match value:
        case bool():
            return str(value).upper()
        case float():
            return f"{value + 0.0!r}D"
        case _:
            return _text(value)


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return f"'{text}'"
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _path(names: tuple[str, ...]) -> str:
    """The way to a field of the document, which is the first of two elements: see `_with`."""
    if all(map(_NAME.fullmatch, names)):
        return f"'$[0].{'.'.join(names)}'"
    return _text("$[0]" + "".join(f'["{name}"]' for name in names))


def _with(name: str, value: str, expression: str) -> str:
    """An expression in which a name stands for a value, so that a body is read once."""
    return f"transform(array({value}), {name} -> {expression})[0]"
