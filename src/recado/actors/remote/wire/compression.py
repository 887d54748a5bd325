"""Bodies made smaller, and made whole again without trusting them.

C1  Nothing expands beyond the cap: no more than the cap and one byte is ever made of a body.
C2  What is cut short, goes on behind its end, or is not compressed at all is an error, never a shorter body.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

import zstandard

from recado.actors.remote.errors import InvalidEnvelopeError

from .envelope_pb2 import PLAIN, ZLIB, ZSTD

COMPRESSION_MIN_BYTES: Final = 512  # bytes; smaller bodies are sent as they are
ZSTD_WINDOW_MAX_BYTES: Final = (
    8 << 20
)  # bytes that a zstd frame may ask us to keep while it is expanded

CompressionScheme = Literal["none", "zlib", "zstd"]
MAX_LEVELS: Final[dict[CompressionScheme, int]] = {"none": 22, "zlib": 9, "zstd": 22}


class Compressor:
    """How this node compresses; whoever it is that sends to it chooses for themselves."""

    def __init__(self, scheme: CompressionScheme, level: int | None = None) -> None:
        self._scheme = scheme
        self._zlib_level = -1 if level is None else level
        self._zstd = zstandard.ZstdCompressor(level=3 if level is None else level)

    def compress(self, body: bytes) -> tuple[int, bytes]:
        """The body as it is sent, and how it was compressed: not at all if that does not pay."""
        if self._scheme == "none" or len(body) < COMPRESSION_MIN_BYTES:
            return PLAIN, body
        if self._scheme == "zlib":
            scheme, compressed = int(ZLIB), zlib.compress(body, self._zlib_level)
        else:
            scheme, compressed = int(ZSTD), self._zstd.compress(body)
        return (scheme, compressed) if len(compressed) < len(body) else (PLAIN, body)


def decompress(scheme: int, body: bytes, max_bytes: int) -> bytes:
    """Raises BadEnvelope."""
    if scheme == PLAIN:
        return body
    if scheme == ZLIB:
        return _decompress_zlib(body, max_bytes)
    if scheme == ZSTD:
        return _decompress_zstd(body, max_bytes)
    raise InvalidEnvelopeError(f"unknown compression {scheme}")


def _decompress_zlib(body: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        decompressed = decompressor.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise InvalidEnvelopeError(f"not zlib: {error}") from None
    if len(decompressed) > max_bytes:
        raise InvalidEnvelopeError(f"a body that expands to more than {max_bytes} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise InvalidEnvelopeError("a zlib body that does not end where it should")
    return decompressed


def _decompress_zstd(body: bytes, max_bytes: int) -> bytes:
    """A frame says how much is in it, and zstd holds it to that: so what it says is what is looked at."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_MAX_BYTES)
    try:
        size = zstandard.frame_content_size(body)
        if size < 0:
            raise InvalidEnvelopeError("a zstd body that does not say its size")
        if size > max_bytes:
            raise InvalidEnvelopeError(f"a body that expands to more than {max_bytes} bytes")
        return decompressor.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise InvalidEnvelopeError(f"not zstd: {error}") from None
