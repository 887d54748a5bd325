"""Values without parts in the tagged codec: numbers, bytes, dates and time zones.

ENCODERS create their trees, by type; DECODERS read them, by tag; NUMBER_CONSTRUCTORS read those whose parts are
numbers.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import fractions
import math
import re
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from .errors import InvalidEnvelopeError

INTEGER_BITS_MAX: Final = 65_536  # arithmetic with longer integers is slow

TaggedTree: TypeAlias = Any

_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+-]{1,64}(/[A-Za-z0-9_+-]{1,64}){0,3}")


class UnserializableError(Exception):
    """A part of a value cannot be serialized. `path` leads to it, the innermost part first."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.path: list[str] = []


def check_unicode(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UnserializableError(f"text that is not valid Unicode: {error.reason}") from None
    return value


def encode_integer(value: int) -> TaggedTree:
    if value.bit_length() > INTEGER_BITS_MAX:
        raise UnserializableError(f"an integer of more than {INTEGER_BITS_MAX} bits")
    return ["int", format(value, "x")]


def _decode_integer(text: str) -> int:
    if len(text) > INTEGER_BITS_MAX // 4 + 1:
        raise InvalidEnvelopeError(f"an integer of more than {INTEGER_BITS_MAX} bits")
    return int(text, 16)


def _encode_number(value: float) -> TaggedTree:
    if type(value) is int:
        return value if -(2**63) <= value < 2**64 else encode_integer(value)
    return value if math.isfinite(value) else ["float", repr(value)]


def _decode_decimal(text: str) -> decimal.Decimal:
    if not isinstance(text, str):
        raise InvalidEnvelopeError("a decimal that is not text")
    return decimal.Decimal(text)


def decode_bytes(data: bytes | str) -> bytes:
    """Return bytes; in JSON they are base64."""
    return base64.b64decode(data, validate=True) if isinstance(data, str) else data


def encode_zone(zone: datetime.tzinfo | None) -> TaggedTree:
    match zone:
        case None:
            return None
        case datetime.timezone():
            offset = zone.utcoffset(None)
            name = zone.tzname(None)
            unnamed = datetime.timezone(offset).tzname(None) == name
            seconds = offset.total_seconds()
            return ["offset", seconds, None if unnamed else check_unicode(name)]
        case zoneinfo.ZoneInfo(key=str(key)) if _ZONE_KEY.fullmatch(key):
            return ["zone", key]
    raise UnserializableError(f"the time zone {type(zone).__qualname__} has no serializer")


def _decode_offset(seconds: float, name: str | None) -> datetime.timezone:
    offset = datetime.timedelta(seconds=seconds)
    if name is not None:
        return datetime.timezone(offset, name)
    return datetime.timezone(offset) if offset else datetime.UTC


def _decode_zone(key: str) -> zoneinfo.ZoneInfo:
    if not _ZONE_KEY.fullmatch(key):
        raise InvalidEnvelopeError(f"no time zone: {key[:50]!r}")
    return zoneinfo.ZoneInfo(key)


def _encode_datetime(value: datetime.datetime) -> TaggedTree:
    plain = value.replace(tzinfo=None, fold=0)
    return ["datetime", plain.isoformat(), value.fold, encode_zone(value.tzinfo)]


def _encode_time(value: datetime.time) -> TaggedTree:
    plain = value.replace(tzinfo=None, fold=0)
    return ["time", plain.isoformat(), value.fold, encode_zone(value.tzinfo)]


ENCODERS: Final[dict[type, Callable[[Any], TaggedTree]]] = {
    bytes: lambda value: ["bytes", value],
    bytearray: lambda value: ["bytearray", bytes(value)],
    complex: lambda value: ["complex", _encode_number(value.real), _encode_number(value.imag)],
    fractions.Fraction: lambda value: [
        "fraction",
        _encode_number(value.numerator),
        _encode_number(value.denominator),
    ],
    range: lambda value: ["range", *map(_encode_number, (value.start, value.stop, value.step))],
    decimal.Decimal: lambda value: ["decimal", str(value)],
    uuid.UUID: lambda value: ["uuid", str(value)],
    datetime.date: lambda value: ["date", value.isoformat()],
    datetime.time: _encode_time,
    datetime.datetime: _encode_datetime,
    datetime.timedelta: lambda value: [
        "timedelta",
        value.days,
        value.seconds,
        value.microseconds,
    ],
    msgspec.UnsetType: lambda value: ["unset"],
}

DECODERS: Final[dict[str, Callable[..., Any]]] = {
    "int": _decode_integer,
    "float": float,
    "bytes": decode_bytes,
    "bytearray": lambda data: bytearray(decode_bytes(data)),
    "decimal": _decode_decimal,
    "uuid": uuid.UUID,
    "date": datetime.date.fromisoformat,
    "timedelta": datetime.timedelta,
    "offset": _decode_offset,
    "zone": _decode_zone,
    "unset": lambda: msgspec.UNSET,
}


def _create_fraction(numerator: object, denominator: object) -> fractions.Fraction:
    if not isinstance(numerator, int) or not isinstance(denominator, int):
        raise InvalidEnvelopeError("a fraction whose parts are not integers")
    return fractions.Fraction(numerator, denominator)


NUMBER_CONSTRUCTORS: Final[dict[str, Callable[..., Any]]] = {
    "complex": complex,
    "fraction": _create_fraction,
    "range": range,
}
