"""When certificates expire, compared with what the library cryptography reads."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

from recado.node.x509 import read_expiry_date, read_expiry_dates

EARLIER = datetime(1950, 1, 1, tzinfo=UTC)


def make_certificate(
    expires: datetime, key: CertificateIssuerPrivateKeyTypes | None = None, name: str = "a"
) -> x509.Certificate:
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, name)] * 4)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1 << 150)
        .not_valid_before(EARLIER)
        .not_valid_after(expires)
        .sign(key, hashes.SHA256())
    )


@pytest.mark.parametrize(
    "expires",
    [
        datetime(1951, 2, 3, 4, 5, 6, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2050, 1, 1, tzinfo=UTC),  # the first one in the other format
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ],
    ids=lambda date: str(date.year),
)
def test_the_date_is_read(expires: datetime) -> None:
    der = make_certificate(expires).public_bytes(serialization.Encoding.DER)
    assert read_expiry_date(der) == expires


def test_long_names_and_keys_move_the_date() -> None:
    expires = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    key = rsa.generate_private_key(65537, 2048)
    der = make_certificate(expires, key, "long" * 15).public_bytes(serialization.Encoding.DER)
    assert read_expiry_date(der) == expires


def test_all_certificates_of_a_file_are_read_in_order() -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    authority = trustme.CA()
    issued = [authority.issue_cert("a", not_after=now + timedelta(days=day)) for day in (3, -1, 2)]
    pem = b"# a comment\n" + b"\n".join(
        each.private_key_pem.bytes() + each.cert_chain_pems[0].bytes() for each in issued
    )
    assert read_expiry_dates(pem) == [now + timedelta(days=day) for day in (3, -1, 2)]
    assert read_expiry_dates(b"") == []


def test_anything_else_is_refused() -> None:
    der = make_certificate(EARLIER + timedelta(days=1)).public_bytes(serialization.Encoding.DER)
    end = der.index(b"5001020") + len("500102000000Z")  # of the date
    for size in range(end):
        with pytest.raises(ValueError, match=r"not a certificate|does not match format"):
            read_expiry_date(der[:size])
    for position in range(end):
        damaged = bytearray(der)
        damaged[position] ^= 0x55
        with suppress(ValueError):  # any other exception fails the test
            read_expiry_date(bytes(damaged))
