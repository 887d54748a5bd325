"""Which rows are meant: a condition of Spark SQL, or a selector on rows that are messages.

A selector names the fields of a message; which of them there are is told by the columns. Headers are a map of
texts there, in which a number is its JSON: so a header is read as what it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from recado.selector import Selector, SelectorError, parse, spark_sql
from recado.selector.fields import FIELDS
from recado.selector.tree import (
    Arithmetic,
    Compare,
    Condition,
    Constant,
    Every,
    Field,
    Is,
    Kind,
    Member,
    Negative,
    Some,
    Value,
)

from .expression import BadExpression, is_safe
from .fields import NUMBERS, Fields, members, plain
from .impossible import is_impossible
from .problems import shown

_NUMBER: Final = r"^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][-+]?[0-9]+)?$"


class Chosen(msgspec.Struct, frozen=True):
    """Spark SQL that is true of the rows that are meant, and whether it can fail."""

    sql: str
    can_fail: bool


def condition(where: str, selector: str, fields: Fields) -> Chosen:
    """What `where` or `selector` say. Raises BadExpression."""
    if bool(where) == bool(selector):
        raise BadExpression("one of where and selector is needed", "where is SQL on the columns")
    if where:
        return Chosen(f"({where})", not is_safe(where, fields))
    try:
        parsed = parse(selector)
        sql = _sql(parsed, fields)
    except SelectorError as error:
        raise BadExpression(f"the selector {shown(selector)}: {error.brief}") from None
    if is_impossible(parsed):
        raise BadExpression(f"the selector {shown(selector)} can never be true")
    return Chosen(sql, False)


def _sql(selector: Selector, fields: Fields) -> str:
    headers: dict[str, str] = {}
    changed = Selector(selector.text, _without_headers(selector, selector.condition, headers))
    columns = dict(_columns(fields))
    if headers and plain(fields.type_of("headers")) not in ("map", None):
        raise SelectorError(selector.text, 0, "headers are no map of texts here")
    if headers and "headers" not in fields and not fields.open:
        raise SelectorError(selector.text, 0, "these rows have no headers")
    try:
        return spark_sql(changed, {**columns, **headers})
    except SelectorError as error:
        known = [name for name in columns if name in FIELDS]
        if not known:
            raise SelectorError(
                selector.text, 0, "these rows are no messages: say it with where"
            ) from None
        raise error


def _columns(fields: Fields) -> Iterator[tuple[str, str]]:
    """The SQL of each field of a message that is among the columns, and of its kind."""
    properties = members(fields.type_of("properties")) or {}
    for name, kind in FIELDS.items():
        found = fields.type_of(name)
        if name in fields and _fits(name, plain(found), kind):
            is_time = name == "timestamp"
            yield name, "unix_micros(`timestamp`) / 1e6D" if is_time else f"`{name}`"
        elif name in properties:
            yield name, f"`properties`.`{name}`"
        elif fields.open:
            yield name, f"`{name}`"


def _fits(name: str, found: str | None, kind: Kind) -> bool:
    if found is None:
        return True
    if name == "body":
        return found in ("binary", "string")
    if name == "timestamp":
        return found == "timestamp"
    return found in NUMBERS if kind is Kind.NUMBER else found == "string"


def _without_headers(selector: Selector, node: Condition, headers: dict[str, str]) -> Condition:
    """Each header as a field of its own, whose SQL is put into `headers`."""

    def of_value(value: Value) -> Value:
        match value:
            case Member("headers", path, kind, at):
                if len(path) > 1:
                    raise SelectorError(
                        selector.text, at, "a header within a header: the source's selector can"
                    )
                name = f"headers.{path[0]} {kind.name}"
                headers[name] = _header(path[0], kind)
                return Field(name, kind, at)
            case Arithmetic(sign, left, right, at):
                return Arithmetic(sign, of_value(left), of_value(right), at)
            case Negative(inner, at):
                return Negative(of_value(inner), at)
            case _:
                return value

    def of(part: Condition) -> Condition:
        match part:
            case Every(parts):
                return Every(tuple(map(of, parts)))
            case Some(parts):
                return Some(tuple(map(of, parts)))
            case Compare(sign, left, right):
                return Compare(sign, of_value(left), of_value(right))
            case Is(Member("headers", _, _, at) as member, wanted):
                return Compare("=", of_value(member), Constant(wanted, at))
            case Is():
                return part
            case _:
                return msgspec.structs.replace(part, value=of_value(part.value))

    return of(node)


def _header(name: str, kind: Kind) -> str:
    quoted = name.encode().hex()
    text = f"`headers`[CAST(X'{quoted}' AS STRING)]"
    match kind:
        case Kind.NUMBER:
            return f"CASE WHEN {text} RLIKE '{_NUMBER}' THEN TRY_CAST({text} AS DOUBLE) END"
        case Kind.BOOLEAN:
            return f"CASE {text} WHEN 'true' THEN TRUE WHEN 'false' THEN FALSE END"
        case _:
            return text
