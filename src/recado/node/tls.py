"""Whether the files for TLS can be used, and if not, which of them is at fault.

The TLS library loads certificate and key together and seldom says which one it means; worse, it asks
the terminal for the pass phrase of a key, where a service would wait for ever. So each file is tried
by itself first.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NoReturn

from recado.node.config import ConfigError


def check_tls_files(certificate: str, key: str, ca: str | None) -> None:
    """Raise for the first file that cannot be used."""
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
        raise ConfigError(f"{setting} {file!r} has no good certificate in PEM form") from error


def check_key(certificate: str, key: str) -> None:
    """The certificate is known to be good."""

    def refuse_pass_phrase() -> NoReturn:
        raise ConfigError(
            f"server.key {key!r} has a pass phrase, which nobody would be there to type; "
            "`openssl pkey -in … -out …` takes it away"
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, refuse_pass_phrase)
    except ssl.SSLError as error:
        if error.reason is None:  # it could not even be read
            raise ConfigError(f"server.key {key!r} has no good private key in PEM form") from error
        raise ConfigError(
            f"server.certificate and server.key do not fit: {error.reason}"
        ) from error
