"""Bodies that are compressed, and bodies that pretend to be."""

import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.errors import InvalidEnvelopeError
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire.compression import (
    COMPRESSION_MIN_BYTES,
    CompressionScheme,
    Compressor,
    decompress,
)
from recado.actors.remote.wire.envelope_pb2 import PLAIN, ZLIB, ZSTD

SCHEMES: list[CompressionScheme] = ["zlib", "zstd"]
CAP = 1 << 20


@given(st.sampled_from(["none", *SCHEMES]), st.binary(max_size=200), st.integers(1, 50))
def test_what_is_compressed_comes_back(scheme: CompressionScheme, part: bytes, times: int) -> None:
    number, body = Compressor(scheme).compress(part * times)
    assert decompress(number, body, CAP) == part * times


@pytest.mark.parametrize("scheme", SCHEMES)
def test_levels_are_taken(scheme: CompressionScheme) -> None:
    body = b"quote " * 1000
    number, smaller = Compressor(scheme, level=9).compress(body)
    assert decompress(number, smaller, CAP) == body


@pytest.mark.parametrize(("scheme", "most"), [("zlib", 9), ("zstd", 22)])
def test_a_level_that_it_does_not_have_is_told_at_once(
    scheme: CompressionScheme, most: int
) -> None:
    Compressor(scheme, RemoteOptions(compression=scheme, compression_level=most).compression_level)
    with pytest.raises(ValueError, match=f"at most {most} for {scheme}"):
        RemoteOptions(compression=scheme, compression_level=most + 1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_is_small_or_does_not_shrink_is_left(scheme: CompressionScheme) -> None:
    compressor = Compressor(scheme)
    small = bytes(COMPRESSION_MIN_BYTES - 1)
    assert compressor.compress(small) == (PLAIN, small)
    _, dense = compressor.compress(bytes(range(256)) * 40)
    assert compressor.compress(dense) == (PLAIN, dense)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bombs_stop_at_the_cap(scheme: CompressionScheme) -> None:
    number, bomb = Compressor(scheme).compress(bytes(64 << 20))
    assert len(bomb) < 100_000
    with pytest.raises(InvalidEnvelopeError, match="decompresses to more"):
        decompress(number, bomb, CAP)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_cap_itself_is_allowed(scheme: CompressionScheme) -> None:
    number, body = Compressor(scheme).compress(bytes(CAP))
    assert len(decompress(number, body, CAP)) == CAP
    with pytest.raises(InvalidEnvelopeError):
        decompress(number, body, CAP - 1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_does_not_end_where_it_should_is_refused(scheme: CompressionScheme) -> None:
    number, body = Compressor(scheme).compress(b"abc" * 1000)
    for bad in (body[:-1], body[:3], b"", body + b"x", body + body, b"not compressed"):
        with pytest.raises(InvalidEnvelopeError):
            decompress(number, bad, CAP)


def test_a_zstd_frame_that_lies_about_its_size_is_refused() -> None:
    unsaid = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(5000))
    with pytest.raises(InvalidEnvelopeError, match="without its content size"):
        decompress(ZSTD, unsaid, CAP)


@given(st.binary(max_size=100))
def test_noise_is_an_error_and_nothing_worse(noise: bytes) -> None:
    for number in (ZLIB, ZSTD, 7):
        try:
            decompress(number, noise, CAP)
        except InvalidEnvelopeError:
            continue
        assert number == ZLIB  # hardly: by chance it is whole
        assert zlib.decompress(noise) is not None
