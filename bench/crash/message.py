"""The body of a message: its publisher, its number, and a checksum over everything.

| checksum, 8 hexadecimal digits | space | publisher | space | number | line feed | filling |
"""

from __future__ import annotations

import zlib
from random import Random
from typing import Final

from bench.crash.history import Message

_CHECKSUM: Final = 8
_FILLING: Final = Random(0).randbytes(512 * 1024)


def make(message: Message, size: int) -> bytes:
    """Return a body with so many bytes of filling, which differ for each number."""
    publisher, number = message
    at = number * 31 % (len(_FILLING) // 2)
    rest = b" %s %d\n%s" % (publisher.encode(), number, _FILLING[at : at + size])
    return b"%08x%s" % (zlib.crc32(rest), rest)


def parse(body: bytes) -> Message | None:
    """Which message it is; None if anything about it is wrong."""
    rest = body[_CHECKSUM:]
    if body[:_CHECKSUM] != b"%08x" % zlib.crc32(rest):
        return None
    publisher, number = rest[: rest.index(b"\n")].split()
    return publisher.decode(), int(number)


def size(rng: Random, *, large: bool) -> int:
    """Of the filling: mostly small, some large enough for several frames; or large ones for once."""
    scale = rng.random()
    if scale < 0.9:
        return rng.randrange(120_000 if large else 200)
    return rng.randrange(20_000) if scale < 0.995 else rng.randrange(250_000)
