"""The TLS context of the listener, and a check of its files that names the one at fault.

The TLS library loads certificate and key together and seldom says which of them is wrong. It also asks the
terminal for the pass phrase of an encrypted key, where a service would wait for ever. So each file is tried by
itself first.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

from recado.node.config import ConfigError


def check_tls_files(certificate: str, key: str, ca: str | None) -> None:
    """Raise `ConfigError` for the first file that cannot be used."""
    check_certificate("server.certificate", certificate)
    check_readable("server.key", key)
    check_key(certificate, key)
    if ca is not None:
        check_certificate("server.ca", ca)


def check_readable(setting: str, file: str) -> None:
    try:
        Path(file).open("rb").close()
    except OSError as error:
        raise ConfigError(f"{setting} {file!r}: {error.strerror}") from error


def check_certificate(setting: str, file: str) -> None:
    check_readable(setting, file)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
    except ssl.SSLError as error:
        raise ConfigError(f"{setting} {file!r} has no valid certificate in PEM format") from error


def check_key(certificate: str, key: str) -> None:
    """Check a key with a certificate that is known to be valid."""

    def refuse_pass_phrase() -> NoReturn:
        raise ConfigError(
            f"server.key {key!r} is encrypted with a pass phrase, which a service cannot enter; "
            "decrypt it with `openssl pkey -in … -out …`"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, refuse_pass_phrase)
    except ssl.SSLError as error:
        if error.reason is None:  # the file is not a key at all
            raise ConfigError(
                f"server.key {key!r} has no valid private key in PEM format"
            ) from error
        raise ConfigError(
            f"server.certificate and server.key do not match: {error.reason}"
        ) from error


def server_context(certificate: str, key: str, ca: str | None, *, verify: bool) -> ssl.SSLContext:
    """Return the TLS context of a listener.

    `ca` is the file of the authority that signs client certificates; with `verify` a client must have one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED if verify else ssl.CERT_OPTIONAL
    return context
