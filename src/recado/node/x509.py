"""The dates on which certificates expire, read from a PEM file.

The module `ssl` tells the dates of a peer's certificate only, and only if that has not expired. So the few
elements in front of the date are read here (RFC 5280, DER encoding):

    Certificate = SEQUENCE {
        tbsCertificate = SEQUENCE {
            [0] version (optional), serialNumber, signature, issuer,
            validity = SEQUENCE { notBefore, notAfter }, …
"""

from __future__ import annotations

import binascii
import re
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

PEM_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(.+?)-----END", re.DOTALL
)


class Tag(IntEnum):
    """The first byte of an element."""

    UTC_TIME = 0x17  # YYMMDDhhmmssZ; years below 50 are 2000 to 2049
    GENERALIZED_TIME = 0x18  # YYYYMMDDhhmmssZ
    SEQUENCE = 0x30
    VERSION = 0xA0


def read_expiry_dates(pem: bytes) -> list[datetime]:
    """Return until when each certificate of a PEM file is valid, in the order of the file.

    Raises `ValueError` if a certificate cannot be read.
    """
    return [read_expiry_date(binascii.a2b_base64(block)) for block in PEM_CERTIFICATE.findall(pem)]


def read_expiry_date(der: bytes) -> datetime:
    """Return until when a certificate in DER format is valid. Raises `ValueError`."""
    certificate = _enter(der, 0, Tag.SEQUENCE)
    position = _enter(der, certificate, Tag.SEQUENCE)
    if der[position] == Tag.VERSION:
        position = _skip(der, position)
    for _ in ("serialNumber", "signature", "issuer"):
        position = _skip(der, position)
    not_before = _enter(der, position, Tag.SEQUENCE)
    return _read_time(der, _skip(der, not_before))


def _enter(der: bytes, position: int, tag: Tag) -> int:
    """Return where the content of an element begins. Raises `ValueError` for another tag."""
    found, start, _ = _read_element(der, position)
    if found != tag:
        raise ValueError(f"not a certificate: tag {found:#x} at {position}, expected {tag:#x}")
    return start


def _skip(der: bytes, position: int) -> int:
    """Return where the next element begins."""
    return _read_element(der, position)[2]


def _read_element(der: bytes, position: int) -> tuple[int, int, int]:
    """Return the tag of an element, and where its content begins and ends."""
    header = der[position : position + 2]
    if len(header) < 2:
        raise ValueError(f"not a certificate: it ends at {position}")
    start, size = position + 2, header[1]
    if size >= 0x80:  # the size has several bytes: their number is in the lower bits
        size_bytes = der[start : start + (size & 0x7F)]
        start, size = start + len(size_bytes), int.from_bytes(size_bytes, "big")
    if start + size > len(der):
        raise ValueError(f"not a certificate: the element at {position} is too long")
    return header[0], start, start + size


def _read_time(der: bytes, position: int) -> datetime:
    tag, start, end = _read_element(der, position)
    text = der[start:end].decode("ascii", "replace")
    if tag == Tag.UTC_TIME:
        text = ("20" if text < "50" else "19") + text
    elif tag != Tag.GENERALIZED_TIME:
        raise ValueError(f"not a certificate: tag {tag:#x} at {position}, expected a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
