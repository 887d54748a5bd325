"""Values of field tables: type names, comparison and validation, as in RabbitMQ.

A validation function takes the client's value and returns the value to store. It raises `InvalidValueError`
with only the reason in RabbitMQ's notation, such as `{value_negative,-1}`; the caller adds the argument and
its owner.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Literal

import msgspec

from recado.amqp.values import (
    FieldValue,
    Float32,
    Int8,
    Int16,
    Int64,
    LongString,
    ScaledDecimal,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
)

from .errors import InvalidValueError

MAX_EXPIRY_MS: Final = 315_360_000_000  # ten years
MAX_PRIORITY: Final = 255
# A checkpoint writes all ids of a window in one turn of the loop, at 2 µs each: 0.2 s for this many.
MAX_DEDUPLICATION_IDS: Final = 100_000
FILTER_SIZE_BYTES_MIN: Final = 16
FILTER_SIZE_BYTES_MAX: Final = 255
SECONDS_PER_UNIT: Final = {
    "Y": 31_536_000,
    "M": 2_592_000,
    "D": 86_400,
    "h": 3_600,
    "m": 60,
    "s": 1,
}

# ── type names and comparison ───────────────────────────────────────────────────────────────────

_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    Int8: "byte",
    UInt8: "unsignedbyte",
    Int16: "short",
    UInt16: "unsignedshort",
    int: "signedint",
    UInt32: "unsignedint",
    Int64: "long",
    Float32: "float",
    float: "double",
    Timestamp: "timestamp",
    datetime: "timestamp",
    str: "longstr",
    LongString: "longstr",
    bytes: "binary",
    list: "array",
    dict: "table",
    ScaledDecimal: "decimal",
    type(None): "void",
}


def type_name(value: FieldValue) -> str:
    """Return RabbitMQ's name for the type of a value."""
    return _TYPE_NAMES[type(value)]


def to_comparable(value: FieldValue) -> object:
    """Return a hashable value; two are equal if RabbitMQ considers the values equal.

    Numbers are equal across widths, also to timestamps; a string is equal to its bytes; true is not 1.
    """
    match value:
        case bool():
            return ("bool", value)
        case str():
            return value.encode()
        case datetime():
            return int(value.timestamp())
        case list():
            return ("array", *map(to_comparable, value))
        case dict():
            return ("table", frozenset((key, to_comparable(field)) for key, field in value.items()))
        case _:
            return value


def format_value(value: FieldValue) -> str:
    """Return a value as RabbitMQ shows it in error texts."""
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return value.decode(errors="replace")
        case _:
            return str(value)


# ── validation functions ─────────────────────────────────────────────────────────────────────────


def integer(value: FieldValue) -> int:
    if not isinstance(value, int) or isinstance(value, bool | Timestamp):
        raise InvalidValueError(f'"expected integer, got {type_name(value)}"')
    return int(value)


def not_negative(value: FieldValue) -> int:
    number = integer(value)
    if number < 0:
        raise InvalidValueError(f"{{value_negative,{number}}}")
    return number


def positive(value: FieldValue) -> int:
    number = not_negative(value)
    if number == 0:
        raise InvalidValueError("{value_zero,0}")
    return number


def expiry(value: FieldValue) -> int:
    number = not_negative(value)
    if number > MAX_EXPIRY_MS:
        raise InvalidValueError(f"{{value_too_large,{number}}}")
    return number


def idle_time(value: FieldValue) -> int:
    return expiry(positive(value))


def deduplication_capacity(value: FieldValue) -> int:
    number = positive(value)
    if number > MAX_DEDUPLICATION_IDS:
        raise InvalidValueError(f"{{value_too_large,{number}}}")
    return number


def max_priority(value: FieldValue) -> int | None:
    """Check `x-max-priority`; 0 means no priorities, and becomes None."""
    number = not_negative(value)
    if number > MAX_PRIORITY:
        raise InvalidValueError(f"{{max_value_exceeded,{number}}}")
    return number or None


def boolean(value: FieldValue) -> bool:
    if not isinstance(value, bool):
        raise InvalidValueError(f"{{unacceptable_type,{type_name(value)}}}")
    return value


def text(value: FieldValue) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(f"{{unacceptable_type,{type_name(value)}}}")
    return value


def short_string(value: FieldValue) -> str:
    """Check a string that must fit into AMQP's short string."""
    checked = text(value)
    if len(checked.encode()) > 255:
        raise InvalidValueError("longer than 255 bytes")
    return checked


def one_of(choices: Iterable[str], message: str) -> Callable[[FieldValue], str]:
    """Return a validation function for a string from `choices`; `{}` in the message stands for the value."""
    allowed = frozenset(choices)

    def check(value: FieldValue) -> str:
        choice = text(value)
        if choice not in allowed:
            raise InvalidValueError(message.format(choice))
        return choice

    return check


def queue_version(value: FieldValue) -> int:
    number = not_negative(value)
    if number not in (1, 2):
        raise InvalidValueError(f"\"unsupported queue version '{number}'\"")
    return number


def max_age(value: FieldValue) -> int:
    """Parse a duration such as `7D` into milliseconds; a month has 30 days, a year 365."""
    age = text(value)
    digits, unit = age[:-1], age[-1:]
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
    if not number or unit not in SECONDS_PER_UNIT:
        raise InvalidValueError("invalid_max_age")
    return number * SECONDS_PER_UNIT[unit] * 1000


def filter_size(value: FieldValue) -> int:
    """Check the size of a Bloom filter in RabbitMQ's range. The value is not used: stream filters are exact."""
    number = not_negative(value)
    if not FILTER_SIZE_BYTES_MIN <= number <= FILTER_SIZE_BYTES_MAX:
        raise InvalidValueError(
            f"{number} is not a valid filter size, which is {FILTER_SIZE_BYTES_MIN} to"
            f" {FILTER_SIZE_BYTES_MAX} bytes"
        )
    return number


FilterValue = str | LongString


def filter_values(value: FieldValue) -> frozenset[FilterValue]:
    """Check a filter value of a stream's messages, or an array of them."""
    if value == []:
        raise InvalidValueError("empty_array")
    values: set[FilterValue] = set()
    for item in value if isinstance(value, list) else [value]:
        if not isinstance(item, FilterValue):
            raise InvalidValueError(f"{{unacceptable_type,{type_name(item)}}}")
        values.add(item)
    return frozenset(values)


class StreamOffset(msgspec.Struct, frozen=True):
    """Where to start in a stream: at an offset, a time, or an age (times in milliseconds)."""

    kind: Literal["first", "last", "next", "offset", "time", "age"] = "next"
    value: int = 0


def stream_offset(value: FieldValue) -> StreamOffset:
    match value:
        case "first":
            return StreamOffset("first")
        case "last":
            return StreamOffset("last")
        case "next":
            return StreamOffset("next")
        case str():
            try:
                return StreamOffset("age", max_age(value))
            except InvalidValueError:
                shown_value = f'<<"{value}">>'
        case Timestamp():
            return StreamOffset("time", value * 1000)
        case int() if not isinstance(value, bool):
            return StreamOffset("offset", int(value))
        case _:
            shown_value = format_value(value)
    raise InvalidValueError(f"{{invalid_stream_offset_arg,{{{type_name(value)},{shown_value}}}}}")
