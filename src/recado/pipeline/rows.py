"""The rows of the sources: one schema each, as Spark reads it and as Arrow carries it; and how bytes become it.

Spark takes a batch only if its Arrow schema is the very one that it makes of its own: µs in UTC, every field
nullable, maps of `key` and `value`. So both are written here, side by side, and a test compares them.

Headers are a map of texts: a text as it is, NULL where there is nothing, anything else as its JSON. Of equal
tables of headers only one is decoded, and where there is none nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import pyarrow as pa

from recado.amqp.properties import Properties
from recado.amqp.values import LongString, Scaled, Value
from recado.feeds.message import headers_of, properties_of

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_TIME: Final = pa.timestamp("us", tz="UTC")

PROPERTIES: Final[dict[str, pa.DataType]] = {
    "content_type": pa.string(),
    "content_encoding": pa.string(),
    "delivery_mode": pa.int32(),
    "priority": pa.int32(),
    "correlation_id": pa.string(),
    "reply_to": pa.string(),
    "expiration": pa.string(),
    "type": pa.string(),
    "user_id": pa.string(),
    "app_id": pa.string(),
}
"""Those that have no column of their own."""
_PROPERTIES: Final = pa.struct(list(PROPERTIES.items()))

FEED: Final = pa.schema(
    [
        ("feed", pa.string()),
        ("offset", pa.int64()),
        ("publisher", pa.string()),
        ("sequence", pa.int64()),
        ("view", pa.string()),
        ("timestamp", _TIME),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("message_id", pa.string()),
        ("headers", _TEXTS),
        ("properties", _PROPERTIES),
        ("body", pa.binary()),
    ]
)
"""Of `format("recado")`: a message of a feed."""

QUEUE: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("offset", pa.int64()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("redelivered", pa.bool_()),
        ("received", _TIME),
        ("timestamp", _TIME),
        ("message_id", pa.string()),
        ("headers", _TEXTS),
        ("properties", _PROPERTIES),
        ("body", pa.binary()),
    ]
)
"""Of `format("amqp")`: a message of a queue."""

_NAMES: Final = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    _TIME: "timestamp",
    _TEXTS: "map<string,string>",
    _PROPERTIES: "struct<{}>".format(
        ",".join(
            f"{name}:{'int' if kind == pa.int32() else 'string'}"
            for name, kind in PROPERTIES.items()
        )
    ),
}


def ddl(schema: pa.Schema) -> str:
    """The schema as Spark writes it."""
    return ", ".join(f"`{name}` {told}" for name, told in type_names(schema).items())


def type_names(schema: pa.Schema) -> dict[str, str]:
    """What Spark calls the types of the columns."""
    return {field.name: _NAMES[field.type] for field in schema}


def chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Those columns of it that a reader asked for, in that order."""
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        known = ", ".join(schema.names)
        raise ValueError(f"there is no column {unknown[0]!r}; there are {known}")
    return pa.schema([schema.field(name) for name in names])


# --- headers and properties ----------------------------------------------------------------------


def headers_from(column: pa.Array) -> pa.Array:
    """AMQP tables, as the archives have them, as a map of texts each."""
    return _each_once(column, _TEXTS, lambda data: texts_of(headers_of(data)))


def properties_from(column: pa.Array) -> pa.Array:
    """AMQP property lists, as the archives have them, as a struct each."""
    return _each_once(column, _PROPERTIES, lambda data: fields_of(properties_of(data)))


def texts_of(headers: Mapping[str, Value] | None) -> dict[str, str | None] | None:
    """The headers of a message as a map of texts, for `pa.array(…, QUEUE.field("headers").type)`."""
    if not headers:
        return None
    return {plain(name): text_of(value) for name, value in headers.items()}


def text_of(value: Value) -> str | None:
    match value:
        case None:
            return None
        case str():
            return plain(value)
        case LongString():
            return value.decode("utf-8", "replace")
        case _:
            return msgspec.json.encode(_simple(value)).decode()


def fields_of(properties: Properties | None) -> dict[str, str | int | None] | None:
    """The properties that have no column of their own, or None if there is none of them."""
    if properties is None:
        return None
    values = {name: _plain(getattr(properties, name)) for name in PROPERTIES}
    return values if any(value is not None for value in values.values()) else None


def plain(text: str) -> str:
    """As others can read it: what was not UTF-8 on the wire is replaced."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _plain(value: str | int | None) -> str | int | None:
    return plain(value) if isinstance(value, str) else value


def _simple(value: Any) -> Any:
    """With nothing in it that JSON has no word for."""
    match value:
        case bool() | None:
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case Scaled(scale, digits):
            return digits / 10**scale
        case datetime():
            return int(value.timestamp())
        case LongString():
            return value.decode("utf-8", "replace")
        case str():
            return plain(value)
        case list():
            return [_simple(each) for each in value]
        case Mapping():
            return {plain(name): _simple(each) for name, each in value.items()}
        case _:
            return value


def _each_once(column: pa.Array, kind: pa.DataType, read: Callable[[bytes], Any]) -> pa.Array:
    """The values, each different one read once."""
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif len(column.dictionary) > len(column):  # that of a whole row group, with a piece of it
        column = column.dictionary_decode().dictionary_encode()
    values = pa.array([read(value) for value in column.dictionary.to_pylist()], kind)
    return values.take(column.indices)
