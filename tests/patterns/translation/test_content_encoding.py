"""Compressed bodies: both encodings, as programs really send them, and bodies that are dangerous."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.patterns.errors import TranslationError
from recado.patterns.translation.content_encoding import compress, decompress, is_compressed

MAX = 1 << 20


def raw_deflate(body: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflater.compress(body) + deflater.flush()


@given(st.binary(max_size=200), st.sampled_from(["gzip", "x-gzip", "deflate", " GZIP "]))
def test_round_trips(body: bytes, encoding: str) -> None:
    assert is_compressed(encoding)
    assert decompress(compress(body, encoding), encoding, MAX) == body


def test_what_other_programs_send() -> None:
    assert decompress(raw_deflate(b"order"), "deflate", MAX) == b"order"
    members = gzip.compress(b"or", mtime=0) + gzip.compress(b"der", mtime=0)
    assert decompress(members, "gzip", MAX) == b"order"


@pytest.mark.parametrize("encoding", [None, "identity", "utf-8", "binary", ""])
def test_other_values_are_no_compression(encoding: str | None) -> None:
    assert decompress(b"order", encoding, MAX) == b"order"
    assert not is_compressed(encoding)


@pytest.mark.parametrize(
    ("body", "encoding", "problem"),
    [
        (b"order", "br", "content encoding 'br' is not supported"),
        (b"order", "gzip", "body of 5 bytes is not gzip"),
        (b"order", "deflate", "body of 5 bytes is not deflate"),
        (gzip.compress(b"order", mtime=0)[:-3], "gzip", "ends too early"),
        (gzip.compress(b"order", mtime=0) + b"more", "gzip", "is not gzip"),
        (gzip.compress(bytes(MAX + 1)), "gzip", "larger than 1048576 bytes"),
        (gzip.compress(bytes(600_000)) * 2, "gzip", "larger than 1048576 bytes"),
        (raw_deflate(bytes(MAX + 1)), "deflate", "larger than 1048576 bytes"),
    ],
)
def test_bodies_that_are_refused(body: bytes, encoding: str, problem: str) -> None:
    with pytest.raises(TranslationError, match=problem):
        decompress(body, encoding, MAX)


def test_a_bomb_takes_no_more_memory_than_its_limit() -> None:
    import tracemalloc

    bomb = gzip.compress(bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(TranslationError):
            decompress(bomb, "gzip", MAX)
        assert tracemalloc.get_traced_memory()[1] < 8 * MAX
    finally:
        tracemalloc.stop()
