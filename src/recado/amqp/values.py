"""Encode and decode field tables and arrays with the type letters of RabbitMQ and its clients.

The specification, its errata and RabbitMQ disagree about the letters that announce the type of a value. These
are RabbitMQ's:

    t bool      b int8   B uint8   s int16   u uint16   I int32   i uint32   l L int64
    f float32   d float64          D scale uint8 and digits uint32           T uint64 seconds
    S string    x bytes            A array   F table    V nothing

    table = | size u32 | { key: length u8, UTF-8 | letter u8 | value } … |
    array = | size u32 | { letter u8 | value } … |

Dead-lettering decodes headers and encodes them again, so a decoded value must be encoded with the same letter.
Where one Python type stands for several letters, a subclass records which: `Int8(5) == 5`, but it is encoded as
`b`. As in RabbitMQ, two encodings are not preserved: `L` becomes `l`, and any true `t` becomes 1. Plain values
get the letter that RabbitMQ chooses: int → I, or l if it does not fit; float → d; str → S; bytes → x;
datetime → T; None → V.

A malformed table from a peer raises `FrameError`, one beyond the limits of this module `AmqpSyntaxError`. A
wrong value from a local caller raises `ValueError`.
"""

import struct
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from .errors import AmqpSyntaxError, FrameError

MAX_NESTING_LEVEL: Final = 16
MAX_ENTRY_COUNT: Final = 1_024
# The limit for stored tables, to which dead-lettering may have added entries.
STORED_MAX_ENTRY_COUNT: Final = 1 << 16


class Int8(int):
    __slots__ = ()


class UInt8(int):
    __slots__ = ()


class Int16(int):
    __slots__ = ()


class UInt16(int):
    __slots__ = ()


class UInt32(int):
    __slots__ = ()


class Int64(int):
    __slots__ = ()


class Timestamp(int):
    """Seconds since the epoch; an int, because the wire format has years beyond those of datetime."""

    __slots__ = ()


class Float32(float):
    __slots__ = ()


class LongString(bytes):
    """A long string that is not UTF-8. It is encoded as `S`; plain bytes are encoded as `x`."""

    __slots__ = ()


class ScaledDecimal(msgspec.Struct, frozen=True):
    """A decimal number: `digits` divided by ten to the power of `scale`."""

    scale: int
    digits: int

    def __float__(self) -> float:
        return float(self.digits / 10**self.scale)


FieldScalar = None | bool | int | float | str | bytes | ScaledDecimal | datetime
FieldValue = FieldScalar | list["FieldValue"] | dict[str, "FieldValue"]
FieldTable = dict[str, FieldValue]

# Types of fixed width: letter, struct format, Python type.
_FIXED_WIDTH_TYPES: Final[tuple[tuple[str, str, type], ...]] = (
    ("t", "?", bool),
    ("b", "b", Int8),
    ("B", "B", UInt8),
    ("s", "h", Int16),
    ("u", "H", UInt16),
    ("I", "i", int),
    ("i", "I", UInt32),
    ("L", "q", Int64),
    ("l", "q", Int64),
    ("f", "f", Float32),
    ("d", "d", float),
    ("T", "Q", Timestamp),
)

_U32: Final = struct.Struct(">I")
_SCALED_DECIMAL: Final = struct.Struct(">BI")


# ── decoding ──────────────────────────────────────────────────────────────────────────────────────


def decode_table(
    data: bytes, offset: int, *, max_entries: int = MAX_ENTRY_COUNT
) -> tuple[FieldTable, int]:
    """Decode the table at `offset`; return it and the offset behind it.

    `max_entries` limits the number of fields and elements of the table including nested ones. Of two fields
    with the same name the first is returned. Raises `FrameError` or `AmqpSyntaxError`.
    """
    try:
        return _TableDecoder(data, max_entries).read_table(offset)
    except (IndexError, struct.error):
        raise FrameError("field table is truncated") from None


class _TableDecoder:
    """Decodes one table and counts down its limits.

    The readers of values do not check whether a value exceeds its container. `_leave_container` checks that
    the last value ended exactly at the end of the container, and `_enter_container` that no container ends
    beyond the data.
    """

    __slots__ = ("data", "entries_left", "levels_left")

    def __init__(self, data: bytes, max_entries: int) -> None:
        self.data = data
        self.levels_left = MAX_NESTING_LEVEL
        self.entries_left = max_entries

    def read_table(self, at: int) -> tuple[FieldTable, int]:
        data = self.data
        table: FieldTable = {}
        at, end = self._enter_container(at)
        while at < end:
            start = at + 1
            at = start + data[at]
            try:
                key = data[start:at].decode()
            except UnicodeDecodeError:
                raise FrameError("field table contains a name that is not UTF-8") from None
            value, at = self._read_value(at)
            table.setdefault(key, value)
        self._leave_container(at, end)
        return table, end

    def read_array(self, at: int) -> tuple[list[FieldValue], int]:
        array: list[FieldValue] = []
        at, end = self._enter_container(at)
        while at < end:
            value, at = self._read_value(at)
            array.append(value)
        self._leave_container(at, end)
        return array, end

    def read_string(self, at: int) -> tuple[str | LongString, int]:
        octets, end = self.read_bytes(at)
        try:
            return octets.decode(), end
        except UnicodeDecodeError:
            return LongString(octets), end

    def read_bytes(self, at: int) -> tuple[bytes, int]:
        start = at + _U32.size
        end = start + _U32.unpack_from(self.data, at)[0]
        return self.data[start:end], end

    def read_scaled_decimal(self, at: int) -> tuple[ScaledDecimal, int]:
        return ScaledDecimal(*_SCALED_DECIMAL.unpack_from(self.data, at)), at + _SCALED_DECIMAL.size

    def read_void(self, at: int) -> tuple[None, int]:
        return None, at

    def _read_value(self, at: int) -> tuple[FieldValue, int]:
        if not self.entries_left:
            raise AmqpSyntaxError("field table has too many entries")
        self.entries_left -= 1
        letter = self.data[at]
        read = _READERS.get(letter)
        if read is None:
            raise FrameError(f"field table contains a value of unknown type {chr(letter)!r}")
        return read(self, at + 1)

    def _enter_container(self, at: int) -> tuple[int, int]:
        start = at + _U32.size
        end: int = start + _U32.unpack_from(self.data, at)[0]
        if end > len(self.data):
            raise FrameError("field table is truncated")
        if not self.levels_left:
            raise AmqpSyntaxError(f"field table has more than {MAX_NESTING_LEVEL} nested levels")
        self.levels_left -= 1
        return start, end

    def _leave_container(self, at: int, end: int) -> None:
        if at != end:
            raise FrameError("field table contains a value that exceeds its table or array")
        self.levels_left += 1


