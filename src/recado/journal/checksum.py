"""CRC-32, as zlib has it: by isal 100 kB take 2 µs instead of 28, and 100 bytes 0.06 instead of 0.19."""

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # pragma: no cover (there is a wheel for nearly every machine)
    from zlib import crc32 as crc32
