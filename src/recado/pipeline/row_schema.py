"""The row schemas of `format("recado")` and `format("amqp")`, for Arrow and Spark, and the decoding of headers.

Spark accepts an Arrow batch only if its schema is exactly the one that Spark derives: µs in UTC, every field
nullable, map entries named `key` and `value`. So both schemas are defined side by side here, and a test
compares them.

Headers become a map of strings: a string as it is, NULL for a void value, any other value as JSON. Most
messages have equal headers, so each distinct header table is decoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow as pa

from recado.amqp.properties import Properties
from recado.amqp.values import FieldValue, LongString, ScaledDecimal
from recado.feeds.message import decode_headers, decode_message_properties

from .options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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
"""Properties that have no column of their own."""
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
"""The columns of `format("recado")`: a message of a feed."""

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
"""The columns of `format("amqp")`: a message of a queue."""

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
    """Return the schema as a DDL string for Spark."""
    return ", ".join(
        f"`{name}` {type_name}" for name, type_name in spark_type_names(schema).items()
    )


def spark_type_names(schema: pa.Schema) -> dict[str, str]:
    """Return Spark's type name of each column."""
    return {field.name: _SPARK_TYPE_NAMES[field.type] for field in schema}


def select_columns(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return the schema of these columns, in this order. Raises ValueError for an unknown column."""
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        known = ", ".join(schema.names)
        raise ValueError(f"unknown column {unknown[0]!r}; the columns are {known}")
    return pa.schema([schema.field(name) for name in names])


# --- schemas that Spark passes ------------------------------------------------------------------


def check_read_schema(schema: StructType, known: pa.Schema, source: str) -> list[str]:
    """Return the columns that a user's schema selects. Raises OptionError for unknown columns or types."""
    names = list(schema.fieldNames())
    try:
        known_types = spark_type_names(select_columns(known, names))
    except ValueError as error:
        raise OptionError(f'invalid schema for format("{source}"): {error}') from None
    for field in schema.fields:
        spark_type = field.dataType.simpleString()
        if spark_type != known_types[field.name]:
            raise OptionError(
                f'the schema declares {field.name} as {spark_type}, but in format("{source}") it is '
                f"{known_types[field.name]}: cast it after reading"
            )
    return names


def check_write_schema(schema: StructType, target: str, *, overwrite: bool) -> dict[str, str]:
    """Return Spark's type names of the columns to write. Raises OptionError for the mode overwrite."""
    if overwrite:
        raise OptionError(f"messages {target} cannot be overwritten: use mode append")
    return {field.name: field.dataType.simpleString() for field in schema.fields}


# --- headers and properties ----------------------------------------------------------------------


def decode_header_column(column: pa.Array) -> pa.Array:
    """Decode a column of AMQP tables, as archives store them, to maps of strings."""
    return _decode_distinct(
        column, _STRING_MAP, lambda data: headers_to_strings(decode_headers(data))
    )


def decode_property_column(column: pa.Array) -> pa.Array:
    """Decode a column of AMQP property lists, as archives store them, to structs."""
    return _decode_distinct(
        column, _PROPERTY_STRUCT, lambda data: properties_to_dict(decode_message_properties(data))
    )


def headers_to_strings(headers: Mapping[str, FieldValue] | None) -> dict[str, str | None] | None:
    """Convert the headers of a message to strings, for `pa.array(…, QUEUE_SCHEMA.field("headers").type)`."""
    if not headers:
        return None
    return {replace_invalid_text(name): value_to_string(value) for name, value in headers.items()}


def value_to_string(value: FieldValue) -> str | None:
    """Convert a header value to a string: strings as they are, other values as JSON."""
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
    """Return the properties that have no column of their own; None if none of them is set."""
    if properties is None:
        return None
    values = {name: _replace_invalid(getattr(properties, name)) for name in PROPERTY_TYPES}
    return values if any(value is not None for value in values.values()) else None


def replace_invalid_text(text: str) -> str:
    """Replace bytes that were not UTF-8 on the wire by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _replace_invalid(value: str | int | None) -> str | int | None:
    return replace_invalid_text(value) if isinstance(value, str) else value


def _to_json_value(value: Any) -> Any:
    """Convert an AMQP value to one that JSON can represent."""
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
    """Decode each distinct value of a column once."""
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    elif len(column.dictionary) > len(column):  # a slice with the dictionary of its whole row group
        column = column.dictionary_decode().dictionary_encode()
    values = pa.array([read(value) for value in column.dictionary.to_pylist()], kind)
    return values.take(column.indices)