_ValueReader = Callable[[_TableDecoder, int], tuple[FieldValue, int]]


def _make_fixed_reader(layout: struct.Struct, convert: Callable[[Any], FieldValue]) -> _ValueReader:
    unpack, size = layout.unpack_from, layout.size

    def read(decoder: _TableDecoder, at: int) -> tuple[FieldValue, int]:
        return convert(unpack(decoder.data, at)[0]), at + size

    return read


_READERS: Final[dict[int, _ValueReader]] = {
    ord("S"): _TableDecoder.read_string,
    ord("x"): _TableDecoder.read_bytes,
    ord("A"): _TableDecoder.read_array,
    ord("F"): _TableDecoder.read_table,
    ord("D"): _TableDecoder.read_scaled_decimal,
    ord("V"): _TableDecoder.read_void,
} | {
    ord(letter): _make_fixed_reader(struct.Struct(">" + layout), python_type)
    for letter, layout, python_type in _FIXED_WIDTH_TYPES
}


# ── encoding ──────────────────────────────────────────────────────────────────────────────────────


def encode_table(table: FieldTable) -> bytes:
    """Encode a table with its size in front.

    Raises `ValueError` if it is nested too deeply or has a value that cannot be encoded. The number of entries
    is not limited here, because a broker that adds a header to a full table must not fail.
    """
    return _encode_table(table, MAX_NESTING_LEVEL)


def _encode_table(table: FieldTable, depth: int) -> bytes:
    _check_depth(depth)
    pieces: list[bytes] = []
    for key, value in table.items():
        name = key.encode()
        if len(name) > 255:
            raise ValueError(f"a field name is limited to 255 bytes, this one has {len(name)}")
        pieces += (bytes((len(name),)), name, _encode_value(value, depth - 1))
    return _prefix_size(b"".join(pieces))


def _encode_array(array: list[FieldValue], depth: int) -> bytes:
    _check_depth(depth)
    return _prefix_size(b"".join([_encode_value(element, depth - 1) for element in array]))


def _encode_value(value: FieldValue, depth: int) -> bytes:
    for python_type in type(value).__mro__:
        write = _WRITERS.get(python_type)
        if write is not None:
            return write(value)
    if isinstance(value, dict):
        return b"F" + _encode_table(value, depth)
    if isinstance(value, list):
        return b"A" + _encode_array(value, depth)
    raise ValueError(f"a field table cannot contain a {type(value).__name__}")


def _check_depth(depth: int) -> None:
    if not depth:
        raise ValueError(f"field table has more than {MAX_NESTING_LEVEL} nested levels")


def _prefix_size(octets: bytes) -> bytes:
    return _U32.pack(len(octets)) + octets


_ValueWriter = Callable[[Any], bytes]


def _make_fixed_writer(letter: str, layout: str) -> _ValueWriter:
    prefix, pack = letter.encode(), struct.Struct(">" + layout).pack

    def write(value: object) -> bytes:
        try:
            return prefix + pack(value)
        except (struct.error, OverflowError):
            raise ValueError(f"{value} does not fit into a field of type {letter!r}") from None

    return write


def _write_integer(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return b"I" + value.to_bytes(4, "big", signed=True)
    return _WRITERS[Int64](value)


def _write_scaled_decimal(value: ScaledDecimal) -> bytes:
    try:
        return b"D" + _SCALED_DECIMAL.pack(value.scale, value.digits)
    except struct.error:
        raise ValueError(f"{value} does not fit into a field of type 'D'") from None


def _write_datetime(value: datetime) -> bytes:
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone; pass an aware datetime")
    return _WRITERS[Timestamp](int(value.timestamp()))


# An Int64 has two letters; the later one in _FIXED_WIDTH_TYPES wins: `l`, which all clients know.
_WRITERS: Final[dict[type, _ValueWriter]] = {
    python_type: _make_fixed_writer(letter, layout)
    for letter, layout, python_type in _FIXED_WIDTH_TYPES
} | {
    int: _write_integer,
    str: lambda value: b"S" + _prefix_size(value.encode()),
    LongString: lambda value: b"S" + _prefix_size(value),
    bytes: lambda value: b"x" + _prefix_size(value),
    ScaledDecimal: _write_scaled_decimal,
    datetime: _write_datetime,
    type(None): lambda _: b"V",
}
