"""Logins with client certificates (mechanism EXTERNAL), and client certificates as text.

A certificate is the dictionary that `ssl.SSLSocket.getpeercert` returns. It is empty or None unless the
certificate was verified, so a user name never comes from one that was not.

Names are written as RabbitMQ writes them: RFC 4514, the most specific part first, as in
`CN=ana,OU=orders,O=example`. So the names of users can be taken over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

PeerCertificate = Mapping[str, Any]
_Name = tuple[tuple[tuple[str, str], ...], ...]

# RabbitMQ's names of OpenSSL's attributes. It writes further ones as object identifiers.
_ATTRIBUTES: Final = {
    "businessCategory": "2.5.4.15",
    "commonName": "CN",
    "countryName": "C",
    "dnQualifier": "2.5.4.46",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "localityName": "L",
    "name": "2.5.4.41",
    "organizationIdentifier": "2.5.4.97",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "postalCode": "2.5.4.17",
    "pseudonym": "PSEUDONYM",
    "serialNumber": "SERIALNUMBER",
    "stateOrProvinceName": "ST",
    "streetAddress": "2.5.4.9",
    "surname": "SN",
    "title": "TITLE",
    "userId": "UID",
}
_SAN_TYPES: Final = {"dns": "DNS", "email": "email", "ip": "IP Address", "uri": "URI"}

LoginSource = Literal["common_name", "distinguished_name", "subject_alternative_name"]
SanType = Literal["dns", "email", "ip", "uri"]


class CertificateLogin(msgspec.Struct, frozen=True):
    """Which part of a client certificate is the name of the user."""

    source: LoginSource
    san_type: SanType = "dns"
    san_index: int = 0
    """Counts the alternative names of the type, from 0."""

    def find_username(self, certificate: PeerCertificate) -> str | None:
        """Return the name of the user, None if the certificate does not have such a name."""
        if self.source == "distinguished_name":
            return format_subject(certificate) or None
        if self.source == "common_name":
            # Several are joined as RabbitMQ does.
            return ",".join(_find_common_names(certificate)) or None
        wanted = _SAN_TYPES[self.san_type]
        names = [name for kind, name in certificate.get("subjectAltName", ()) if kind == wanted]
        return names[self.san_index] or None if self.san_index < len(names) else None


def format_subject(certificate: PeerCertificate) -> str:
    """Return the name of the owner, RabbitMQ's `peer_cert_subject`."""
    return _format_name(certificate.get("subject", ()))


def format_issuer(certificate: PeerCertificate) -> str:
    """Return the name of the authority that signed it, RabbitMQ's `peer_cert_issuer`."""
    return _format_name(certificate.get("issuer", ()))


def format_validity(certificate: PeerCertificate) -> str:
    """Return when it becomes valid and when it expires, RabbitMQ's `peer_cert_validity`."""
    return " - ".join(_format_time(certificate[key]) for key in ("notBefore", "notAfter"))


def _find_common_names(certificate: PeerCertificate) -> list[str]:
    return [
        value
        for part in certificate.get("subject", ())
        for attribute, value in part
        if attribute == "commonName"
    ]


def _format_name(name: _Name) -> str:
    parts = [
        "+".join(f"{_ATTRIBUTES.get(kind, kind)}={_escape(value)}" for kind, value in part)
        for part in name
    ]
    return ",".join(reversed(parts))


def _escape(value: str) -> str:
    """Escape a value as RFC 4514 says; bytes that are not printable ASCII are written as `\\C3`."""
    last = len(value) - 1
    return "".join(
        f"\\{character}"
        if character in '"+,;<>\\'
        or (index == 0 and character in " #")
        or (index == last and character == " ")
        else character
        if " " <= character < "~"
        else "".join(f"\\{octet:02X}" for octet in character.encode())
        for index, character in enumerate(value)
    )


def _format_time(text: str) -> str:
    """Return a time of OpenSSL (`Jan  5 09:34:43 2018 GMT`) in ISO 8601."""
    import ssl  # loaded already: the text is that of a TLS connection
    from datetime import UTC, datetime

    time = datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC)
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
