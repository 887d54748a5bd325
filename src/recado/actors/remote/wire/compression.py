"""Compression of message bodies, and decompression of untrusted ones.

CMP1  Decompression never produces more than the limit plus one byte.
CMP2  A truncated body, one with trailing bytes, and one that is not compressed at all are errors; none is
      returned shortened.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

import zstandard

from recado.actors.remote.errors import InvalidEnvelopeError

from .envelope_pb2 import PLAIN, ZLIB, ZSTD

COMPRESSION_MIN_BYTES: Final = 512  # smaller bodies are sent uncompressed
ZSTD_WINDOW_MAX_BYTES: Final = 8 << 20  # memory that a zstd frame may ask of its decompressor

CompressionScheme = Literal["none", "zlib", "zstd"]
MAX_LEVELS: Final[dict[CompressionScheme, int]] = {"none": 22, "zlib": 9, "zstd": 22}


class Compressor:
    """Compresses the bodies that this node sends. Each node chooses its own scheme."""

    def __init__(self, scheme: CompressionScheme, level: int | None = None) -> None:
        self._scheme = scheme
        self._zlib_level = -1 if level is None else level
        self._zstd = zstandard.ZstdCompressor(level=3 if level is None else level)

    def compress(self, body: bytes) -> tuple[int, bytes]:
        """Return the compression id and the body to send, which is unchanged if compressing does not pay."""
        if self._scheme == "none" or len(body) < COMPRESSION_MIN_BYTES:
            return PLAIN, body
        if self._scheme == "zlib":
            compression, compressed = int(ZLIB), zlib.compress(body, self._zlib_level)
        else:
            compression, compressed = int(ZSTD), self._zstd.compress(body)
        return (compression, compressed) if len(compressed) < len(body) else (PLAIN, body)


def decompress(compression: int, body: bytes, max_bytes: int) -> bytes:
    """Return the original body. Raises InvalidEnvelopeError if it is invalid or larger than `max_bytes`."""
    if compression == PLAIN:
        return body
    if compression == ZLIB:
        return _decompress_zlib(body, max_bytes)
    if compression == ZSTD:
        return _decompress_zstd(body, max_bytes)
    raise InvalidEnvelopeError(f"unknown compression {compression}")


def _decompress_zlib(body: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        decompressed = decompressor.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise InvalidEnvelopeError(f"not zlib: {error}") from None
    if len(decompressed) > max_bytes:
        raise InvalidEnvelopeError(f"a body that decompresses to more than {max_bytes} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise InvalidEnvelopeError("a zlib body that is truncated or has trailing bytes")
    return decompressed


def _decompress_zstd(body: bytes, max_bytes: int) -> bytes:
    """The header of a zstd frame states its content size, which zstd enforces: checking that is sufficient."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX_BYTES)
    try:
        size = zstandard.frame_content_size(body)
        if size < 0:
            raise InvalidEnvelopeError("a zstd body without its content size")
        if size > max_bytes:
            raise InvalidEnvelopeError(f"a body that decompresses to more than {max_bytes} bytes")
        return decompressor.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InvalidEnvelopeError(f"not zstd: {error}") from None
