"""Bodies made smaller, and made whole again without trusting them.

C1  Nothing expands beyond the cap: no more than the cap and one byte is ever made of a body.
C2  What is cut short, goes on behind its end, or is not compressed at all is an error, never a shorter body.
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

import zstandard

from recado.actors.remote.faults import BadEnvelope

from .envelope_pb2 import PLAIN, ZLIB, ZSTD

WORTHWHILE: Final = 512  # bytes; smaller bodies are sent as they are
WINDOW: Final = 8 << 20  # bytes that a zstd frame may ask us to keep while it is expanded

Scheme = Literal["none", "zlib", "zstd"]
LEVEL_MOST: Final[dict[Scheme, int]] = {"none": 22, "zlib": 9, "zstd": 22}


class Compressor:
    """How this node compresses; whoever it is that sends to it chooses for themselves."""

    def __init__(self, scheme: Scheme, level: int | None = None) -> None:
        self._scheme = scheme
        self._zlib_level = -1 if level is None else level
        self._zstd = zstandard.ZstdCompressor(level=3 if level is None else level)

    def compress(self, body: bytes) -> tuple[int, bytes]:
        """The body as it is sent, and how it was compressed: not at all if that does not pay."""
        if self._scheme == "none" or len(body) < WORTHWHILE:
            return PLAIN, body
        if self._scheme == "zlib":
            scheme, smaller = int(ZLIB), zlib.compress(body, self._zlib_level)
        else:
            scheme, smaller = int(ZSTD), self._zstd.compress(body)
        return (scheme, smaller) if len(smaller) < len(body) else (PLAIN, body)


def expand(scheme: int, body: bytes, cap: int) -> bytes:
    """Raises BadEnvelope."""
    if scheme == PLAIN:
        return body
    if scheme == ZLIB:
        return _expand_zlib(body, cap)
    if scheme == ZSTD:
        return _expand_zstd(body, cap)
    raise BadEnvelope(f"unknown compression {scheme}")


def _expand_zlib(body: bytes, cap: int) -> bytes:
    machine = zlib.decompressobj()
    try:
        whole = machine.decompress(body, cap + 1)
    except zlib.error as error:
        raise BadEnvelope(f"not zlib: {error}") from None
    if len(whole) > cap:
        raise BadEnvelope(f"a body that expands to more than {cap} bytes")
    if not machine.eof or machine.unused_data:
        raise BadEnvelope("a zlib body that does not end where it should")
    return whole


def _expand_zstd(body: bytes, cap: int) -> bytes:
    """A frame says how much is in it, and zstd holds it to that: so what it says is what is looked at."""
    machine = zstandard.ZstdDecompressor(max_window_size=WINDOW)
    try:
        size = zstandard.frame_content_size(body)
        if size < 0:
            raise BadEnvelope("a zstd body that does not say its size")
        if size > cap:
            raise BadEnvelope(f"a body that expands to more than {cap} bytes")
        return machine.decompress(body, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise BadEnvelope(f"not zstd: {error}") from None
