"""The TLS certificate: whether it can be read, matches its key, and for how long it is valid."""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Final

from recado.node.config import ConfigError
from recado.node.settings import ServerSettings, Settings

from .diagnosis import Finding, Severity

CHECK: Final = "certificate"
EXPIRY_WARNING_DAYS: Final = 14
RENEW_FIXES: Final = (
    "certbot renew   # or as your authority issues it; a running broker loads the new file by itself",
)


def inspect_certificates(settings: Settings) -> Iterator[Finding]:
    """Check the files of the TLS listeners, if there are such listeners."""
    server = settings.server
    certificate, key = server.certificate, server.key
    if not settings.uses_tls or certificate is None or key is None:
        yield Finding(CHECK, Severity.OK, "TLS is off (server.tls_port, management.tls)")
        return
    # Imported here because it takes as long as all other checks to import OpenSSL.
    from recado.node.tls import check_tls_files

    try:
        check_tls_files(certificate, key, server.ca)
    except ConfigError as error:
        yield describe_unusable(str(error), certificate, key)
        return
    now = datetime.now(UTC)
    for setting, file in list_files(server):
        yield check_expiry(setting, file, read_dates(file), now)
    yield check_key_mode(key, Path(key).stat().st_mode)


def list_files(server: ServerSettings) -> Iterator[tuple[str, str]]:
    """Return setting and path of each file with certificates."""
    if server.certificate is not None:
        yield "server.certificate", server.certificate
    if server.ca is not None:
        yield "server.ca", server.ca


def read_dates(file: str) -> list[datetime]:
    """Return until when each certificate of a file is valid; none if that cannot be read."""
    from recado.node.x509 import read_expiry_dates

    try:
        return read_expiry_dates(Path(file).read_bytes())
    except (OSError, ValueError):
        return []


def describe_unusable(problem: str, certificate: str, key: str) -> Finding:
    fixes = (
        f"openssl x509 -noout -subject -dates -pubkey -in {quote(certificate)}",
        f"openssl pkey -pubout -in {quote(key)}   # the public key must be the one of the certificate",
    )
    return Finding(CHECK, Severity.ERROR, problem, "the broker does not start with TLS", fixes)


def check_expiry(setting: str, file: str, dates: Sequence[datetime], now: datetime) -> Finding:
    """Compare the first expiry date of a file with the time."""
    if not dates:
        found = f"{setting} {file}: its expiry date cannot be read"
        return Finding(CHECK, Severity.ERROR, found, "the broker does not start with TLS")
    first = min(dates)
    days = (first - now) / timedelta(days=1)
    if first <= now:
        found = f"{setting} {file} expired on {first:%Y-%m-%d}"
        reason = "clients refuse to connect with TLS"
        return Finding(CHECK, Severity.ERROR, found, reason, RENEW_FIXES)
    found = f"{setting} {file} is valid for {math.floor(days):,} days, until {first:%Y-%m-%d}"
    if days < EXPIRY_WARNING_DAYS:
        reason = "clients will refuse to connect with TLS"
        return Finding(CHECK, Severity.WARNING, found, reason, RENEW_FIXES)
    return Finding(CHECK, Severity.OK, found)


def check_key_mode(key: str, mode: int) -> Finding:
    """Check that only the owner and the group of the file can read and change the private key."""
    if not mode & (stat.S_IROTH | stat.S_IWOTH):
        found = f"server.key {key} matches, only its owner and its group can read it"
        return Finding(CHECK, Severity.OK, found)
    found = f"server.key {key} can be read or changed by every user of this machine"
    reason = "a private key that leaks lets an attacker act as this server"
    return Finding(CHECK, Severity.WARNING, found, reason, (f"chmod o-rw {quote(key)}",))
