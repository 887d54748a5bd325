"""A block: the messages of a batch as columns, in the byte format of packets and of the archive's journal.

    block  = | timestamps: i64 × count | key | message id | headers | properties | body |      little-endian
    column = | mode u8 = 0 |                                   every value is empty
             | mode u8 = 1 | size u32 | bytes |                every value is the same
             | mode u8 = 2 | sizes: u32 × count | bytes |      varying values, concatenated

Timestamps are microseconds since 1970 UTC. Headers are an AMQP table with its size in front, properties an AMQP
property list with its flags, both as on the wire; keys and ids are UTF-8. This module does not decode them.

Encoding and decoding work on whole columns: one call of struct and one join, independent of the number of
messages. An archive builds Arrow columns from `sizes` and `data` without touching single messages.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple

MAX_MESSAGE_COUNT: Final = 65_536
MAX_BLOCK_BYTES: Final = 16 * 1024 * 1024
MAX_EXPANDED_BYTES: Final = 16 * MAX_BLOCK_BYTES
"""Limit for the values of all messages: a constant value is transmitted once, but rows have a copy each."""
MAX_KEY_BYTES: Final = 255

KEY_INDEX: Final = 0
MESSAGE_ID_INDEX: Final = 1
HEADERS_INDEX: Final = 2
PROPERTIES_INDEX: Final = 3
BODY_INDEX: Final = 4
COLUMN_COUNT: Final = 5

ALL_EMPTY_CODE: Final = 0
CONSTANT_CODE: Final = 1
VARYING_CODE: Final = 2

_U32: Final = Struct("<I")


class MalformedDataError(ValueError):
    """Bytes from the network or from disk that do not have the expected format."""


class Column(NamedTuple):
    """One column of a block: with mode 2 (varying), `sizes` has one entry per message and `data` the
    concatenated values; with mode 1 (constant), `data` is the value."""

    mode: int
    sizes: tuple[int, ...]
    data: bytes

    def values(self, count: int) -> list[bytes]:
        match self.mode:
            case 0:
                return [b""] * count
            case 1:
                return [self.data] * count
            case _:
                data = self.data
                ends = list(accumulate(self.sizes))
                return [data[end - size : end] for end, size in zip(ends, self.sizes, strict=True)]


class Block:
    """Immutable and well-formed: `parse` rejects anything else."""

    __slots__ = ("_columns", "count", "data")

    def __init__(self, count: int, data: bytes, columns: tuple[Column, ...]) -> None:
        self.count = count
        self.data = data
        self._columns = columns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and self.count == other.count and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"Block({self.count} messages, {len(self.data)} bytes)"

    @classmethod
    def build(
        cls,
        bodies: Sequence[bytes],
        *,
        timestamps: Sequence[int] | int = 0,
        keys: Sequence[bytes] | bytes = b"",
        message_ids: Sequence[bytes] | bytes = b"",
        headers: Sequence[bytes] | bytes = b"",
        properties: Sequence[bytes] | bytes = b"",
    ) -> "Block":
        """Build a block; a single value applies to every message. Raises `ValueError` if lengths differ or a
        size limit is exceeded."""
        count = len(bodies)
        if isinstance(timestamps, int):
            timestamps = [timestamps] * count
        inputs = (keys, message_ids, headers, properties, bodies)
        if not 0 < count <= MAX_MESSAGE_COUNT:
            raise ValueError(f"a block must have 1 to {MAX_MESSAGE_COUNT} messages, not {count}")
        if any(not isinstance(values, bytes) and len(values) != count for values in inputs):
            raise ValueError(f"every column must have {count} values, or one for all messages")
        columns = tuple(map(_encode_column, inputs))
        parts = [pack(f"<{count}q", *timestamps)]
        for column in columns:
            _write_column(column, parts)
        data = b"".join(parts)
        if len(data) > MAX_BLOCK_BYTES:
            raise ValueError(f"block of {len(data)} bytes exceeds the limit of {MAX_BLOCK_BYTES}")
        if (size := _expanded_size(columns, count)) > MAX_EXPANDED_BYTES:
            raise ValueError(
                f"block with values of {size} bytes exceeds the limit of {MAX_EXPANDED_BYTES}"
            )
        return cls(count, data, columns)

    @classmethod
    def parse(cls, data: bytes, count: int) -> "Block":
        """Parse a block of `count` messages; raise `MalformedDataError` if it is invalid."""
        if not 0 < count <= MAX_MESSAGE_COUNT or len(data) > MAX_BLOCK_BYTES:
            raise MalformedDataError(f"block of {count} messages and {len(data)} bytes")
        at = 8 * count
        columns = []
        for _ in range(COLUMN_COUNT):
            column, at = _read_column(data, at, count)
            columns.append(column)
        if at != len(data):
            raise MalformedDataError(f"{len(data) - at} bytes after the last column")
        if _expanded_size(columns, count) > MAX_EXPANDED_BYTES:
            raise MalformedDataError(
                f"{count} messages with values of more than {MAX_EXPANDED_BYTES} bytes"
            )
        return cls(count, data, tuple(columns))

    def timestamps(self) -> tuple[int, ...]:
        return unpack_from(f"<{self.count}q", self.data)

    def column(self, index: int) -> Column:
        return self._columns[index]

    def values(self, index: int) -> list[bytes]:
        return self._columns[index].values(self.count)

    def slice(self, start: int, stop: int) -> "Block":
        """Return messages start..stop-1 as a new block."""
        if start == 0 and stop == self.count:
            return self
        count = stop - start
        assert 0 <= start < stop <= self.count
        columns = tuple(_slice_column(column, start, stop) for column in self._columns)
        parts = [self.data[8 * start : 8 * stop]]
        for column in columns:
            _write_column(column, parts)
        return Block(count, b"".join(parts), columns)

    def message_sizes(self) -> list[int]:
        """Return the approximate number of bytes that each message takes in a block of its own."""
        fixed = 8 + COLUMN_COUNT
        each = []
        for column in self._columns:
            if column.mode == CONSTANT_CODE:
                fixed += len(column.data) + 4
            elif column.mode == VARYING_CODE:
                each.append(column.sizes)
        fixed += 4 * len(each)
        return (
            [fixed + sum(row) for row in zip(*each, strict=True)] if each else [fixed] * self.count
        )


def join_blocks(blocks: Iterable[Block]) -> Block:
    """Concatenate blocks of consecutive messages."""
    first, *others = blocks
    if not others:
        return first
    every = (first, *others)
    timestamps = [t for block in every for t in block.timestamps()]
    values = [[v for block in every for v in block.values(c)] for c in range(COLUMN_COUNT)]
    return Block.build(
        values[BODY_INDEX],
        timestamps=timestamps,
        keys=values[KEY_INDEX],
        message_ids=values[MESSAGE_ID_INDEX],
        headers=values[HEADERS_INDEX],
        properties=values[PROPERTIES_INDEX],
    )


def _encode_column(values: Sequence[bytes] | bytes) -> Column:
    if isinstance(values, bytes):
        return Column(CONSTANT_CODE, (), values) if values else Column(ALL_EMPTY_CODE, (), b"")
    first = values[0]
    # `count` compares in C, so this is the fastest test for a list of equal values.
    if list(values).count(first) == len(values):
        return Column(CONSTANT_CODE, (), first) if first else Column(ALL_EMPTY_CODE, (), b"")
    return Column(VARYING_CODE, tuple(map(len, values)), b"".join(values))


def _write_column(column: Column, parts: list[bytes]) -> None:
    parts.append(bytes((column.mode,)))
    if column.mode == CONSTANT_CODE:
        parts.append(_U32.pack(len(column.data)))
    elif column.mode == VARYING_CODE:
        parts.append(pack(f"<{len(column.sizes)}I", *column.sizes))
    parts.append(column.data)


def _read_column(data: bytes, at: int, count: int) -> tuple[Column, int]:
    size = len(data)
    if at >= size:
        raise MalformedDataError("block ends before its last column")
    mode = data[at]
    at += 1
    if mode == ALL_EMPTY_CODE:
        return Column(ALL_EMPTY_CODE, (), b""), at
    numbers = 1 if mode == CONSTANT_CODE else count
    if mode not in (CONSTANT_CODE, VARYING_CODE) or at + 4 * numbers > size:
        raise MalformedDataError(f"column of mode {mode} in {size - at} bytes")
    sizes: tuple[int, ...] = unpack_from(f"<{numbers}I", data, at)
    at += 4 * numbers
    end = at + sum(sizes)
    if end > size:
        raise MalformedDataError(f"column of {end - at} bytes where {size - at} are left")
    return Column(mode, sizes if mode == VARYING_CODE else (), data[at:end]), end


def _expanded_size(columns: Iterable[Column], count: int) -> int:
    return sum(len(c.data) * (count if c.mode == CONSTANT_CODE else 1) for c in columns)


def _slice_column(column: Column, start: int, stop: int) -> Column:
    if column.mode != VARYING_CODE:
        return column
    low = sum(column.sizes[:start])
    sizes = column.sizes[start:stop]
    return Column(VARYING_CODE, sizes, column.data[low : low + sum(sizes)])
