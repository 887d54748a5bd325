"""Methods to bytes and back: the payload of a method frame.

    | class-id u16 | method-id u16 | arguments … |

A method's layout is compiled from its class when it is first needed, so importing costs nothing for
the methods that a process never sees. What a peer sent wrongly is a `ProtocolError`; what a local
caller passed wrongly is a `ValueError` that names the method and the field.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, get_args

import msgspec

from .errors import CommandInvalid, FrameError, ProtocolError
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

Reader = Callable[[bytes, int], tuple[Any, int]]
Writer = Callable[..., bytes]

_IDS: Final = struct.Struct(">HH")
_SIZE: Final = struct.Struct(">I")


# ── wire types ────────────────────────────────────────────────────────────────────────────────────


class WireType(NamedTuple):
    """How a field is read at a place, which gives its value and its end, and how it is written.

    A reader may end beyond the data instead of failing; whoever calls it looks where it ended.
    """

    read: Reader
    write: Writer


def _number(layout: str) -> WireType:
    number = struct.Struct(layout)
    unpack, pack, size = number.unpack_from, number.pack, number.size

    def read(data: bytes, at: int) -> tuple[int, int]:
        return unpack(data, at)[0], at + size

    def write(value: int) -> bytes:
        try:
            return pack(value)
        except struct.error:
            raise ValueError(f"{value!r} is not a whole number of {8 * size} bits") from None

    return WireType(read, write)


def short_string(errors: str) -> WireType:
    """`errors` is what Python's codecs do with octets that are not UTF-8."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        start = at + 1
        end = start + data[at]
        return data[start:end].decode("utf-8", errors), end

    def write(text: str) -> bytes:
        octets = text.encode("utf-8", errors)
        if len(octets) > 255:
            raise ValueError(f"a short string holds 255 bytes, this one has {len(octets)}")
        return bytes((len(octets),)) + octets

    return WireType(read, write)


def _read_long_string(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    end = start + _SIZE.unpack_from(data, at)[0]
    return data[start:end], end


def _write_long_string(octets: bytes) -> bytes:
    return _SIZE.pack(len(octets)) + octets


WIRE_TYPES: Final[dict[object, WireType]] = {
    Octet: _number(">B"),
    Short: _number(">H"),
    Long: _number(">I"),
    LongLong: _number(">Q"),
    ShortStr: short_string("strict"),
    LongStr: WireType(_read_long_string, _write_long_string),
    Table: WireType(decode_table, encode_table),
}


# RabbitMQ takes names and keys that are not UTF-8 from other clients, and gives them to whoever consumes: one
# such message must not be the end of every connection that it comes to. They decode as properties do.
_TOLD_BY_BROKERS: Final = (BasicDeliver, BasicGetOk, BasicReturn)
_LENIENT: Final = WIRE_TYPES | {ShortStr: short_string("surrogateescape")}


def _bit_reader(position: int, width: int) -> Reader:
    """Reads one of the octet's bits; only the last bit of an octet goes on to the next."""
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


class _Layout(msgspec.Struct, frozen=True):
    """A reader for each field, with whether its value is kept, which a reserved field's is not; a
    writer for each piece of bytes, with the fields that go into it."""

    readers: tuple[tuple[Reader, bool], ...]
    writers: tuple[tuple[Writer, tuple[str, ...]], ...]


@cache
def _layout(method: type[Method]) -> _Layout:
    readers: list[tuple[Reader, bool]] = []
    writers: list[tuple[Writer, tuple[str, ...]]] = []
    bits: list[tuple[str, bool]] = []
    types = _LENIENT if method in _TOLD_BY_BROKERS else WIRE_TYPES

    def end_octet() -> None:
        if bits:
            for position, (_, kept) in enumerate(bits):
                readers.append((_bit_reader(position, len(bits)), kept))
            writers.append((_write_bits, tuple(name for name, _ in bits)))
            bits.clear()

    for name, annotation in method.__annotations__.items():
        kept = name in method.__struct_fields__
        kind = annotation if kept else get_args(annotation)[0]
        if kind is Bit:
            bits.append((name, kept))
        else:
            end_octet()
            readers.append((types[kind].read, kept))
            writers.append((types[kind].write, (name,)))
    end_octet()
    return _Layout(tuple(readers), tuple(writers))


def find_method(payload: bytes) -> type[Method]:
    """The class of the method in a payload, whose arguments may be malformed."""
    try:
        ids = _IDS.unpack_from(payload)
    except struct.error:
        raise FrameError("a method frame is cut short") from None
    method = METHODS.get(ids)
    if method is None:
        raise CommandInvalid(f"unknown method {ids[1]} of class {ids[0]}", ids)
    return method


def decode_method(payload: bytes) -> Method:
    method = find_method(payload)
    values = []
    at = _IDS.size
    try:
        for read, kept in _layout(method).readers:
            value, at = read(payload, at)
            if kept:
                values.append(value)
    except (IndexError, struct.error):
        raise FrameError(f"{method.name} is cut short", _ids(method)) from None
    except UnicodeDecodeError:
        text = f"{method.name} has a string that is not UTF-8"
        raise FrameError(text, _ids(method)) from None
    except ProtocolError as error:
        raise type(error)(f"{method.name}: {error}", _ids(method)) from None
    if at != len(payload):
        raise _wrong_end(method.name, payload, at, _ids(method))
    return method(*values)


def _ids(method: type[Method]) -> tuple[int, int]:
    return method.class_id, method.method_id


def encode_method(method: Method) -> bytes:
    pieces = [_IDS.pack(method.class_id, method.method_id)]
    for write, names in _layout(type(method)).writers:
        try:
            pieces.append(write(*[getattr(method, name) for name in names]))
        except ValueError as error:
            raise ValueError(f"{method.name}, {names[0]}: {error}") from None
    return b"".join(pieces)


def check_end(what: str, data: bytes, at: int) -> None:
    """What was read up to `at` must have ended with the data, neither before nor beyond."""
    if at != len(data):
        raise _wrong_end(what, data, at)


def _wrong_end(what: str, data: bytes, at: int, failed: tuple[int, int] = (0, 0)) -> FrameError:
    if at > len(data):
        return FrameError(f"{what} is cut short", failed)
    return FrameError(f"{what} is followed by {len(data) - at} stray bytes", failed)
