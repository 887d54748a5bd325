"""A block: the messages of a batch as columns, in the bytes in which they travel and are stored.

    block  = | timestamps: i64 × count | key | message id | headers | properties | body |      little-endian
    column = | mode u8 = 0 |                                   every value is empty
             | mode u8 = 1 | size u32 | bytes |                every value is the same
             | mode u8 = 2 | sizes: u32 × count | bytes |      each its own, one after the other

Timestamps are microseconds since 1970, UTC. Headers are an AMQP table with its size in front, properties are
an AMQP property list with its flags, both as on the wire; keys and ids are UTF-8. Nothing here looks into them.

So a block is written and read by column: one call of struct and one join, however many messages it has; an
archive makes Arrow columns from `sizes` and `data` and touches no message.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from struct import Struct, pack, unpack_from
from typing import Final, NamedTuple

MAX_COUNT: Final = 65_536
MAX_BLOCK: Final = 16 * 1024 * 1024
MAX_EXPANDED: Final = 16 * MAX_BLOCK
"""What the values of all messages may have in bytes: a value that is the same for all travels once, but who
makes rows of them has it for each."""
MAX_KEY: Final = 255

KEY: Final = 0
MESSAGE_ID: Final = 1
HEADERS: Final = 2
PROPERTIES: Final = 3
BODY: Final = 4
COLUMNS: Final = 5

EMPTY: Final = 0
SAME: Final = 1
EACH: Final = 2

_U32: Final = Struct("<I")


class Malformed(ValueError):
    """Bytes from the network that are not what they should be."""


class Column(NamedTuple):
    """One column of a block: with mode EACH, `sizes` has one per message and `data` their bytes, with mode SAME
    `data` is the one value."""

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
    """Whole and well-formed by construction: `parse` refuses what is not."""

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
    def of(
        cls,
        bodies: Sequence[bytes],
        *,
        timestamps: Sequence[int] | int = 0,
        keys: Sequence[bytes] | bytes = b"",
        message_ids: Sequence[bytes] | bytes = b"",
        headers: Sequence[bytes] | bytes = b"",
        properties: Sequence[bytes] | bytes = b"",
    ) -> "Block":
        """What is given once counts for every message. Raises ValueError if lengths differ or it is too
        much."""
        count = len(bodies)
        if isinstance(timestamps, int):
            timestamps = [timestamps] * count
        given = (keys, message_ids, headers, properties, bodies)
        if not 0 < count <= MAX_COUNT:
            raise ValueError(f"a block has 1 to {MAX_COUNT} messages, not {count}")
        if any(not isinstance(values, bytes) and len(values) != count for values in given):
            raise ValueError(f"every column of this block has {count} values, or one for all")
        columns = tuple(map(_gather, given))
        parts = [pack(f"<{count}q", *timestamps)]
        for column in columns:
            _write(column, parts)
        data = b"".join(parts)
        if len(data) > MAX_BLOCK:
            raise ValueError(f"a block has at most {MAX_BLOCK} bytes, not {len(data)}")
        if (size := _expanded(columns, count)) > MAX_EXPANDED:
            raise ValueError(f"the values of a block have at most {MAX_EXPANDED} bytes, not {size}")
        return cls(count, data, columns)

    @classmethod
    def parse(cls, data: bytes, count: int) -> "Block":
        """Raises Malformed."""
        if not 0 < count <= MAX_COUNT or len(data) > MAX_BLOCK:
            raise Malformed(f"a block of {count} messages and {len(data)} bytes")
        at = 8 * count
        columns = []
        for _ in range(COLUMNS):
            column, at = _read(data, at, count)
            columns.append(column)
        if at != len(data):
            raise Malformed(f"{len(data) - at} bytes behind the last column")
        if _expanded(columns, count) > MAX_EXPANDED:
            raise Malformed(f"{count} messages of more than {MAX_EXPANDED} bytes in all")
        return cls(count, data, tuple(columns))

    def timestamps(self) -> tuple[int, ...]:
        return unpack_from(f"<{self.count}q", self.data)

    def column(self, which: int) -> Column:
        return self._columns[which]

    def values(self, which: int) -> list[bytes]:
        return self._columns[which].values(self.count)

    def slice(self, start: int, stop: int) -> "Block":
        """Messages start..stop-1 as a block of their own."""
        if start == 0 and stop == self.count:
            return self
        count = stop - start
        assert 0 <= start < stop <= self.count
        columns = tuple(_cut(column, start, stop) for column in self._columns)
        parts = [self.data[8 * start : 8 * stop]]
        for column in columns:
            _write(column, parts)
        return Block(count, b"".join(parts), columns)

    def sizes(self) -> list[int]:
        """About how many bytes each message takes in a block of its own."""
        fixed = 8 + COLUMNS
        each = []
        for column in self._columns:
            if column.mode == SAME:
                fixed += len(column.data) + 4
            elif column.mode == EACH:
                each.append(column.sizes)
        fixed += 4 * len(each)
        return (
            [fixed + sum(row) for row in zip(*each, strict=True)] if each else [fixed] * self.count
        )


def joined(blocks: Iterable[Block]) -> Block:
    """Blocks of consecutive messages as one."""
    first, *others = blocks
    if not others:
        return first
    every = (first, *others)
    timestamps = [t for block in every for t in block.timestamps()]
    values = [[v for block in every for v in block.values(c)] for c in range(COLUMNS)]
    return Block.of(
        values[BODY],
        timestamps=timestamps,
        keys=values[KEY],
        message_ids=values[MESSAGE_ID],
        headers=values[HEADERS],
        properties=values[PROPERTIES],
    )


def _gather(values: Sequence[bytes] | bytes) -> Column:
    if isinstance(values, bytes):
        return Column(SAME, (), values) if values else Column(EMPTY, (), b"")
    first = values[0]
    # A list that is all one value is as long as its count of that value; `count` compares in C.
    if list(values).count(first) == len(values):
        return Column(SAME, (), first) if first else Column(EMPTY, (), b"")
    return Column(EACH, tuple(map(len, values)), b"".join(values))


def _write(column: Column, parts: list[bytes]) -> None:
    parts.append(bytes((column.mode,)))
    if column.mode == SAME:
        parts.append(_U32.pack(len(column.data)))
    elif column.mode == EACH:
        parts.append(pack(f"<{len(column.sizes)}I", *column.sizes))
    parts.append(column.data)


def _read(data: bytes, at: int, count: int) -> tuple[Column, int]:
    size = len(data)
    if at >= size:
        raise Malformed("a block ends before its last column")
    mode = data[at]
    at += 1
    if mode == EMPTY:
        return Column(EMPTY, (), b""), at
    numbers = 1 if mode == SAME else count
    if mode not in (SAME, EACH) or at + 4 * numbers > size:
        raise Malformed(f"a column of mode {mode} in {size - at} bytes")
    sizes: tuple[int, ...] = unpack_from(f"<{numbers}I", data, at)
    at += 4 * numbers
    end = at + sum(sizes)
    if end > size:
        raise Malformed(f"a column of {end - at} bytes where {size - at} are left")
    return Column(mode, sizes if mode == EACH else (), data[at:end]), end


def _expanded(columns: Iterable[Column], count: int) -> int:
    return sum(len(c.data) * (count if c.mode == SAME else 1) for c in columns)


def _cut(column: Column, start: int, stop: int) -> Column:
    if column.mode != EACH:
        return column
    low = sum(column.sizes[:start])
    sizes = column.sizes[start:stop]
    return Column(EACH, sizes, column.data[low : low + sum(sizes)])
