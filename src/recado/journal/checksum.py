"""CRC-32 with zlib's polynomial, computed by isal where it is installed.

isal takes 2 µs instead of 28 for 100 kB, and 0.06 µs instead of 0.19 for 100 bytes.
"""

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # pragma: no cover (wheels exist for nearly every platform)
    from zlib import crc32 as crc32
