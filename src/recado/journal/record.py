"""Records: how they lie in a file, and how they are found again.

    file    | "recado/1" | base u64 | mark u64 | crc32 u32 | record | record | …
    record  | size u32 | kind u8 | crc32 u32 | payload, `size` bytes |

All numbers are little-endian. `base` is the position of the file's first byte in the journal, and its name;
`mark` the position up to which all was durable when the file began.
A record's checksum begins with its position, size and kind, so that it counts in this place only: neither
zeros nor what an earlier life of the file or disk left there is ever taken for a record.
A record of kind MORE is followed by the next of its group, and counts only with all of them. SEAL ends a file.
VOID stands where a damaged record was dropped on purpose; what is left of a group then counts without it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from .checksum import crc32

if TYPE_CHECKING:
    from pathlib import Path

LAST, MORE, SEAL, VOID = 1, 2, 3, 4  # never 0: reserved zeros are no record
RECORD_HEADER = Struct("<IBI")
RECORD_HEADER_BYTES = RECORD_HEADER.size
GROUP_MAX_BYTES = (1 << 32) - 1

MAGIC = b"recado/1"
_FILE_HEADER = Struct("<8sQQI")
FILE_HEADER_BYTES = _FILE_HEADER.size

READ_CHUNK_BYTES = 1 << 20
_PAGE_BYTES = 4096
_MASK = 0xFFFF_FFFF


class CorruptJournalError(Exception):
    """What was safely on disk is there no more, or no longer as it was."""

    def __init__(self, file: Path | str, position: int, reason: str) -> None:
        super().__init__(f"{file} is damaged at position {position}: {reason}")
        self.file = str(file)
        self.position = position
        self.reason = reason


class UnknownFormatError(Exception):
    """What is on disk was written by a later release, and is whole as far as we can tell."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject}: it was written by a later release of recado; start that one")


def encode_record(position: int, kind: int, payload: bytes) -> bytes:
    return RECORD_HEADER.pack(len(payload), kind, checksum(position, kind, payload)) + payload


def checksum(position: int, kind: int, payload: bytes | memoryview) -> int:
    return crc32(payload, (position ^ len(payload) << 8 ^ kind) & _MASK)


def encode_file_header(base: int, mark: int) -> bytes:
    """The beginning of a file."""
    start = _FILE_HEADER.pack(MAGIC, base, mark, 0)
    return start[:-4] + crc32(start).to_bytes(4, "little")


def decode_mark(start: bytes, base: int) -> int | None:
    """The mark in the beginning of a file, or None if that is no whole header for this base.

    Raises Unknown if it is one of another format.
    """
    if len(start) < FILE_HEADER_BYTES:
        return None
    magic, _, mark, crc = _FILE_HEADER.unpack_from(start)
    known, number = MAGIC[:-1], magic[len(MAGIC) - 1 :]
    if magic != MAGIC and magic.startswith(known) and crc32(start[:-4] + bytes(4)) == crc:
        raise UnknownFormatError(
            f"a file of format {number.decode(errors='replace')!r} is not known here"
        )
    return mark if start == encode_file_header(base, mark) else None


class ScanEnd(NamedTuple):
    """Where a walk ended: behind the last whole group."""

    offset: int
    sealed: bool = False
    damage: str | None = None
    """What is wrong with the record that comes next, if one should."""


def scan_records(
    read: Callable[[int, int], bytes],
    base: int,
    at: int,
    until: int,
    end: int,
    *,
    whole_groups: bool,
) -> Generator[tuple[int, bytes], None, ScanEnd]:
    """Position and payload of every record that begins in [at, until), offsets in a file of `end` bytes.

    It stops at the first record that is not whole. With `groups` no part of a group comes without the rest.
    """
    # 1 M records of 120 bytes take 0.9 s, 1 GB in records of 16 KiB 0.6 s: big chunks, local names, one yield.
    unpack, overhead, mask, crc_of = RECORD_HEADER.unpack_from, RECORD_HEADER_BYTES, _MASK, crc32
    last, more = LAST, MORE
    limit = base + until
    group: list[tuple[int, bytes]] = []
    sealed, damage = False, None
    buffer = b""
    have = index = 0  # the length of the buffer, and what of it is done
    start = at  # where it begins in the file
    origin = base + at
    while True:
        wanted = overhead
        if index + overhead <= have:
            size, kind, crc = unpack(buffer, index)
            after = index + overhead + size
            if after <= have:
                position = origin + index
                if position >= limit:
                    break
                payload = buffer[index + overhead : after]
                if crc_of(payload, (position ^ size << 8 ^ kind) & mask) != crc:
                    damage = "the checksum is wrong"
                    break
                if kind == last:
                    index = after
                    if group:
                        yield from group
                        group.clear()
                    yield position, payload
                elif kind == more:
                    index = after
                    if whole_groups:
                        group.append((position, payload))
                    else:
                        yield position, payload
                elif kind == VOID:
                    index = after
                    yield from group
                    group.clear()
                elif kind == SEAL and not group:
                    index = after
                    sealed = True
                    break
                else:
                    damage = f"there is no record of kind {kind}"
                    break
                continue
            wanted += size
        start += index
        origin += index
        index = 0
        if start >= until:
            break
        buffer = b"" if start + wanted > end else read(start, _read_size(wanted, until - start))
        have = len(buffer)
        if have < wanted:
            damage = "the file ends within a record"
            break
    return ScanEnd(group[0][0] - base if group else start + index, sealed, damage)


def _read_size(wanted: int, left: int) -> int:
    """How much to read at once: no more than is asked for in all, no less than a page."""
    return max(wanted, min(READ_CHUNK_BYTES, max(left, _PAGE_BYTES)))
