"""Journals of one machine are read on another, whichever of the two libraries it has."""

import zlib

from hypothesis import given
from hypothesis import strategies as st

from recado.journal.checksum import crc32


@given(st.binary(max_size=5000), st.integers(0, 0xFFFF_FFFF))
def test_it_is_that_of_zlib(data: bytes, start: int) -> None:
    assert crc32(data, start) == zlib.crc32(data, start)
    assert crc32(memoryview(data)) == zlib.crc32(data)
