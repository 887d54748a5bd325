"""Encode and decode AMQP methods: the payload of a method frame.

    | class-id u16 | method-id u16 | arguments … |

The layout of a method is compiled from its class on first use, so importing costs nothing for methods that a
process never handles. Malformed bytes from a peer raise an `AmqpError`. Wrong values from a local caller raise
a `ValueError` that names the method and the field.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, get_args

import msgspec

from .errors import AmqpError, CommandInvalidError, FrameError
from .methods import (
    METHODS,
    BasicDeliver,
    BasicGetOk,
    BasicReturn,
    Bit,
    Long,
    LongLong,
    LongStr,
    Method,
    Octet,
    Short,
    ShortStr,
    Table,
)
from .values import decode_table, encode_table

FieldReader = Callable[[bytes, int], tuple[Any, int]]
FieldWriter = Callable[..., bytes]

_IDS: Final = struct.Struct(">HH")
_SIZE: Final = struct.Struct(">I")


# ── wire types ────────────────────────────────────────────────────────────────────────────────────


class WireType(NamedTuple):
    """How a field is decoded and encoded.

    `read(data, offset)` returns the value and the offset behind it. It may return an offset beyond the end of
    the data instead of failing; the caller checks the offset.
    """

    read: FieldReader
    write: FieldWriter


def _make_integer_type(layout: str) -> WireType:
    number = struct.Struct(layout)
    unpack, pack, size = number.unpack_from, number.pack, number.size

    def read(data: bytes, at: int) -> tuple[int, int]:
        return unpack(data, at)[0], at + size

    def write(value: int) -> bytes:
        try:
            return pack(value)
        except struct.error:
            raise ValueError(f"{value!r} is not an unsigned integer of {8 * size} bits") from None

    return WireType(read, write)


def make_short_string_type(errors: str) -> WireType:
    """Return the wire type of a short string; `errors` is the error handler for bytes that are not UTF-8."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        start = at + 1
        end = start + data[at]
        return data[start:end].decode("utf-8", errors), end

    def write(text: str) -> bytes:
        octets = text.encode("utf-8", errors)
        if len(octets) > 255:
            raise ValueError(f"a short string is limited to 255 bytes, this one has {len(octets)}")
        return bytes((len(octets),)) + octets

    return WireType(read, write)


def _read_long_string(data: bytes, offset: int) -> tuple[bytes, int]:
    start = offset + 4
    end = start + _SIZE.unpack_from(data, offset)[0]
    return data[start:end], end


def _write_long_string(octets: bytes) -> bytes:
    return _SIZE.pack(len(octets)) + octets


WIRE_TYPES: Final[dict[object, WireType]] = {
    Octet: _make_integer_type(">B"),
    Short: _make_integer_type(">H"),
    Long: _make_integer_type(">I"),
    LongLong: _make_integer_type(">Q"),
    ShortStr: make_short_string_type("strict"),
    LongStr: WireType(_read_long_string, _write_long_string),
    Table: WireType(decode_table, encode_table),
}


# RabbitMQ accepts names and routing keys that are not UTF-8 and delivers them. One such message must not close
# every connection that consumes it, so these methods decode strings like properties, with surrogate escapes.
_LENIENT_METHODS: Final = (BasicDeliver, BasicGetOk, BasicReturn)
_LENIENT_WIRE_TYPES: Final = WIRE_TYPES | {ShortStr: make_short_string_type("surrogateescape")}


def _make_bit_reader(position: int, width: int) -> FieldReader:
    """Return a reader of one bit of an octet; only the reader of the last bit advances to the next octet."""
    mask, step = 1 << position, int(position == width - 1)

    def read(data: bytes, at: int) -> tuple[bool, int]:
        return data[at] & mask != 0, at + step

    return read


def _write_bits(*bits: bool) -> bytes:
    octet = 0
    for position, bit in enumerate(bits):
        octet |= bool(bit) << position
    return bytes((octet,))


# ── layouts ───────────────────────────────────────────────────────────────────────────────────────


