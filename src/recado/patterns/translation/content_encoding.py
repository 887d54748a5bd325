"""Content encodings: bodies that are compressed, `gzip` or `deflate` as in HTTP.

A small body can become a very large one, so the size of the result is limited while it is decompressed. Programs put
other things into this property too, such as a charset (Celery: `utf-8`); those bodies are not compressed.
"""

import gzip
import zlib
from typing import Final

from ..errors import TranslationError

_GZIP_NAMES: Final = frozenset({"gzip", "x-gzip"})
_SUPPORTED: Final = _GZIP_NAMES | {"deflate"}
_UNSUPPORTED: Final = frozenset(
    {"br", "bzip2", "compress", "lz4", "lzma", "snappy", "x-bzip2", "x-compress", "xz", "zstd"}
)
_GZIP_OR_ZLIB_WBITS: Final = 32 + zlib.MAX_WBITS
_RAW_DEFLATE_WBITS: Final = -zlib.MAX_WBITS
_GZIP_LEVEL: Final = 6


def is_compressed(encoding: str | None) -> bool:
    """Whether a content encoding is one that this module decompresses."""
    return encoding is not None and encoding.strip().lower() in _SUPPORTED


def compress(body: bytes, encoding: str) -> bytes:
    """Return a body in a content encoding that `is_compressed` knows."""
    if encoding.strip().lower() in _GZIP_NAMES:
        return gzip.compress(body, _GZIP_LEVEL, mtime=0)
    return zlib.compress(body, _GZIP_LEVEL)


def decompress(body: bytes, encoding: str | None, size_max: int) -> bytes:
    """Return a body without its content encoding.

    Raises TranslationError if it is larger than `size_max` bytes, damaged, or compressed in another way.
    """
    if encoding is None:
        return body
    name = encoding.strip().lower()
    if name in _UNSUPPORTED:
        raise TranslationError(
            f"content encoding '{name}' is not supported: send gzip, deflate, or no compression"
        )
    if name not in _SUPPORTED:
        return body
    try:
        return _inflate(body, _GZIP_OR_ZLIB_WBITS, size_max)
    except zlib.error as error:
        if name == "deflate":  # many programs omit the header of zlib
            try:
                return _inflate(body, _RAW_DEFLATE_WBITS, size_max)
            except zlib.error:
                pass
        raise TranslationError(f"body of {len(body)} bytes is not {name}: {error}") from error


def _inflate(body: bytes, wbits: int, size_max: int) -> bytes:
    parts: list[bytes] = []
    left = size_max
    while body:
        inflater = zlib.decompressobj(wbits)
        part = inflater.decompress(body, left + 1)
        left -= len(part)
        if left < 0:
            raise TranslationError(
                f"decompressed body is larger than {size_max} bytes (body_bytes_max of Translators)"
            )
        if not inflater.eof:
            raise zlib.error("it ends too early")
        parts.append(part)
        body = inflater.unused_data  # gzip may have several members
    return b"".join(parts)
