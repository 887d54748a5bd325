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
from recado.amqp.values import FieldValue, LongString, ScaledDecimal
from recado.feeds.message import decode_headers, decode_message_properties

_STRING_MAP: Final = pa.map_(pa.string(), pa.string())
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

PROPERTY_TYPES: Final[dict[str, pa.DataType]] = {
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
_PROPERTY_STRUCT: Final = pa.struct(list(PROPERTY_TYPES.items()))

FEED_SCHEMA: Final = pa.schema(
    [
        ("feed", pa.string()),
        ("offset", pa.int64()),
        ("publisher", pa.string()),
        ("sequence", pa.int64()),
        ("view", pa.string()),
        ("timestamp", _TIMESTAMP),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("message_id", pa.string()),
        ("headers", _STRING_MAP),
        ("properties", _PROPERTY_STRUCT),
        ("body", pa.binary()),
    ]
)
"""Of `format("recado")`: a message of a feed."""

QUEUE_SCHEMA: Final = pa.schema(
    [
        ("queue", pa.string()),
        ("offset", pa.int64()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("redelivered", pa.bool_()),
        ("received", _TIMESTAMP),
        ("timestamp", _TIMESTAMP),
        ("message_id", pa.string()),
        ("headers", _STRING_MAP),
        ("properties", _PROPERTY_STRUCT),
        ("body", pa.binary()),
    ]
)
"""Of `format("amqp_transport")`: a message of a queue."""

_SPARK_TYPE_NAMES: Final = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    _TIMESTAMP: "timestamp",
    _STRING_MAP: "map<string,string>",
    _PROPERTY_STRUCT: "struct<{}>".format(
        ",".join(
            f"{name}:{'int' if kind == pa.int32() else 'string'}"
            for name, kind in PROPERTY_TYPES.items()
        )
    ),
}


def to_ddl(schema: pa.Schema) -> str:
    """The schema as Spark writes it."""
    return ", ".join(f"`{name}` {told}" for name, told in spark_type_names(schema).items())


def spark_type_names(schema: pa.Schema) -> dict[str, str]:
    """What Spark calls the types of the columns."""
    return {field.name: _SPARK_TYPE_NAMES[field.type] for field in schema}


def select_columns(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Those columns of it that a reader asked for, in that order."""
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        known = ", ".join(schema.names)
        raise ValueError(f"there is no column {unknown[0]!r}; there are {known}")
    return pa.schema([schema.field(name) for name in names])


# --- headers and properties ----------------------------------------------------------------------


def decode_header_column(column: pa.Array) -> pa.Array:
    """AMQP tables, as the archives have them, as a map of texts each."""
    return _decode_distinct(
        column, _STRING_MAP, lambda data: headers_to_strings(decode_headers(data))
    )


def decode_property_column(column: pa.Array) -> pa.Array:
    """AMQP property lists, as the archives have them, as a struct each."""
    return _decode_distinct(
        column, _PROPERTY_STRUCT, lambda data: properties_to_dict(decode_message_properties(data))
    )


def headers_to_strings(headers: Mapping[str, FieldValue] | None) -> dict[str, str | None] | None:
    """The headers of a message as a map of texts, for `pa.read_array(…, QUEUE.get_field("headers").type)`."""
    if not headers:
        return None
    return {replace_invalid_text(name): value_to_string(value) for name, value in headers.items()}


def value_to_string(value: FieldValue) -> str | None:
    match value:
        case None:
            return None
        case str():
            return replace_invalid_text(value)
        case LongString():
            return value.decode("utf-8", "replace")
        case _:
            return msgspec.json.encode(_to_json_value(value)).decode()


def properties_to_dict(properties: Properties | None) -> dict[str, str | int | None] | None:
    """The properties that have no column of their own, or None if there is none of them."""
    if properties is None:
        return None
    values = {name: _replace_invalid(getattr(properties, name)) for name in PROPERTY_TYPES}
    return values if any(value is not None for value in values.values()) else None


def replace_invalid_text(text: str) -> str:
    """As others can read it: what was not UTF-8 on the wire is replaced."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _replace_invalid(value: str | int | None) -> str | int | None:
    return replace_invalid_text(value) if isinstance(value, str) else value


def _to_json_value(value: Any) -> Any:
    """With nothing in it that JSON has no word for."""
    match value:
        case bool() | None:
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case ScaledDecimal(scale, digits):
            return digits / 10**scale
        case datetime():
            return int(value.timestamp())
        case LongString():
            return value.decode("utf-8", "replace")
        case str():
            return replace_invalid_text(value)
        case list():
            return [_to_json_value(each) for each in value]
        case Mapping():
            return {
                replace_invalid_text(name): _to_json_value(each) for name, each in value.items()
            }
        case _:
            return value


def _decode_distinct(column: pa.Array, kind: pa.DataType, read: Callable[[bytes], Any]) -> pa.Array:
    """The values, each different one read once."""
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif len(column.dictionary) > len(column):  # that of a whole row group, with a piece of it
        column = column.dictionary_decode().dictionary_encode()
    values = pa.array([read(value) for value in column.dictionary.to_pylist()], kind)
    return values.take(column.indices)