class _MethodLayout(msgspec.Struct, frozen=True):
    """The compiled layout of a method.

    `readers` has one entry per field on the wire: the reader, and whether the value becomes an attribute
    (values of reserved fields are discarded). `writers` has one entry per run of bytes: the writer, and the
    names of the fields that it encodes.
    """

    readers: tuple[tuple[FieldReader, bool], ...]
    writers: tuple[tuple[FieldWriter, tuple[str, ...]], ...]


@cache
def _compile_layout(method: type[Method]) -> _MethodLayout:
    readers: list[tuple[FieldReader, bool]] = []
    writers: list[tuple[FieldWriter, tuple[str, ...]]] = []
    bits: list[tuple[str, bool]] = []
    types = _LENIENT_WIRE_TYPES if method in _LENIENT_METHODS else WIRE_TYPES

    def end_octet() -> None:
        if bits:
            for position, (_, is_field) in enumerate(bits):
                readers.append((_make_bit_reader(position, len(bits)), is_field))
            writers.append((_write_bits, tuple(name for name, _ in bits)))
            bits.clear()

    for name, annotation in method.__annotations__.items():
        is_field = name in method.__struct_fields__
        wire_type = annotation if is_field else get_args(annotation)[0]
        if wire_type is Bit:
            bits.append((name, is_field))
        else:
            end_octet()
            readers.append((types[wire_type].read, is_field))
            writers.append((types[wire_type].write, (name,)))
    end_octet()
    return _MethodLayout(tuple(readers), tuple(writers))


def find_method_type(payload: bytes) -> type[Method]:
    """Return the class of the method in a payload, without decoding its arguments.

    Raises `FrameError` if the payload is too short and `CommandInvalidError` if the method is unknown.
    """
    try:
        ids = _IDS.unpack_from(payload)
    except struct.error:
        raise FrameError("method frame is truncated") from None
    method = METHODS.get(ids)
    if method is None:
        raise CommandInvalidError(f"unknown method {ids[1]} of class {ids[0]}", ids)
    return method


def decode_method(payload: bytes) -> Method:
    """Decode the payload of a method frame; raises an `AmqpError` if it is malformed."""
    method = find_method_type(payload)
    values = []
    offset = _IDS.size
    try:
        for read, is_field in _compile_layout(method).readers:
            value, offset = read(payload, offset)
            if is_field:
                values.append(value)
    except (IndexError, struct.error):
        raise FrameError(f"{method.name} is truncated", _method_ids(method)) from None
    except UnicodeDecodeError:
        text = f"{method.name} contains a string that is not UTF-8"
        raise FrameError(text, _method_ids(method)) from None
    except AmqpError as error:
        raise type(error)(f"{method.name}: {error}", _method_ids(method)) from None
    if offset != len(payload):
        raise _make_end_error(method.name, payload, offset, _method_ids(method))
    return method(*values)


def _method_ids(method: type[Method]) -> tuple[int, int]:
    return method.class_id, method.method_id


def encode_method(method: Method) -> bytes:
    """Encode a method as the payload of a method frame; raises `ValueError` if a field does not fit."""
    pieces = [_IDS.pack(method.class_id, method.method_id)]
    for write, names in _compile_layout(type(method)).writers:
        try:
            pieces.append(write(*[getattr(method, name) for name in names]))
        except ValueError as error:
            raise ValueError(f"{method.name}, {names[0]}: {error}") from None
    return b"".join(pieces)


def check_end(subject: str, data: bytes, offset: int) -> None:
    """Raise `FrameError` unless decoding of `subject` stopped exactly at the end of the data."""
    if offset != len(data):
        raise _make_end_error(subject, data, offset)


def _make_end_error(
    subject: str, data: bytes, offset: int, method_ids: tuple[int, int] = (0, 0)
) -> FrameError:
    if offset > len(data):
        return FrameError(f"{subject} is truncated", method_ids)
    return FrameError(f"{subject} is followed by {len(data) - offset} stray bytes", method_ids)
