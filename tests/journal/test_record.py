"""Records in a file: valid and invalid ones."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.journal.record import (
    FILE_HEADER_BYTES,
    LAST,
    MORE,
    READ_CHUNK_BYTES,
    RECORD_HEADER_BYTES,
    SEAL,
    VOID,
    ScanEnd,
    UnknownFormatError,
    decode_mark,
    encode_file_header,
    encode_record,
    scan_records,
)


def walked(
    content: bytes, *, base: int = 0, at: int = 0, until: int | None = None, groups: bool = True
) -> tuple[list[bytes], ScanEnd]:
    stop = ScanEnd(-1)

    def records() -> Iterator[tuple[int, bytes]]:
        nonlocal stop
        end = len(content)
        stop = yield from scan_records(
            read, base, at, end if until is None else until, end, whole_groups=groups
        )

    def read(at: int, size: int) -> bytes:
        return content[at : at + size]

    return [payload for _, payload in records()], stop


def joined(*records: tuple[int, bytes], base: int = 0) -> bytes:
    content = b""
    for kind, payload in records:
        content += encode_record(base + len(content), kind, payload)
    return content


def test_a_file_begins_with_its_base_and_a_mark() -> None:
    start = encode_file_header(1234, 567)
    assert len(start) == FILE_HEADER_BYTES
    assert decode_mark(start, 1234) == 567
    assert decode_mark(start, 1235) is None
    assert decode_mark(start[:-1], 1234) is None
    assert decode_mark(bytes(FILE_HEADER_BYTES), 0) is None


@given(st.integers(0, 1 << 40), st.lists(st.binary(max_size=50), max_size=8), st.integers(0, 9))
def test_written_records_are_recovered(base: int, payloads: list[bytes], zeros: int) -> None:
    content = joined(*((LAST, payload) for payload in payloads), base=base)
    found, stop = walked(content + bytes(zeros), base=base)
    assert found == payloads
    assert stop.offset == len(content)


def test_zeros_are_no_records_wherever_they_are() -> None:
    for base in (0, 1 << 32):
        found, stop = walked(bytes(100), base=base)
        assert (found, stop.offset) == ([], 0)
        assert stop.damage == "record kind 0 is not valid here"


def test_a_record_is_valid_at_its_own_position_only() -> None:
    for kind in (LAST, SEAL):
        content = encode_record(1000, kind, b"here")
        assert walked(content, base=1000)[1].offset == len(content)
        for base in (0, 999, 1001, 1000 + (1 << 20)):
            assert walked(content, base=base)[1] == ScanEnd(0, damage="the checksum is wrong")


def test_a_group_counts_only_with_its_end() -> None:
    content = joined((LAST, b"a"), (MORE, b"b"), (MORE, b"c"))
    assert walked(content) == ([b"a"], ScanEnd(RECORD_HEADER_BYTES + 1))
    whole = joined((LAST, b"a"), (MORE, b"b"), (MORE, b"c"), (LAST, b"d"))
    assert walked(whole) == ([b"a", b"b", b"c", b"d"], ScanEnd(len(whole)))
    sealed = joined((MORE, b"b"), (SEAL, b""))
    assert walked(sealed) == ([], ScanEnd(0, damage="record kind 3 is not valid here"))


def test_a_part_of_a_group_can_be_asked_for() -> None:
    content = joined((MORE, b"a"), (MORE, b"b"), (LAST, b"c"))
    at = RECORD_HEADER_BYTES + 1
    assert walked(content, at=at, until=at + 1, groups=False) == ([b"b"], ScanEnd(2 * at))


def test_nothing_is_read_behind_a_seal() -> None:
    sealed = joined((LAST, b"a"), (SEAL, b""))
    assert walked(sealed + b"rubbish") == ([b"a"], ScanEnd(len(sealed), sealed=True))


def test_void_records_are_skipped() -> None:
    content = joined((MORE, b"a"), (VOID, b"gone"), (MORE, b"b"), (LAST, b"c"), (VOID, b""))
    assert walked(content) == ([b"a", b"b", b"c"], ScanEnd(len(content)))


@pytest.mark.parametrize(
    "size",
    [
        READ_CHUNK_BYTES - RECORD_HEADER_BYTES - 1,
        READ_CHUNK_BYTES - RECORD_HEADER_BYTES,
        READ_CHUNK_BYTES,
        3 * READ_CHUNK_BYTES,
    ],
)
def test_records_cross_the_chunks_that_are_read(size: int) -> None:
    payloads = [b"small", bytes(size), b"", b"x" * size, b"end"]
    content = joined(*((LAST, payload) for payload in payloads))
    assert walked(content) == (payloads, ScanEnd(len(content)))


def test_a_size_that_goes_beyond_the_file_is_not_believed() -> None:
    content = joined((LAST, b"a")) + b"\xff\xff\xff\xff\x01" + bytes(10)
    assert walked(content) == (
        [b"a"],
        ScanEnd(RECORD_HEADER_BYTES + 1, damage="the file ends within a record"),
    )


def test_a_whole_header_of_another_format_is_no_damage() -> None:
    start = encode_file_header(7, 3).replace(b"recado/1", b"recado/2")
    assert decode_mark(start, 7) is None
    whole = start[:-4] + crc32(start[:-4] + bytes(4)).to_bytes(4, "little")
    with pytest.raises(UnknownFormatError, match="later release"):
        decode_mark(whole, 7)
