"""The name of a user in a client certificate, and certificates as text.

The certificates pass through a real handshake, so that their dictionaries are those of the TLS library.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID, ObjectIdentifier

from recado.server.certificate_login import (
    CertificateLogin,
    PeerCertificate,
    SanType,
    format_issuer,
    format_subject,
    format_validity,
)

Name = list[tuple[ObjectIdentifier, str]]

ANA: Name = [
    (NameOID.COUNTRY_NAME, "BR"),
    (NameOID.ORGANIZATION_NAME, "example"),
    (NameOID.COMMON_NAME, "ana"),
]
NAMES = [
    x509.DNSName("a.test"),
    x509.RFC822Name("ana@a.test"),
    x509.DNSName("b.test"),
    x509.UniformResourceIdentifier("spiffe://a/b"),
    x509.IPAddress(ip_address("127.0.0.1")),
    x509.IPAddress(ip_address("2001:db8::1")),
]


def issue(folder: Path, name: Name, *alternative_names: x509.GeneralName) -> Path:
    """Write a certificate that signs itself, and its key, to one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(x509.NameAttribute(*each) for each in name)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 2, 3, 4, 5, tzinfo=UTC))
        .not_valid_after(datetime(2120, 1, 2, 3, 4, 5, tzinfo=UTC))
    )
    if alternative_names:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative_names), False)
    certificate = builder.sign(key, hashes.SHA256())
    file = folder / "both.pem"
    file.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + certificate.public_bytes(Encoding.PEM)
    )
    return file


def present(file: Path) -> PeerCertificate:
    """Return what a server sees of a client with this certificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    for context in (server, client):
        context.load_cert_chain(file)
    server.load_verify_locations(file)
    server.verify_mode = ssl.CERT_REQUIRED
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    seen: PeerCertificate | None = ends[1].getpeercert()
    assert seen
    return seen


# What RabbitMQ 3.10 logged for these certificates.
@pytest.mark.parametrize(
    ("name", "distinguished_name", "common_name"),
    [
        (ANA, "CN=ana,O=example,C=BR", "ana"),
        (
            [(NameOID.COMMON_NAME, ' #a,b+c"d\\e<f>g;h=i ')],
            'CN=\\ #a\\,b\\+c\\"d\\\\e\\<f\\>g\\;h=i\\ ',
            ' #a,b+c"d\\e<f>g;h=i ',
        ),
        ([(NameOID.COMMON_NAME, "#joão~")], "CN=\\#jo\\C3\\A3o\\7E", "#joão~"),
        ([(NameOID.COMMON_NAME, " ")], "CN=\\ ", " "),
        ([(NameOID.COMMON_NAME, "one"), (NameOID.COMMON_NAME, "two")], "CN=two,CN=one", "one,two"),
        (
            [
                (NameOID.DOMAIN_COMPONENT, "test"),
                (NameOID.EMAIL_ADDRESS, "a@b"),
                (NameOID.GENERATION_QUALIFIER, "jr"),
                (NameOID.GIVEN_NAME, "Ana"),
                (NameOID.INITIALS, "A"),
                (NameOID.LOCALITY_NAME, "Rio"),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, "unit"),
                (NameOID.PSEUDONYM, "p"),
                (NameOID.SERIAL_NUMBER, "7"),
                (NameOID.STATE_OR_PROVINCE_NAME, "RJ"),
                (NameOID.SURNAME, "Silva"),
                (NameOID.TITLE, "Dr"),
                (NameOID.USER_ID, "u1"),
                (NameOID.STREET_ADDRESS, "st"),
                (NameOID.POSTAL_CODE, "123"),
                (ObjectIdentifier("1.2.3.4"), "own"),
            ],
            (
                "1.2.3.4=own,2.5.4.17=123,2.5.4.9=st,UID=u1,TITLE=Dr,SN=Silva,ST=RJ,SERIALNUMBER=7,PSEUDONYM=p,OU=unit,"
                "L=Rio,INITIALS=A,GIVENNAME=Ana,GENERATIONQUALIFIER=jr,EMAILADDRESS=a@b,DC=test"
            ),
            None,
        ),
        ([], None, None),
    ],
)
def test_names_are_those_of_rabbitmq(
    tmp_path: Path, name: Name, distinguished_name: str | None, common_name: str | None
) -> None:
    certificate = present(issue(tmp_path, name))
    login = CertificateLogin("distinguished_name")
    assert login.find_username(certificate) == distinguished_name
    assert CertificateLogin("common_name").find_username(certificate) == common_name
    assert format_subject(certificate) == format_issuer(certificate) == (distinguished_name or "")


@pytest.mark.parametrize(
    ("kind", "index", "username"),
    [
        ("dns", 0, "a.test"),
        ("dns", 1, "b.test"),
        ("dns", 2, None),
        ("email", 0, "ana@a.test"),
        ("uri", 0, "spiffe://a/b"),
        ("ip", 0, "127.0.0.1"),
        ("ip", 1, "2001:DB8:0:0:0:0:0:1"),
    ],
)
def test_an_alternative_name_is_chosen_by_type_and_index(
    tmp_path: Path, kind: SanType, index: int, username: str | None
) -> None:
    login = CertificateLogin("subject_alternative_name", kind, index)
    assert login.find_username(present(issue(tmp_path, ANA, *NAMES))) == username
    assert login.find_username(present(issue(tmp_path, ANA))) is None


def test_parts_of_a_name_with_several_attributes_are_joined() -> None:
    part = (("commonName", "a"), ("organizationName", "b"))
    assert format_subject({"subject": (part, (("countryName", "BR"),))}) == "C=BR,CN=a+O=b"


def test_the_validity_is_written_as_rabbitmq_writes_it(tmp_path: Path) -> None:
    certificate = present(issue(tmp_path, ANA))
    assert format_validity(certificate) == "2020-01-02T03:04:05Z - 2120-01-02T03:04:05Z"
