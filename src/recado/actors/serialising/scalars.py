"""Tagged values without parts: numbers, bytes, moments and time zones.

WRITERS make trees of them, by their type; READERS read those again, by their tag, and NUMBERS those whose parts
are numbers themselves.
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

from .faults import BadEnvelope

INTEGER_BITS_MOST: Final = 65_536  # arithmetic with longer ones takes long

Tree: TypeAlias = Any

_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+-]{1,64}(/[A-Za-z0-9_+-]{1,64}){0,3}")


class Unwritable(Exception):
    """What cannot be written, and where it is: the innermost part first."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.path: list[str] = []


def as_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Unwritable(f"a text that is not Unicode: {error.reason}") from None
    return value


def write_integer(value: int) -> Tree:
    if value.bit_length() > INTEGER_BITS_MOST:
        raise Unwritable(f"an integer of more than {INTEGER_BITS_MOST} bits")
    return ["int", format(value, "x")]


def _read_integer(text: str) -> int:
    if len(text) > INTEGER_BITS_MOST // 4 + 1:
        raise BadEnvelope(f"an integer of more than {INTEGER_BITS_MOST} bits")
    return int(text, 16)


def _number(value: float) -> Tree:
    if type(value) is int:
        return value if -(2**63) <= value < 2**64 else write_integer(value)
    return value if math.isfinite(value) else ["float", repr(value)]


def _read_decimal(text: str) -> decimal.Decimal:
    if not isinstance(text, str):
        raise BadEnvelope("a decimal that is no text")
    return decimal.Decimal(text)


def read_bytes(data: bytes | str) -> bytes:
    """JSON has them as base64."""
    return base64.b64decode(data, validate=True) if isinstance(data, str) else data


def write_zone(zone: datetime.tzinfo | None) -> Tree:
    match zone:
        case None:
            return None
        case datetime.timezone():
            offset = zone.utcoffset(None)
            name = zone.tzname(None)
            unnamed = datetime.timezone(offset).tzname(None) == name
            seconds = offset.total_seconds()
            return ["offset", seconds, None if unnamed else as_text(name)]
        case zoneinfo.ZoneInfo(key=str(key)) if _ZONE_KEY.fullmatch(key):
            return ["zone", key]
    raise Unwritable(f"the time zone {type(zone).__qualname__} has no serialiser")


def _read_offset(seconds: float, name: str | None) -> datetime.timezone:
    offset = datetime.timedelta(seconds=seconds)
    if name is not None:
        return datetime.timezone(offset, name)
    return datetime.timezone(offset) if offset else datetime.UTC


def _read_zone(key: str) -> zoneinfo.ZoneInfo:
    if not _ZONE_KEY.fullmatch(key):
        raise BadEnvelope(f"no time zone: {key[:50]!r}")
    return zoneinfo.ZoneInfo(key)


def _datetime(value: datetime.datetime) -> Tree:
    plain = value.replace(tzinfo=None, fold=0)
    return ["datetime", plain.isoformat(), value.fold, write_zone(value.tzinfo)]


def _time(value: datetime.time) -> Tree:
    plain = value.replace(tzinfo=None, fold=0)
    return ["time", plain.isoformat(), value.fold, write_zone(value.tzinfo)]


WRITERS: Final[dict[type, Callable[[Any], Tree]]] = {
    bytes: lambda value: ["bytes", value],
    bytearray: lambda value: ["bytearray", bytes(value)],
    complex: lambda value: ["complex", _number(value.real), _number(value.imag)],
    fractions.Fraction: lambda value: [
        "fraction",
        _number(value.numerator),
        _number(value.denominator),
    ],
    range: lambda value: ["range", *map(_number, (value.start, value.stop, value.step))],
    decimal.Decimal: lambda value: ["decimal", str(value)],
    uuid.UUID: lambda value: ["uuid", str(value)],
    datetime.date: lambda value: ["date", value.isoformat()],
    datetime.time: _time,
    datetime.datetime: _datetime,
    datetime.timedelta: lambda value: [
        "timedelta",
        value.days,
        value.seconds,
        value.microseconds,
    ],
    msgspec.UnsetType: lambda value: ["unset"],
}

READERS: Final[dict[str, Callable[..., Any]]] = {
    "int": _read_integer,
    "float": float,
    "bytes": read_bytes,
    "bytearray": lambda data: bytearray(read_bytes(data)),
    "decimal": _read_decimal,
    "uuid": uuid.UUID,
    "date": datetime.date.fromisoformat,
    "timedelta": datetime.timedelta,
    "offset": _read_offset,
    "zone": _read_zone,
    "unset": lambda: msgspec.UNSET,
}


def _read_fraction(numerator: object, denominator: object) -> fractions.Fraction:
    if not isinstance(numerator, int) or not isinstance(denominator, int):
        raise BadEnvelope("a fraction that is not of integers")
    return fractions.Fraction(numerator, denominator)


NUMBERS: Final[dict[str, Callable[..., Any]]] = {
    "complex": complex,
    "fraction": _read_fraction,
    "range": range,
}
