"""Records in a file: what counts as one, and what does not."""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.journal.record import (
    CHUNK,
    HEADER_SIZE,
    LAST,
    MORE,
    OVERHEAD,
    SEAL,
    VOID,
    Stop,
    Unknown,
    header,
    mark_in,
    record,
    walk,
)


def walked(
    content: bytes, *, base: int = 0, at: int = 0, until: int | None = None, groups: bool = True
) -> tuple[list[bytes], Stop]:
    stop = Stop(-1)

    def records() -> Iterator[tuple[int, bytes]]:
        nonlocal stop
        end = len(content)
        stop = yield from walk(read, base, at, end if until is None else until, end, groups=groups)

    def read(at: int, size: int) -> bytes:
        return content[at : at + size]

    return [payload for _, payload in records()], stop


def joined(*records: tuple[int, bytes], base: int = 0) -> bytes:
    content = b""
    for kind, payload in records:
        content += record(base + len(content), kind, payload)
    return content


def test_a_file_begins_with_its_base_and_a_mark() -> None:
    start = header(1234, 567)
    assert len(start) == HEADER_SIZE
    assert mark_in(start, 1234) == 567
    assert mark_in(start, 1235) is None
    assert mark_in(start[:-1], 1234) is None
    assert mark_in(bytes(HEADER_SIZE), 0) is None


@given(st.integers(0, 1 << 40), st.lists(st.binary(max_size=50), max_size=8), st.integers(0, 9))
def test_what_is_written_is_found(base: int, payloads: list[bytes], zeros: int) -> None:
    content = joined(*((LAST, payload) for payload in payloads), base=base)
    found, stop = walked(content + bytes(zeros), base=base)
    assert found == payloads
    assert stop.at == len(content)


def test_zeros_are_no_records_wherever_they_are() -> None:
    for base in (0, 1 << 32):
        found, stop = walked(bytes(100), base=base)
        assert (found, stop.at) == ([], 0)
        assert stop.damage == "there is no record of kind 0"


def test_a_record_counts_in_its_own_place_only() -> None:
    for kind in (LAST, SEAL):
        content = record(1000, kind, b"here")
        assert walked(content, base=1000)[1].at == len(content)
        for base in (0, 999, 1001, 1000 + (1 << 20)):
            assert walked(content, base=base)[1] == Stop(0, damage="the checksum is wrong")


def test_a_group_counts_only_with_its_end() -> None:
    content = joined((LAST, b"a"), (MORE, b"b"), (MORE, b"c"))
    assert walked(content) == ([b"a"], Stop(OVERHEAD + 1))
    whole = joined((LAST, b"a"), (MORE, b"b"), (MORE, b"c"), (LAST, b"d"))
    assert walked(whole) == ([b"a", b"b", b"c", b"d"], Stop(len(whole)))
    sealed = joined((MORE, b"b"), (SEAL, b""))
    assert walked(sealed) == ([], Stop(0, damage="there is no record of kind 3"))


def test_a_part_of_a_group_can_be_asked_for() -> None:
    content = joined((MORE, b"a"), (MORE, b"b"), (LAST, b"c"))
    at = OVERHEAD + 1
    assert walked(content, at=at, until=at + 1, groups=False) == ([b"b"], Stop(2 * at))


def test_nothing_is_read_behind_a_seal() -> None:
    sealed = joined((LAST, b"a"), (SEAL, b""))
    assert walked(sealed + b"rubbish") == ([b"a"], Stop(len(sealed), sealed=True))


def test_what_is_void_is_passed_over() -> None:
    content = joined((MORE, b"a"), (VOID, b"gone"), (MORE, b"b"), (LAST, b"c"), (VOID, b""))
    assert walked(content) == ([b"a", b"b", b"c"], Stop(len(content)))


@pytest.mark.parametrize("size", [CHUNK - OVERHEAD - 1, CHUNK - OVERHEAD, CHUNK, 3 * CHUNK])
def test_records_cross_the_chunks_that_are_read(size: int) -> None:
    payloads = [b"small", bytes(size), b"", b"x" * size, b"end"]
    content = joined(*((LAST, payload) for payload in payloads))
    assert walked(content) == (payloads, Stop(len(content)))


def test_a_size_that_goes_beyond_the_file_is_not_believed() -> None:
    content = joined((LAST, b"a")) + b"\xff\xff\xff\xff\x01" + bytes(10)
    assert walked(content) == ([b"a"], Stop(OVERHEAD + 1, damage="the file ends within a record"))


def test_a_whole_header_of_another_format_is_no_damage() -> None:
    start = header(7, 3).replace(b"recado/1", b"recado/2")
    assert mark_in(start, 7) is None
    whole = start[:-4] + crc32(start[:-4] + bytes(4)).to_bytes(4, "little")
    with pytest.raises(Unknown, match="later release"):
        mark_in(whole, 7)
